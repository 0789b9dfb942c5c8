#include "workloads/transformers/layer_list.h"

#include "workloads/models/recomputed_layers.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

namespace pw {

namespace {

using Kind = ListedLayer::Kind;

void add_layers(std::vector<ListedLayer>& to, Kind kind, std::string_view name, LayerPart part, int count,
                bool numbered) {
    for (int number = 0; number < count; ++number)
        to.push_back({kind, number, name, numbered, part});
}

// Adapters train the blocks of the decoder, and nothing else is trained with them.
void set_passes(std::vector<ListedLayer>& layers, const TransformerJob& job) {
    bool follows = false;
    for (ListedLayer& layer : layers) {
        LayerPasses& passes = layer.passes;
        const bool frozen =
            std::ranges::any_of(job.frozen, [&](const std::string& pattern) { return matches(layer.name(), pattern); });
        passes.trained = !job.lora && !frozen;
        passes.adapters = job.lora && !frozen && (layer.kind == Kind::Block || layer.kind == Kind::Mtp);
        follows = passes.goes_back = follows || passes.trained || passes.adapters;
    }
}

}  // namespace

std::string ListedLayer::name() const { return is_numbered ? fmt::format("{}.{}", word, number) : std::string(word); }

std::vector<ListedLayer> listed_layers(const TransformerJob& job) {
    const bool divided = job.parts > 1;
    std::vector<ListedLayer> layers;
    if (job.encoder) {
        add_layers(layers, Kind::Patches, "encoder.patches", LayerPart::Embedding, 1, false);
        add_layers(layers, Kind::EncoderBlock, "encoder", LayerPart::Block, job.encoder->blocks.layers, true);
        add_layers(layers, Kind::Projector, "projector", LayerPart::Joint, 1, false);
    }
    add_layers(layers, Kind::Embedding, "embedding", job.encoder ? LayerPart::Joint : LayerPart::Embedding, job.parts,
               divided);
    add_layers(layers, Kind::Block, "block", LayerPart::Block, job.model.layers, true);
    add_layers(layers, Kind::Mtp, "mtp", LayerPart::Mtp, job.model.mtp, true);
    add_layers(layers, Kind::Norm, "norm", LayerPart::Head, divided ? 1 : 0, false);
    add_layers(layers, Kind::Head, "head", LayerPart::Head, job.parts, divided);
    set_passes(layers, job);
    return layers;
}

TransformerJob encoder_job(const TransformerJob& job) {
    TransformerJob own = job;
    own.model = job.encoder->blocks;
    own.tokens = job.encoder->all_tokens();
    own.encoder.reset();
    own.lora.reset();
    return own;
}

}  // namespace pw
