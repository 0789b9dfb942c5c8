// Linear layers: products by cuBLAS, which counts columns first: its matrices are ours transposed.
#include "exec/cuda/layers.h"
#include "exec/cuda/linear_loops.h"

#include <algorithm>

namespace pw::cuda {

namespace {

constexpr std::int64_t kLine = 32;  // fp32 values: where the bias may begin

template <class T>
constexpr cudaDataType kType = CUDA_R_32F;
template <>
constexpr cudaDataType kType<Bf16> = CUDA_R_16BF;

// The block: weights {out, in} over the input flattened as NHWC, zeros up to a line, the bias, zeros.
template <class T>
class Linear : public CudaLayer {
public:
    Linear(Device& device, const Layer& layer, int samples)
        : CudaLayer(device, layer, samples),
          in_(layer.input.elements()),
          out_(layer.output.channels),
          bias_(round_up(in_ * out_, kLine)) {
        bytes_.weights = block_bytes(bias_ + out_, device.precision());
        values_ = block_values(bytes_.weights, device.precision());
    }

    void forward(const LayerArgs& args, bool) override {
        multiply<T>({CUBLAS_OP_T, out_, samples_, in_}, {read_by_products<T>(args.weights, values_), in_}, {args.inputs[0], in_},
                    {args.output, out_});
        add_bias(device_.stream(), floats(args.weights) + bias_, reinterpret_cast<T*>(args.output), samples_, out_);
    }

    void backward_input(const LayerArgs& args) override {
        if (args.input_gradients[0])
            multiply<T>({CUBLAS_OP_N, in_, samples_, out_}, {read_by_products<T>(args.weights, values_), in_},
                        {args.output_gradient, out_}, {args.input_gradients[0], in_});
    }

    // fp32 sums whatever T is.
    void backward_weight(const LayerArgs& args) override {
        float* gradient = floats(args.weight_gradient);
        multiply<float>({CUBLAS_OP_N, in_, out_, samples_, CUBLAS_OP_T, args.accumulate}, {args.inputs[0], in_},
                        {args.output_gradient, out_}, {gradient, in_});
        if (!args.accumulate && bias_ > in_ * out_)
            check(cudaMemsetAsync(gradient + in_ * out_, 0,
                                  static_cast<std::size_t>(bias_ - in_ * out_) * sizeof(float), device_.stream()),
                  "cudaMemsetAsync");
        sum_bias_gradient(device_.stream(), reinterpret_cast<const T*>(args.output_gradient), gradient + bias_,
                          samples_, out_, values_ - bias_, args.accumulate);
    }

    void load(const std::vector<std::vector<float>>& values, std::byte* weights, std::byte*) override {
        std::vector<float> block(static_cast<std::size_t>(bias_ + out_));
        for_weights([&](std::size_t plain, std::size_t place) { block[place] = values[0][plain]; });
        std::copy(values[1].begin(), values[1].end(), block.begin() + bias_);
        load_block(block, weights, bytes_.weights);
    }

    std::vector<std::vector<float>> store(const std::byte* weights, const std::byte*) const override {
        const std::vector<float> block = store_block(weights, bias_ + out_);
        std::vector<float> plain(static_cast<std::size_t>(in_ * out_));
        for_weights([&](std::size_t at, std::size_t place) { plain[at] = block[place]; });
        return {plain, {block.begin() + bias_, block.end()}};
    }

private:
    struct Shape {
        cublasOperation_t left;
        std::int64_t rows, columns, depth;
        cublasOperation_t right = CUBLAS_OP_N;
        bool accumulate = false;
    };
    struct Matrix {
        const void* data;
        std::int64_t column;  // elements from one to the next
    };
    struct Result {
        void* data;
        std::int64_t column;
    };

    template <class Out>
    void multiply(const Shape& shape, const Matrix& left, const Matrix& right, const Result& result) const {
        const auto whole = [](std::int64_t value) { return static_cast<int>(value); };
        const float one = 1, beta = shape.accumulate ? 1 : 0;
        check(cublasGemmEx(device_.cublas(), shape.left, shape.right, whole(shape.rows), whole(shape.columns),
                           whole(shape.depth), &one, left.data, kType<T>, whole(left.column), right.data, kType<T>,
                           whole(right.column), &beta, result.data, kType<Out>, whole(result.column),
                           CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT),
              "cublasGemmEx");
    }

    // Calls visit(place in {out, NCHW}, place in {out, NHWC}) for every weight.
    template <class Visit>
    void for_weights(Visit visit) const {
        const std::int64_t channels = layer_.input.channels, pixels = in_ / channels;
        std::size_t plain = 0;
        for (std::int64_t o = 0; o < out_; ++o)
            for (std::int64_t c = 0; c < channels; ++c)
                for (std::int64_t p = 0; p < pixels; ++p)
                    visit(plain++, static_cast<std::size_t>(o * in_ + p * channels + c));
    }

    std::int64_t in_, out_;
    std::int64_t bias_, values_ = 0;  // where the bias begins; values of the block
};

}  // namespace

template <class T>
std::unique_ptr<LayerKernel> make_linear(Device& device, const Layer& layer, int samples, bool) {
    return std::make_unique<Linear<T>>(device, layer, samples);
}
template std::unique_ptr<LayerKernel> make_linear<float>(Device&, const Layer&, int, bool);
template std::unique_ptr<LayerKernel> make_linear<Bf16>(Device&, const Layer&, int, bool);

}  // namespace pw::cuda
