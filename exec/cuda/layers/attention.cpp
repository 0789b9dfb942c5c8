// Causal self-attention, one sample after the other, so that the scratch has the squares of scores of one sample
// only.
#include "exec/cuda/layers/attention_loops.h"
#include "exec/cuda/layers/products.h"

#include <algorithm>
#include <cmath>
#include <type_traits>

namespace pw::cuda {

namespace {

// A row of the input has queries, keys and values, each with one head after the other. saved: the probabilities.
template <class T>
class Attention : public CudaLayer {
public:
    Attention(GpuShare& device, const Layer& layer, int samples)
        : CudaLayer(device, layer, samples),
          length_(layer.input.height),
          width_(layer.output.width),
          depth_(width_ / layer.heads),
          squares_{static_cast<unsigned>(layer.heads), static_cast<unsigned>(layer.input.height)},
          factor_(static_cast<float>(1 / std::sqrt(static_cast<double>(depth_)))) {
        check_items(std::max<std::int64_t>(samples * layer.input.elements(), squares_.elements()));
        bytes_.saved_until_input = bytes_of<T>(samples * squares_.elements());
        reals_at_ = aligned(softmax_scratch(squares_));
        rounded_at_ = reals_at_ + bytes_of<float>(squares_.elements());
        bytes_.scratch = rounded_at_ + (kIsRounded ? bytes_of<T>(squares_.elements()) : 0);
    }

    void forward(const LayerArgs& args, bool save) override {
        for (int n = 0; n < samples_; ++n) {
            const T* rows = reinterpret_cast<const T*>(args.inputs[0]) + n * length_ * 3 * width_;
            T* probabilities = save ? saved(args, n) : in_scratch(args);
            float* scores = reals(args);
            if constexpr (!kIsRounded)
                scores = probabilities;
            multiply<T, float>(device_,
                               {.left = CUBLAS_OP_T,
                                .rows = length_,
                                .columns = length_,
                                .depth = depth_,
                                .factor = factor_,
                                .batch = layer_.heads},
                               keys(rows), queries(rows), square(scores));
            causal_softmax(device_.stream(), squares_, scores, probabilities, args.scratch);
            multiply<T, T>(
                device_,
                {.left = CUBLAS_OP_N, .rows = depth_, .columns = length_, .depth = length_, .batch = layer_.heads},
                values(rows), of(square(probabilities)),
                {reinterpret_cast<T*>(args.output) + n * length_ * width_, width_, depth_});
        }
    }

    void backward_input(const LayerArgs& args) override {
        if (!args.input_gradients[0])
            return;
        for (int n = 0; n < samples_; ++n) {
            const T* rows = reinterpret_cast<const T*>(args.inputs[0]) + n * length_ * 3 * width_;
            T* made = reinterpret_cast<T*>(args.input_gradients[0]) + n * length_ * 3 * width_;
            const Matrix gradient{reinterpret_cast<const T*>(args.output_gradient) + n * length_ * width_, width_,
                                  depth_};
            backward_values(args, n, gradient, made);
            backward_scores(args, n, gradient, rows);
            backward_products(in_scratch(args), rows, made);
        }
    }

private:
    static constexpr bool kIsRounded = !std::is_same_v<T, float>;

    template <class Value>
    static Bytes bytes_of(std::int64_t count) {
        return aligned(count * static_cast<Bytes>(sizeof(Value)));
    }

    // dV = P' dO
    void backward_values(const LayerArgs& args, int n, const Matrix& gradient, T* made) const {
        multiply<T, T>(device_,
                       {.left = CUBLAS_OP_N,
                        .rows = depth_,
                        .columns = length_,
                        .depth = length_,
                        .right = CUBLAS_OP_T,
                        .batch = layer_.heads},
                       gradient, of(square(saved(args, n))), {made + 2 * width_, 3 * width_, depth_});
    }

    // dP = dO V', and from it dS
    void backward_scores(const LayerArgs& args, int n, const Matrix& gradient, const T* rows) const {
        multiply<T, float>(
            device_, {.left = CUBLAS_OP_T, .rows = length_, .columns = length_, .depth = depth_, .batch = layer_.heads},
            values(rows), gradient, square(reals(args)));
        causal_softmax_gradient<T>(device_.stream(), squares_, saved(args, n), reals(args), in_scratch(args),
                                   args.scratch);
    }

    // dQ = dS K, dK = dS' Q
    void backward_products(T* score_gradient, const T* rows, T* made) const {
        Product product{.left = CUBLAS_OP_N,
                        .rows = depth_,
                        .columns = length_,
                        .depth = length_,
                        .factor = factor_,
                        .batch = layer_.heads};
        multiply<T, T>(device_, product, keys(rows), of(square(score_gradient)), {made, 3 * width_, depth_});
        product.right = CUBLAS_OP_T;
        multiply<T, T>(device_, product, queries(rows), of(square(score_gradient)),
                       {made + width_, 3 * width_, depth_});
    }

    Matrix queries(const T* rows) const { return {rows, 3 * width_, depth_}; }
    Matrix keys(const T* rows) const { return {rows + width_, 3 * width_, depth_}; }
    Matrix values(const T* rows) const { return {rows + 2 * width_, 3 * width_, depth_}; }
    Result square(void* data) const { return {data, length_, length_ * length_}; }
    static Matrix of(const Result& made) { return {made.data, made.column, made.next}; }

    T* saved(const LayerArgs& args, int n) const { return reinterpret_cast<T*>(args.saved) + n * squares_.elements(); }
    float* reals(const LayerArgs& args) const { return floats(args.scratch + reals_at_); }
    // In fp32 it is the same memory as reals().
    T* in_scratch(const LayerArgs& args) const {
        return reinterpret_cast<T*>(args.scratch + (kIsRounded ? rounded_at_ : reals_at_));
    }

    std::int64_t length_, width_, depth_;  // number of rows; width of an output row; width of a head
    Squares squares_;
    float factor_;
    Bytes reals_at_ = 0, rounded_at_ = 0;  // offsets in the scratch
};

}  // namespace

template <class T>
std::unique_ptr<LayerKernel> make_attention(GpuShare& device, const Layer& layer, int samples) {
    return std::make_unique<Attention<T>>(device, layer, samples);
}
template std::unique_ptr<LayerKernel> make_attention<float>(GpuShare&, const Layer&, int);
template std::unique_ptr<LayerKernel> make_attention<Bf16>(GpuShare&, const Layer&, int);

}  // namespace pw::cuda
