// A model in training on a cluster: degrees of parallelism, what is recomputed, and where the state is.
#pragma once

#include "workloads/cluster/collectives.h"
#include "workloads/cluster/device_kinds.h"
#include "workloads/costs/calibration.h"
#include "workloads/costs/products.h"
#include "workloads/models/encoder.h"
#include "workloads/models/kept_bytes.h"
#include "workloads/models/lora.h"
#include "workloads/models/optimizer.h"
#include "workloads/models/precision.h"
#include "workloads/models/transformer.h"
#include "workloads/transformers/framework.h"
#include "workloads/transformers/recomputed_modules.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace pw {

// Degrees. Ranks are numbered with tensor innermost, then context, data and pipeline, as Megatron-LM does. Experts are
// divided among the ranks of tensor x context x data of a stage, with expert_tensor innermost, then expert, then the
// replicas of experts (megatron/core/parallel_state.py).
// Ranks that have the same parameters: ranks with the same part of a layer, and ranks with the same experts.
struct ParameterRanks {
    RankGroup dense, experts;
};

// How uneven the loads of experts are, as a draw (expected_load()).
struct ExpertDraw {
    double skew = 0;  // the k-th most popular expert of a layer is chosen in proportion to k^-skew
    int seed = 0;
    bool operator==(const ExpertDraw&) const = default;
};

struct Parallel {
    int tensor = 1, pipeline = 1, context = 1, expert = 1, data = 1;
    int expert_tensor = 1;  // ranks that divide the width of each expert
    bool sequence = false;  // norms and residual sums are divided among the tensor ranks (arXiv 2205.05198)
    // What is divided among the replicas (ZeRO, arXiv 1910.02054): 1 the optimizer's states, 2 gradients in addition, 3
    // weights in addition, which are gathered for each pass.
    int zero = 0;
    int zero_group = 0;  // replicas that divide the state (`zero`), 0: all
    ModuleSet recompute = {};
    RecomputedBlocks recomputed = {};  // for which `recompute` holds
    double expert_load = 1;  // tokens of the expert rank with the most tokens, relative to the mean of the ranks
    std::optional<ExpertDraw> expert_draw = {};  // what `expert_load` was drawn from
    std::optional<Release> release = {};         // absent: kUsualRelease
    CudaGraphs cuda_graphs = CudaGraphs::None;
    // Whether messages travel while passes compute, as the release has it. False: none does. Searches ask what their
    // best plan takes then.
    bool hides_messages = true;
    std::optional<AttentionKernels> attention = {};          // absent: the release's
    std::optional<Overlap> overlap = {};                     // the same
    std::optional<bool> fuses_norms = {};                    // the same
    std::optional<ExpertKernels> expert_kernels = {};        // the same
    std::optional<ExpertDispatcher> expert_dispatcher = {};  // the same

    bool operator==(const Parallel&) const = default;
    int devices() const { return tensor * context * data * pipeline; }
    int holders() const { return tensor * context * data; }      // devices of a stage
    int replicas() const { return context * data; }              // devices with the same weights, except experts
    int expert_ranks() const { return expert * expert_tensor; }  // ranks with all experts of a layer
    int expert_replicas() const { return std::max(1, holders() / expert_ranks()); }
    int sharers() const { return zero_group > 0 ? zero_group : replicas(); }
    int expert_sharers() const { return std::max(1, sharers() * tensor / expert_ranks()); }
    ParameterRanks all_replicas() const { return {{replicas(), tensor}, {expert_replicas(), expert_ranks()}}; }
    // The ranks that share one ZeRO group. `ranks_of_groups()` returns one rank of every group.
    ParameterRanks sharing_ranks() const { return {{sharers(), tensor}, {expert_sharers(), expert_ranks()}}; }
    ParameterRanks ranks_of_groups() const {
        return {{replicas() / sharers(), tensor * sharers()},
                {std::max(1, expert_replicas() / expert_sharers()), expert_ranks() * expert_sharers()}};
    }
    // The load of the fullest expert rank, which has all tokens at most.
    double fullest_expert() const { return std::min<double>(expert_load, expert); }
    // The number of pieces in which products are computed while messages of tensor parallelism are under way.
    int pieces() const { return sequence && program().overlap.tensor ? tensor : 1; }

    Release trained_by() const { return release.value_or(kUsualRelease); }
    // Returns the facts of the release, with the given values instead of the release's.
    ReleaseFacts program() const {
        ReleaseFacts facts = facts_of(trained_by());
        facts.attention = attention.value_or(facts.attention);
        facts.overlap = hides_messages ? overlap.value_or(facts.overlap) : Overlap{};
        facts.fuses_norms = fuses_norms.value_or(facts.fuses_norms);
        facts.experts = expert_kernels.value_or(facts.experts);
        facts.dispatcher = expert_dispatcher.value_or(facts.dispatcher);
        if (zero >= 2 && facts.divided_gradient > 0)
            facts.gradient = facts.divided_gradient;
        return facts;
    }
};

struct TransformerJob {
    Transformer model;
    int tokens = 0;  // of a sequence
    Parallel parallel;
    // Into how many parts embedding and head are divided, a part for each device of the pipeline.
    int parts = 1;
    double corrected = 0;  // of a part of the head: bytes per logit that its backward moves more than a whole head's
    std::vector<int> stage_of = {};        // by layer, if `parallel.recomputed` depends on places. Empty: not known
    std::optional<Lora> lora = {};         // absent: all layers are trained that are not `frozen`
    std::vector<std::string> frozen = {};  // layers that are not trained (workload.frozen)
    std::optional<Encoder> encoder = {};   // before `model`
    Precision precision = Precision::Bf16;
    OptimizerKind optimizer = OptimizerKind::Sgd;
    KeptTypes types = {};
    DeviceKindFacts device;
    double flops = 0;  // of products without a table
    std::shared_ptr<const ProductRates> products;
    std::shared_ptr<const ProductRates> head_products;  // of products that stay in bf16 in low precision
    double head_flops = 0;                              // of these without a table, 0: flops
    Fabric fabric;                                      // whose links are calibrated
    Calibration calibration = {};

    // Returns the bytes of what is kept of each parameter.
    KeptBytes kept(ParameterForm form = ParameterForm::BlockMatrix) const {
        return kept_bytes(types, precision, optimizer, parallel.program().gradient, form);
    }
};

}  // namespace pw
