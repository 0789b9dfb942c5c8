#include "exec/cpu/lanes.h"
#include "exec/cpu/layers.h"
#include "exec/cpu/loops.h"
#include "exec/cpu/parallel.h"

#include <algorithm>
#include <string_view>

namespace pw::cpu {

namespace {

using Desc = dnnl::memory::desc;
constexpr auto kDirect = dnnl::algorithm::convolution_direct;

// 0: generated code, 1: through a matrix product, 2: plain loops.
int rank_of(const dnnl::primitive_desc_base& desc) {
    std::string_view name;
    const char* text = nullptr;
    dnnl::error::wrap_c_api(dnnl_primitive_desc_query(desc.get(), dnnl_query_impl_info_str, 0, &text),
                            "could not ask for the name of an implementation");
    name = text;
    if (name.find("ref") != name.npos)
        return 2;
    return name.find("gemm") != name.npos && name.find("brgemm") == name.npos ? 1 : 0;
}

// Uses the weight format of the forward pass, unless another format has a better implementation.
template <class Make>
auto with_weights_like(const Desc& preferred, const Desc& any, Make make) {
    auto same = make(preferred);
    if (rank_of(same) == 0)
        return same;
    auto other = make(any);
    return rank_of(other) < rank_of(same) ? other : same;
}

class Convolution : public CpuLayer {
    using Forward = dnnl::convolution_forward;
    using BackwardInput = dnnl::convolution_backward_data;
    using BackwardWeight = dnnl::convolution_backward_weights;

public:
    Convolution(const Layer& layer, int samples, bool reads_data)
        : CpuLayer(layer, samples),
          input_(tensor_desc(layer.input, samples)),
          output_(tensor_desc(layer.output, samples)),
          plain_weights_({layer.output.channels, layer.input.channels, layer.kernel, layer.kernel},
                         dnnl::memory::data_type::f32, dnnl::memory::format_tag::oihw),
          any_weights_(plain_weights_.dims(), dnnl::memory::data_type::f32, dnnl::memory::format_tag::any) {
        const Forward::primitive_desc forward = make_forward();
        weights_ = forward.weights_desc();
        bytes_.weights = aligned(static_cast<Bytes>(weights_.get_size()));
        bytes_.scratch = forward_.scratch();
        if (!reads_data)
            make_backward_input(forward);
        make_backward_weight(forward);
    }

    void forward(const LayerArgs& args, bool) override {
        forward_({{DNNL_ARG_SRC, args.inputs[0]}, {DNNL_ARG_WEIGHTS, args.weights}, {DNNL_ARG_DST, args.output}},
                 args.scratch);
    }

    void backward_input(const LayerArgs& args) override {
        if (!args.input_gradients[0])
            return;
        const std::byte* weights = args.weights;
        std::byte* scratch = args.scratch;
        if (reorder_weights_) {
            reorder_weights_({{DNNL_ARG_FROM, weights}, {DNNL_ARG_TO, scratch}}, scratch + reordered_);
            weights = scratch;
            scratch += reordered_;
        }
        backward_input_({{DNNL_ARG_DIFF_DST, args.output_gradient},
                         {DNNL_ARG_WEIGHTS, weights},
                         {DNNL_ARG_DIFF_SRC, args.input_gradients[0]}},
                        scratch);
    }

    // oneDNN overwrites its result, so that sums need the scratch.
    void backward_weight(const LayerArgs& args) override {
        const std::byte* input = args.inputs[0];
        std::byte* scratch = args.scratch;
        if (pad_input_) {
            std::fill_n(scratch, padded_, std::byte{});
            pad_input_({{DNNL_ARG_FROM, input}, {DNNL_ARG_TO, scratch}}, scratch + padded_);
            input = scratch;
            scratch += padded_;
        }
        std::byte* result = args.weight_gradient;
        if (args.accumulate) {
            result = scratch;
            scratch += bytes_.weights;
        }
        std::byte* made = result;
        if (reorder_gradient_) {
            made = scratch;
            scratch += gradient_;
        }
        backward_weight_(
            {{DNNL_ARG_SRC, input}, {DNNL_ARG_DIFF_DST, args.output_gradient}, {DNNL_ARG_DIFF_WEIGHTS, made}}, scratch);
        if (reorder_gradient_)
            reorder_gradient_({{DNNL_ARG_FROM, made}, {DNNL_ARG_TO, result}}, scratch);
        std::fill(result + weights_.get_size(), result + bytes_.weights, std::byte{});
        if (args.accumulate)
            in_shares(groups_of(bytes_.weights / 4), [&](std::int64_t first, std::int64_t count) {
                accumulate(floats(result) + first * kLanes, floats(args.weight_gradient) + first * kLanes, count);
            });
    }

    void load(const std::vector<std::vector<float>>& values, std::byte* weights, std::byte*) override {
        std::fill_n(weights, bytes_.weights, std::byte{});
        make_reorder(layer_.name, plain_weights_, weights_)({{DNNL_ARG_FROM, values[0].data()}, {DNNL_ARG_TO, weights}},
                                                            nullptr);
    }

    std::vector<std::vector<float>> store(const std::byte* weights, const std::byte*) const override {
        std::vector<std::vector<float>> values(1);
        values[0].resize(plain_weights_.get_size() / sizeof(float));
        make_reorder(layer_.name, weights_, plain_weights_)({{DNNL_ARG_FROM, weights}, {DNNL_ARG_TO, values[0].data()}},
                                                            nullptr);
        return values;
    }

private:
    dnnl::memory::dims strides() const { return {layer_.stride, layer_.stride}; }
    dnnl::memory::dims padding() const { return {layer_.padding, layer_.padding}; }

    Forward::primitive_desc make_forward() {
        const Forward::desc desc(dnnl::prop_kind::forward_training, kDirect, input_, any_weights_, output_, strides(),
                                 padding(), padding());
        const Forward::primitive_desc made(desc, user_scratchpad(), engine());
        forward_ = Call(layer_.name, made, {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST});
        return made;
    }

    void make_backward_input(const Forward::primitive_desc& forward) {
        const auto made = with_weights_like(weights_, any_weights_, [&](const Desc& weights) {
            const BackwardInput::desc desc(kDirect, input_, weights, output_, strides(), padding(), padding());
            return BackwardInput::primitive_desc(desc, user_scratchpad(), engine(), forward);
        });
        backward_input_ = Call(layer_.name, made, {DNNL_ARG_DIFF_DST, DNNL_ARG_WEIGHTS, DNNL_ARG_DIFF_SRC});
        Bytes own = backward_input_.scratch();
        if (made.weights_desc() != weights_) {
            reordered_ = aligned(static_cast<Bytes>(made.weights_desc().get_size()));
            reorder_weights_ = make_reorder(layer_.name, weights_, made.weights_desc());
            own = reordered_ + std::max(own, reorder_weights_.scratch());
        }
        bytes_.scratch = std::max(bytes_.scratch, own);
    }

    BackwardWeight::primitive_desc backward_weight_of(const Desc& input, const dnnl::memory::dims& padding,
                                                      const Forward::primitive_desc& forward) const {
        return with_weights_like(weights_, any_weights_, [&](const Desc& weights) {
            const BackwardWeight::desc desc(kDirect, input, weights, output_, strides(), padding, padding);
            return BackwardWeight::primitive_desc(desc, user_scratchpad(), engine(), forward);
        });
    }

    // For AVX2 there is generated code only for images that are not smaller than the kernel: smaller images are
    // padded explicitly first.
    BackwardWeight::primitive_desc padded_if_better(const BackwardWeight::primitive_desc& made,
                                                    const Forward::primitive_desc& forward) {
        if (rank_of(made) < 2 || layer_.padding == 0)
            return made;
        Dims dims = layer_.input;
        dims.height += 2 * layer_.padding;
        dims.width += 2 * layer_.padding;
        const Desc padded = tensor_desc(dims, samples_);
        const auto other = backward_weight_of(padded, {0, 0}, forward);
        if (rank_of(other) == 2)
            return made;
        padded_ = tensor_bytes(dims, samples_);
        const Desc inside = padded.submemory_desc(input_.dims(), {0, 0, layer_.padding, layer_.padding});
        pad_input_ = make_reorder(layer_.name, input_, inside);
        return other;
    }

    void make_backward_weight(const Forward::primitive_desc& forward) {
        const auto made = padded_if_better(backward_weight_of(input_, padding(), forward), forward);
        backward_weight_ = Call(layer_.name, made, {DNNL_ARG_SRC, DNNL_ARG_DIFF_DST, DNNL_ARG_DIFF_WEIGHTS});
        Bytes own = backward_weight_.scratch();
        if (made.diff_weights_desc() != weights_) {
            gradient_ = aligned(static_cast<Bytes>(made.diff_weights_desc().get_size()));
            reorder_gradient_ = make_reorder(layer_.name, made.diff_weights_desc(), weights_);
            own = gradient_ + std::max(own, reorder_gradient_.scratch());
        }
        own = padded_ + std::max(bytes_.weights + own, pad_input_.scratch());
        bytes_.scratch = std::max(bytes_.scratch, own);
    }

    Desc input_, output_, plain_weights_, any_weights_, weights_;
    Call forward_, backward_input_, backward_weight_;
    Call reorder_weights_, reorder_gradient_;  // empty if the format equals the forward pass's format
    Call pad_input_;                           // empty if oneDNN does the padding
    Bytes reordered_ = 0, gradient_ = 0, padded_ = 0;
};

}  // namespace

extern const LayerRow kConvolution = row_of_reader<Convolution>(LayerKind::Convolution);

}  // namespace pw::cpu
