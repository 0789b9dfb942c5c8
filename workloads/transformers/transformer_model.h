// A transformer in training as a chain of layers with times and sizes, for one replica: a device of the plan is a group
// of tensor x context ranks, and all replicas do the same at the same time.
#pragma once

#include "workloads/costs/profiled_model.h"
#include "workloads/costs/slices.h"
#include "workloads/transformers/layer_costs.h"

#include <map>
#include <utility>
#include <vector>

namespace pw {

// The layers of listed_layers() for micro-batches of `samples` sequences. Each reads the layer before it, with
// TransformerJob::parts `block.0` reads all parts of the embedding, and all parts of the head read `norm`. `head` has
// the losses. Throws Error (BadInput) if no layer is trained.
ProfiledModel transformer_model(const TransformerJob& job, int samples);

// Returns the seconds in which the devices that divide the head sum the maximum and the sum of each token's logits, in
// fp32.
double joined_seconds(const TransformerJob& job, int samples);

// Returns the products that a device computes for a micro-batch, each once.
std::vector<Product> products_of(TransformerJob job, int samples);

// Adds to the costs of a split what the replicas add: the state of the training by the stage of ZeRO, sums of gradients
// and gathers of weights as far as no pass hides them, and the update. `jobs` are by make of the costs. A device of the
// plan stands for devices of several jobs, and the slowest device counts.
void add_replicas(Costs& costs, const std::vector<std::vector<TransformerJob>>& jobs, const StageSplit& split,
                  int samples);

// Returns the part of the passes of all layers that is causal attention.
double attention_part(const TransformerJob& job, int samples);

// Sets Costs::slices and the bytes that slices need: a slice takes the times of its layers' kernels and messages, whose
// attention reads the keys and values of earlier slices. Every slice keeps its keys and values until its backward, and
// also the gradients that later slices add to. `jobs` are by make of the costs, and `make_of_stage` has the make of
// each stage's devices. If it is empty, a slice takes the least part of a stage that it takes on any make.
void cut_in_slices(Costs& costs, const std::vector<std::vector<TransformerJob>>& jobs,
                   const std::vector<int>& make_of_stage, const StageSplit& split, int samples, const SliceEnds& ends);

// The seconds of a stage: the passes of one micro-batch, and the end of a step as far as no pass hides it.
struct StageParts {
    PassParts passes;
    double sums = 0, update = 0, gathers = 0;  // of gradients, of the optimizer, of weights
};
// Returns what add_replicas() and the layers' costs count, by stage. `passes` are the times of the stages' passes.
// `ends` are the ends of the slices of a micro-batch.
std::vector<StageParts> stage_parts(const TransformerJob& job, const StageSplit& split,
                                    const std::vector<StageCost>& passes, int samples, const SliceEnds& ends = {1});

// Returns the cluster in which the plan's devices, a device for each stage of the pipeline, send their messages.
ClusterFacts pipeline_cluster(const TransformerJob& job);
// The same where ranks differ in their links, or stages in their numbers of ranks. As many messages travel between two
// stages as the smaller stage has ranks. The slowest message counts.
struct RankLinks {
    std::vector<int> host, fabric;  // by rank, the fabric by number
    std::vector<Fabric> fabrics;
    std::vector<int> first_rank;                         // of each stage, and the number of all ranks
    std::map<std::pair<int, int>, Link> own_links = {};  // instead of the links of hosts
    std::vector<Capacity> shared = {};                   // by messages between these ranks
};
ClusterFacts pipeline_cluster(const RankLinks& links);

// FLOPs of the model and its encoder for one sequence, forward and backward unless `trains` is false, by the products
// of matrices, the pairs of attention (half of all where it is causal), and Mamba::scan_flops(). Recomputation does not
// count, nor do adapters and gradients that frozen layers leave out.
double model_flops_per_sequence(const TransformerJob& job, bool trains = true);
// The same for a token of a model that is trained as a whole.
double model_flops_per_token(const Transformer& model, int tokens);

}  // namespace pw
