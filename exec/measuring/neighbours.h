// Devices that compute while another one is timed, so that caches and memory are as loaded as in a run.
#pragma once

#include "exec/engine/pin.h"
#include "exec/kernels.h"
#include "exec/system/threads.h"
#include "job/config/config.h"
#include "workloads/data/dataset.h"
#include "workloads/first_failure.h"
#include "workloads/models/models.h"

#include <vector>

namespace pw {

// Devices 1, 2, .. on threads of their own, which compute between start and stop.
class Neighbours {
public:
    // Each holds the whole model, and no more activations than it must: micro-batches in flight.
    static constexpr int kInFlight = 1;

    // They have warmed up, and rest, when this returns. It and the functions below throw what a neighbour threw.
    Neighbours(const Config& config, const Model& model, const Dataset& data, const CorePlan& cores,
               const OpenDevice& open, int samples);
    ~Neighbours();
    Neighbours(const Neighbours&) = delete;
    Neighbours& operator=(const Neighbours&) = delete;

    void start();  // all compute when it returns
    void stop();   // all rest when it returns

private:
    enum class Told { Rest, Compute, End };

    void tell(Told what);
    bool is_told(Told what);
    bool rest();
    void wait_until_resting(int count);
    void end();

    const int count_;
    Mutex mutex_;
    Condition changed_;
    Told told_ = Told::Rest;
    int resting_ = 0;
    FirstFailure failure_;
    std::vector<Thread> threads_;
};

}  // namespace pw
