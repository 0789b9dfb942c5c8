// U, the optimizer update: of a whole stage or, if its holders shard the optimizer's states, of the device's part
// of it. The holders then exchange the new weights of their parts.
#pragma once

#include "exec/training/held_stage.h"
#include "exec/training/record.h"
#include "exec/training/shared_array.h"

#include <span>

namespace pw {

// Returns the rule of update `number`, counted from 1 over the whole training, with the learning rate times
// `rate_factor`.
UpdateRule update_rule(const TrainingConfig& training, std::int64_t number, double rate_factor = 1);

// Returns the factor of a stage's learning rate in an update. PipeMare divides the rate by
// delay^(1 - k / anneal_steps) in the first `anneal_steps` updates, k from 0, after the synchronous ones. Here a delay
// below one update divides nothing.
double rate_factor(const Job& job, int stage, std::int64_t number);

class GradientSum;
class StatisticsGather;

class Optimizer {
public:
    Optimizer(const DeviceScope& on, GradientSum& sums, StatisticsGather& statistics, Record& record);

    // Sets a state of a stage. `values` returns by layer the values for LayerKernel::load.
    void resume(int stage, int state, const StageProgram::Values& values);
    // Measures the device's part of the global norm. Called before any U of the mini-batch.
    void measure(const Task& update);
    // Does a U. At the device's first U in a barrier it updates its parts of all sharded stages there. No device
    // writes weights that another holder still copies, since the next S waits for that holder.
    void update(const Task& task, int node, int step);
    // Ends a step of a stage that runs forwards only, and so has no U.
    void end_step(int stage, int step);

private:
    bool is_recorded(const Task& update, int step) const;
    void begin(const Task& update, int step);
    void copy_weights(int stage);
    void end(const Task& update, int step);
    OptimizerStates next_states(const HeldStage& held) const;
    void average_step(const HeldStage& held, int stage, const std::byte* new_weights) const;
    void measure(int stage, double* squares) const;
    std::span<double> squares_of(const Task& update) const;

    const DeviceScope on_;
    GradientSum& sums_;
    StatisticsGather& statistics_;
    Record& record_;
    SharedArray<double> clip_factor_;  // for a global norm
};

}  // namespace pw
