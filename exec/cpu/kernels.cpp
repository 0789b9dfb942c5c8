#include "exec/kernels.h"

#include "exec/cpu/lanes.h"
#include "exec/cpu/layers.h"
#include "exec/cpu/loops.h"
#include "exec/cpu/parallel.h"
#include "exec/missing_kernel.h"
#include "workloads/error.h"

#include <sched.h>

namespace pw {

namespace {

using namespace cpu;

std::unique_ptr<LayerKernel> make_layer(const Layer& layer, int samples, bool reads_data) {
    switch (layer.kind) {
        case LayerKind::Convolution:
            return make_convolution(layer, samples, reads_data);
        case LayerKind::BatchNorm:
            return make_batch_norm(layer, samples);
        case LayerKind::Relu:
            return make_relu(layer, samples);
        case LayerKind::Add:
            return make_add(layer, samples);
        case LayerKind::Concat:
            return make_concat(layer, samples);
        case LayerKind::Dropout:
            return make_dropout(layer, samples);
        case LayerKind::MaxPool:
            return make_max_pool(layer, samples);
        case LayerKind::AveragePool:
            return make_average_pool(layer, samples);
        case LayerKind::Upsample:
            return make_upsample(layer, samples);
        case LayerKind::Linear:
        case LayerKind::RowLinear:
            return make_linear(layer, samples, reads_data);
        case LayerKind::Embedding:
            return make_embedding(layer, samples);
        case LayerKind::PositionBias:
            return make_position_bias(layer, samples);
        case LayerKind::LayerNorm:
        case LayerKind::RmsNorm:
            return make_row_norm(layer, samples);
        case LayerKind::Gelu:
            return make_gelu(layer, samples);
        case LayerKind::GatedSilu:
            return make_gated_silu(layer, samples);
        case LayerKind::Rotary:
            return make_rotary(layer, samples);
        case LayerKind::Attention:
        case LayerKind::GroupedAttention:
            return make_attention(layer, samples);
        case LayerKind::CrossEntropy:
            return make_cross_entropy(layer, samples);
        case LayerKind::MeanSquaredError:
            return make_mean_squared_error(layer, samples);
        case LayerKind::Profiled:
            break;
    }
    fail_without_kernel("cpu", layer);
}

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
            return make_layer(layer, samples, reads_data);
        } catch (const dnnl::error& error) {
            fail_for(error, layer.name, "has no kernel for it");
        }
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
