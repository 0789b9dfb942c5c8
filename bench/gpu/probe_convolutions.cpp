// Convolutions, 3 by 3, of ones: every sum is known, and exact in all precisions.
#include "bench/gpu/probing.h"
#include "exec/cuda/device/device.h"
#include "exec/cuda/events.h"
#include "workloads/error.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

namespace pw {
namespace {

using namespace cuda;

constexpr int kSamples = 8, kSide = 32, kTaps = 9;

struct Arithmetic {
    const char* name;
    cudnnDataType_t type;
    cudnnMathType_t math;
};
constexpr std::array kArithmetic = {
    Arithmetic{"fp32 FMA_MATH", CUDNN_DATA_FLOAT, CUDNN_FMA_MATH},
    Arithmetic{"tf32 DEFAULT_MATH", CUDNN_DATA_FLOAT, CUDNN_DEFAULT_MATH},
    Arithmetic{"tf32 TENSOR_OP_MATH", CUDNN_DATA_FLOAT, CUDNN_TENSOR_OP_MATH},
    Arithmetic{"bf16 DEFAULT_MATH", CUDNN_DATA_BFLOAT16, CUDNN_DEFAULT_MATH},
    Arithmetic{"bf16 TENSOR_OP_MATH", CUDNN_DATA_BFLOAT16, CUDNN_TENSOR_OP_MATH},
};

// A tensor of ones.
struct Ones {
    cudnnDataType_t type;
    DeviceMemory memory;

    Ones(int count, cudnnDataType_t the_type)
        : type(the_type), memory(allocate(count * Bytes{the_type == CUDNN_DATA_FLOAT ? 4 : 2})) {
        const std::vector<float> wide(static_cast<std::size_t>(count), 1.0F);
        const std::vector<std::uint16_t> narrow(wide.size(), 0x3f80);
        const bool is_wide = type == CUDNN_DATA_FLOAT;
        check(cudaMemcpy(memory.get(), is_wide ? static_cast<const void*>(wide.data()) : narrow.data(),
                         wide.size() * (is_wide ? 4 : 2), cudaMemcpyHostToDevice),
              "cudaMemcpy");
        check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");  // other streams do not wait for the copy
    }

    void expect(int place, float expected) const {
        std::uint32_t bits = 0;
        if (type == CUDNN_DATA_FLOAT) {
            check(cudaMemcpy(&bits, memory.get() + 4 * place, 4, cudaMemcpyDeviceToHost), "cudaMemcpy");
        } else {
            std::uint16_t half = 0;
            check(cudaMemcpy(&half, memory.get() + 2 * place, 2, cudaMemcpyDeviceToHost), "cudaMemcpy");
            bits = std::uint32_t{half} << 16;
        }
        float got = 0;
        std::memcpy(&got, &bits, sizeof got);
        if (!(got == expected))
            fail_with(ExitCode::RunFailed, "{} instead of {}", got, expected);
    }
};

class Convolution {
public:
    Convolution(cudnnHandle_t cudnn, cudaStream_t stream, const Arithmetic& arithmetic, int channels, int outputs)
        : cudnn_(cudnn),
          stream_(stream),
          channels_(channels),
          outputs_(outputs),
          x_(kSamples * kSide * kSide * channels, arithmetic.type),
          y_(kSamples * kSide * kSide * outputs, arithmetic.type),
          w_(outputs * kTaps * channels, arithmetic.type) {
        check(cudnnCreateTensorDescriptor(&x_shape_), "cudnnCreateTensorDescriptor");
        check(cudnnCreateTensorDescriptor(&y_shape_), "cudnnCreateTensorDescriptor");
        check(cudnnCreateFilterDescriptor(&w_shape_), "cudnnCreateFilterDescriptor");
        check(cudnnCreateConvolutionDescriptor(&convolution_), "cudnnCreateConvolutionDescriptor");
        const auto set = [&](cudnnTensorDescriptor_t shape, int depth) {
            check(cudnnSetTensor4dDescriptor(shape, CUDNN_TENSOR_NHWC, arithmetic.type, kSamples, depth, kSide, kSide),
                  "cudnnSetTensor4dDescriptor");
        };
        set(x_shape_, channels);
        set(y_shape_, outputs);
        check(cudnnSetFilter4dDescriptor(w_shape_, arithmetic.type, CUDNN_TENSOR_NHWC, outputs, channels, 3, 3),
              "cudnnSetFilter4dDescriptor");
        check(
            cudnnSetConvolution2dDescriptor(convolution_, 1, 1, 1, 1, 1, 1, CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT),
            "cudnnSetConvolution2dDescriptor");
        check(cudnnSetConvolutionMathType(convolution_, arithmetic.math), "cudnnSetConvolutionMathType");
    }

    std::string forward(cudnnConvolutionFwdAlgo_t algorithm) {
        make_room("cudnnGetConvolutionForwardWorkspaceSize", [&](std::size_t* bytes) {
            return cudnnGetConvolutionForwardWorkspaceSize(cudnn_, x_shape_, w_shape_, convolution_, y_shape_,
                                                           algorithm, bytes);
        });
        return timed(
            [&] {
                check(cudnnConvolutionForward(cudnn_, &one_, x_shape_, x_.memory.get(), w_shape_, w_.memory.get(),
                                              convolution_, algorithm, workspace_.get(), room_, &none_, y_shape_,
                                              y_.memory.get()),
                      "cudnnConvolutionForward");
            },
            y_, center(outputs_), static_cast<float>(kTaps * channels_));
    }

    std::string backward_input(cudnnConvolutionBwdDataAlgo_t algorithm) {
        make_room("cudnnGetConvolutionBackwardDataWorkspaceSize", [&](std::size_t* bytes) {
            return cudnnGetConvolutionBackwardDataWorkspaceSize(cudnn_, w_shape_, y_shape_, convolution_, x_shape_,
                                                                algorithm, bytes);
        });
        return timed(
            [&] {
                check(cudnnConvolutionBackwardData(cudnn_, &one_, w_shape_, w_.memory.get(), y_shape_, y_.memory.get(),
                                                   convolution_, algorithm, workspace_.get(), room_, &none_, x_shape_,
                                                   x_.memory.get()),
                      "cudnnConvolutionBackwardData");
            },
            x_, center(channels_), static_cast<float>(kTaps * outputs_));
    }

    std::string backward_weight(cudnnConvolutionBwdFilterAlgo_t algorithm) {
        make_room("cudnnGetConvolutionBackwardFilterWorkspaceSize", [&](std::size_t* bytes) {
            return cudnnGetConvolutionBackwardFilterWorkspaceSize(cudnn_, x_shape_, y_shape_, convolution_, w_shape_,
                                                                  algorithm, bytes);
        });
        return timed(
            [&] {
                check(cudnnConvolutionBackwardFilter(cudnn_, &one_, x_shape_, x_.memory.get(), y_shape_,
                                                     y_.memory.get(), convolution_, algorithm, workspace_.get(), room_,
                                                     &none_, w_shape_, w_.memory.get()),
                      "cudnnConvolutionBackwardFilter");
            },
            w_, kTaps / 2 * channels_, static_cast<float>(kSamples * kSide * kSide));
    }

    // cuDNN's own choices, best first.
    std::string offers() const {
        return "F" +
               listed<cudnnConvolutionFwdAlgoPerf_t>("cudnnGetConvolutionForwardAlgorithm_v7",
                                                     [&](int room, int* count, auto* found) {
                                                         return cudnnGetConvolutionForwardAlgorithm_v7(
                                                             cudnn_, x_shape_, w_shape_, convolution_, y_shape_, room,
                                                             count, found);
                                                     }) +
               ", I" +
               listed<cudnnConvolutionBwdDataAlgoPerf_t>("cudnnGetConvolutionBackwardDataAlgorithm_v7",
                                                         [&](int room, int* count, auto* found) {
                                                             return cudnnGetConvolutionBackwardDataAlgorithm_v7(
                                                                 cudnn_, w_shape_, y_shape_, convolution_, x_shape_,
                                                                 room, count, found);
                                                         }) +
               ", W" +
               listed<cudnnConvolutionBwdFilterAlgoPerf_t>(
                   "cudnnGetConvolutionBackwardFilterAlgorithm_v7", [&](int room, int* count, auto* found) {
                       return cudnnGetConvolutionBackwardFilterAlgorithm_v7(cudnn_, x_shape_, y_shape_, convolution_,
                                                                            w_shape_, room, count, found);
                   });
    }

private:
    static int center(int depth) { return (kSide / 2 * kSide + kSide / 2) * depth; }

    template <class Ask>
    void make_room(const char* call, Ask ask) {
        room_ = 0;
        check(ask(&room_), call);
        workspace_ = allocate(static_cast<Bytes>(std::max<std::size_t>(room_, 1)));
    }

    template <class Pass>
    std::string timed(Pass pass, const Ones& made, int place, float expected) {
        constexpr int kRepeats = 5;
        const Event from(Event::Kind::Timed), to(Event::Kind::Timed);
        pass();
        from.record(stream_);
        for (int k = 0; k < kRepeats; ++k)
            pass();
        to.record(stream_);
        wait_for(stream_, kPatience);
        made.expect(place, expected);
        return fmt::format("{:.1f} us", static_cast<double>(elapsed(from.get(), to.get())) * 1e-3 / kRepeats);
    }

    template <class Found, class Ask>
    static std::string listed(const char* call, Ask ask) {
        std::array<Found, 10> found{};
        int count = 0;
        check(ask(static_cast<int>(found.size()), &count, found.data()), call);
        std::string text;
        for (const Found& one : std::span(found).first(static_cast<std::size_t>(count)))
            if (one.status == CUDNN_STATUS_SUCCESS)
                text += fmt::format(" {}{}", static_cast<int>(one.algo),
                                    one.determinism == CUDNN_DETERMINISTIC ? "" : " (not deterministic)");
        return text.empty() ? " none" : text;
    }

    static constexpr float one_ = 1, none_ = 0;
    cudnnHandle_t cudnn_;
    cudaStream_t stream_;
    int channels_, outputs_;
    Ones x_, y_, w_;
    cudnnTensorDescriptor_t x_shape_ = nullptr, y_shape_ = nullptr;  // these go with the process
    cudnnFilterDescriptor_t w_shape_ = nullptr;
    cudnnConvolutionDescriptor_t convolution_ = nullptr;
    DeviceMemory workspace_;
    std::size_t room_ = 0;
};

// Every pass as the backend requests it for equal bits, on tensors of its own; then the alternatives.
void probe_convolution(cudnnHandle_t cudnn, cudaStream_t stream, const Arithmetic& arithmetic, int channels,
                       int outputs = 64) {
    const int before = failed_probes();
    const auto pass = [&](const char* name, auto run) {
        probe(fmt::format("{} channels, {}, {}", channels, arithmetic.name, name), [&] {
            Convolution convolution(cudnn, stream, arithmetic, channels, outputs);
            return run(convolution);
        });
    };
    pass("F by IMPLICIT_PRECOMP_GEMM",
         [](auto& all) { return all.forward(CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM); });
    pass("F by IMPLICIT_GEMM", [](auto& all) { return all.forward(CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM); });
    pass("I by ALGO_1", [](auto& all) { return all.backward_input(CUDNN_CONVOLUTION_BWD_DATA_ALGO_1); });
    pass("W by ALGO_1", [](auto& all) { return all.backward_weight(CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1); });
    if (failed_probes() > before)
        pass("algorithms offered", [](auto& all) { return all.offers(); });
}

}  // namespace

int check_convolutions(Arguments&) {
    Share share;
    cudaStream_t stream = nullptr;
    cudnnHandle_t cudnn = nullptr;
    const auto open = [&](const char* where, auto prepare) {
        if (cudnn == nullptr)
            probe(where, [&] {
                prepare();
                cudnn = cudnn_on(stream);
                return "";
            });
    };
    open("cuDNN on a share", [&] {
        share = make_share();
        stream = share.streams[0];
    });
    open("cuDNN inside of a share instead", [&] { enter(share); });
    open("cuDNN on the whole GPU instead", [&] {
        check(cudaSetDevice(0), "cudaSetDevice");
        check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    });
    if (cudnn == nullptr)
        return verdict();
    for (const int channels : {3, 5, 64})
        for (const Arithmetic& arithmetic : kArithmetic)
            probe_convolution(cudnn, stream, arithmetic, channels);
    return verdict();
}

// Which shares can run wide convolutions of bf16, whose kernels cuDNN 9.19 starts in clusters of thread blocks: an H100
// refused some on shares of groups that were split without flags. In one process, as the devices of a plan are.
int check_clusters(Arguments&) {
    const Arithmetic& arithmetic = kArithmetic.back();
    for (const unsigned flags : {0u, static_cast<unsigned>(CU_DEV_SM_RESOURCE_SPLIT_MAX_POTENTIAL_CLUSTER_SIZE)})
        for (const unsigned groups : {2u, 3u, 7u}) {
            Share share;
            cudnnHandle_t cudnn = nullptr;
            const int before = failed_probes();
            probe(fmt::format("a share of {} groups, split with flags {}", groups, flags), [&] {
                share = make_share(groups, flags);
                cudnn = cudnn_on(share.streams[0]);
                return fmt::format("{} multiprocessors, {} groups in all", share.multiprocessors, share.groups);
            });
            if (failed_probes() > before)
                continue;
            for (const int channels : {64, 256, 512})
                probe_convolution(cudnn, share.streams[0], arithmetic, channels, channels);
        }
    return kShown;  // the backend tries an algorithm before a share uses it
}

}  // namespace pw
