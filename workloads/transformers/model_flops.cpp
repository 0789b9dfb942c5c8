// FLOPs of a transformer, by its shapes alone.
#include "workloads/transformers/transformer_model.h"

#include <algorithm>

namespace pw {

namespace {

// FLOPs of a layer's forward for one token.
struct ForwardFlops {
    double products = 0, attention = 0;  // attention: pairs of queries and keys, and scans
};

ForwardFlops flops_of_block(const Transformer& model, const LayerForm& form, int tokens) {
    ForwardFlops flops{2.0 * static_cast<double>(active_parameters_of(model, form))};
    if (form.mixer == Mixer::Mamba)
        flops.attention = model.mamba->scan_flops();
    if (!form.has_attention())
        return flops;
    const double widths = model.latent
                              ? model.latent->plain_width + model.latent->rotary_width + model.latent->value_width
                              : 2.0 * model.head_width;
    const double reach = form.mixer == Mixer::Window ? std::min(model.window, tokens) : tokens;
    flops.attention = 2 * model.pairs(tokens, reach) / tokens * model.heads * widths;
    return flops;
}

// The table of tokens is looked up, and the head multiplies with a matrix of its size, once more for each module that
// predicts a further token. Norms count as matrices of one column.
ForwardFlops flops_of(const ListedLayer& layer, const TransformerJob& job) {
    const Transformer& model = job.model;
    const double hidden = model.hidden, norm = model.norm == NormKind::LayerNorm ? 2 : 1;
    switch (layer.kind) {
        case ListedLayer::Kind::Patches:
            return {2.0 * static_cast<double>(job.encoder->weights_of_patches())};
        case ListedLayer::Kind::EncoderBlock:
            return flops_of_block(job.encoder->blocks, job.encoder->blocks.form(layer.number),
                                  job.encoder->all_tokens());
        case ListedLayer::Kind::Projector:
            return {2.0 * static_cast<double>(job.encoder->weights_of_projector(model.hidden))};
        case ListedLayer::Kind::Block:
            return flops_of_block(model, model.form(layer.number), job.tokens);
        case ListedLayer::Kind::Mtp: {
            ForwardFlops flops = flops_of_block(model, model.form_of_mtp(), job.tokens);
            flops.products += 2 * (3 * norm * hidden + 2 * hidden * hidden);
            return flops;
        }
        case ListedLayer::Kind::Head:
            return {2 * ((1.0 + model.mtp) * model.vocabulary * hidden + norm * hidden)};
        default:
            return {};
    }
}

double tokens_of(const ListedLayer& layer, const TransformerJob& job) {
    switch (layer.kind) {
        case ListedLayer::Kind::Patches:
        case ListedLayer::Kind::EncoderBlock:
            return static_cast<double>(job.encoder->images) * job.encoder->all_tokens();
        case ListedLayer::Kind::Projector:
            return job.encoder->tokens_of_decoder();
        default:
            return job.tokens;
    }
}

}  // namespace

double model_flops_per_sequence(const TransformerJob& job, bool trains) {
    TransformerJob whole = job;
    whole.parts = 1;
    double sum = 0;
    for (const ListedLayer& layer : listed_layers(whole)) {
        const ForwardFlops flops = flops_of(layer, whole);
        const bool goes_back = trains && layer.passes.goes_back, has_weights = trains && layer.passes.trained;
        const int products =
            1 + (goes_back && layer.kind != ListedLayer::Kind::Patches ? 1 : 0) + (has_weights ? 1 : 0);
        sum += tokens_of(layer, whole) * (products * flops.products + (goes_back ? 3 : 1) * flops.attention);
    }
    return sum;
}

double model_flops_per_token(const Transformer& model, int tokens) {
    TransformerJob job;
    job.model = model;
    job.tokens = tokens;
    return model_flops_per_sequence(job) / tokens;
}

}  // namespace pw
