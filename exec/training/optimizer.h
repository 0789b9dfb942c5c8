// U, the optimizer update: of a whole stage, or, if its holders share out the optimizer's states, of the device's part
// of it, whose new weights the holders then exchange.
#pragma once

#include "exec/training/held_stage.h"
#include "exec/training/record.h"
#include "exec/training/shared_array.h"

#include <span>

namespace pw {

class GradientSum;
class StatisticsGather;

class Optimizer {
public:
    Optimizer(const DeviceScope& on, GradientSum& sums, StatisticsGather& statistics, Record& record);

    // Sets the momentum of a stage; `momenta` returns by layer what LayerKernel::load takes.
    void resume(int stage, const StageProgram::Values& momenta);
    // Measures what the device adds to the global norm. To be called before any U of the mini-batch.
    void measure(const Task& update);
    // Does a U. At the device's first U in a barrier it does the step for its parts of all sharded stages there. No
    // device writes weights that another holder still copies: that holder first comes to the next S.
    void update(const Task& task, int node, int step);

private:
    bool is_recorded(const Task& update, int step) const;
    void begin(const Task& update, int step);
    void copy_weights(int stage);
    void end(const Task& update, int step);
    std::byte* next_momentum(const StageMemory& memory, Bytes bytes) const;
    void measure(int stage, double* squares) const;
    std::span<double> squares_of(const Task& update) const;

    const DeviceScope on_;
    GradientSum& sums_;
    StatisticsGather& statistics_;
    Record& record_;
    SharedArray<double> clip_factor_;  // under a global norm
};

}  // namespace pw
