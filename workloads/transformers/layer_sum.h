// What the parts of a layer add up to, for the sources of TransformerLayers.
#pragma once

#include "workloads/transformers/layer_costs.h"

namespace pw {

inline constexpr double kValue = 2, kFloat = 4;  // bytes of an activation, of a number in fp32
// By how much a kernel takes longer than its bytes do: a copy of 4 MB on an H100 takes 3.6 us, and 1.4 us at the rate
// of large copies (results/h100).
inline constexpr double kKernelEnds = 2.2e-6;

inline double per_rank(double count, int ranks) { return count / ranks; }

// The parts of a layer's passes.
struct TransformerLayers::Sum {
    double sequences = 1;
    double rows = 0;     // tokens of a device
    double divided = 0;  // tokens outside of products: divided by the tensor ranks with sequence parallelism
    LinearSeconds products;
    double forward = 0, backward = 0;  // other kernels
    double attention = 0;              // of them, forward and backward
    double exposed_forward = 0, exposed_backward = 0;
    PassParts messages;  // these by kind
    double kernels = 0;  // of a forward
    double scratch = 0;
    double saved = 0, recomputed_saved = 0;
    double keys_and_values = 0;  // bytes, part of `saved`
    double recomputed = 0;       // seconds that recomputation repeats, unless it is full
    LayerParameters parameters, frozen;
    bool goes_back = true;  // whether the layer has a backward

    // Adds by how much messages of a kind make the passes longer.
    void expose(double PassParts::*kind, double in_forward, double in_backward) {
        exposed_forward += in_forward;
        exposed_backward += in_backward;
        messages.*kind += in_forward + in_backward;
    }
};

}  // namespace pw
