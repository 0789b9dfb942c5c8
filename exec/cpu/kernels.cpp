#include "exec/kernels.h"

#include "exec/cpu/lanes.h"
#include "exec/cpu/layers.h"
#include "exec/cpu/loops.h"
#include "exec/cpu/parallel.h"
#include "exec/missing_kernel.h"
#include "workloads/error.h"

#include <sched.h>

namespace pw::cpu {

// The rows, each in the file of its kernel.
extern const LayerRow kConvolution, kBatchNorm, kRelu, kAdd, kConcat, kMaxPool, kAveragePool, kUpsample, kLinear,
    kDropout, kEmbedding, kPositionBias, kLayerNorm, kGelu, kRowLinear, kAttention, kGroupedAttention, kRotary,
    kRmsNorm, kGatedSilu, kCrossEntropy, kMeanSquaredError;

namespace {

constexpr const LayerRow* kLayerRows[] = {&kConvolution,  &kBatchNorm,        &kRelu,      &kAdd,     &kConcat,
                                          &kMaxPool,      &kAveragePool,      &kUpsample,  &kLinear,  &kDropout,
                                          &kEmbedding,    &kPositionBias,     &kLayerNorm, &kGelu,    &kRowLinear,
                                          &kAttention,    &kGroupedAttention, &kRotary,    &kRmsNorm, &kGatedSilu,
                                          &kCrossEntropy, &kMeanSquaredError};

}  // namespace

}  // namespace pw::cpu

namespace pw {

namespace {

using namespace cpu;

class CpuKernels : public HostKernels {
public:
    std::string_view name() const override { return "cpu"; }

    // libgomp keeps a team per calling thread. It starts here, with the core mask of the device. libomp, the runtime
    // of Clang, then gives the thread the mask of the first thread that used OpenMP: the device's mask is set again.
    void start_device(int threads) const override {
        cpu_set_t cores;
        const bool has_cores = sched_getaffinity(0, sizeof cores, &cores) == 0;
        omp_set_dynamic(0);
        omp_set_num_threads(threads);
        in_shares(threads, [](std::int64_t, std::int64_t) {});
        if (has_cores)
            sched_setaffinity(0, sizeof cores, &cores);
    }

    std::unique_ptr<LayerKernel> make(const Layer& layer, int samples, bool reads_data) const override {
        try {
            for (const LayerRow* row : cpu::kLayerRows)
                if (row->kind == layer.kind)
                    return row->make(layer, samples, reads_data);
        } catch (const dnnl::error& error) {
            fail_for(error, layer.name, "has no kernel for it");
        }
        fail_without_kernel(name(), layer);
    }

    Bytes data_bytes(Dims input, int samples) const override { return tensor_bytes(input, samples); }

    void load_data(const Dataset& data, std::span<const Sample> samples, std::byte* out) const override {
        const std::int64_t elements = data.input().elements();
        if (!is_blocked(data.input())) {
            for (std::size_t n = 0; n < samples.size(); ++n)
                data.read_at(samples[n], {floats(out) + static_cast<std::int64_t>(n) * elements,
                                          static_cast<std::size_t>(elements)});
            return;
        }
        thread_local std::vector<float> image;
        image.resize(static_cast<std::size_t>(elements));
        for (const Sample& sample : samples) {
            data.read_at(sample, image);
            fill_tensor(data.input(), 1, image, out);
            out += elements * static_cast<Bytes>(sizeof(float));
        }
    }

    void add(const std::byte* from, std::byte* to, Bytes bytes) const override {
        in_shares(bytes / 64, [&](std::int64_t first, std::int64_t count) {
            accumulate(floats(from) + first * kLanes, floats(to) + first * kLanes, count);
        });
    }

    void sum(std::span<const std::byte* const> from, Bytes first, Bytes bytes, std::byte* to) const override {
        in_shares(bytes / 64, [&](std::int64_t share, std::int64_t count) {
            HostKernels::sum(from, first + share * 64, count * 64, to);
        });
    }

    void update(const UpdateRule& rule, const std::byte* weights, const std::byte* gradient,
                const OptimizerStates& states, std::byte* new_weights, Bytes bytes) const override {
        in_shares(bytes / 64, [&](std::int64_t first, std::int64_t count) {
            const Bytes skip = first * 64;
            std::visit(
                [&](const auto& own) {
                    step(own, floats(weights + skip), floats(gradient + skip), states.from(skip),
                         floats(new_weights + skip), count);
                },
                rule);
        });
    }

    void predict(const std::byte* weights, const std::byte* momentum, double factor, std::byte* out,
                 Bytes bytes) const override {
        in_shares(bytes / 64, [&](std::int64_t first, std::int64_t count) {
            const std::int64_t skip = first * kLanes;
            predict_weights(floats(weights) + skip, floats(momentum) + skip, static_cast<float>(factor),
                            floats(out) + skip, count);
        });
    }

private:
    static void step(const Sgd& sgd, const float* weights, const float* gradient, const OptimizerStates& states,
                     float* new_weights, std::int64_t groups) {
        momentum_update(sgd, weights, gradient, floats(states.block(0)), new_weights, groups);
    }
    static void step(const AdamW& adamw, const float* weights, const float* gradient, const OptimizerStates& states,
                     float* new_weights, std::int64_t groups) {
        adamw_update(adamw, weights, gradient, floats(states.block(0)), floats(states.block(1)), new_weights, groups);
    }
};

}  // namespace

const HostKernels& cpu_kernels() {
    static const CpuKernels kernels;
    return kernels;
}

}  // namespace pw
