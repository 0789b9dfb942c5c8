// Convolutions by cuDNN's legacy interface: NHWC tensors, KRSC filters.
#include "exec/cuda/layers.h"
#include "exec/cuda/linear_loops.h"
#include "workloads/error.h"

#include <algorithm>
#include <array>
#include <type_traits>

namespace pw::cuda {

namespace {

using TensorShape = Owned<cudnnTensorDescriptor_t, cudnnDestroyTensorDescriptor>;
using FilterShape = Owned<cudnnFilterDescriptor_t, cudnnDestroyFilterDescriptor>;
using Operation = Owned<cudnnConvolutionDescriptor_t, cudnnDestroyConvolutionDescriptor>;

constexpr Bytes kMostTried = Bytes{256} << 20;  // of workspace, for an algorithm chosen by timing

template <class T>
constexpr cudnnDataType_t kType = CUDNN_DATA_FLOAT;
template <>
constexpr cudnnDataType_t kType<Bf16> = CUDNN_DATA_BFLOAT16;

cudnnMathType_t math_of(Precision precision) {
    switch (precision) {
        case Precision::Fp32:
            return CUDNN_FMA_MATH;
        case Precision::Tf32:
            return CUDNN_DEFAULT_MATH;
        case Precision::Bf16:
            return CUDNN_TENSOR_OP_MATH;
    }
    return CUDNN_DEFAULT_MATH;
}

TensorShape tensor_shape(Dims dims, int samples, cudnnDataType_t type) {
    cudnnTensorDescriptor_t made = nullptr;
    check(cudnnCreateTensorDescriptor(&made), "cudnnCreateTensorDescriptor");
    TensorShape shape(made);
    check(cudnnSetTensor4dDescriptor(made, CUDNN_TENSOR_NHWC, type, samples, dims.channels, dims.height, dims.width),
          "cudnnSetTensor4dDescriptor");
    return shape;
}

FilterShape filter_shape(const Layer& layer, int channels, cudnnDataType_t type) {
    cudnnFilterDescriptor_t made = nullptr;
    check(cudnnCreateFilterDescriptor(&made), "cudnnCreateFilterDescriptor");
    FilterShape shape(made);
    check(cudnnSetFilter4dDescriptor(made, type, CUDNN_TENSOR_NHWC, layer.output.channels, channels,
                                     layer.kernel, layer.kernel),
          "cudnnSetFilter4dDescriptor");
    return shape;
}

Operation operation(const Layer& layer, cudnnMathType_t math) {
    cudnnConvolutionDescriptor_t made = nullptr;
    check(cudnnCreateConvolutionDescriptor(&made), "cudnnCreateConvolutionDescriptor");
    Operation convolution(made);
    check(cudnnSetConvolution2dDescriptor(made, layer.padding, layer.padding, layer.stride, layer.stride, 1, 1,
                                          CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT),
          "cudnnSetConvolution2dDescriptor");
    check(cudnnSetConvolutionMathType(made, math), "cudnnSetConvolutionMathType");
    return convolution;
}

// How a pass may be done.
template <class Algorithm>
struct Way {
    Algorithm algorithm;
    cudnnMathType_t math;
};

// How it is done.
template <class Algorithm>
struct Pass {
    Operation convolution;
    Algorithm algorithm{};
    std::size_t workspace = 0;
};

// The first way that cuDNN has for the shape.
template <class Algorithm, class WorkspaceOf>
Pass<Algorithm> first_supported(const Layer& layer, const char* pass, const std::vector<Way<Algorithm>>& ways,
                                WorkspaceOf workspace_of) {
    cudnnStatus_t status = CUDNN_STATUS_NOT_SUPPORTED;
    for (const Way<Algorithm>& way : ways) {
        Pass<Algorithm> chosen{operation(layer, way.math), way.algorithm, 0};
        status = workspace_of(chosen.convolution.get(), way.algorithm, &chosen.workspace);
        if (status == CUDNN_STATUS_SUCCESS)
            return chosen;
    }
    fail_with(ExitCode::RunFailed, "layer '{}': cuDNN has no algorithm for its {} pass: {}", layer.name, pass,
              cudnnGetErrorString(status));
}

// The ways that cuDNN timed, fastest first. Under Fp32 it may try tensor cores all the same.
template <class Found, class Algorithm, class Find>
void add_timed(std::vector<Way<Algorithm>>& ways, Precision precision, const char* call, Find find) {
    std::array<Found, 16> found{};
    int count = 0;
    check(find(static_cast<int>(found.size()), &count, found.data()), call);
    for (int i = 0; i < count; ++i) {
        const Found& way = found[static_cast<std::size_t>(i)];
        const bool tensor_cores =
            way.mathType == CUDNN_TENSOR_OP_MATH || way.mathType == CUDNN_TENSOR_OP_MATH_ALLOW_CONVERSION;
        const bool is_fp32 = precision == Precision::Fp32;
        if (way.status == CUDNN_STATUS_SUCCESS && way.memory <= kMostTried && !(is_fp32 && tensor_cores))
            ways.push_back({way.algo, is_fp32 ? CUDNN_FMA_MATH : way.mathType});
    }
}

template <class T>
class Convolution : public CudaLayer {
public:
    Convolution(Device& device, const Layer& layer, int samples, bool reads_data)
        : CudaLayer(device, layer, samples),
          read_{reads_data ? padded_channels(layer.input.channels) : layer.input.channels, layer.input.height,
                layer.input.width},
          count_(std::int64_t{layer.output.channels} * read_.channels * layer.kernel * layer.kernel),
          x_(tensor_shape(read_, samples, kType<T>)),
          y_(tensor_shape(layer.output, samples, kType<T>)),
          w_(filter_shape(layer, read_.channels, kType<T>)) {
        bytes_.weights = block_bytes(count_, device.precision());
        values_ = block_values(bytes_.weights, device.precision());
        const std::unique_ptr<Trial> trial = device.deterministic() ? nullptr : std::make_unique<Trial>(*this);
        choose_forward(trial.get());
        if (!reads_data)
            choose_backward_input(trial.get());
        choose_backward_weight(trial.get());
        bytes_.scratch =
            round_up(static_cast<Bytes>(std::max({forward_.workspace, input_.workspace, weight_.workspace})), 64);
    }

    void forward(const LayerArgs& args, bool) override {
        const float one = 1, none = 0;
        check(cudnnConvolutionForward(device_.cudnn(), &one, x_.get(), args.inputs[0], w_.get(),
                                      read_by_products<T>(args.weights, values_), forward_.convolution.get(), forward_.algorithm,
                                      args.scratch, forward_.workspace, &none, y_.get(), args.output),
              "cudnnConvolutionForward");
    }

    void backward_input(const LayerArgs& args) override {
        if (!args.input_gradients[0])
            return;
        const float one = 1, none = 0;
        check(cudnnConvolutionBackwardData(device_.cudnn(), &one, w_.get(), read_by_products<T>(args.weights, values_), y_.get(),
                                           args.output_gradient, input_.convolution.get(), input_.algorithm,
                                           args.scratch, input_.workspace, &none, x_.get(), args.input_gradients[0]),
              "cudnnConvolutionBackwardData");
    }

    void backward_weight(const LayerArgs& args) override {
        if constexpr (std::is_same_v<T, Bf16>) {
            Bf16* made = shadow(args.weight_gradient, values_);
            make_weight_gradient(args, made, false);
            widen_gradient(device_.stream(), made, floats(args.weight_gradient), count_, values_, args.accumulate);
        } else {
            float* gradient = floats(args.weight_gradient);
            make_weight_gradient(args, gradient, args.accumulate);
            if (!args.accumulate && values_ > count_)
                check(cudaMemsetAsync(gradient + count_, 0, static_cast<std::size_t>(values_ - count_) * sizeof(float),
                                      device_.stream()),
                      "cudaMemsetAsync");
        }
    }

    void load(const std::vector<std::vector<float>>& values, std::byte* weights, std::byte*) override {
        std::vector<float> filter(static_cast<std::size_t>(count_));
        for_weights([&](std::size_t plain, std::size_t place) { filter[place] = values[0][plain]; });
        load_block(filter, weights, bytes_.weights);
    }

    std::vector<std::vector<float>> store(const std::byte* weights, const std::byte*) const override {
        const std::vector<float> filter = store_block(weights, count_);
        std::vector<float> plain(filter.size() / static_cast<std::size_t>(read_.channels) *
                                 static_cast<std::size_t>(layer_.input.channels));
        for_weights([&](std::size_t at, std::size_t place) { plain[at] = filter[place]; });
        return {plain};
    }

    std::vector<float> read_input(const std::byte* tensor, int) const override {
        return with_channels(this->read(read_, tensor), read_.channels, layer_.input.channels);
    }
    void fill_input(const std::vector<float>& values, std::byte* tensor, int) const override {
        this->fill(read_, with_channels(values, layer_.input.channels, read_.channels), tensor);
    }

private:
    // Plain images with fewer channels, or with channels of zeros behind their own.
    std::vector<float> with_channels(const std::vector<float>& values, int had, int channels) const {
        const std::int64_t pixels = std::int64_t{read_.height} * read_.width;
        std::vector<float> changed;
        for (auto image = values.begin(); image != values.end(); image += had * pixels) {
            changed.insert(changed.end(), image, image + std::min(had, channels) * pixels);
            changed.resize(changed.size() + static_cast<std::size_t>(std::max(channels - had, 0) * pixels));
        }
        return changed;
    }

    // Memory to time algorithms in.
    struct Trial {
        explicit Trial(const Convolution& layer)
            : x(allocate(tensor_bytes(layer.samples_ * layer.read_.elements(), layer.device_.precision()))),
              y(allocate(layer.bytes_.output)),
              w(allocate(layer.bytes_.weights)),
              workspace(allocate(kMostTried)) {}
        DeviceMemory x, y, w, workspace;
    };

    void choose_forward(const Trial* trial) {
        std::vector<Way<cudnnConvolutionFwdAlgo_t>> ways;
        if (trial != nullptr)
            add_timed<cudnnConvolutionFwdAlgoPerf_t>(
                ways, device_.precision(), "cudnnFindConvolutionForwardAlgorithmEx",
                [&](int room, int* count, auto* found) {
                    return cudnnFindConvolutionForwardAlgorithmEx(
                        device_.cudnn(), x_.get(), trial->x.get(), w_.get(), trial->w.get(),
                        operation(layer_, math_of(device_.precision())).get(), y_.get(), trial->y.get(), room, count,
                        found, trial->workspace.get(), kMostTried);
                });
        for (const auto algorithm :
             {CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM, CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM})
            ways.push_back({algorithm, math_of(device_.precision())});
        forward_ = first_supported(layer_, "forward", ways, [&](auto convolution, auto algorithm, std::size_t* bytes) {
            return cudnnGetConvolutionForwardWorkspaceSize(device_.cudnn(), x_.get(), w_.get(), convolution, y_.get(),
                                                           algorithm, bytes);
        });
    }

    void choose_backward_input(const Trial* trial) {
        std::vector<Way<cudnnConvolutionBwdDataAlgo_t>> ways;
        if (trial != nullptr)
            add_timed<cudnnConvolutionBwdDataAlgoPerf_t>(
                ways, device_.precision(), "cudnnFindConvolutionBackwardDataAlgorithmEx",
                [&](int room, int* count, auto* found) {
                    return cudnnFindConvolutionBackwardDataAlgorithmEx(
                        device_.cudnn(), w_.get(), trial->w.get(), y_.get(), trial->y.get(),
                        operation(layer_, math_of(device_.precision())).get(), x_.get(), trial->x.get(), room, count,
                        found, trial->workspace.get(), kMostTried);
                });
        ways.push_back({CUDNN_CONVOLUTION_BWD_DATA_ALGO_1, math_of(device_.precision())});
        input_ =
            first_supported(layer_, "input gradient", ways, [&](auto convolution, auto algorithm, std::size_t* bytes) {
                return cudnnGetConvolutionBackwardDataWorkspaceSize(device_.cudnn(), w_.get(), y_.get(), convolution,
                                                                    x_.get(), algorithm, bytes);
            });
    }

    void choose_backward_weight(const Trial* trial) {
        std::vector<Way<cudnnConvolutionBwdFilterAlgo_t>> ways;
        if (trial != nullptr)
            add_timed<cudnnConvolutionBwdFilterAlgoPerf_t>(
                ways, device_.precision(), "cudnnFindConvolutionBackwardFilterAlgorithmEx",
                [&](int room, int* count, auto* found) {
                    return cudnnFindConvolutionBackwardFilterAlgorithmEx(
                        device_.cudnn(), x_.get(), trial->x.get(), y_.get(), trial->y.get(),
                        operation(layer_, math_of(device_.precision())).get(), w_.get(), trial->w.get(), room, count,
                        found, trial->workspace.get(), kMostTried);
                });
        ways.push_back({CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1, math_of(device_.precision())});
        weight_ =
            first_supported(layer_, "weight gradient", ways, [&](auto convolution, auto algorithm, std::size_t* bytes) {
                return cudnnGetConvolutionBackwardFilterWorkspaceSize(device_.cudnn(), x_.get(), y_.get(), convolution,
                                                                      w_.get(), algorithm, bytes);
            });
    }

    void make_weight_gradient(const LayerArgs& args, T* made, bool accumulate) {
        const float one = 1, beta = accumulate ? 1 : 0;
        check(cudnnConvolutionBackwardFilter(device_.cudnn(), &one, x_.get(), args.inputs[0], y_.get(),
                                             args.output_gradient, weight_.convolution.get(), weight_.algorithm,
                                             args.scratch, weight_.workspace, &beta, w_.get(), made),
              "cudnnConvolutionBackwardFilter");
    }

    // Calls visit(place in OIHW, place in KRSC) for every weight; the channels of padding have none.
    template <class Visit>
    void for_weights(Visit visit) const {
        const std::int64_t channels = layer_.input.channels, taps = std::int64_t{layer_.kernel} * layer_.kernel;
        std::size_t plain = 0;
        for (std::int64_t o = 0; o < layer_.output.channels; ++o)
            for (std::int64_t c = 0; c < channels; ++c)
                for (std::int64_t tap = 0; tap < taps; ++tap)
                    visit(plain++, static_cast<std::size_t>((o * taps + tap) * read_.channels + c));
    }

    const Dims read_;                  // what it reads: its input, padded
    std::int64_t count_, values_ = 0;  // weights, those of the padding too; values of their block
    TensorShape x_, y_;
    FilterShape w_;
    Pass<cudnnConvolutionFwdAlgo_t> forward_;
    Pass<cudnnConvolutionBwdDataAlgo_t> input_;
    Pass<cudnnConvolutionBwdFilterAlgo_t> weight_;
};

}  // namespace

template <class T>
std::unique_ptr<LayerKernel> make_convolution(Device& device, const Layer& layer, int samples, bool reads_data) {
    return std::make_unique<Convolution<T>>(device, layer, samples, reads_data);
}
template std::unique_ptr<LayerKernel> make_convolution<float>(Device&, const Layer&, int, bool);
template std::unique_ptr<LayerKernel> make_convolution<Bf16>(Device&, const Layer&, int, bool);

}  // namespace pw::cuda
