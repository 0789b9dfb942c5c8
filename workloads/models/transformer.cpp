#include "workloads/models/transformer.h"

#include <numeric>

namespace pw {
namespace {

std::int64_t weights_of_matrix(std::int64_t inputs, std::int64_t outputs, bool bias) {
    return inputs * outputs + (bias ? outputs : 0);
}

std::int64_t weights_of_norm(const Transformer& model) {
    return std::int64_t{model.hidden} * (model.norm == NormKind::LayerNorm ? 2 : 1);
}

// Returns the weights of an MLP of this width whose inputs and outputs have `outside` numbers.
std::int64_t weights_of_mlp(const Transformer& model, std::int64_t outside, std::int64_t width) {
    return (model.gated ? 2 : 1) * weights_of_matrix(outside, width, model.bias) +
           weights_of_matrix(width, outside, model.bias);
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
           2 * weights_of_matrix(model.hidden, model.key_value_heads * width, bias) -
           (bias && model.bare_keys ? model.key_value_heads * width : 0) +
           weights_of_matrix(model.heads * width, model.hidden, model.bias) + (model.normed_heads ? 2 * width : 0);
}

// The product into heads, gates, groups and steps, the convolution, the gated norm, the product out of the heads, and
// for each head its decay, its skip and the bias of its step.
std::int64_t weights_of_mamba(const Transformer& model) {
    const Mamba& mamba = *model.mamba;
    const std::int64_t inner = mamba.inner(), convolved = inner + 2 * mamba.shared();
    return weights_of_matrix(model.hidden, inner + convolved + mamba.heads, model.bias) +
           convolved * (mamba.kernel + 1) + inner + weights_of_matrix(inner, model.hidden, model.bias) +
           3 * std::int64_t{mamba.heads};
}

// Parameters that tokens pass, of all tokens and of a single one.
struct Counted {
    std::int64_t total = 0, active = 0;
    void operator+=(const Counted& other) {
        total += other.total;
        active += other.active;
    }
};

Counted weights_of_mixer(const Transformer& model, Mixer mixer) {
    const std::int64_t weights = mixer == Mixer::None    ? 0
                                 : mixer == Mixer::Mamba ? weights_of_mamba(model)
                                                         : weights_of_attention(model);
    return {weights, weights};
}

Counted weights_of_feed(const Transformer& model, Feed feed, const TransformerParameters& parameters) {
    if (feed == Feed::None)
        return {};
    if (feed == Feed::Mlp)
        return {parameters.dense, parameters.dense};
    const Experts& experts = *model.experts;
    return {parameters.shared + parameters.routed,
            parameters.shared + parameters.routed / experts.count * experts.active};
}

Counted weights_of_layer(const Transformer& model, const LayerForm& form, const TransformerParameters& parameters) {
    const std::int64_t norms = form.parts() * (model.post_norms ? 2 : 1) * weights_of_norm(model);
    Counted weights{norms, norms};
    weights += weights_of_mixer(model, form.mixer);
    weights += weights_of_feed(model, form.feed, parameters);
    return weights;
}

}  // namespace

LayerForm Transformer::form(int layer) const {
    if (!forms.empty())
        return forms[static_cast<std::size_t>(layer) % forms.size()];
    return {window > 0 ? Mixer::Window : Mixer::Attention, experts ? Feed::Experts : Feed::Mlp};
}

int Transformer::most_tensor_ranks() const { return std::gcd(heads, mamba ? mamba->heads : heads); }

namespace {

// Without what the layers have together.
TransformerParameters parameters_of_parts(const Transformer& model) {
    TransformerParameters parameters;
    const std::int64_t hidden = model.hidden, table = hidden * model.vocabulary;
    parameters.embedding = table + (model.position == PositionKind::Learned ? hidden * model.positions : 0);
    parameters.head = weights_of_norm(model) + (model.tied ? 0 : table);
    parameters.attention = weights_of_attention(model) + (model.post_norms ? 4 : 2) * weights_of_norm(model);
    parameters.dense = weights_of_mlp(model, hidden, model.ffn);
    parameters.mamba = model.mamba ? weights_of_mamba(model) : 0;
    if (model.experts) {
        const Experts& experts = *model.experts;
        parameters.shared = weights_of_matrix(hidden, experts.count, model.bias) +
                            (experts.shared_width > 0 ? weights_of_mlp(model, hidden, experts.shared_width) : 0) +
                            (experts.latent > 0 ? weights_of_matrix(hidden, experts.latent, model.bias) +
                                                      weights_of_matrix(experts.latent, hidden, model.bias)
                                                : 0);
        parameters.routed = experts.count * weights_of_mlp(model, experts.routed_width(model.hidden), experts.width);
    }
    return parameters;
}

}  // namespace

std::int64_t active_parameters_of(const Transformer& model, const LayerForm& form) {
    return weights_of_layer(model, form, parameters_of_parts(model)).active;
}

TransformerParameters parameters_of(const Transformer& model) {
    TransformerParameters parameters = parameters_of_parts(model);
    const std::int64_t hidden = model.hidden;
    Counted all{parameters.embedding + parameters.head, parameters.embedding + parameters.head};
    for (int layer = 0; layer < model.layers; ++layer)
        all += weights_of_layer(model, model.form(layer), parameters);
    if (model.mtp > 0) {
        const std::int64_t joined = 3 * weights_of_norm(model) + 2 * hidden * hidden;
        Counted module = weights_of_layer(model, model.form_of_mtp(), parameters);
        module += {joined, joined};
        parameters.mtp = module.total;
        for (int count = 0; count < model.mtp; ++count)
            all += module;
    }
    parameters.total = all.total;
    parameters.active = all.active;
    return parameters;
}

}  // namespace pw
