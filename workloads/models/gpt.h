// A decoder of the GPT-2 family.
#pragma once

#include "workloads/models/layer_graph.h"

namespace pw {

struct GptShape {
    int sequence_length = 64, vocabulary = 256;
    int width = 128;  // width of a token's vector
    int blocks = 4, heads = 4;
    double dropout = 0;  // after the embedding and before every residual sum, 0: no such layers
};

// Builds a decoder with normalisation before attention and before the two linear layers of a block, as in GPT-2. The
// last layer shares the embedding's table. Layers carry the names of Hugging Face's GPT-2, linear layers PyTorch's
// layouts. Throws Error (BadInput) for extents below 1 and heads that do not divide the width.
Model build_gpt(const GptShape& shape, LayerKind loss = LayerKind::CrossEntropy);

}  // namespace pw
