// Causal self-attention, sample by sample, so that the scratch has the squares of scores of one sample only. Heads
// that share keys and values are in different products, in sequence: the heads of a product write different matrices,
// and the gradients of shared keys and values are added up in the order of the heads.
#include "exec/cuda/layers/attention_loops.h"
#include "exec/cuda/layers/products.h"
#include "exec/training/heads.h"

#include <algorithm>
#include <cmath>
#include <type_traits>

namespace pw::cuda {

namespace {

// A matrix per head, `next` elements apart, or a matrix for several heads.
template <class Value>
struct PerHead {
    Value* data;
    std::int64_t column, next;
    bool is_shared = false;
};

// The input is one tensor with rows of queries, keys and values, or three tensors. saved: the probabilities.
template <class T>
class Attention : public CudaLayer {
public:
    Attention(GpuShare& device, const Layer& layer, int samples)
        : CudaLayer(device, layer, samples),
          columns_(layer),
          length_(columns_.rows),
          depth_(columns_.head_width),
          sharing_(columns_.keys.shared_by),
          squares_{static_cast<unsigned>(layer.heads), static_cast<unsigned>(layer.input.height)},
          factor_(static_cast<float>(1 / std::sqrt(static_cast<double>(depth_)))) {
        check_items(std::max<std::int64_t>(samples * layer.input.elements(), squares_.elements()));
        bytes_.saved_until_input = bytes_of<T>(samples * squares_.elements());
        reals_at_ = aligned(softmax_scratch(squares_));
        const std::int64_t sums = kIsRounded && sharing_ > 1 ? length_ * columns_.keys.row_width : 0;
        rounded_at_ = reals_at_ + bytes_of<float>(std::max(squares_.elements(), sums));
        bytes_.scratch = rounded_at_ + (kIsRounded ? bytes_of<T>(squares_.elements()) : 0);
    }

    void forward(const LayerArgs& args, bool save) override {
        for (int n = 0; n < samples_; ++n) {
            T* probabilities = save ? saved(args, n) : in_scratch(args);
            float* scores = reals(args);
            if constexpr (!kIsRounded)
                scores = probabilities;
            multiply_heads<float>(
                {.left = CUBLAS_OP_T, .rows = length_, .columns = length_, .depth = depth_, .factor = factor_},
                read(args, columns_.keys, n), read(args, columns_.queries, n), square(scores));
            causal_softmax(device_.stream(), squares_, scores, probabilities, args.scratch);
            multiply_heads<T>({.left = CUBLAS_OP_N, .rows = depth_, .columns = length_, .depth = length_},
                              read(args, columns_.values, n), square<const T>(probabilities),
                              of_sample(reinterpret_cast<T*>(args.output), columns_.output, n));
        }
    }

    void backward_input(const LayerArgs& args) override {
        const HeadColumns &queries = columns_.queries, &keys = columns_.keys, &values = columns_.values;
        const bool needs_scores = wants(args, queries) || wants(args, keys);
        for (int n = 0; n < samples_; ++n) {
            const Read gradient = of_sample(reinterpret_cast<const T*>(args.output_gradient), columns_.output, n);
            if (wants(args, values))  // dV = P' dO
                sum_heads(args, 1, gradient, square<const T>(saved(args, n)), values, n);
            if (needs_scores)
                backward_scores(args, n, gradient);
            const Read score_gradient = square<const T>(in_scratch(args));
            if (wants(args, queries))  // dQ = dS K
                multiply_heads<T>(
                    {.left = CUBLAS_OP_N, .rows = depth_, .columns = length_, .depth = length_, .factor = factor_},
                    read(args, keys, n), score_gradient, made(args, queries, n));
            if (wants(args, keys))  // dK = dS' Q
                sum_heads(args, factor_, read(args, queries, n), score_gradient, keys, n);
        }
    }

private:
    static constexpr bool kIsRounded = !std::is_same_v<T, float>;
    using Read = PerHead<const T>;

    template <class Value>
    static Bytes bytes_of(std::int64_t count) {
        return aligned(count * static_cast<Bytes>(sizeof(Value)));
    }

    // Makes a product for every head of queries: for all heads of keys at once, and in sequence for the heads that
    // share them. A shared result is the sum over the heads that share it.
    template <class Out>
    void multiply_heads(Product product, const Read& left, const Read& right, const PerHead<Out>& result) const {
        product.batch = static_cast<int>(columns_.heads / sharing_);
        for (std::int64_t number = 0; number < sharing_; ++number) {
            product.accumulate = result.is_shared && number > 0;
            multiply<T, Out>(device_, product, batch<Matrix>(left, number), batch<Matrix>(right, number),
                             batch<Result>(result, number));
        }
    }
    template <class Batch, class Value>
    Batch batch(const PerHead<Value>& all, std::int64_t number) const {
        if (all.is_shared)
            return {all.data, all.column, all.next};
        return {all.data + number * all.next, all.column, sharing_ * all.next};
    }

    // Computes factor squares' rows for keys or values. Sums over heads are made in fp32 and rounded once.
    void sum_heads(const LayerArgs& args, float factor, const Read& rows, const Read& squares, const HeadColumns& to,
                   int n) const {
        const Product product{.left = CUBLAS_OP_N,
                              .rows = depth_,
                              .columns = length_,
                              .depth = length_,
                              .right = CUBLAS_OP_T,
                              .factor = factor};
        const PerHead<T> result = made(args, to, n);
        if constexpr (kIsRounded)
            if (sharing_ > 1) {
                multiply_heads<float>(product, rows, squares, {reals(args), to.row_width, depth_, true});
                round_values(device_.stream(), reals(args), result.data, length_ * to.row_width);
                return;
            }
        multiply_heads<T>(product, rows, squares, result);
    }

    // dP = dO V', and from it dS
    void backward_scores(const LayerArgs& args, int n, const Read& gradient) const {
        multiply_heads<float>({.left = CUBLAS_OP_T, .rows = length_, .columns = length_, .depth = depth_},
                              read(args, columns_.values, n), gradient, square(reals(args)));
        causal_softmax_gradient<T>(device_.stream(), squares_, saved(args, n), reals(args), in_scratch(args),
                                   args.scratch);
    }

    static bool wants(const LayerArgs& args, const HeadColumns& part) { return args.input_gradients[part.tensor]; }
    Read read(const LayerArgs& args, const HeadColumns& part, int n) const {
        return of_sample(reinterpret_cast<const T*>(args.inputs[part.tensor]), part, n);
    }
    PerHead<T> made(const LayerArgs& args, const HeadColumns& part, int n) const {
        return of_sample(reinterpret_cast<T*>(args.input_gradients[part.tensor]), part, n);
    }
    template <class Value>
    PerHead<Value> of_sample(Value* tensor, const HeadColumns& part, int n) const {
        return {tensor + columns_.first_of(n * columns_.heads, part), part.row_width, depth_, part.shared_by > 1};
    }
    template <class Value>
    PerHead<Value> square(Value* data) const {
        return {data, length_, length_ * length_};
    }

    T* saved(const LayerArgs& args, int n) const { return reinterpret_cast<T*>(args.saved) + n * squares_.elements(); }
    float* reals(const LayerArgs& args) const { return floats(args.scratch + reals_at_); }
    // In fp32 it is the same memory as reals().
    T* in_scratch(const LayerArgs& args) const {
        return reinterpret_cast<T*>(args.scratch + (kIsRounded ? rounded_at_ : reals_at_));
    }

    AttentionColumns columns_;
    std::int64_t length_, depth_, sharing_;  // number of rows, width of a head, heads that share keys and values
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
