// The kernels of a backend: the passes of a layer, made once per layer and micro-batch size, and the remaining work
// of a device. Tensors are raw pointers into planned memory, in the backend's own layout. A pass allocates nothing.
// On a device with a queue of its own (CUDA) calls only enqueue work, which runs in the order of the calls. Letters
// stand for tasks: F the forward, I the backward for inputs, W the backward for weights, R the recompute (the
// forward again), U the optimizer update.
#pragma once

#include "exec/memory.h"
#include "workloads/costs/convolution_choice.h"
#include "workloads/data/dataset.h"
#include "workloads/models/layer_graph.h"
#include "workloads/models/parameters.h"
#include "workloads/stages/stage_layout.h"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace pw {

// The backward for inputs (I) of an add that is joined with the I of a batch norm.
struct JoinedAdd {
    std::byte* gradient = nullptr;       // the add's output gradient, changed in place (null if no add is joined)
    const std::byte* summand = nullptr;  // added to that gradient first, may be null
    const std::byte* saved = nullptr;    // the add's saved block, or null
};

// An earlier slice of the sequence, as attention reads it: its input tensors, and the gradients of its keys and values.
struct EarlierSlice {
    const std::byte* inputs[3] = {};
    // The I of the last slice of the sequence writes them, and the I of the remaining later slices adds to them.
    // Keys come first, values begin in the middle of the block: {samples, rows, heads that have keys, width of a head}.
    std::byte* gradients = nullptr;
};

// All data that a pass may access. A member that a pass does not use may be null.
struct LayerArgs {
    std::span<const std::byte* const> inputs;  // tensors the layer reads
    // The tensor that F writes. It is null for a batch norm whose output is computed by the add that follows. That
    // add reads the norm's input instead, and the norm's saved block from `norms`, by input (null if the input is
    // not the output of a norm).
    std::byte* output = nullptr;
    std::span<const std::byte* const> norms;
    const std::byte* weights = nullptr;  // a block of LayerBytes::weights bytes
    // A block of LayerBytes::statistics bytes. An F that saves writes the statistics of its micro-batch to the
    // block unless it is null. An F that does not save reads the running averages from the block.
    std::byte* statistics = nullptr;
    std::byte* saved = nullptr;  // a block of LayerBytes::saved_until_input bytes, null for a layer without backward
    std::byte* kept = nullptr;   // a block of LayerBytes::kept_until_weight bytes
    const std::byte* output_gradient = nullptr;  // read by I and W (the loss has none)
    // I writes the gradients of the inputs there. Null entries are not computed. For an add with
    // LayerBytes::joins an entry may be the output gradient itself.
    std::span<std::byte* const> input_gradients;
    JoinedAdd joined;  // for I of a batch norm
    // A block like `weights`, written by W (by I for norms and position bias), or null for a frozen layer.
    std::byte* weight_gradient = nullptr;
    bool accumulate = false;  // add to weight_gradient instead of overwriting it
    std::byte* scratch = nullptr;
    int slice = 0;                               // the slice of Layer::slices whose rows the tensors have
    std::span<const EarlierSlice> earlier;       // for attention: the slices before `slice`
    const std::byte* later_gradients = nullptr;  // for I of attention: from later slices (null for the last slice)
    std::uint64_t seed = 0;                      // for F of dropout: dropout_seed of the first sample
    std::span<const int> labels;                 // for the loss: [sample][position], in shared memory
    double loss_scale = 1;                       // 1 / samples of the mini-batch
    double* loss = nullptr;                      // written by F of the loss: sum over the samples, in shared memory
};

// The statistics that the F tasks of a mini-batch wrote to LayerArgs::statistics, in ascending order of the
// micro-batches. Both lists are in memory that kernels can read (Kernels::reserve).
struct BatchStatistics {
    std::span<const std::byte* const> blocks;  // the stage's block of each micro-batch, on any device
    std::span<const int> samples;              // the number of samples of each micro-batch
    bool deferred = false;                     // true: one average over the samples of all micro-batches
    Bytes offset = 0;                          // from the start of a block to the layer's part
};

class LayerKernel {
public:
    virtual ~LayerKernel() = default;
    virtual LayerBytes bytes() const = 0;

    // Computes the output. `save` is false for an evaluation: nothing is saved, batch norm reads the running
    // averages, dropout does nothing. A batch norm or dropout whose `saved` is null saves nothing in a training. R is
    // an F without `statistics` and `loss`.
    virtual void forward(const LayerArgs& args, bool save) = 0;
    virtual void backward_input(const LayerArgs& args) = 0;   // for norms and position bias with weight gradients
    virtual void backward_weight(const LayerArgs& args) = 0;  // for convolution, linear, embedding (else does nothing)

    // The U of a batch norm: updates its running averages with a mini-batch, micro-batch by micro-batch or all
    // micro-batches together.
    virtual void gather_statistics(const BatchStatistics&, std::byte* /*running*/) {}

    // load() and store() convert between the plain layouts of workloads/models/parameters.h and the blocks. `values[k]`
    // belongs to parameters_of(layer)[k].
    virtual void load(const std::vector<std::vector<float>>& values, std::byte* weights, std::byte* statistics) = 0;
    virtual std::vector<std::vector<float>> store(const std::byte* weights, const std::byte* statistics) const = 0;

    // read_output() returns the output tensor as plain NCHW floats, for dumps and tests. fill_output() is its
    // inverse. read_input() and fill_input() do the same for an input tensor, by the index of the input.
    virtual std::vector<float> read_output(const std::byte* tensor) const = 0;
    virtual void fill_output(const std::vector<float>& values, std::byte* tensor) const = 0;
    virtual std::vector<float> read_input(const std::byte* tensor, int position = 0) const = 0;
    virtual void fill_input(const std::vector<float>& values, std::byte* tensor, int position = 0) const = 0;
};

// Momentum SGD as in PyTorch: g' = g + decay w, v = momentum v + g', w_new = w - rate v. The state is v.
struct Sgd {
    double learning_rate = 0.01, momentum = 0.9, weight_decay = 0;
};

// AdamW as in PyTorch: Loshchilov and Hutter, Decoupled Weight Decay Regularization, ICLR 2019, Algorithm 2, with
// learning_rate * weight_decay for its decay: m = beta1 m + (1 - beta1) g, v = beta2 v + (1 - beta2) g^2,
// w_new = w - rate decay w - rate (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + epsilon). The states are m and v.
// Kernels compute the last term as step_size * m / (sqrt(v) / root + epsilon), as PyTorch does.
struct AdamW {
    double learning_rate = 0.01, weight_decay = 0;
    double betas[2] = {0.9, 0.999};
    double epsilon = 1e-8;
    std::int64_t number = 1;  // t: the number of the update, from 1
    double step_size() const { return learning_rate / (1 - std::pow(betas[0], static_cast<double>(number))); }
    double root() const { return std::sqrt(1 - std::pow(betas[1], static_cast<double>(number))); }
};

// The rule of an update: a struct for each OptimizerKind.
using UpdateRule = std::variant<Sgd, AdamW>;

// The states of an optimizer (OptimizerFacts::states): consecutive blocks in the layout of the weights.
struct OptimizerStates {
    std::byte* first = nullptr;
    Bytes apart = 0;  // from the start of a block to the start of the next
    std::byte* block(int state) const { return first + state * apart; }
    OptimizerStates from(Bytes offset) const { return {first + offset, apart}; }
};

// The parts of a layer in the blocks of its stage.
struct StageBlock {
    int layer = 0;
    bool is_measured = true;  // whether its gradient counts in the norm
    Bytes weights_at = 0, weights = 0;
    Bytes statistics_at = 0, statistics = 0;
    std::int64_t channels = 0, per_sample = 0;  // for layers with statistics (per_sample: values per channel)
};

// Does the work of all layers of a stage at once, for each layer as Kernels and LayerKernel do it. The blocks
// are the blocks of the whole stage. `squares` has a value per layer.
class StageKernel {
public:
    virtual ~StageKernel() = default;
    // `squares` is null if the norm is not needed.
    virtual void update(const UpdateRule& rule, const std::byte* weights, const std::byte* gradients,
                        const OptimizerStates& states, std::byte* new_weights, double* squares) const = 0;
    virtual void measure(const std::byte* gradients, double* squares) const = 0;
    virtual void predict(const std::byte* weights, const std::byte* momentum, double factor, std::byte* out) const = 0;
    virtual void gather_statistics(const BatchStatistics& of, std::byte* running) const = 0;
};

// A point in a device's work, for timing.
using Mark = std::int64_t;

// Calls of kernels, and marks, that run() makes.
class RepeatedCalls {
public:
    explicit RepeatedCalls(std::function<void()> calls) : calls_(std::move(calls)) {}
    virtual ~RepeatedCalls() = default;
    virtual void run() { calls_(); }

private:
    std::function<void()> calls_;
};

// The kernels of a device, and its memory. The device's own thread uses them.
class Kernels {
public:
    virtual ~Kernels() = default;
    virtual std::string_view name() const = 0;  // of the backend
    // Returns whether a call's work is done when it returns, on the cores of the calling thread.
    virtual bool on_host() const = 0;
    // Makes the kernel of a layer. Its layouts depend on the layer alone, never on the split.
    virtual std::unique_ptr<LayerKernel> make(const Layer& layer, int samples, bool reads_data) const = 0;
    // Makes the kernel of a whole stage, or returns null if the backend does U layer by layer.
    virtual std::unique_ptr<StageKernel> make_stage(const std::vector<StageBlock>&) const { return nullptr; }
    virtual Bytes data_bytes(Dims input, int samples) const = 0;
    virtual void take_data(const Dataset&) const {}  // called once, before the first load_data() of the data set
    // Writes the samples (in shared memory) in the layout of layers that read data.
    virtual void load_data(const Dataset& data, std::span<const Sample> samples, std::byte* out) const = 0;
    virtual void fill(std::byte* to, unsigned char value, Bytes bytes) const = 0;
    virtual void copy(const std::byte* from, std::byte* to, Bytes bytes) const = 0;
    virtual void add(const std::byte* from, std::byte* to, Bytes bytes) const = 0;  // tensors: to += from
    // Sums the bytes from `first` on of blocks of gradients: to = from[0] + from[1] + ..., left to right. `to` may be
    // a summand.
    virtual void sum(std::span<const std::byte* const> from, Bytes first, Bytes bytes, std::byte* to) const = 0;
    // Sums the squares of the values in a block of LayerBytes::weights bytes. `sum` is in shared memory.
    virtual void sum_of_squares(const std::byte* gradient, Bytes bytes, double* sum) const = 0;
    // Computes *factor = min(1, largest / (norm + 1e-6)), where norm^2 is the sum of `squares` in their order. Both are
    // in shared memory.
    virtual void clip_factor(std::span<const double> squares, double largest, double* factor) const = 0;
    virtual void scale(const double* factor, std::byte* gradient, Bytes bytes) const = 0;  // *= factor
    // Does a step of the optimizer. `new_weights` may be `weights`.
    virtual void update(const UpdateRule& rule, const std::byte* weights, const std::byte* gradient,
                        const OptimizerStates& states, std::byte* new_weights, Bytes bytes) const = 0;
    // Computes out = weights - factor momentum: the weights some updates later, if the gradients stay as they are.
    // `out` may be `weights` or `momentum`.
    virtual void predict(const std::byte* weights, const std::byte* momentum, double factor, std::byte* out,
                         Bytes bytes) const = 0;

    // Reserves zeroed memory. Throws Error (RunFailed) with `whose` and the bytes if there is not enough.
    virtual std::unique_ptr<Memory> reserve(Bytes bytes, const std::string& whose) const = 0;
    // Reserves memory that the host and kernels read and write, for small data that the host accesses only between
    // steps.
    virtual std::unique_ptr<Memory> shared(Bytes bytes) const = 0;

    virtual std::string machine() const = 0;  // a description of the machine that the kernels run on
    // Returns the algorithms of the backend's library for convolutions, as far as they have been timed in this process.
    virtual std::vector<ConvolutionChoice> convolutions() const { return {}; }
    // Returns whether devices of this kind slow each other down when all compute, since they share memory
    // bandwidth.
    virtual bool has_neighbours() const = 0;

    virtual Mark mark() const = 0;                          // after all calls so far
    virtual Ns time_between(Mark from, Mark to) const = 0;  // waits until the device has passed both
    virtual void finish() const = 0;  // waits until all is done (later marks may then replace earlier marks)
    // Returns calls and marks that run() makes again. A device that can launch many calls at once records them
    // here, once.
    virtual std::unique_ptr<RepeatedCalls> as_one(std::function<void()> calls) const {
        return std::make_unique<RepeatedCalls>(std::move(calls));
    }
};

class HostKernels : public Kernels {
public:
    bool on_host() const override { return true; }
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
    bool has_neighbours() const override { return true; }
    Mark mark() const override;
    Ns time_between(Mark from, Mark to) const override { return to - from; }
    void finish() const override {}
};

// Opens the kernels of a device of a job, by number. The device's own thread calls it. The state that the devices
// share, such as chosen algorithms, exists as long as the function or the kernels that it has opened.
using OpenDevice = std::function<std::shared_ptr<const Kernels>(int device)>;

const HostKernels& cpu_kernels();               // oneDNN, fp32
const HostKernels& reference_kernels();         // plain loops, fp32
const HostKernels& reference_kernels_double();  // the oracle of the layer tests

}  // namespace pw
