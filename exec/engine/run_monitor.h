// Checks that the devices of a run are not silent, and that exchanges between all ranks end in time.
#pragma once

#include "exec/engine/progress_monitor.h"
#include "workloads/units.h"

#include <atomic>
#include <utility>

namespace pw {

class RunMonitor {
public:
    RunMonitor(ProgressMonitor& devices, Ns timeout) : devices_(devices), timeout_(timeout) {}

    Ns interval() const { return interval_; }  // the time between two checks
    void set_limits(ProgressMonitor::Limits limits) { limits_ = std::move(limits); }
    bool has_limits() const { return !limits_.task.empty(); }
    void begin_steps() { steps_begun_ = true; }

    // Checks the devices. `passed` is the time since the last call. Throws Error (PeerSilent).
    void check_devices(Ns passed);
    bool is_silent() const { return is_silent_; }  // whether a device is

    // Runs an exchange between all ranks, on the main thread.
    template <class Act>
    void together(Act act) {
        ++gatherings_;
        act();
        ++gatherings_;
    }
    // Does all checks of a run, on rank 0 for all ranks. Throws Error (PeerSilent).
    void check_ranks(Ns passed);

private:
    ProgressMonitor& devices_;
    const Ns timeout_;
    const Ns interval_ = ProgressMonitor::check_interval(timeout_);
    ProgressMonitor::Limits limits_;
    std::atomic<bool> steps_begun_{false};
    bool is_silent_ = false;
    std::atomic<int> gatherings_{0};  // begins and ends of exchanges: odd while the main thread waits for other ranks
    // State of check_ranks():
    int gatherings_seen_ = 0;
    Ns gathers_for_ = 0;
};

}  // namespace pw
