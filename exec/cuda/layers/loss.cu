// The losses. In this backend's layout a sample's positions, the pixels of an image or the tokens of a sequence,
// are rows in which the classes are adjacent.
#include "exec/cuda/layers/layers.h"
#include "exec/cuda/layers/softmax.h"

#include <cmath>

namespace pw::cuda {

namespace {

template <class T>
__global__ void sum_parts(const T* __restrict__ logits, Powers* __restrict__ parts, unsigned classes,
                          unsigned parts_per_row, unsigned items) {
    const auto thread = static_cast<unsigned>(item());
    if (thread >= items)
        return;
    const unsigned row = thread / parts_per_row;
    parts[thread] = powers_of(logits + row * classes, thread - row * parts_per_row, parts_per_row, classes);
}

template <class T>
__global__ void finish_rows(const T* __restrict__ logits, const int* __restrict__ labels,
                            const Powers* __restrict__ parts, Powers* __restrict__ rows, double* __restrict__ losses,
                            unsigned classes, unsigned parts_per_row, unsigned items) {
    const auto row = static_cast<unsigned>(item());
    if (row >= items)
        return;
    const RowPowers powers = joined(parts + row * parts_per_row, parts_per_row);
    rows[row] = {powers.largest, static_cast<float>(powers.sum)};
    const float of_label = real(logits[row * classes + static_cast<unsigned>(labels[row])]);
    losses[row] = log(powers.sum) - (static_cast<double>(of_label) - static_cast<double>(powers.largest));
}

// The gradient of a row's loss: softmax minus the one-hot label.
template <class T>
__global__ void differences(const T* __restrict__ logits, const int* __restrict__ labels,
                            const Powers* __restrict__ rows, float* __restrict__ saved, unsigned classes,
                            unsigned items) {
    const auto i = static_cast<unsigned>(item());
    if (i >= items)
        return;
    const unsigned row = i / classes, c = i - row * classes;
    saved[i] = probability(real(logits[i]), rows[row]) - (c == static_cast<unsigned>(labels[row]) ? 1.0f : 0.0f);
}

template <class T>
__device__ inline float distance(const T* values, const int* labels, unsigned i, unsigned classes) {
    const unsigned row = i / classes, c = i - row * classes;
    return real(values[i]) - (c == static_cast<unsigned>(labels[row]) ? 1.0f : 0.0f);
}

template <class T>
__global__ void distances(const T* __restrict__ values, const int* __restrict__ labels, float* __restrict__ saved,
                          unsigned classes, unsigned items) {
    const auto i = static_cast<unsigned>(item());
    if (i < items)
        saved[i] = distance(values, labels, i, classes);
}

// Sums the squares of the differences of elements share, share + shares, ...
template <class T>
__global__ void sum_squares(const T* __restrict__ values, const int* __restrict__ labels, double* __restrict__ sums,
                            unsigned classes, unsigned elements, unsigned shares) {
    const auto share = static_cast<unsigned>(item());
    if (share >= shares)
        return;
    double sum = 0;
    for_places<8>(
        share, shares, elements, [&](unsigned i) { return distance(values, labels, i, classes); },
        [&](unsigned, float read) { sum += static_cast<double>(read) * static_cast<double>(read); });
    sums[share] = sum;
}

// sums[share] = (losses[share] + losses[share + shares] + ...) / divisor.
__global__ void sum_losses(const double* __restrict__ losses, unsigned count, double* __restrict__ sums,
                           unsigned shares, double divisor) {
    const auto share = static_cast<unsigned>(item());
    if (share >= shares)
        return;
    double sum = 0;
    for_places<8>(
        share, shares, count, [&](unsigned place) { return losses[place]; },
        [&](unsigned, double read) { sum += read; });
    sums[share] = sum / divisor;
}

template <class T>
__global__ void scale(const float* __restrict__ saved, T* __restrict__ dx, float factor, unsigned items) {
    const auto i = static_cast<unsigned>(item());
    if (i < items)
        dx[i] = rounded<T>(saved[i] * factor);
}

constexpr unsigned kFewLosses = 512;   // one thread adds up this many in their order
constexpr unsigned kLossShares = 256;  // more losses are first summed in this many shares

// saved: the gradient of a row's loss, in fp32.
template <class T>
class Loss : public CudaLayer {
public:
    void backward_input(const LayerArgs& args) override {
        if (args.input_gradients[0])
            launch(device_.stream(), elements(), scale<T>, floats(args.saved),
                   reinterpret_cast<T*>(args.input_gradients[0]), args.loss_scale * factor_, elements());
    }

protected:
    Loss(GpuShare& device, const Layer& layer, int samples)
        : CudaLayer(device, layer, samples),
          classes_(static_cast<unsigned>(loss_shape(layer).classes)),
          positions_(static_cast<unsigned>(loss_shape(layer).positions)),
          rows_(static_cast<unsigned>(samples) * positions_) {
        check_items(samples * layer.input.elements());
        bytes_.saved_until_input = bytes_of<float>(elements());
    }

    template <class Value>
    static Bytes bytes_of(unsigned count) {
        return aligned(count * static_cast<Bytes>(sizeof(Value)));
    }
    unsigned elements() const { return rows_ * classes_; }
    Bytes label_bytes() const { return bytes_of<int>(rows_); }
    // Copies the labels to the device, since every element of a row reads its label.
    const int* own_labels(const LayerArgs& args, Bytes at) const {
        check(cudaMemcpyAsync(args.scratch + at, args.labels.data(), rows_ * sizeof(int), cudaMemcpyHostToDevice,
                              device_.stream()),
              "cudaMemcpyAsync");
        return reinterpret_cast<const int*>(args.scratch + at);
    }
    const T* values(const LayerArgs& args) const { return reinterpret_cast<const T*>(args.inputs[0]); }

    // `shares` has room for kLossShares values.
    void add_up(const double* losses, unsigned count, double* shares, double divisor, double* loss) const {
        if (count > kFewLosses) {
            launch(device_.stream(), kLossShares, sum_losses, losses, count, shares, kLossShares, 1);
            losses = shares;
            count = kLossShares;
        }
        launch(device_.stream(), 1, sum_losses, losses, count, loss, 1, divisor);
    }

    unsigned classes_, positions_, rows_;
    double factor_ = 1;  // of the saved gradients, in addition to the loss scale
};

template <class T>
class CrossEntropy : public Loss<T> {
public:
    CrossEntropy(GpuShare& device, const Layer& layer, int samples)
        : Loss<T>(device, layer, samples), parts_(parts_of_row(this->classes_)) {
        this->check_items(std::int64_t{this->rows_} * parts_);
        rows_at_ = this->template bytes_of<Powers>(this->rows_ * parts_);
        losses_at_ = rows_at_ + this->template bytes_of<Powers>(this->rows_);
        shares_at_ = losses_at_ + this->template bytes_of<double>(this->rows_);
        labels_at_ = shares_at_ + this->template bytes_of<double>(kLossShares);
        this->bytes_.scratch = labels_at_ + this->label_bytes();
        this->factor_ = 1.0 / this->positions_;
    }

    void forward(const LayerArgs& args, bool save) override {
        auto* parts = reinterpret_cast<Powers*>(args.scratch);
        auto* rows = reinterpret_cast<Powers*>(args.scratch + rows_at_);
        auto* losses = reinterpret_cast<double*>(args.scratch + losses_at_);
        const int* labels = this->own_labels(args, labels_at_);
        const T* logits = this->values(args);
        const cudaStream_t stream = this->device_.stream();
        launch(stream, this->rows_ * parts_, sum_parts<T>, logits, parts, this->classes_, parts_, this->rows_ * parts_);
        launch(stream, this->rows_, finish_rows<T>, logits, labels, parts, rows, losses, this->classes_, parts_,
               this->rows_);
        if (args.loss)
            this->add_up(losses, this->rows_, reinterpret_cast<double*>(args.scratch + shares_at_), this->positions_,
                         args.loss);
        if (save)
            launch(stream, this->elements(), differences<T>, logits, labels, rows, floats(args.saved), this->classes_,
                   this->elements());
    }

private:
    unsigned parts_;                                                     // per row
    Bytes rows_at_ = 0, losses_at_ = 0, shares_at_ = 0, labels_at_ = 0;  // offsets in the scratch
};

constexpr unsigned kSquareShares = 4096;

template <class T>
class MeanSquaredError : public Loss<T> {
public:
    MeanSquaredError(GpuShare& device, const Layer& layer, int samples) : Loss<T>(device, layer, samples) {
        shares_at_ = this->template bytes_of<double>(kSquareShares);
        labels_at_ = shares_at_ + this->template bytes_of<double>(kLossShares);
        this->bytes_.scratch = labels_at_ + this->label_bytes();
        this->factor_ = 2.0 / values_of_sample();
    }

    void forward(const LayerArgs& args, bool save) override {
        const unsigned elements = this->elements(), sums_made = elements < kSquareShares ? elements : kSquareShares;
        auto* sums = reinterpret_cast<double*>(args.scratch);
        const int* labels = this->own_labels(args, labels_at_);
        const cudaStream_t stream = this->device_.stream();
        if (args.loss) {
            launch(stream, sums_made, sum_squares<T>, this->values(args), labels, sums, this->classes_, elements,
                   sums_made);
            this->add_up(sums, sums_made, reinterpret_cast<double*>(args.scratch + shares_at_), values_of_sample(),
                         args.loss);
        }
        if (save)
            launch(stream, elements, distances<T>, this->values(args), labels, floats(args.saved), this->classes_,
                   elements);
    }

private:
    double values_of_sample() const { return static_cast<double>(this->layer_.input.elements()); }

    Bytes shares_at_ = 0, labels_at_ = 0;  // offsets in the scratch
};

}  // namespace

template <class T>
std::unique_ptr<LayerKernel> make_cross_entropy(GpuShare& device, const Layer& layer, int samples) {
    return std::make_unique<CrossEntropy<T>>(device, layer, samples);
}
template std::unique_ptr<LayerKernel> make_cross_entropy<float>(GpuShare&, const Layer&, int);
template std::unique_ptr<LayerKernel> make_cross_entropy<Bf16>(GpuShare&, const Layer&, int);

template <class T>
std::unique_ptr<LayerKernel> make_mean_squared_error(GpuShare& device, const Layer& layer, int samples) {
    return std::make_unique<MeanSquaredError<T>>(device, layer, samples);
}
template std::unique_ptr<LayerKernel> make_mean_squared_error<float>(GpuShare&, const Layer&, int);
template std::unique_ptr<LayerKernel> make_mean_squared_error<Bf16>(GpuShare&, const Layer&, int);

}  // namespace pw::cuda
