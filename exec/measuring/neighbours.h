// Devices that compute while another device is timed, so that caches and memory have the load of a run.
#pragma once

#include "exec/engine/pin.h"
#include "exec/kernels.h"
#include "exec/system/threads.h"
#include "job/setup/setup.h"
#include "workloads/data/dataset.h"
#include "workloads/first_failure.h"
#include "workloads/models/models.h"

#include <vector>

namespace pw {

// Devices 1, 2, ... on threads of their own, which compute between start() and stop().
class Neighbours {
public:
    // Micro-batches in flight. Each neighbour holds the whole model and as few activations as possible.
    static constexpr int kInFlight = 1;

    // Returns when all have warmed up and are idle. This and the functions below throw the exception of a
    // neighbour.
    Neighbours(const Setup& setup, const Model& model, const Dataset& data, const CorePlan& cores,
               const OpenDevice& open, int samples);
    ~Neighbours();
    Neighbours(const Neighbours&) = delete;
    Neighbours& operator=(const Neighbours&) = delete;

    void start();  // returns when all compute
    void stop();   // returns when all are idle

private:
    enum class State { Rest, Compute, End };

    void set_state(State state);
    bool is_state(State state);
    bool wait_for_work();
    void wait_until_resting(int count);
    void end();

    const int count_;
    Mutex mutex_;
    Condition changed_;
    State state_ = State::Rest;
    int resting_ = 0;
    FirstFailure failure_;
    std::vector<Thread> threads_;
};

}  // namespace pw
