#include "exec/kernels.h"

#include "exec/missing_kernel.h"
#include "exec/reference/layers.h"

#include <type_traits>

namespace pw::reference {

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

}  // namespace pw::reference

namespace pw {

namespace {

template <class Real>
class ReferenceKernels : public HostKernels {
public:
    explicit ReferenceKernels(std::string_view name) : name_(name) {}
    std::string_view name() const override { return name_; }

    std::unique_ptr<LayerKernel> make(const Layer& layer, int samples, bool) const override {
        for (const reference::LayerRow* row : reference::kLayerRows)
            if (row->kind == layer.kind)
                return (std::is_same_v<Real, float> ? row->in_float : row->in_double)(layer, samples);
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
