// Softmax cross entropy. A row of classes is divided over a few dozen threads; what they found is put
// together in a fixed order.
#include "exec/cuda/layers.h"
#include "exec/cuda/packs.h"

#include <cassert>
#include <cmath>

namespace pw::cuda {

namespace {

constexpr unsigned kParts = 32;  // of a row

// Of some logits: the largest, and the sum of exp(logit - largest).
struct Powers {
    float largest, sum;
};

template <class T>
__global__ void sum_parts(const T* __restrict__ logits, Powers* __restrict__ parts, unsigned classes,
                          unsigned samples) {
    const auto thread = static_cast<unsigned>(item());
    if (thread >= samples * kParts)
        return;
    const unsigned first = thread % kParts;
    const T* row = logits + thread / kParts * classes;
    Powers powers = {-INFINITY, 0};
    for_places<8>(
        first, kParts, classes, [&](unsigned c) { return row[c]; },
        [&](unsigned, T read) {
            const float logit = real(read);
            if (logit > powers.largest) {
                powers.sum = powers.sum * expf(powers.largest - logit) + 1;
                powers.largest = logit;
            } else {
                powers.sum += expf(logit - powers.largest);
            }
        });
    parts[thread] = powers;
}

// A part without classes has a sum of zero.
template <class T>
__global__ void finish_rows(const T* __restrict__ logits, const int* __restrict__ labels,
                            const Powers* __restrict__ parts, Powers* __restrict__ rows, double* __restrict__ losses,
                            unsigned classes, unsigned samples) {
    const auto sample = static_cast<unsigned>(item());
    if (sample >= samples)
        return;
    const Powers* of_row = parts + sample * kParts;
    float largest = of_row[0].largest;
    for (unsigned part = 1; part < kParts; ++part)
        largest = of_row[part].largest > largest ? of_row[part].largest : largest;
    double sum = 0;
    for (unsigned part = 0; part < kParts; ++part)
        sum += static_cast<double>(of_row[part].sum * expf(of_row[part].largest - largest));
    rows[sample] = {largest, static_cast<float>(sum)};
    const float of_label = real(logits[sample * classes + static_cast<unsigned>(labels[sample])]);
    losses[sample] = log(sum) - (static_cast<double>(of_label) - static_cast<double>(largest));
}

// One thread: the samples in their order.
__global__ void sum_losses(const double* __restrict__ losses, unsigned samples, double* __restrict__ loss) {
    if (item() > 0)
        return;
    double sum = 0;
    for_places<8>(
        0, 1, samples, [&](unsigned sample) { return losses[sample]; }, [&](unsigned, double read) { sum += read; });
    *loss = sum;
}

// The gradient of a sample's loss: softmax minus the one of the label.
template <class T>
__global__ void differences(const T* __restrict__ logits, const int* __restrict__ labels,
                            const Powers* __restrict__ rows, float* __restrict__ saved, unsigned classes,
                            unsigned elements) {
    const auto i = static_cast<unsigned>(item());
    if (i >= elements)
        return;
    const unsigned sample = i / classes, c = i - sample * classes;
    const Powers row = rows[sample];
    const float probability = expf(real(logits[i]) - row.largest) / row.sum;
    saved[i] = probability - (c == static_cast<unsigned>(labels[sample]) ? 1.0f : 0.0f);
}

template <class T>
__global__ void scale(const float* __restrict__ saved, T* __restrict__ dx, float factor, unsigned elements) {
    const auto i = static_cast<unsigned>(item());
    if (i < elements)
        dx[i] = rounded<T>(saved[i] * factor);
}

// saved: softmax minus the one of the label, per sample and class, fp32.
template <class T>
class CrossEntropy : public CudaLayer {
public:
    CrossEntropy(Device& device, const Layer& layer, int samples)
        : CudaLayer(device, layer, samples),
          classes_(static_cast<unsigned>(layer.input.channels)),
          rows_(static_cast<unsigned>(samples)) {
        assert(layer.input.height == 1 && layer.input.width == 1);
        bytes_.saved_until_input = bytes_of<float>(elements());
        rows_at_ = bytes_of<Powers>(rows_ * kParts);
        losses_at_ = rows_at_ + bytes_of<Powers>(rows_);
        bytes_.scratch = losses_at_ + bytes_of<double>(rows_);
    }

    void forward(const LayerArgs& args, bool save) override {
        const T* logits = reinterpret_cast<const T*>(args.inputs[0]);
        auto* parts = reinterpret_cast<Powers*>(args.scratch);
        auto* rows = reinterpret_cast<Powers*>(args.scratch + rows_at_);
        auto* losses = reinterpret_cast<double*>(args.scratch + losses_at_);
        const int* labels = args.labels.data();
        launch(device_.stream(), rows_ * kParts, sum_parts<T>, logits, parts, classes_, rows_);
        launch(device_.stream(), rows_, finish_rows<T>, logits, labels, parts, rows, losses, classes_, rows_);
        if (args.loss)
            launch(device_.stream(), 1, sum_losses, losses, rows_, args.loss);
        if (save)
            launch(device_.stream(), elements(), differences<T>, logits, labels, rows, floats(args.saved), classes_,
                   elements());
    }

    void backward_input(const LayerArgs& args) override {
        if (args.input_gradients[0])
            launch(device_.stream(), elements(), scale<T>, floats(args.saved),
                   reinterpret_cast<T*>(args.input_gradients[0]), args.loss_scale, elements());
    }

private:
    template <class Value>
    static Bytes bytes_of(unsigned count) {
        return round_up(count * static_cast<Bytes>(sizeof(Value)), 64);
    }
    unsigned elements() const { return rows_ * classes_; }

    unsigned classes_, rows_;
    Bytes rows_at_ = 0, losses_at_ = 0;  // in the scratch
};

}  // namespace

template <class T>
std::unique_ptr<LayerKernel> make_cross_entropy(Device& device, const Layer& layer, int samples) {
    return std::make_unique<CrossEntropy<T>>(device, layer, samples);
}
template std::unique_ptr<LayerKernel> make_cross_entropy<float>(Device&, const Layer&, int);
template std::unique_ptr<LayerKernel> make_cross_entropy<Bf16>(Device&, const Layer&, int);

}  // namespace pw::cuda
