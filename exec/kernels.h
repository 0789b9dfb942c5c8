// The passes of one layer, made once per layer and micro-batch size by a backend. Tensors are raw
// pointers into planned memory, in the backend's own layout; nothing is allocated in a pass. On a
// device with a queue of its own (CUDA) calls only put work there; it is done in the order of the calls.
#pragma once

#include "exec/memory.h"
#include "workloads/costs/convolution_choice.h"
#include "workloads/data/dataset.h"
#include "workloads/models/layer_graph.h"
#include "workloads/models/parameters.h"
#include "workloads/stages/stage_layout.h"

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace pw {

// I of an add, which a batch norm does with its own.
struct JoinedAdd {
    std::byte* gradient = nullptr;       // the add's output gradient, to be changed in place; null: no add is joined
    const std::byte* summand = nullptr;  // to be added to it first, or null
    const std::byte* saved = nullptr;    // the add's, or null
};

// Everything a pass may touch; what a pass does not use may be null.
struct LayerArgs {
    std::span<const std::byte* const> inputs;  // tensors the layer reads
    // Tensor it makes (F). Null: a batch norm leaves it to the add that it is run with, which reads the norm's input
    // instead and, by input, what the norm saved (null: no norm).
    std::byte* output = nullptr;
    std::span<const std::byte* const> norms;
    const std::byte* weights = nullptr;  // block of LayerBytes::weights
    // Block of LayerBytes::statistics. An F that saves writes those of its micro-batch there, or nowhere (null);
    // one that does not reads the running averages.
    std::byte* statistics = nullptr;
    std::byte* saved = nullptr;                  // LayerBytes::saved_until_input
    std::byte* kept = nullptr;                   // LayerBytes::kept_until_weight
    const std::byte* output_gradient = nullptr;  // I, W; the loss has none
    // I: null entries are not wanted. Of an add that joins they may be the output gradient.
    std::span<std::byte* const> input_gradients;
    JoinedAdd joined;                      // I of a batch norm
    std::byte* weight_gradient = nullptr;  // I (batch norm), W: block as `weights`
    bool accumulate = false;               // add to weight_gradient instead of overwriting it
    std::byte* scratch = nullptr;
    std::uint64_t seed = 0;       // F of dropout: dropout_seed of the first sample
    std::span<const int> labels;  // the loss: [sample][position]; in shared memory
    double loss_scale = 1;        // 1 / samples of the mini-batch
    double* loss = nullptr;       // F of the loss: sum over the samples; in shared memory
};

// What the F of a mini-batch wrote to LayerArgs::statistics, in ascending order of the micro-batches. Both lists are
// where kernels read (Kernels::reserve).
struct BatchStatistics {
    std::span<const std::byte* const> blocks;  // the stage's, of each micro-batch; on any device
    std::span<const int> samples;              // of each micro-batch
    bool deferred = false;                     // one average, of all samples together
    Bytes offset = 0;                          // of the layer in the blocks
};

class LayerKernel {
public:
    virtual ~LayerKernel() = default;
    virtual LayerBytes bytes() const = 0;

    // `save` false is evaluation: nothing is saved, batch norm reads the running averages, dropout does nothing.
    // R is an F without `statistics` and `loss`.
    virtual void forward(const LayerArgs& args, bool save) = 0;
    virtual void backward_input(const LayerArgs& args) = 0;   // batch norm: with its weight gradients
    virtual void backward_weight(const LayerArgs& args) = 0;  // convolution, linear; else nothing

    // U of batch norm: its running averages take in a mini-batch, one micro-batch after the other or all as one.
    virtual void gather_statistics(const BatchStatistics&, std::byte* /*running*/) {}

    // Between the plain layouts of workloads/models/parameters.h and the blocks. `values[k]` belongs to
    // parameters_of(layer)[k].
    virtual void load(const std::vector<std::vector<float>>& values, std::byte* weights, std::byte* statistics) = 0;
    virtual std::vector<std::vector<float>> store(const std::byte* weights, const std::byte* statistics) const = 0;

    // Plain NCHW floats of the output tensor, for dumps and tests; `fill_output` is its inverse.
    // Input tensors: the same, by the index of the input.
    virtual std::vector<float> read_output(const std::byte* tensor) const = 0;
    virtual void fill_output(const std::vector<float>& values, std::byte* tensor) const = 0;
    virtual std::vector<float> read_input(const std::byte* tensor, int position = 0) const = 0;
    virtual void fill_input(const std::vector<float>& values, std::byte* tensor, int position = 0) const = 0;
};

// Momentum SGD as in PyTorch: g' = g + decay w; v = momentum v + g'; w_new = w - rate v.
struct Sgd {
    double learning_rate = 0.01, momentum = 0.9, weight_decay = 0;
};

// A layer's parts of the blocks of its stage.
struct StageBlock {
    int layer = 0;
    bool is_measured = true;  // its gradient counts in the norm
    Bytes weights_at = 0, weights = 0;
    Bytes statistics_at = 0, statistics = 0;
    std::int64_t channels = 0, per_sample = 0;  // of a layer with statistics; `per_sample`: values of a channel
};

// All layers of a stage at once, each as Kernels and LayerKernel say. Blocks are the stage's; `squares` by layer.
class StageKernel {
public:
    virtual ~StageKernel() = default;
    // `squares` null: the norm is not wanted.
    virtual void update(const Sgd& sgd, const std::byte* weights, const std::byte* gradients, std::byte* momentum,
                        std::byte* new_weights, double* squares) const = 0;
    virtual void measure(const std::byte* gradients, double* squares) const = 0;
    virtual void predict(const std::byte* weights, const std::byte* momentum, double factor, std::byte* out) const = 0;
    virtual void gather_statistics(const BatchStatistics& of, std::byte* running) const = 0;
};

// Where a device's work had got to: for timing.
using Mark = std::int64_t;

// The kernels of one device, and its memory. Used by the device's own thread.
class Kernels {
public:
    virtual ~Kernels() = default;
    virtual std::string_view name() const = 0;  // of the backend
    // Layouts depend on the layer alone, never on the split.
    virtual std::unique_ptr<LayerKernel> make(const Layer& layer, int samples, bool reads_data) const = 0;
    // Null: U goes layer by layer.
    virtual std::unique_ptr<StageKernel> make_stage(const std::vector<StageBlock>&) const { return nullptr; }
    virtual Bytes data_bytes(Dims input, int samples) const = 0;
    virtual void take_data(const Dataset&) const {}  // once, before the first load_data of it
    // Writes the samples (in shared memory) in the layout that data-reading layers take.
    virtual void load_data(const Dataset& data, std::span<const Sample> samples, std::byte* out) const = 0;
    virtual void fill(std::byte* to, unsigned char value, Bytes bytes) const = 0;
    virtual void copy(const std::byte* from, std::byte* to, Bytes bytes) const = 0;
    virtual void add(const std::byte* from, std::byte* to, Bytes bytes) const = 0;  // tensors: to += from
    // Of blocks of gradients the bytes from `first` on: to = from[0] + from[1] + ..., left to right. `to` may be one
    // of them.
    virtual void sum(std::span<const std::byte* const> from, Bytes first, Bytes bytes, std::byte* to) const = 0;
    // Blocks of LayerBytes::weights bytes. `sum` in shared memory.
    virtual void sum_of_squares(const std::byte* gradient, Bytes bytes, double* sum) const = 0;
    // *factor = min(1, largest / (norm + 1e-6)); norm^2 is the sum of `squares` in their order. In shared memory.
    virtual void clip_factor(std::span<const double> squares, double largest, double* factor) const = 0;
    virtual void scale(const double* factor, std::byte* gradient, Bytes bytes) const = 0;  // *= factor
    // new_weights may be weights.
    virtual void update(const Sgd& sgd, const std::byte* weights, const std::byte* gradient, std::byte* momentum,
                        std::byte* new_weights, Bytes bytes) const = 0;
    // out = weights - factor momentum: weights some updates later, if the gradients stay as they are.
    virtual void predict(const std::byte* weights, const std::byte* momentum, double factor, std::byte* out,
                         Bytes bytes) const = 0;

    // Zeroed. Throws Error (RunFailed) with `whose` and the bytes when there is not enough.
    virtual std::unique_ptr<Memory> reserve(Bytes bytes, const std::string& whose) const = 0;
    // Read and written by the host and by kernels: small things, by the host only between steps.
    virtual std::unique_ptr<Memory> shared(Bytes bytes) const = 0;

    virtual std::string machine() const = 0;  // for people: what it runs on
    // How its library does convolutions, as far as timing has decided it in this process.
    virtual std::vector<ConvolutionChoice> convolutions() const { return {}; }
    // Whether devices of this kind slow each other down when all compute: they share memory bandwidth.
    virtual bool has_neighbours() const = 0;

    virtual Mark mark() const = 0;                          // after what was called so far
    virtual Ns time_between(Mark from, Mark to) const = 0;  // waits until the device has passed both
    virtual void finish() const = 0;                        // waits until all is done; forgets the marks
};

// Kernels that run on host threads: a call has done its work when it returns.
class HostKernels : public Kernels {
public:
    // Called on a device's own pinned thread before any kernel is made there.
    virtual void start_device(int) const {}
    void fill(std::byte* to, unsigned char value, Bytes bytes) const override;
    void copy(const std::byte* from, std::byte* to, Bytes bytes) const override;
    void sum(std::span<const std::byte* const> from, Bytes first, Bytes bytes, std::byte* to) const override;
    void sum_of_squares(const std::byte* gradient, Bytes bytes, double* sum) const override;
    void clip_factor(std::span<const double> squares, double largest, double* factor) const override;
    void scale(const double* factor, std::byte* gradient, Bytes bytes) const override;
    std::unique_ptr<Memory> reserve(Bytes bytes, const std::string& whose) const override;
    std::unique_ptr<Memory> shared(Bytes bytes) const override;
    std::string machine() const override;
    // Two cores of the machines this was tried on did not: the difference drowned in their drift.
    bool has_neighbours() const override { return false; }
    Mark mark() const override;
    Ns time_between(Mark from, Mark to) const override { return to - from; }
    void finish() const override {}
};

const HostKernels& cpu_kernels();               // oneDNN; fp32
const HostKernels& reference_kernels();         // plain loops; fp32
const HostKernels& reference_kernels_double();  // the oracle of the layer tests

}  // namespace pw
