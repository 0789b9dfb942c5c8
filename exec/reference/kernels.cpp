#include "exec/kernels.h"

#include "exec/missing_kernel.h"
#include "exec/reference/layers.h"

namespace pw {

namespace {

template <class Real>
class ReferenceKernels : public HostKernels {
public:
    explicit ReferenceKernels(std::string_view name) : name_(name) {}
    std::string_view name() const override { return name_; }

    std::unique_ptr<LayerKernel> make(const Layer& layer, int samples, bool) const override {
        switch (layer.kind) {
            case LayerKind::Convolution:
                return reference::make_convolution<Real>(layer, samples);
            case LayerKind::BatchNorm:
                return reference::make_batch_norm<Real>(layer, samples);
            case LayerKind::Relu:
                return reference::make_relu<Real>(layer, samples);
            case LayerKind::Add:
                return reference::make_add<Real>(layer, samples);
            case LayerKind::Concat:
                return reference::make_concat<Real>(layer, samples);
            case LayerKind::Dropout:
                return reference::make_dropout<Real>(layer, samples);
            case LayerKind::MaxPool:
                return reference::make_max_pool<Real>(layer, samples);
            case LayerKind::AveragePool:
                return reference::make_average_pool<Real>(layer, samples);
            case LayerKind::Upsample:
                return reference::make_upsample<Real>(layer, samples);
            case LayerKind::Linear:
            case LayerKind::RowLinear:
                return reference::make_linear<Real>(layer, samples);
            case LayerKind::Embedding:
                return reference::make_embedding<Real>(layer, samples);
            case LayerKind::PositionBias:
                return reference::make_position_bias<Real>(layer, samples);
            case LayerKind::LayerNorm:
            case LayerKind::RmsNorm:
                return reference::make_row_norm<Real>(layer, samples);
            case LayerKind::Gelu:
                return reference::make_gelu<Real>(layer, samples);
            case LayerKind::GatedSilu:
                return reference::make_gated_silu<Real>(layer, samples);
            case LayerKind::Rotary:
                return reference::make_rotary<Real>(layer, samples);
            case LayerKind::Attention:
            case LayerKind::GroupedAttention:
                return reference::make_attention<Real>(layer, samples);
            case LayerKind::CrossEntropy:
                return reference::make_cross_entropy<Real>(layer, samples);
            case LayerKind::MeanSquaredError:
                return reference::make_mean_squared_error<Real>(layer, samples);
            case LayerKind::Profiled:
                break;
        }
        fail_without_kernel(name_, layer);
    }

    Bytes data_bytes(Dims input, int samples) const override {
        return reference::bytes_of<Real>(samples * input.elements());
    }

    void load_data(const Dataset& data, std::span<const Sample> samples, std::byte* out) const override {
        thread_local std::vector<float> image;
        image.resize(static_cast<std::size_t>(data.input().elements()));
        Real* place = reinterpret_cast<Real*>(out);
        for (const Sample& sample : samples) {
            data.read_at(sample, image);
            place = std::copy(image.begin(), image.end(), place);
        }
    }

    void add(const std::byte* from, std::byte* to, Bytes bytes) const override {
        const Real* source = reinterpret_cast<const Real*>(from);
        Real* sum = reinterpret_cast<Real*>(to);
        for (std::size_t i = 0; i < static_cast<std::size_t>(bytes) / sizeof(Real); ++i)
            sum[i] += source[i];
    }

    void update(const UpdateRule& rule, const std::byte* weights, const std::byte* gradient,
                const OptimizerStates& states, std::byte* new_weights, Bytes bytes) const override {
        const Real* w = reinterpret_cast<const Real*>(weights);
        const Real* g = reinterpret_cast<const Real*>(gradient);
        Real* out = reinterpret_cast<Real*>(new_weights);
        const auto count = static_cast<std::size_t>(bytes) / sizeof(Real);
        std::visit([&](const auto& own) { step(own, w, g, states, out, count); }, rule);
    }

    void predict(const std::byte* weights, const std::byte* momentum, double factor, std::byte* out,
                 Bytes bytes) const override {
        const Real* w = reinterpret_cast<const Real*>(weights);
        const Real* v = reinterpret_cast<const Real*>(momentum);
        Real* predicted = reinterpret_cast<Real*>(out);
        for (std::size_t i = 0; i < static_cast<std::size_t>(bytes) / sizeof(Real); ++i)
            predicted[i] = w[i] - static_cast<Real>(factor) * v[i];
    }

private:
    static Real* state(const OptimizerStates& states, int number) {
        return reinterpret_cast<Real*>(states.block(number));
    }

    static void step(const Sgd& sgd, const Real* w, const Real* g, const OptimizerStates& states, Real* out,
                     std::size_t count) {
        const auto rate = static_cast<Real>(sgd.learning_rate);
        const auto keep = static_cast<Real>(sgd.momentum), decay = static_cast<Real>(sgd.weight_decay);
        Real* v = state(states, 0);
        for (std::size_t i = 0; i < count; ++i) {
            v[i] = keep * v[i] + (g[i] + decay * w[i]);
            out[i] = w[i] - rate * v[i];
        }
    }

    static void step(const AdamW& adamw, const Real* w, const Real* g, const OptimizerStates& states, Real* out,
                     std::size_t count) {
        const auto keep = static_cast<Real>(1 - adamw.learning_rate * adamw.weight_decay);
        const auto new_mean = static_cast<Real>(1 - adamw.betas[0]), new_square = static_cast<Real>(1 - adamw.betas[1]);
        const auto old_square = static_cast<Real>(adamw.betas[1]), epsilon = static_cast<Real>(adamw.epsilon);
        const auto rate = static_cast<Real>(adamw.step_size()), root = static_cast<Real>(adamw.root());
        Real *m = state(states, 0), *v = state(states, 1);
        for (std::size_t i = 0; i < count; ++i) {
            m[i] += new_mean * (g[i] - m[i]);
            v[i] = old_square * v[i] + new_square * g[i] * g[i];
            out[i] = keep * w[i] - rate * m[i] / (std::sqrt(v[i]) / root + epsilon);
        }
    }

    std::string_view name_;
};

}  // namespace

const HostKernels& reference_kernels() {
    static const ReferenceKernels<float> kernels("reference");
    return kernels;
}

const HostKernels& reference_kernels_double() {
    static const ReferenceKernels<double> kernels("reference-double");
    return kernels;
}

}  // namespace pw
