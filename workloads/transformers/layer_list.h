// The layers of a transformer in order, and the passes that each has.
#pragma once

#include "workloads/models/layer_part.h"
#include "workloads/transformers/parallel.h"

#include <string>
#include <string_view>
#include <vector>

namespace pw {

// What a layer computes in a backward. workloads/models/frozen_layers.h has the rules.
struct LayerPasses {
    bool trained = true;    // gradients of all parameters
    bool adapters = false;  // of adapters alone
    bool goes_back = true;  // gradients of inputs: the layer, or a layer before it, is trained
    auto operator<=>(const LayerPasses&) const = default;
};

struct ListedLayer {
    enum class Kind { Patches, EncoderBlock, Projector, Embedding, Block, Mtp, Norm, Head } kind;
    int number = 0;  // among the layers of its kind
    std::string_view word = {};
    bool is_numbered = false;  // the name is the word and the number
    LayerPart part = LayerPart::Block;
    LayerPasses passes = {};

    std::string name() const;
    bool is_block() const { return kind == Kind::EncoderBlock || kind == Kind::Block; }
};

// Returns `encoder.patches`, `encoder.0`, .., `projector`, if there is an encoder, then `embedding`, `block.0`, ..,
// `mtp.0`, .., `head`. With TransformerJob::parts: `embedding.0`, .., blocks, `norm`, `head.0`, .. .
std::vector<ListedLayer> listed_layers(const TransformerJob& job);

// Returns the encoder of a job as a model of its own, whose sequences are images. The job has an encoder.
TransformerJob encoder_job(const TransformerJob& job);

}  // namespace pw
