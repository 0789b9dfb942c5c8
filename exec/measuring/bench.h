// The bench of a profile: the whole model as a stage on a single device, with memory for some micro-batches in flight.
#pragma once

#include "exec/kernels.h"
#include "exec/measuring/stop_watch.h"
#include "exec/memory.h"
#include "exec/system/disturbance.h"
#include "exec/training/stage_program.h"
#include "job/setup/setup.h"
#include "workloads/costs/costs.h"
#include "workloads/data/dataset.h"
#include "workloads/models/models.h"

#include <memory>
#include <vector>

namespace pw {

// All functions are called on the device's own thread.
class Bench {
public:
    // Runs a mini-batch.
    Bench(const Setup& setup, const Model& model, const Dataset& data, const Kernels& kernels, int samples,
          int in_flight);

    // Runs a mini-batch of `in_flight` micro-batches: all forwards, all backwards, the update. `times` may be null.
    void run_mini_batch(PassTimes* times);
    // Times some mini-batches, for about a second.
    void take_turn(PassTimes& times);
    // Writes the times of the turns: alone and, unless `busy` is null, in parallel with computing neighbours.
    void store(const PassTimes& alone, const PassTimes* busy, Profile& profile) const;

    double cpu_share() const { return core_clock_.share(); }  // the thread's share of its core in the turns
    Bytes memory_with(int in_flight) const;                   // the memory of such a bench

private:
    void queue_mini_batch(bool watched);
    std::byte* take(Bytes bytes);
    Bytes workspace() const;
    void place_memory();
    void place_shared();
    void measure_marks(bool as_one);

    const Dataset& data_;
    const Kernels& kernels_;
    const int samples_, in_flight_, states_;  // states of the optimizer
    const UpdateRule no_change_;              // leaves the weights as they are
    StageProgram program_;
    StopWatch stop_watch_;
    std::vector<LayerBytes> bytes_;
    StageLayout layout_;
    StageBytes sizes_;
    std::unique_ptr<Memory> memory_, shared_memory_;
    Bytes used_ = 0;
    std::byte *weights_ = nullptr, *optimizer_ = nullptr;
    double* squares_ = nullptr;
    Sample* batch_samples_ = nullptr;  // [micro-batch][sample]
    std::vector<Places> places_;
    std::vector<std::pair<Mark, Mark>> loads_;   // of the data of micro-batches
    std::vector<std::pair<Mark, Mark>> passes_;  // of the passes that are not watched
    std::unique_ptr<RepeatedCalls> watched_;     // a mini-batch with marks between its calls
    std::unique_ptr<RepeatedCalls> unwatched_;   // null on the host
    Measured dispatch_;
    CoreClock core_clock_;
};

}  // namespace pw
