// A decoder of the LLaMA family.
#pragma once

#include "workloads/models/layer_graph.h"

namespace pw {

struct LlamaShape {
    int sequence_length = 64, vocabulary = 256;
    int width = 128;  // width of a token's vector
    int blocks = 4, heads = 4;
    int key_value_heads = 0;  // heads / key_value_heads heads read each, 0: as many as heads
    int inner = 0;            // width between the linear layers of a block, 0: usual_inner_width(width)
    double rotary_base = 10'000;
};

// Returns two thirds of four widths, rounded up to a multiple of 256, or of 8 below 1024: the rule of LLaMA's code
// (arXiv 2302.13971; facebookresearch/llama, model.py), whose models are all wider.
int usual_inner_width(int width);

// Builds a decoder with RMS norm before attention and before the gated linear layers of a block, rotary positions, no
// biases and a last layer with a table of its own. Layers carry the names of Hugging Face's LlamaForCausalLM, linear
// layers PyTorch's layouts. Rotary positions turn pairs made of the two halves of a head, as in LlamaForCausalLM.
// Throws Error (BadInput) for extents below 1, heads that do not divide the width or have an odd width, and heads of
// keys that do not divide the heads of queries.
Model build_llama(const LlamaShape& shape, LayerKind loss = LayerKind::CrossEntropy);

}  // namespace pw
