// Convolutions by cuDNN's legacy interface: NHWC tensors, KRSC filters.
#include "exec/cuda/device/job_gpus.h"
#include "exec/cuda/layers/algorithms.h"
#include "exec/cuda/layers/layers.h"
#include "exec/cuda/layers/linear_loops.h"
#include "workloads/error.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <span>
#include <type_traits>
#include <vector>

namespace pw::cuda {

namespace {

using TensorShape = Owned<cudnnTensorDescriptor_t, cudnnDestroyTensorDescriptor>;
using FilterShape = Owned<cudnnFilterDescriptor_t, cudnnDestroyFilterDescriptor>;
using Operation = Owned<cudnnConvolutionDescriptor_t, cudnnDestroyConvolutionDescriptor>;

constexpr Bytes kMostTried = Bytes{256} << 20;  // the largest workspace of an algorithm that is timed

template <class T>
constexpr cudnnDataType_t kType = CUDNN_DATA_FLOAT;
template <>
constexpr cudnnDataType_t kType<Bf16> = CUDNN_DATA_BFLOAT16;

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
    check(cudnnSetFilter4dDescriptor(made, type, CUDNN_TENSOR_NHWC, layer.output.channels, channels, layer.kernel,
                                     layer.kernel),
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

// The algorithm of a pass, and its workspace.
template <class Algorithm>
struct Pass {
    Operation convolution;
    Algorithm algorithm{};
    std::size_t workspace = 0;
};

// Returns the ways that `list` has found, fastest first. It is empty if `list` fails, since there are other ways.
template <class Perf, class List>
std::vector<ConvolutionWay> listed(const Layer& layer, const GpuShare& device, List list) {
    std::vector<ConvolutionWay> ways;
    for (const ConvolutionMath math : maths_of(device.precision())) {
        std::array<Perf, 16> found{};
        int count = 0;
        const Operation convolution = operation(layer, math_type(math));
        if (list(convolution.get(), static_cast<int>(found.size()), &count, found.data()) != CUDNN_STATUS_SUCCESS) {
            (void)cudaGetLastError();
            continue;
        }
        for (const Perf& perf : std::span(found).first(static_cast<std::size_t>(count))) {
            const bool repeats = perf.determinism == CUDNN_DETERMINISTIC || !device.deterministic();
            // cuDNN may also try other kinds of math than the requested one.
            const bool rounds = perf.mathType == CUDNN_TENSOR_OP_MATH_ALLOW_CONVERSION ||
                                (perf.mathType == CUDNN_TENSOR_OP_MATH && math == ConvolutionMath::Fma);
            const bool by_default = perf.mathType == CUDNN_DEFAULT_MATH && math == ConvolutionMath::TensorOp;
            if (perf.status == CUDNN_STATUS_SUCCESS && repeats && !rounds)
                ways.push_back({static_cast<int>(perf.algo), by_default ? ConvolutionMath::Default : math});
        }
        if (!ways.empty())
            break;
    }
    return ways;
}

// The calls of cuDNN for the three passes of a convolution, each with an algorithm that is chosen once.
class ConvolutionCalls {
public:
    struct Sizes {
        Bytes input, output, weights;
    };

    ConvolutionCalls(const GpuShare& device, const Layer& layer, Dims read, int samples, cudnnDataType_t type,
                     const Sizes& sizes, bool with_input_gradient)
        : device_(device),
          layer_(layer),
          read_(read),
          samples_(samples),
          sizes_(sizes),
          x_(tensor_shape(read, samples, type)),
          y_(tensor_shape(layer.output, samples, type)),
          w_(filter_shape(layer, read.channels, type)) {
        choose_forward();
        if (with_input_gradient)
            choose_backward_input();
        choose_backward_weight();
        trial_.reset();
    }

    std::size_t workspace() const { return std::max({forward_.workspace, input_.workspace, weight_.workspace}); }

    void forward(const void* x, const void* w, void* scratch, void* y) const {
        check_call(forward(forward_, x, w, scratch, y), "cudnnConvolutionForward");
    }
    void input_gradient(const void* w, const void* dy, void* scratch, void* dx) const {
        check_call(input_gradient(input_, w, dy, scratch, dx), "cudnnConvolutionBackwardData");
    }
    void weight_gradient(const void* x, const void* dy, void* scratch, bool accumulate, void* dw) const {
        check_call(weight_gradient(weight_, x, dy, scratch, accumulate, dw), "cudnnConvolutionBackwardFilter");
    }

private:
    // The memory in which algorithms are timed or tried.
    struct Trial {
        explicit Trial(const ConvolutionCalls& calls)
            : x(allocate(calls.sizes_.input)),
              y(allocate(calls.sizes_.output)),
              w(allocate(calls.sizes_.weights)),
              workspace(allocate(kMostTried)) {}
        DeviceMemory x, y, w, workspace;
    };

    ConvolutionShape shape_of(ConvolutionPass pass) const {
        return {.pass = pass,
                .samples = samples_,
                .channels = read_.channels,
                .height = read_.height,
                .width = read_.width,
                .outputs = layer_.output.channels,
                .kernel = layer_.kernel,
                .stride = layer_.stride,
                .padding = layer_.padding,
                .multiprocessors = device_.multiprocessors()};
    }

    const Trial& trial() {
        if (!trial_)
            trial_ = std::make_unique<Trial>(*this);
        return *trial_;
    }

    // `always` has deterministic algorithms that cuDNN supports for most shapes. `find` times algorithms, `guess`
    // ranks them by rules, `workspace_of` returns whether one is supported, `run` computes the pass in a trial's
    // memory.
    template <class Perf, class Algorithm, class Find, class Guess, class WorkspaceOf, class Run>
    Pass<Algorithm> choose(ConvolutionPass pass, const std::vector<Algorithm>& always, Find find, Guess guess,
                           WorkspaceOf workspace_of, Run run) {
        Pass<Algorithm> made;
        cudnnStatus_t status = CUDNN_STATUS_NOT_SUPPORTED;
        const bool timed = !device_.deterministic();
        const std::vector<ConvolutionMath> maths = maths_of(device_.precision());
        // Afterwards the way is in `made`.
        const auto is_possible = [&](const ConvolutionWay& way) {
            if (std::ranges::find(maths, way.math) == maths.end())
                return false;
            made = {operation(layer_, math_type(way.math)), static_cast<Algorithm>(way.algorithm), 0};
            status = workspace_of(made.convolution.get(), made.algorithm, &made.workspace);
            return status == CUDNN_STATUS_SUCCESS;
        };
        // On a share of a GPU cuDNN supports algorithms that cannot be launched there ("cluster misconfiguration", in
        // bf16 with cuDNN 9.19 on an H100). Only a launch shows it.
        const auto runs = [&](const ConvolutionWay& way) {
            if (!is_possible(way))
                return false;
            if (device_.seat().groups == 0 || made.workspace > static_cast<std::size_t>(kMostTried))
                return true;
            try {
                status = run(trial(), made);
            } catch (const Error&) {  // no memory for it: the reservation of the device's block says so
                return true;
            }
            if (status != CUDNN_STATUS_SUCCESS)
                (void)cudaGetLastError();
            return status == CUDNN_STATUS_SUCCESS;
        };
        device_.job().ways.way_of({shape_of(pass), device_.precision(), timed}, is_possible, [&] {
            std::vector<ConvolutionWay> ways;
            if (timed)
                ways = listed<Perf>(layer_, device_, [&](auto... asked) { return find(trial(), asked...); });
            const auto add = [&](ConvolutionMath math) {
                for (const Algorithm algorithm : always)
                    ways.push_back({static_cast<int>(algorithm), math});
            };
            add(maths.front());
            auto found = std::ranges::find_if(ways, runs);
            if (found == ways.end()) {
                ways = listed<Perf>(layer_, device_, guess);
                std::ranges::for_each(maths, add);
                found = std::ranges::find_if(ways, runs);
            }
            if (found != ways.end())
                return *found;
            fail_with(ExitCode::RunFailed, "layer '{}': cuDNN has no algorithm for its {} pass: {}", layer_.name,
                      name_of(pass), cudnnGetErrorString(status));
        });
        return made;
    }

    void choose_forward() {
        forward_ = choose<cudnnConvolutionFwdAlgoPerf_t, cudnnConvolutionFwdAlgo_t>(
            ConvolutionPass::Forward,
            {CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM, CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM},
            [&](const Trial& trial, auto convolution, int room, int* count, auto* found) {
                return cudnnFindConvolutionForwardAlgorithmEx(device_.cudnn(), x_.get(), trial.x.get(), w_.get(),
                                                              trial.w.get(), convolution, y_.get(), trial.y.get(), room,
                                                              count, found, trial.workspace.get(), kMostTried);
            },
            [&](auto convolution, int room, int* count, auto* found) {
                return cudnnGetConvolutionForwardAlgorithm_v7(device_.cudnn(), x_.get(), w_.get(), convolution,
                                                              y_.get(), room, count, found);
            },
            [&](auto convolution, auto algorithm, std::size_t* bytes) {
                return cudnnGetConvolutionForwardWorkspaceSize(device_.cudnn(), x_.get(), w_.get(), convolution,
                                                               y_.get(), algorithm, bytes);
            },
            [&](const Trial& trial, const auto& pass) {
                return forward(pass, trial.x.get(), trial.w.get(), trial.workspace.get(), trial.y.get());
            });
    }

    void choose_backward_input() {
        input_ = choose<cudnnConvolutionBwdDataAlgoPerf_t, cudnnConvolutionBwdDataAlgo_t>(
            ConvolutionPass::BackwardInput, {CUDNN_CONVOLUTION_BWD_DATA_ALGO_1},
            [&](const Trial& trial, auto convolution, int room, int* count, auto* found) {
                return cudnnFindConvolutionBackwardDataAlgorithmEx(
                    device_.cudnn(), w_.get(), trial.w.get(), y_.get(), trial.y.get(), convolution, x_.get(),
                    trial.x.get(), room, count, found, trial.workspace.get(), kMostTried);
            },
            [&](auto convolution, int room, int* count, auto* found) {
                return cudnnGetConvolutionBackwardDataAlgorithm_v7(device_.cudnn(), w_.get(), y_.get(), convolution,
                                                                   x_.get(), room, count, found);
            },
            [&](auto convolution, auto algorithm, std::size_t* bytes) {
                return cudnnGetConvolutionBackwardDataWorkspaceSize(device_.cudnn(), w_.get(), y_.get(), convolution,
                                                                    x_.get(), algorithm, bytes);
            },
            [&](const Trial& trial, const auto& pass) {
                return input_gradient(pass, trial.w.get(), trial.y.get(), trial.workspace.get(), trial.x.get());
            });
    }

    void choose_backward_weight() {
        weight_ = choose<cudnnConvolutionBwdFilterAlgoPerf_t, cudnnConvolutionBwdFilterAlgo_t>(
            ConvolutionPass::BackwardWeight, {CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1},
            [&](const Trial& trial, auto convolution, int room, int* count, auto* found) {
                return cudnnFindConvolutionBackwardFilterAlgorithmEx(
                    device_.cudnn(), x_.get(), trial.x.get(), y_.get(), trial.y.get(), convolution, w_.get(),
                    trial.w.get(), room, count, found, trial.workspace.get(), kMostTried);
            },
            [&](auto convolution, int room, int* count, auto* found) {
                return cudnnGetConvolutionBackwardFilterAlgorithm_v7(device_.cudnn(), x_.get(), y_.get(), convolution,
                                                                     w_.get(), room, count, found);
            },
            [&](auto convolution, auto algorithm, std::size_t* bytes) {
                return cudnnGetConvolutionBackwardFilterWorkspaceSize(device_.cudnn(), x_.get(), y_.get(), convolution,
                                                                      w_.get(), algorithm, bytes);
            },
            [&](const Trial& trial, const auto& pass) {
                return weight_gradient(pass, trial.x.get(), trial.y.get(), trial.workspace.get(), false, trial.w.get());
            });
    }

    void check_call(cudnnStatus_t status, const char* call) const {
        if (status != CUDNN_STATUS_SUCCESS)
            check(status, fmt::format("layer '{}': {}", layer_.name, call).c_str());
    }

    cudnnStatus_t forward(const Pass<cudnnConvolutionFwdAlgo_t>& pass, const void* x, const void* w, void* scratch,
                          void* y) const {
        const float one = 1, none = 0;
        return cudnnConvolutionForward(device_.cudnn(), &one, x_.get(), x, w_.get(), w, pass.convolution.get(),
                                       pass.algorithm, scratch, pass.workspace, &none, y_.get(), y);
    }
    cudnnStatus_t input_gradient(const Pass<cudnnConvolutionBwdDataAlgo_t>& pass, const void* w, const void* dy,
                                 void* scratch, void* dx) const {
        const float one = 1, none = 0;
        return cudnnConvolutionBackwardData(device_.cudnn(), &one, w_.get(), w, y_.get(), dy, pass.convolution.get(),
                                            pass.algorithm, scratch, pass.workspace, &none, x_.get(), dx);
    }
    cudnnStatus_t weight_gradient(const Pass<cudnnConvolutionBwdFilterAlgo_t>& pass, const void* x, const void* dy,
                                  void* scratch, bool accumulate, void* dw) const {
        const float one = 1, beta = accumulate ? 1 : 0;
        return cudnnConvolutionBackwardFilter(device_.cudnn(), &one, x_.get(), x, y_.get(), dy, pass.convolution.get(),
                                              pass.algorithm, scratch, pass.workspace, &beta, w_.get(), dw);
    }

    const GpuShare& device_;
    const Layer& layer_;
    const Dims read_;
    const int samples_;
    const Sizes sizes_;
    std::unique_ptr<Trial> trial_;  // not null only while algorithms are chosen
    TensorShape x_, y_;
    FilterShape w_;
    Pass<cudnnConvolutionFwdAlgo_t> forward_;
    Pass<cudnnConvolutionBwdDataAlgo_t> input_;
    Pass<cudnnConvolutionBwdFilterAlgo_t> weight_;
};

template <class T>
class Convolution : public CudaLayer {
public:
    Convolution(GpuShare& device, const Layer& layer, int samples, bool reads_data)
        : CudaLayer(device, layer, samples),
          read_{reads_data ? padded_channels(layer.input.channels) : layer.input.channels, layer.input.height,
                layer.input.width},
          count_(std::int64_t{layer.output.channels} * read_.channels * layer.kernel * layer.kernel) {
        bytes_.weights = block_bytes(count_, device.precision());
        values_ = block_values(bytes_.weights, device.precision());
        calls_ = std::make_unique<ConvolutionCalls>(
            device, layer_, read_, samples, kType<T>,
            ConvolutionCalls::Sizes{tensor_bytes(samples * read_.elements(), device.precision()), bytes_.output,
                                    bytes_.weights},
            !reads_data);
        bytes_.scratch = aligned(static_cast<Bytes>(calls_->workspace()));
    }

    void forward(const LayerArgs& args, bool) override {
        calls_->forward(args.inputs[0], read_by_products<T>(args.weights, values_), args.scratch, args.output);
    }

    void backward_input(const LayerArgs& args) override {
        if (args.input_gradients[0])
            calls_->input_gradient(read_by_products<T>(args.weights, values_), args.output_gradient, args.scratch,
                                   args.input_gradients[0]);
    }

    void backward_weight(const LayerArgs& args) override {
        if constexpr (std::is_same_v<T, Bf16>) {
            Bf16* made = shadow(args.weight_gradient, values_);
            calls_->weight_gradient(args.inputs[0], args.output_gradient, args.scratch, false, made);
            widen_gradient(device_.stream(), made, floats(args.weight_gradient), count_, values_, args.accumulate);
        } else {
            float* gradient = floats(args.weight_gradient);
            calls_->weight_gradient(args.inputs[0], args.output_gradient, args.scratch, args.accumulate, gradient);
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
    // Returns plain images with another number of channels: with fewer ones, or with channels of zeros after their
    // own.
    std::vector<float> with_channels(const std::vector<float>& values, int had, int channels) const {
        const std::int64_t pixels = std::int64_t{read_.height} * read_.width;
        std::vector<float> changed;
        for (auto image = values.begin(); image != values.end(); image += had * pixels) {
            changed.insert(changed.end(), image, image + std::min(had, channels) * pixels);
            changed.resize(changed.size() + static_cast<std::size_t>(std::max(channels - had, 0) * pixels));
        }
        return changed;
    }

    // Calls visit(offset in OIHW, offset in KRSC) for every weight, except those of padding channels.
    template <class Visit>
    void for_weights(Visit visit) const {
        const std::int64_t channels = layer_.input.channels, taps = std::int64_t{layer_.kernel} * layer_.kernel;
        std::size_t plain = 0;
        for (std::int64_t o = 0; o < layer_.output.channels; ++o)
            for (std::int64_t c = 0; c < channels; ++c)
                for (std::int64_t tap = 0; tap < taps; ++tap)
                    visit(plain++, static_cast<std::size_t>((o * taps + tap) * read_.channels + c));
    }

    const Dims read_;                  // the padded input
    std::int64_t count_, values_ = 0;  // number of weights, padding included; number of values in their block
    std::unique_ptr<const ConvolutionCalls> calls_;
};

}  // namespace

template <class T>
std::unique_ptr<LayerKernel> make_convolution(GpuShare& device, const Layer& layer, int samples, bool reads_data) {
    return std::make_unique<Convolution<T>>(device, layer, samples, reads_data);
}
template std::unique_ptr<LayerKernel> make_convolution<float>(GpuShare&, const Layer&, int, bool);
template std::unique_ptr<LayerKernel> make_convolution<Bf16>(GpuShare&, const Layer&, int, bool);

}  // namespace pw::cuda
