// An encoder before the decoder of a multimodal transformer: what makes its tokens, blocks, and the projector to the
// decoder's width.
#pragma once

#include "workloads/models/transformer.h"

#include <cstdint>
#include <optional>
#include <string>

namespace pw {

struct Encoder {
    Transformer blocks = {.causal = false};  // without a vocabulary
    int images = 1;                          // of each sequence of the decoder, or clips of sound
    int tokens = 0;                          // of an image
    int unread = 0;                          // further tokens of an image, which the decoder does not read
    int merged = 1;                          // tokens that become one token of the decoder
    bool pools = false;                      // by their mean, else side by side
    int inputs = 0;                          // numbers of a patch, which a matrix turns into a token
    int projector = 0;                       // width between two matrices of the projector, 0: a single matrix
    // Parameters outside matrices: norms, biases and positions, of the patches with what follows the blocks, and of the
    // projector.
    std::int64_t other = 0, other_of_projector = 0;
    bool operator==(const Encoder&) const = default;

    int all_tokens() const { return tokens + unread; }
    int tokens_of_decoder() const { return images * (tokens / merged); }
    int projected() const { return blocks.hidden * (pools ? 1 : merged); }  // numbers of the projector's input
    std::int64_t weights_of_patches() const { return std::int64_t{inputs} * blocks.hidden; }
    // Returns the weights of the projector's matrices. `hidden` is the decoder's.
    std::int64_t weights_of_projector(int hidden) const {
        return projector > 0 ? std::int64_t{projector} * (projected() + hidden) : std::int64_t{projected()} * hidden;
    }
};

// Returns the parameters of patches and blocks.
std::int64_t parameters_of(const Encoder& encoder);

// Reads the encoder of a config.json before its decoder (docs/transformers.md). Nothing if the file has none whose keys
// are known. Encoder::tokens is 0 if the file does not say the size of images.
// Throws Error (BadInput) with every mistake of the file and its line.
std::optional<Encoder> read_encoder_config(const std::string& path, const Transformer& decoder);

}  // namespace pw
