#include "workloads/models/transformer.h"

namespace pw {
namespace {

std::int64_t weights_of_matrix(std::int64_t inputs, std::int64_t outputs, bool bias) {
    return inputs * outputs + (bias ? outputs : 0);
}

std::int64_t weights_of_norm(const Transformer& model) {
    return std::int64_t{model.hidden} * (model.norm == NormKind::LayerNorm ? 2 : 1);
}

std::int64_t weights_of_mlp(const Transformer& model, std::int64_t width) {
    return (model.gated ? 2 : 1) * weights_of_matrix(model.hidden, width, model.bias) +
           weights_of_matrix(width, model.hidden, model.bias);
}

std::int64_t weights_of_latent(const Transformer& model, const LatentAttention& latent) {
    const std::int64_t heads = model.heads, query = heads * (latent.plain_width + latent.rotary_width);
    const std::int64_t queries = latent.query_rank == 0
                                     ? weights_of_matrix(model.hidden, query, model.bias)
                                     : weights_of_matrix(model.hidden, latent.query_rank, model.bias) +
                                           latent.query_rank + weights_of_matrix(latent.query_rank, query, model.bias);
    return queries + weights_of_matrix(model.hidden, latent.key_value_rank + latent.rotary_width, model.bias) +
           latent.key_value_rank +
           weights_of_matrix(latent.key_value_rank, heads * (latent.plain_width + latent.value_width), model.bias) +
           weights_of_matrix(heads * latent.value_width, model.hidden, model.bias);
}

std::int64_t weights_of_attention(const Transformer& model) {
    if (model.latent)
        return weights_of_latent(model, *model.latent);
    const std::int64_t width = model.head_width;
    const bool bias = model.bias || model.attention_bias;
    return weights_of_matrix(model.hidden, model.heads * width, bias) +
           2 * weights_of_matrix(model.hidden, model.key_value_heads * width, bias) +
           weights_of_matrix(model.heads * width, model.hidden, model.bias) + (model.normed_heads ? 2 * width : 0);
}

}  // namespace

bool Transformer::has_experts(int layer) const {
    return experts && layer >= experts->first && (layer - experts->first) % experts->every == 0;
}

bool Transformer::has_window(int layer) const { return window > 0 && layer % window_every == 0; }

TransformerParameters parameters_of(const Transformer& model) {
    TransformerParameters parameters;
    const std::int64_t hidden = model.hidden, table = hidden * model.vocabulary;
    parameters.embedding = table + (model.position == PositionKind::Learned ? hidden * model.positions : 0);
    parameters.head = weights_of_norm(model) + (model.tied ? 0 : table);
    parameters.attention = weights_of_attention(model) + 2 * weights_of_norm(model);
    parameters.dense = weights_of_mlp(model, model.ffn);
    std::int64_t taken = 0;  // of a layer's routed experts, by one token
    if (model.experts) {
        const Experts& experts = *model.experts;
        parameters.shared = weights_of_matrix(hidden, experts.count, model.bias) +
                            (experts.shared_width > 0 ? weights_of_mlp(model, experts.shared_width) : 0);
        parameters.routed = experts.count * weights_of_mlp(model, experts.width);
        taken = experts.active * weights_of_mlp(model, experts.width);
    }
    parameters.total = parameters.active = parameters.embedding + parameters.head;
    for (int layer = 0; layer < model.layers; ++layer) {
        const bool has_experts = model.has_experts(layer);
        parameters.total +=
            parameters.attention + (has_experts ? parameters.shared + parameters.routed : parameters.dense);
        parameters.active += parameters.attention + (has_experts ? parameters.shared + taken : parameters.dense);
    }
    return parameters;
}

}  // namespace pw
