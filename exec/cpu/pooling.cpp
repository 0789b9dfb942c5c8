#include "exec/cpu/lanes.h"
#include "exec/cpu/layers.h"
#include "exec/cpu/loops.h"
#include "exec/cpu/parallel.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace pw::cpu {

namespace {

// saved: oneDNN's workspace, which has for every output the input that it took from its window.
class MaxPool : public CpuLayer {
public:
    MaxPool(const Layer& layer, int samples) : CpuLayer(layer, samples) {
        using Forward = dnnl::pooling_forward;
        using Backward = dnnl::pooling_backward;
        const auto input = tensor_desc(layer.input, samples), output = tensor_desc(layer.output, samples);
        const dnnl::memory::dims strides = {layer.stride, layer.stride}, window = {layer.kernel, layer.kernel};
        const dnnl::memory::dims padding = {layer.padding, layer.padding};
        const auto forward_desc = [&](dnnl::prop_kind kind) {
            const Forward::desc desc(kind, kMax, input, output, strides, window, padding, padding);
            return Forward::primitive_desc(desc, user_scratchpad(), engine());
        };
        const auto training = forward_desc(dnnl::prop_kind::forward_training);
        const auto inference = forward_desc(dnnl::prop_kind::forward_inference);
        const Backward::primitive_desc backward(Backward::desc(kMax, input, output, strides, window, padding, padding),
                                                user_scratchpad(), engine(), training);
        training_ = Call(layer.name, training, {DNNL_ARG_SRC, DNNL_ARG_DST, DNNL_ARG_WORKSPACE});
        inference_ = Call(layer.name, inference, {DNNL_ARG_SRC, DNNL_ARG_DST});
        backward_ = Call(layer.name, backward, {DNNL_ARG_DIFF_DST, DNNL_ARG_WORKSPACE, DNNL_ARG_DIFF_SRC});
        bytes_.saved_until_input = aligned(static_cast<Bytes>(training.workspace_desc().get_size()));
        inputs_ = tensor_bytes(layer.input, samples) / std::int64_t{sizeof(float)} / kLanes;
        bytes_.scratch = std::max({training_.scratch(), inference_.scratch(), backward_.scratch()});
    }

    void forward(const LayerArgs& args, bool save) override {
        pool(args, save);
        if (any_nan(floats(args.inputs[0]), inputs_))
            keep_nan(args);
    }

    void backward_input(const LayerArgs& args) override {
        if (args.input_gradients[0])
            backward_({{DNNL_ARG_DIFF_DST, args.output_gradient},
                       {DNNL_ARG_WORKSPACE, args.saved},
                       {DNNL_ARG_DIFF_SRC, args.input_gradients[0]}},
                      args.scratch);
    }

private:
    void pool(const LayerArgs& args, bool save) {
        if (save)
            training_({{DNNL_ARG_SRC, args.inputs[0]}, {DNNL_ARG_DST, args.output}, {DNNL_ARG_WORKSPACE, args.saved}},
                      args.scratch);
        else
            inference_({{DNNL_ARG_SRC, args.inputs[0]}, {DNNL_ARG_DST, args.output}}, args.scratch);
    }

    // PyTorch's maximum of a window with a NaN is NaN, oneDNN's is the largest other value. This is slow, but
    // rarely needed.
    void keep_nan(const LayerArgs& args) const {
        const std::vector<float> x = read_input(args.inputs[0], 0);
        std::vector<float> y = read_output(args.output);
        const Dims &in = layer_.input, &out = layer_.output;
        for (std::size_t i = 0; i < x.size(); ++i) {
            if (!std::isnan(x[i]))
                continue;
            const auto pixel = static_cast<int>(i % (static_cast<std::size_t>(in.height) * in.width));
            const std::size_t plane = i / (static_cast<std::size_t>(in.height) * in.width);
            const int row = pixel / in.width + layer_.padding, column = pixel % in.width + layer_.padding;
            for (int top = row / layer_.stride; top >= 0 && row - top * layer_.stride < layer_.kernel; --top)
                for (int left = column / layer_.stride; left >= 0 && column - left * layer_.stride < layer_.kernel;
                     --left)
                    if (top < out.height && left < out.width)
                        y[(plane * out.height + top) * out.width + left] = x[i];
        }
        fill_output(y, args.output);
    }

    static constexpr auto kMax = dnnl::algorithm::pooling_max;
    Call training_, inference_, backward_;
    std::int64_t inputs_;  // in groups
};

class AveragePool : public CpuLayer {
public:
    AveragePool(const Layer& layer, int samples, std::int64_t per_block)
        : CpuLayer(layer, samples, per_block),
          pixels_(std::int64_t{layer.input.height} * layer.input.width),
          blocks_(samples * layer.input.channels / per_block) {}

    void forward(const LayerArgs& args, bool) override {
        in_shares(blocks_, [&](std::int64_t first, std::int64_t count) {
            average_blocks(floats(args.inputs[0]) + first * pixels_ * per_block_,
                           floats(args.output) + first * per_block_, pixels_, count, per_block_);
        });
    }

    void backward_input(const LayerArgs& args) override {
        if (!args.input_gradients[0])
            return;
        in_shares(blocks_, [&](std::int64_t first, std::int64_t count) {
            spread_blocks(floats(args.output_gradient) + first * per_block_,
                          floats(args.input_gradients[0]) + first * pixels_ * per_block_, pixels_, count, per_block_);
        });
    }

private:
    std::int64_t pixels_, blocks_;
};

// Upsampling by the nearest neighbour. It never mixes channels: a row of pixels is a row in either layout.
class Upsample : public CpuLayer {
public:
    Upsample(const Layer& layer, int samples, std::int64_t per_block)
        : CpuLayer(layer, samples, per_block),
          channels_(is_blocked(layer.input, per_block) ? per_block : 1),
          width_(layer.input.width),
          times_(layer.stride),
          rows_(samples * (layer.input.channels / channels_) * layer.input.height) {}

    void forward(const LayerArgs& args, bool) override {
        in_shares(rows_, [&](std::int64_t first, std::int64_t count) {
            repeat_pixels(floats(args.inputs[0]) + first * row(), floats(args.output) + first * rows_made(), count,
                          width_, times_, channels_);
        });
    }

    void backward_input(const LayerArgs& args) override {
        if (!args.input_gradients[0])
            return;
        in_shares(rows_, [&](std::int64_t first, std::int64_t count) {
            sum_pixels(floats(args.output_gradient) + first * rows_made(),
                       floats(args.input_gradients[0]) + first * row(), count, width_, times_, channels_);
        });
    }

private:
    std::int64_t row() const { return width_ * channels_; }             // floats
    std::int64_t rows_made() const { return times_ * times_ * row(); }  // floats made from one row

    std::int64_t channels_, width_, times_, rows_;
};

}  // namespace

std::unique_ptr<LayerKernel> make_average_pool(const Layer& layer, int samples, std::int64_t per_block) {
    if (!is_blocked(layer.input, per_block))
        return reference_kernels().make(layer, samples, false);  // NCHW, which is rare
    return std::make_unique<AveragePool>(layer, samples, per_block);
}

std::unique_ptr<LayerKernel> make_upsample(const Layer& layer, int samples, std::int64_t per_block) {
    return std::make_unique<Upsample>(layer, samples, per_block);
}

extern const LayerRow kMaxPool = row_of<MaxPool>(LayerKind::MaxPool);
extern const LayerRow kAveragePool = row_of_blocks<make_average_pool>(LayerKind::AveragePool);
extern const LayerRow kUpsample = row_of_blocks<make_upsample>(LayerKind::Upsample);

}  // namespace pw::cpu
