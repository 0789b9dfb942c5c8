// The program of a stage on a device: its kernels, and its passes over planned memory. Letters stand for tasks: F
// the forward, B the full backward, which consists of I (for inputs) and W (for weights), U the optimizer update.
#pragma once

#include "exec/kernels.h"
#include "exec/training/extent.h"
#include "workloads/stages/stage_layout.h"

#include <functional>
#include <memory>
#include <vector>

namespace pw {

// The addresses of the regions of a stage's layout for a micro-batch.
struct Places {
    std::byte* data = nullptr;
    std::byte* until_input = nullptr;
    std::byte* until_weight = nullptr;
    std::byte* first_until_again = nullptr;
    std::byte* first_until_input = nullptr;
    std::byte* first_until_weight = nullptr;
    std::byte* offloaded_until_input = nullptr;  // these two may be elsewhere in the backward than in F
    std::byte* offloaded_until_weight = nullptr;
    std::byte* gradient_kept = nullptr;
    std::byte* slice_gradients = nullptr;
    std::byte* workspace = nullptr;
    // By edge: landing buffers of tensors (this stage's and the other end's) and of gradients.
    std::vector<std::byte*> tensor_in, tensor_out, gradient_in, gradient_out;
    const std::byte* weights = nullptr;
    std::byte* statistics = nullptr;  // of the micro-batch (in evaluation the running averages)
    std::byte* gradients = nullptr;
    std::span<const int> labels;                       // in shared memory, like the loss
    std::int64_t training_seed = 1, first_sample = 0;  // for dropout (first_sample: number in the endless sequence)
    double* loss = nullptr;  // the sum over the samples, written by F of the stage with the loss layer
    // The regions of earlier slices of the micro-batch, by slice.
    std::vector<Places> earlier;
};

// Whether a block of gradients already has values: from layers that add to it in I, and from layers that add to it
// in W.
struct Begun {
    bool input = false, weight = false;
};

enum class Pass { Forward, Input, Weight, Sum, Update };

inline constexpr int kAllLayers = -1;  // all layers of a stage, for a U that is one call
// An observer is called at every kernel call: by it the profiler times calls, and tests examine them.
class PassObserver {
public:
    virtual ~PassObserver() = default;
    virtual void before(int layer, Pass pass, const LayerArgs& args) = 0;
    virtual void after(int layer, Pass pass, const LayerArgs& args) = 0;
};

class StageProgram {
public:
    // Makes the kernels. Call it on the device's own thread.
    StageProgram(const Model& model, const StageSplit& split, int stage, const Kernels& kernels, int samples);

    const std::vector<int>& layers() const { return layers_; }
    LayerBytes bytes_of(int layer) const { return without_unused(model_.layers[layer], kernel(layer).bytes()); }
    LayerKernel& kernel(int layer) const { return *kernels_[layer]; }

    void set_layout(StageLayout layout);  // call it on the device's own thread
    const StageLayout& layout() const { return layout_; }
    void set_observer(PassObserver* observer) { observer_ = observer; }

    // With `save` it is the forward of a training, without it of an evaluation.
    void forward(const Places& places, bool save) const;
    // Writes the saved data of forward() again for the layers that are recomputed, from the same inputs and weights.
    // It writes nothing else.
    void recompute(const Places& places) const;
    // Does B (with `weights_too`) or I, which keeps the output gradients for W. It adds to the gradients that have
    // begun, and overwrites the remaining gradients.
    void backward(const Places& places, double loss_scale, Begun begun, bool weights_too) const;
    void backward_weight(const Places& places, Begun begun) const;  // does W, after an I
    // Does an optimizer step and writes each layer's sum of squared gradients to squares[layer], in shared memory.
    // `squares` is null if measure() has done that.
    void update(const UpdateRule& rule, const std::byte* weights, const std::byte* gradients,
                const OptimizerStates& states, std::byte* new_weights, double* squares) const;
    // Does the step for a part of the stage only. `states` are the states of this part.
    void update(const UpdateRule& rule, const Extent& part, const std::byte* weights, const std::byte* gradients,
                const OptimizerStates& states, std::byte* new_weights) const;
    // Predicts the weights as Kernels::predict does.
    void predict(const std::byte* weights, const std::byte* momentum, double factor, std::byte* out) const;
    void measure(const std::byte* gradients, double* squares) const;
    void measure(int layer, const std::byte* gradients, double* squares) const;
    // Updates the running averages with the statistics of a mini-batch.
    void gather_statistics(BatchStatistics of, std::byte* running) const;
    // Returns, for a layer, the values for LayerKernel::load, in plain layout.
    using Values = std::function<std::vector<std::vector<float>>(int layer)>;
    void initialise(const Values& values, std::byte* weights, std::byte* statistics) const;
    void initialise(std::int64_t seed, std::byte* weights, std::byte* statistics) const;  // from names and seed
    // Returns the parameters in plain layout, with their names.
    std::vector<NamedTensor> named(const std::byte* weights, const std::byte* statistics, bool trained_only) const;

    bool has_loss() const { return has_loss_; }
    bool reads_data() const { return reads_data_; }

private:
    // The arguments of a kernel call, with memory for the lists that they refer to.
    struct Call {
        LayerArgs args;
        std::vector<const std::byte*> inputs, norms;
        std::vector<std::byte*> input_gradients;
        std::vector<EarlierSlice> earlier;
    };
    const Layer& owner_of_parameters(int layer) const;
    void bind_forward(int layer, const Places& places) const;
    void bind_parameters(int layer, const Places& places, LayerArgs& args) const;
    void bind_slices(int layer, const Places& places) const;
    void bind_backward(int layer, const PassLayout& pass, const Places& places) const;
    void bind_saving_forward(int layer, const Places& places) const;
    bool saves(int layer) const;
    void join_add(int add, const PassLayout& pass, const Places& places) const;
    void run_sums(int layer, std::span<const Sum> sums, const Places& places) const;
    template <class Act>
    void observed(int layer, Pass pass, const LayerArgs& args, Act act) const;
    bool is_measured(int layer) const;

    const Model& model_;
    const Kernels& family_;
    std::vector<int> layers_;
    std::vector<std::unique_ptr<LayerKernel>> kernels_;  // by layer number
    std::unique_ptr<StageKernel> all_;                   // null if the backend updates layer by layer
    std::vector<bool> leaves_output_;                    // by layer: a batch norm whose output an add computes
    StageLayout layout_;
    bool has_loss_ = false, reads_data_ = false;
    PassObserver* observer_ = nullptr;
    mutable Call call_;  // reused, so that a step allocates nothing
};

}  // namespace pw
