#include "exec/cpu/lanes.h"
#include "exec/cpu/layers.h"
#include "exec/cpu/loops.h"
#include "exec/cpu/parallel.h"

#include <algorithm>

namespace pw::cpu {

namespace {

// Elementwise layers work on groups of sixteen values, padding included, in any layout.
class Pointwise : public CpuLayer {
public:
    Pointwise(const Layer& layer, int samples)
        : CpuLayer(layer, samples), groups_(groups_of(samples * layer.output.elements())) {}

protected:
    std::int64_t groups_;
};

class Relu : public Pointwise {
public:
    using Pointwise::Pointwise;

    void forward(const LayerArgs& args, bool) override {
        in_shares(groups_, [&](std::int64_t first, std::int64_t count) {
            relu(floats(args.inputs[0]) + first * kLanes, floats(args.output) + first * kLanes, count);
        });
    }

    void backward_input(const LayerArgs& args) override {
        if (!args.input_gradients[0])
            return;
        in_shares(groups_, [&](std::int64_t first, std::int64_t count) {
            relu_gradient(floats(args.inputs[0]) + first * kLanes, floats(args.output_gradient) + first * kLanes,
                          floats(args.input_gradients[0]) + first * kLanes, count);
        });
    }
};

// saved with a fused ReLU: one bit per element, whether it passed.
class Add : public Pointwise {
public:
    Add(const Layer& layer, int samples)
        : Pointwise(layer, samples),
          mask_blocks_((groups_ + kMaskGroups - 1) / kMaskGroups),
          streamed_(groups_ * kLanes > kStreamedFloats) {
        bytes_.saved_until_input = layer.relu ? mask_blocks_ * 64 : 0;
    }

    void forward(const LayerArgs& args, bool save) override {
        for_shares([&](std::int64_t first, std::int64_t count) {
            const float* left = floats(args.inputs[0]) + first * kLanes;
            const float* right = floats(args.inputs[1]) + first * kLanes;
            float* y = floats(args.output) + first * kLanes;
            if (layer_.relu)
                add_relu(left, right, y, save ? mask(args, first) : nullptr, count, streamed_);
            else
                add(left, right, y, count);
        });
    }

    void backward_input(const LayerArgs& args) override {
        for_shares([&](std::int64_t first, std::int64_t count) {
            const float* dy = floats(args.output_gradient) + first * kLanes;
            float* wanted[2] = {};
            for (std::size_t k = 0; k < 2; ++k)
                if (args.input_gradients[k])
                    wanted[k] = floats(args.input_gradients[k]) + first * kLanes;
            if (layer_.relu)
                masked_copies(dy, mask(args, first), wanted[0], wanted[1], count, streamed_);
            else
                copies(dy, wanted[0], wanted[1], count);
        });
    }

private:
    // Divides the work into shares of whole mask blocks, in groups.
    template <class Work>
    void for_shares(Work work) const {
        in_shares(mask_blocks_, [&](std::int64_t first, std::int64_t count) {
            work(first * kMaskGroups, std::min(count * kMaskGroups, groups_ - first * kMaskGroups));
        });
    }

    static std::uint32_t* mask(const LayerArgs& args, std::int64_t group) {
        return reinterpret_cast<std::uint32_t*>(args.saved) + group / kMaskGroups * kLanes;
    }

    std::int64_t mask_blocks_;
    bool streamed_;
};

}  // namespace

extern const LayerRow kRelu = row_of<Relu>(LayerKind::Relu);
extern const LayerRow kAdd = row_of<Add>(LayerKind::Add);

}  // namespace pw::cpu
