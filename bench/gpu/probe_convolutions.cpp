// Convolutions, 3 by 3, of ones: every sum is known. It is exact, or in fp32 off by the last bit: cuDNN 9.19 has
// engines for W that do not only add up, though none of their notes says so.
#include "bench/gpu/probing.h"
#include "exec/cuda/device/device.h"
#include "exec/cuda/device/events.h"
#include "exec/cuda/layers/convolution_plans.h"
#include "workloads/error.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

namespace pw {
namespace {

using namespace cuda;

constexpr int kSamples = 8, kSide = 32, kTaps = 9;
constexpr float kLastBit = 1.2e-7F;

// A tensor of ones.
struct Ones {
    bool is_wide;
    DeviceMemory memory;

    Ones(int count, Precision precision)
        : is_wide(precision != Precision::Bf16), memory(allocate(count * Bytes{is_wide ? 4 : 2})) {
        const std::vector<float> wide(static_cast<std::size_t>(count), 1.0F);
        const std::vector<std::uint16_t> narrow(wide.size(), 0x3f80);
        check(cudaMemcpy(memory.get(), is_wide ? static_cast<const void*>(wide.data()) : narrow.data(),
                         wide.size() * (is_wide ? 4 : 2), cudaMemcpyHostToDevice),
              "cudaMemcpy");
        check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");  // other streams do not wait for the copy
    }

    void expect(int place, float expected) const {
        std::uint32_t bits = 0;
        if (is_wide) {
            check(cudaMemcpy(&bits, memory.get() + 4 * place, 4, cudaMemcpyDeviceToHost), "cudaMemcpy");
        } else {
            std::uint16_t half = 0;
            check(cudaMemcpy(&half, memory.get() + 2 * place, 2, cudaMemcpyDeviceToHost), "cudaMemcpy");
            bits = std::uint32_t{half} << 16;
        }
        float got = 0;
        std::memcpy(&got, &bits, sizeof got);
        if (!(std::abs(got - expected) <= (is_wide ? kLastBit * expected : 0)))
            fail_with(ExitCode::RunFailed, "{} instead of {}", got, expected);
    }
};

// A pass over samples of ones, on a stream of a share.
class Convolution {
public:
    Convolution(cudnnHandle_t cudnn, cudaStream_t stream, Precision precision, ConvolutionPass pass, int channels,
                int outputs)
        : cudnn_(cudnn),
          stream_(stream),
          precision_(precision),
          proposals_(cudnn,
                     {.pass = pass,
                      .samples = kSamples,
                      .channels = channels,
                      .height = kSide,
                      .width = kSide,
                      .outputs = outputs,
                      .kernel = 3,
                      .stride = 1,
                      .padding = 1},
                     precision) {
        const int center = kSide / 2 * kSide + kSide / 2;
        counts_ = {kSamples * kSide * kSide * channels, outputs * kTaps * channels, kSamples * kSide * kSide * outputs};
        if (pass == ConvolutionPass::Forward)
            result_ = {2, center * outputs, static_cast<float>(kTaps * channels)};
        else if (pass == ConvolutionPass::BackwardInput)
            result_ = {0, center * channels, static_cast<float>(kTaps * outputs)};
        else
            result_ = {1, kTaps / 2 * channels, static_cast<float>(kSamples * kSide * kSide)};
    }

    // Times the first plan that `repeats` allows and that can be launched.
    std::string first(bool repeats) {
        std::string refused;
        for (int k = 0; k < proposals_.count(); ++k)
            if (const auto plan = proposals_.plan(k, repeats, kMostWorkspace)) {
                if (const std::optional<double> us = time_of(*plan))
                    return fmt::format("plan {} of {}, {:.1f} us{}", k, proposals_.count(), *us,
                                       refused.empty() ? "" : "; not launched:" + refused);
                refused += fmt::format(" {}", k);
            }
        fail_with(ExitCode::RunFailed, "no plan of {}; not launched:{}", proposals_.count(), refused);
    }

    // Lists the plans: microseconds, or "refused" if it cannot be launched.
    std::string all() {
        std::string text;
        int runs = 0;
        for (int k = 0; k < std::min(proposals_.count(), kMostListed); ++k)
            if (const auto plan = proposals_.plan(k, false, kMostWorkspace)) {
                const std::optional<double> us = time_of(*plan);
                runs += us ? 1 : 0;
                text += us ? fmt::format(" {}: {:.1f}", k, *us) : fmt::format(" {}: refused", k);
            }
        if (runs == 0)
            fail_with(ExitCode::RunFailed, "none of {} can be launched:{}", proposals_.count(), text);
        return fmt::format("us by plan:{}", text);
    }

private:
    struct Result {
        std::size_t tensor;  // of x, w and y
        int place;
        float value;
    };
    static constexpr int kMostListed = 12;  // the last ones take milliseconds
    static constexpr Bytes kMostWorkspace = Bytes{256} << 20;

    std::optional<double> time_of(const ConvolutionPlan& plan) const {
        constexpr int kRepeats = 5;
        const Ones x(counts_[0], precision_), w(counts_[1], precision_), y(counts_[2], precision_);
        const DeviceMemory workspace = allocate(std::max<Bytes>(plan.workspace(), 1));
        const auto run = [&] {
            return plan.run(cudnn_, {x.memory.get(), w.memory.get(), y.memory.get()}, workspace.get());
        };
        const Event from(Event::Kind::Timed), to(Event::Kind::Timed);
        if (run() != CUDNN_STATUS_SUCCESS) {
            (void)cudaGetLastError();
            return {};
        }
        // The result is checked after one call: it is an operand of no other.
        wait_for(stream_, kPatience);
        (result_.tensor == 0 ? x : result_.tensor == 1 ? w : y).expect(result_.place, result_.value);
        from.record(stream_);
        for (int k = 0; k < kRepeats; ++k)
            check(run(), "cudnnBackendExecute");
        to.record(stream_);
        wait_for(stream_, kPatience);
        return static_cast<double>(elapsed(from.get(), to.get())) * 1e-3 / kRepeats;
    }

    cudnnHandle_t cudnn_;
    cudaStream_t stream_;
    Precision precision_;
    ConvolutionProposals proposals_;
    std::array<int, 3> counts_{};  // of the values of x, w and y
    Result result_{};
};

constexpr std::array kPassNames = {"F", "I", "W"};

}  // namespace

// Every pass as the backend requests it for equal bits, and otherwise.
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
        for (const Precision precision : {Precision::Fp32, Precision::Tf32, Precision::Bf16})
            for (const auto& [pass_name, pass] : kChoices<ConvolutionPass>)
                for (const bool repeats : {true, false})
                    probe(fmt::format("{} channels, {}, {}{}", channels, name_of(precision),
                                      kPassNames[static_cast<std::size_t>(pass)], repeats ? ", deterministic" : ""),
                          [&] { return Convolution(cudnn, stream, precision, pass, channels, 64).first(repeats); });
    return verdict();
}

// Which shares can run wide convolutions of bf16, whose kernels cuDNN 9.19 starts in clusters of thread blocks: an H100
// refuses some on shares, with each way to split it. In one process, as the devices of a plan are.
int check_clusters(Arguments&) {
    for (const unsigned flags : {0u, static_cast<unsigned>(CU_DEV_SM_RESOURCE_SPLIT_MAX_POTENTIAL_CLUSTER_SIZE)})
        for (const unsigned groups : {1u, 3u, 7u}) {
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
                for (const auto& [name, pass] : kChoices<ConvolutionPass>)
                    probe(fmt::format("{} channels, bf16, {}", channels, kPassNames[static_cast<std::size_t>(pass)]),
                          [&] {
                              return Convolution(cudnn, share.streams[0], Precision::Bf16, pass, channels, channels)
                                  .all();
                          });
        }
    return kShown;  // the backend tries a plan before a share uses it
}

}  // namespace pw
