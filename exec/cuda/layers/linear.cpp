// Linear layers of whole samples and of rows.
#include "exec/cuda/layers/linear_loops.h"
#include "exec/cuda/layers/products.h"

#include <algorithm>

namespace pw::cuda {

namespace {

constexpr std::int64_t kLine = 32;  // fp32 values: the alignment of the bias
// The shape of a linear layer, which flattens a sample, or of a row linear layer.
struct LinearShape {
    std::int64_t rows, in, out;
    bool bias;
};

LinearShape shape_of(const Layer& layer, int samples) {
    if (layer.kind == LayerKind::RowLinear)
        return {std::int64_t{samples} * layer.input.height, layer.input.width, layer.output.width, layer.bias};
    return {samples, layer.input.elements(), layer.output.channels, true};
}

// weights: {out, in} for the input in its layout, zeros up to a line, the bias if there is one, zeros.
template <class T>
class Linear : public CudaLayer {
public:
    Linear(GpuShare& device, const Layer& layer, int samples)
        : CudaLayer(device, layer, samples),
          shape_(shape_of(layer, samples)),
          in_(shape_.in),
          out_(shape_.out),
          bias_(round_up(in_ * out_, kLine)),
          shares_(shares_of_rows(shape_.rows)) {
        bytes_.weights = block_bytes(bias_ + (shape_.bias ? out_ : 0), device.precision());
        values_ = block_values(bytes_.weights, device.precision());
        if (shape_.bias && shares_ > 1)
            bytes_.scratch = aligned(shares_ * out_ * static_cast<Bytes>(sizeof(float)));
    }

    void forward(const LayerArgs& args, bool) override {
        multiply<T, T>(device_, {CUBLAS_OP_T, out_, shape_.rows, in_}, weights(args), {args.inputs[0], in_},
                       {args.output, out_});
        if (shape_.bias)
            add_bias(device_.stream(), floats(args.weights) + bias_, reinterpret_cast<T*>(args.output), shape_.rows,
                     out_);
    }

    void backward_input(const LayerArgs& args) override {
        if (args.input_gradients[0])
            multiply<T, T>(device_, {CUBLAS_OP_N, in_, shape_.rows, out_}, weights(args), {args.output_gradient, out_},
                           {args.input_gradients[0], in_});
    }

    // Sums are in fp32 for any T.
    void backward_weight(const LayerArgs& args) override {
        float* gradient = floats(args.weight_gradient);
        multiply<T, float>(device_, {CUBLAS_OP_N, in_, out_, shape_.rows, CUBLAS_OP_T, args.accumulate},
                           {args.inputs[0], in_}, {args.output_gradient, out_}, {gradient, in_});
        if (!args.accumulate && bias_ > in_ * out_)
            check(cudaMemsetAsync(gradient + in_ * out_, 0,
                                  static_cast<std::size_t>(bias_ - in_ * out_) * sizeof(float), device_.stream()),
                  "cudaMemsetAsync");
        if (shape_.bias)
            bias_gradient(args, gradient + bias_);
    }

    void load(const std::vector<std::vector<float>>& values, std::byte* weights, std::byte*) override {
        std::vector<float> block(static_cast<std::size_t>(bias_));
        for_weights([&](std::size_t plain, std::size_t place) { block[place] = values[0][plain]; });
        if (shape_.bias)
            block.insert(block.end(), values[1].begin(), values[1].end());
        load_block(block, weights, bytes_.weights);
    }

    std::vector<std::vector<float>> store(const std::byte* weights, const std::byte*) const override {
        const std::vector<float> block = store_block(weights, bias_ + (shape_.bias ? out_ : 0));
        std::vector<std::vector<float>> plain(1, std::vector<float>(static_cast<std::size_t>(in_ * out_)));
        for_weights([&](std::size_t at, std::size_t place) { plain[0][at] = block[place]; });
        if (shape_.bias)
            plain.emplace_back(block.begin() + bias_, block.end());
        return plain;
    }

private:
    Matrix weights(const LayerArgs& args) const { return {read_by_products<T>(args.weights, values_), in_}; }

    void bias_gradient(const LayerArgs& args, float* gradient) const {
        const T* rows = reinterpret_cast<const T*>(args.output_gradient);
        const std::int64_t room = values_ - bias_;
        if (shares_ == 1) {
            sum_bias_gradient(device_.stream(), rows, gradient, shape_.rows, out_, room, args.accumulate);
            return;
        }
        float* lines = floats(args.scratch);
        sum_shares(device_.stream(), rows, lines, shape_.rows, out_, shares_);
        sum_bias_gradient<float>(device_.stream(), lines, gradient, shares_, out_, room, args.accumulate);
    }

    // Calls visit(offset in {out, NCHW}, offset in {out, NHWC}) for every weight.
    template <class Visit>
    void for_weights(Visit visit) const {
        const std::int64_t channels = layer_.input.channels, pixels = in_ / channels;
        std::size_t plain = 0;
        for (std::int64_t o = 0; o < out_; ++o)
            for (std::int64_t c = 0; c < channels; ++c)
                for (std::int64_t p = 0; p < pixels; ++p)
                    visit(plain++, static_cast<std::size_t>(o * in_ + p * channels + c));
    }

    LinearShape shape_;
    std::int64_t in_, out_;
    std::int64_t bias_, values_ = 0;  // the offset of the bias, the number of values of the block
    std::int64_t shares_;             // of the rows, in sums of the bias's gradient
};

}  // namespace

template <class T>
std::unique_ptr<LayerKernel> make_linear(GpuShare& device, const Layer& layer, int samples) {
    return std::make_unique<Linear<T>>(device, layer, samples);
}
template std::unique_ptr<LayerKernel> make_linear<float>(GpuShare&, const Layer&, int);
template std::unique_ptr<LayerKernel> make_linear<Bf16>(GpuShare&, const Layer&, int);

}  // namespace pw::cuda
