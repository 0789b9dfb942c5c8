// Random encoders, frozen layers and adapters of a small model.
#pragma once

#include "tests/support/dice.h"

#include <string>
#include <vector>

namespace pw {

inline constexpr const char* kTinyModel =
    R"({"model_type": "llama", "hidden_size": 1024, "num_hidden_layers": 4, "num_attention_heads": 8,
        "num_key_value_heads": 8, "intermediate_size": 4096, "vocab_size": 32000, "max_position_embeddings": 4096})";

// Returns keys of the workload of this model, each after a comma.
inline std::string random_trained_parts(Random& random, bool may_have_encoder) {
    const auto one_of = [&](const std::vector<const char*>& all) {
        return std::string(all[static_cast<std::size_t>(pick(random, 0, static_cast<int>(all.size()) - 1))]);
    };
    if (!may_have_encoder || pick(random, 0, 2) == 0)
        return one_of({", frozen: [embedding, block.0-1]", ", frozen: [block.0-2]",
                       ", frozen: [embedding, block.0-2, head]", ", frozen: [block.3]", ", lora: {rank: 8}",
                       ", lora: {rank: 16}, frozen: [block.1-2]", ", frozen: [embedding, block]"});
    return one_of(
               {", encoder: {images: 2, tokens: 256, hidden: 512, layers: 2, heads: 8, inner: 2048, inputs: 588}",
                ", encoder: {images: 4, tokens: 256, hidden: 1024, layers: 3, heads: 8, inner: 4096, inputs: 588}"}) +
           one_of({"", ", frozen: [encoder]", ", frozen: [encoder, block]", ", frozen: [encoder.0]",
                   ", frozen: [encoder, embedding, block, head]", ", frozen: [encoder, projector, block.0-1]",
                   ", lora: {rank: 8}", ", frozen: [encoder, projector, embedding, block.0]"});
}

}  // namespace pw
