// Seconds and bytes of the layers of a transformer on a device of a group, with the messages of the group.
#pragma once

#include "workloads/transformers/kernel_times.h"
#include "workloads/transformers/layer_list.h"
#include "workloads/transformers/pass_parts.h"

#include <vector>

namespace pw {

// The parameters of a layer that a device has.
struct LayerParameters {
    double dense = 0;    // the same on all replicas
    double experts = 0;  // the same on replicas / experts
    double other = 0;    // of the dense parameters, all but matrices of blocks (ParameterForm::Other)

    void add_other(double count) { dense += count, other += count; }
};

// Returns the seconds of a collective among ranks that have the same parameters, with `bytes_per_number` for each.
double collective_seconds(Collective kind, double bytes_per_number, const LayerParameters& parameters,
                          const ParameterRanks& ranks, const Fabric& fabric);

// The seconds of a pass that a pair of passes can order anew: its messages to experts and back, and what its routed
// experts compute between these messages. The rest comes before them in a forward and after them in a backward.
struct ExpertSeconds {
    double messages = 0, computing = 0;
};

struct TransformerLayerCost {
    double forward = 0, backward_input = 0, backward_weight = 0;  // seconds
    double saved = 0;            // bytes from the forward to the backward, in addition to the layer's input
    bool saves_output = true;    // false: the next layer is of the same group, which is recomputed as a whole
    double scratch = 0;          // bytes during a pass
    PassParts parts;             // of forward and backward
    LayerParameters parameters;  // trained
    LayerParameters frozen = {};
    double gathered = 0;         // bytes of the layer's weights that ZeRO-3 gathers
    double keys_and_values = 0;  // bytes in `saved` that later slices of the sequences read
    ExpertSeconds expert_forward = {}, expert_backward = {};  // of the passes, without what a backward repeats
    double made = 0;                                          // bytes of the layer's output
    bool is_block = false;                                    // or a module of a further token
};

// For a micro-batch of `sequences` sequences, or for a slice of each sequence.
class TransformerLayers {
public:
    explicit TransformerLayers(const TransformerJob& job)
        : TransformerLayers(job, {0, static_cast<double>(job.tokens)}) {}
    TransformerLayers(const TransformerJob& job, TokenRange range) : job_(job), range_(range), kernels_(job) {}

    // Returns the costs of all layers in the order of listed_layers().
    std::vector<TransformerLayerCost> all(int sequences) const;
    double output_bytes(int sequences) const;  // of the tensor between two blocks

private:
    using Passes = LayerPasses;
    TransformerLayerCost patches(int sequences, const Passes& passes) const;
    TransformerLayerCost encoder_block(const LayerForm& form, int sequences, double share, const Passes& passes) const;
    TransformerLayerCost projector(int sequences, const Passes& passes) const;
    TransformerLayerCost embedding(int sequences, const Passes& passes) const;
    TransformerLayerCost block(const LayerForm& form, int sequences, double share, const Passes& passes) const;
    // A module that predicts a further token, without its head.
    TransformerLayerCost mtp(int sequences, const Passes& passes) const;
    // Final norm (unless divided), product with the vocabulary, loss.
    TransformerLayerCost head(int sequences, const Passes& own) const;
    TransformerLayerCost final_norm(int sequences, const Passes& passes) const;
    TransformerLayerCost cost_of(const ListedLayer& layer, int sequences, double share) const;
    double output_of(const ListedLayer& layer, int sequences) const;
    double encoder_bytes(int sequences) const;  // of the tensor between two blocks of the encoder
    std::vector<int> places_in_stages(const std::vector<ListedLayer>& layers) const;
    void join_groups(std::vector<TransformerLayerCost>& costs, const std::vector<int>& places) const;

    struct Sum;
    using AddPart = void (TransformerLayers::*)(Sum& sum) const;
    static AddPart adder_of(Mixer mixer);
    static AddPart adder_of(Feed feed);
    // What a tensor rank has: heads, values of a query and of a value, values per token of all keys and values.
    struct AttentionShape {
        double heads, key_width, value_width, keys_and_values = 0;
    };
    Sum sum_of(int sequences, const Passes& passes, double share = 0) const;  // `share` of the layer recomputes
    void add_parts(Sum& sum, const LayerForm& form) const;
    void add_full_attention(Sum& sum) const { add_attention(sum, 0); }
    void add_windowed_attention(Sum& sum) const { add_attention(sum, job_.model.window); }
    AttentionShape add_attention_inputs(Sum& sum) const;
    void add_attention(Sum& sum, int window) const;
    void add_mamba(Sum& sum) const;
    void add_mlp(Sum& sum) const;
    void add_experts(Sum& sum) const;
    void add_latent_products(Sum& sum, double tokens) const;
    void add_dense(Sum& sum, double width, ModuleSet modules) const;
    void add_activation(Sum& sum, double values, ModuleSet modules, double tensors = 1) const;
    void add_norms(Sum& sum, const LayerForm& form) const;
    void add_tensor_messages(Sum& sum, double parts, const LinearSeconds& products) const;
    void add_lookup(Sum& sum) const;
    void freeze(Sum& sum) const;
    bool keeps_input_of(const Sum& sum, LoraTarget target) const;
    double launched(const Sum& sum) const;
    TransformerLayerCost finished(const Sum& sum) const;
    double exposed(double messages, double computing) const;
    double vocabulary_part() const;
    double table_of_rank() const;    // numbers of a rank's part of the embedding's table
    double norm_parameters() const;  // of a norm
    double parts_with_experts(int parts) const;
    SentBytes sent_once(double bytes) const;
    double expert_messages(double tokens) const;

    double rows_of(int sequences) const;  // tokens of a device

    const TransformerJob& job_;
    TokenRange range_;
    KernelTimes kernels_;
};

}  // namespace pw
