#include "exec/cpu/lanes.h"
#include "exec/cpu/layers.h"
#include "exec/cpu/loops.h"
#include "exec/cpu/parallel.h"

#include <algorithm>

namespace pw::cpu {

namespace {

using Desc = dnnl::memory::desc;
using Tag = dnnl::memory::format_tag;
constexpr auto kFloat = dnnl::memory::data_type::f32;

// weights: {out, in} for the flattened NCHW input, as in PyTorch, then the bias. In a sequence they are the same
// for every row, with or without a bias.
class Linear : public CpuLayer {
public:
    Linear(const Layer& layer, int samples, bool reads_data)
        : CpuLayer(layer, samples),
          by_row_(layer.kind == LayerKind::RowLinear),
          has_bias_(!by_row_ || layer.bias),
          rows_(by_row_ ? std::int64_t{samples} * layer.input.height : samples),
          in_(by_row_ ? layer.input.width : layer.input.elements()),
          out_(by_row_ ? layer.output.width : layer.output.channels),
          bias_offset_(aligned(out_ * in_ * static_cast<Bytes>(sizeof(float)))),
          input_({rows_, in_}, kFloat, Tag::nc),
          output_({rows_, out_}, kFloat, Tag::nc),
          weights_({out_, in_}, kFloat, Tag::oi) {
        if (has_bias_)
            bias_ = Desc({out_}, kFloat, Tag::x);
        bytes_.weights = bias_offset_ + (has_bias_ ? aligned(out_ * static_cast<Bytes>(sizeof(float))) : 0);
        if (!by_row_ && is_blocked(layer.input) && in_ != layer.input.channels)
            make_flattening();
        make_passes(reads_data);
    }

    void forward(const LayerArgs& args, bool) override {
        const auto [input, scratch] = flattened(args);
        forward_({{DNNL_ARG_SRC, input},
                  {DNNL_ARG_WEIGHTS, args.weights},
                  {DNNL_ARG_BIAS, bias_of(args.weights)},
                  {DNNL_ARG_DST, args.output}},
                 scratch);
    }

    void backward_input(const LayerArgs& args) override {
        if (!args.input_gradients[0])
            return;
        std::byte* made = flatten_ ? args.scratch : args.input_gradients[0];
        std::byte* scratch = args.scratch + flat_;
        backward_input_(
            {{DNNL_ARG_DIFF_DST, args.output_gradient}, {DNNL_ARG_WEIGHTS, args.weights}, {DNNL_ARG_DIFF_SRC, made}},
            scratch);
        if (flatten_)
            unflatten_({{DNNL_ARG_FROM, made}, {DNNL_ARG_TO, args.input_gradients[0]}}, scratch);
    }

    // oneDNN overwrites its result, so that sums need the scratch.
    void backward_weight(const LayerArgs& args) override {
        auto [input, scratch] = flattened(args);
        std::byte* result = args.weight_gradient;
        if (args.accumulate) {
            result = scratch;
            scratch += bytes_.weights;
        }
        clear_padding(result);
        backward_weight_({{DNNL_ARG_SRC, input},
                          {DNNL_ARG_DIFF_DST, args.output_gradient},
                          {DNNL_ARG_DIFF_WEIGHTS, result},
                          {DNNL_ARG_DIFF_BIAS, bias_of(result)}},
                         scratch);
        if (args.accumulate)
            in_shares(groups_of(bytes_.weights / 4), [&](std::int64_t first, std::int64_t count) {
                accumulate(floats(result) + first * kLanes, floats(args.weight_gradient) + first * kLanes, count);
            });
    }

    void load(const std::vector<std::vector<float>>& values, std::byte* weights, std::byte*) override {
        clear_padding(weights);
        std::ranges::copy(values[0], floats(weights));
        if (has_bias_)
            std::ranges::copy(values[1], floats(weights + bias_offset_));
    }

    std::vector<std::vector<float>> store(const std::byte* weights, const std::byte*) const override {
        std::vector<std::vector<float>> values;
        values.emplace_back(floats(weights), floats(weights) + out_ * in_);
        if (const float* bias = floats(weights + bias_offset_); has_bias_)
            values.emplace_back(bias, bias + out_);
        return values;
    }

private:
    // A blocked input of several pixels is copied to the scratch in NCHW order, the order of the weights.
    void make_flattening() {
        const Desc blocked = tensor_desc(layer_.input, samples_);
        const Desc plain(blocked.dims(), kFloat, Tag::nchw);
        flatten_ = make_reorder(layer_.name, blocked, plain);
        unflatten_ = make_reorder(layer_.name, plain, blocked);
        flat_ = tensor_bytes(layer_.input, samples_);
    }

    std::pair<const std::byte*, std::byte*> flattened(const LayerArgs& args) {
        if (!flatten_)
            return {args.inputs[0], args.scratch};
        flatten_({{DNNL_ARG_FROM, args.inputs[0]}, {DNNL_ARG_TO, args.scratch}}, args.scratch + flat_);
        return {args.scratch, args.scratch + flat_};
    }

    void make_passes(bool reads_data) {
        using Forward = dnnl::inner_product_forward;
        const Forward::desc desc(dnnl::prop_kind::forward_training, input_, weights_, bias_, output_);
        const Forward::primitive_desc forward(desc, user_scratchpad(), engine());
        forward_ = Call(layer_.name, forward, {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_BIAS, DNNL_ARG_DST});
        if (!reads_data) {
            using Backward = dnnl::inner_product_backward_data;
            const Backward::primitive_desc backward(Backward::desc(input_, weights_, output_), user_scratchpad(),
                                                    engine(), forward);
            backward_input_ = Call(layer_.name, backward, {DNNL_ARG_DIFF_DST, DNNL_ARG_WEIGHTS, DNNL_ARG_DIFF_SRC});
        }
        using Gradient = dnnl::inner_product_backward_weights;
        const Gradient::primitive_desc gradient(Gradient::desc(input_, weights_, bias_, output_), user_scratchpad(),
                                                engine(), forward);
        backward_weight_ =
            Call(layer_.name, gradient, {DNNL_ARG_SRC, DNNL_ARG_DIFF_DST, DNNL_ARG_DIFF_WEIGHTS, DNNL_ARG_DIFF_BIAS});
        const Bytes own = std::max({forward_.scratch(), backward_input_.scratch(), flatten_.scratch(),
                                    unflatten_.scratch(), bytes_.weights + backward_weight_.scratch()});
        bytes_.scratch = flat_ + own;
    }

    void clear_padding(std::byte* block) const {
        std::fill(block + out_ * in_ * 4, block + bias_offset_, std::byte{});
        if (has_bias_)
            std::fill(block + bias_offset_ + out_ * 4, block + bytes_.weights, std::byte{});
    }

    // Returns null if there is no bias: oneDNN then neither reads nor writes it.
    const std::byte* bias_of(const std::byte* block) const { return has_bias_ ? block + bias_offset_ : nullptr; }

    bool by_row_, has_bias_;
    std::int64_t rows_, in_, out_;
    Bytes bias_offset_, flat_ = 0;
    Desc input_, output_, weights_, bias_;
    Call forward_, backward_input_, backward_weight_;
    Call flatten_, unflatten_;  // empty if the input is already in NCHW order
};

}  // namespace

extern const LayerRow kLinear = row_of_reader<Linear>(LayerKind::Linear);
extern const LayerRow kRowLinear = row_of_reader<Linear>(LayerKind::RowLinear);

}  // namespace pw::cpu
