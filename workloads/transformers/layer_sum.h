// What the parts of a layer add up to, for the sources of TransformerLayers.
#pragma once

#include "workloads/transformers/layer_costs.h"

namespace pw {

inline constexpr double kValue = 2, kFloat = 4;  // bytes of an activation, of a number in fp32
// By how much a kernel takes longer than its bytes do: a copy of 4 MB on an H100 takes 3.6 us, and 1.4 us at the rate
// of large copies (results/h100).
inline constexpr double kKernelEnds = 2.2e-6;

// Computing takes this many times as long while messages are under way (PKU-DAIR/Hetu-Galvatron@cea12ff,
// hardware_configs).
inline constexpr double kSlowedByMessages = 1.126;

// Modules that make a part of a block, and repeat the part when they are recomputed.
inline constexpr ModuleSet kOperators = set_of(BlockModule::Operators);
inline constexpr ModuleSet kDenseMlp = set_of(BlockModule::Mlp);
inline constexpr ModuleSet kSharedExperts = set_of(BlockModule::SharedExperts, BlockModule::Experts);

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
    ExpertSeconds expert_forward, expert_backward;
    double kernels = 0;         // of a forward
    double routed_kernels = 0;  // of them, of the products and activations of routed experts
    double scratch = 0;
    double share = 0;  // of the layer that recomputes
    ModuleSet recompute = {};
    double saved = 0, dropped = 0;  // bytes that the backward reads, dropped: of recomputed modules
    double keys_and_values = 0;     // bytes, part of `saved`
    double recomputed = 0;          // seconds that recomputation repeats, unless it is full
    double unread = 0;              // seconds of a forward whose result no backward reads
    int matrices = 0;               // products so far, without routers and routed experts
    ModuleSet output = {};          // kOperators if they make the output of the part that was added last
    LayerParameters parameters, frozen;
    LayerPasses passes = {};

    // Adds bytes that the backward reads, which these modules make.
    void save(double bytes, ModuleSet modules) { (overlap(modules, recompute) ? dropped : saved) += bytes; }
    // Adds seconds of the forward, which recomputation of one of these modules repeats.
    void repeat(double seconds, ModuleSet modules) { recomputed += overlap(modules, recompute) ? seconds : 0; }
    // Returns the modules that make the output of the next product: `modules`, and every second one is of Operators.
    ModuleSet next_product(ModuleSet modules) { return ++matrices % 2 == 0 ? joined(modules, kOperators) : modules; }

    // Adds by how much messages of a kind make the passes longer.
    void expose(double PassParts::*kind, double in_forward, double in_backward) {
        in_backward = passes.goes_back ? in_backward : 0;
        exposed_forward += in_forward;
        exposed_backward += in_backward;
        messages.*kind += in_forward + in_backward;
    }
};

}  // namespace pw
