// Executes a plan on this machine's devices and returns what happened.
#pragma once

#include "exec/disturbance.h"
#include "exec/kernels.h"
#include "job/job.h"
#include "schedules/buffers.h"
#include "schedules/lanes.h"
#include "schedules/plan.h"
#include "schedules/trace.h"

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace pw {

struct Progress {
    int step = 0, steps = 0;
    double loss = 0;  // of the last finished update
    Ns step_time = 0;
};

struct RunResult;

struct RunOptions {
    std::string dump;                               // folder for the first mini-batch as .npy; empty: none
    std::string save;                               // folder for all parameters after the run as .npy; empty: none
    std::function<void(const Progress&)> progress;  // called between steps, on the caller's thread
    // Called with everything before files are written: a full disk takes no results along.
    std::function<void(const RunResult&)> finished = {};
    bool whole_trace = true;  // else the trace has the step of the median makespan only, and memory stays bounded
    // For tests, on the host.
    bool guarded = false;  // fails when a task writes beside its buffers; freed memory is NaN
    std::function<void(int device, const Task& task)> before_task = {};  // on the device's thread
};

struct RunResult {
    Trace trace;
    std::vector<double> losses;          // mean over the samples, one per mini-batch
    std::vector<double> gradient_norms;  // L2 over all parameters, one per update
    std::string weights_hash;
    std::vector<MemoryUse> peak;  // per device, counted by the allocator
    std::vector<Bytes> arena;     // per device, reserved; the system rounds up to whole pages
    Disturbance disturbance;
    std::vector<std::string> notes;     // lines about the devices, for people
    std::vector<std::string> warnings;  // why the times are not comparable, for people
};

// The plan's sequential oracle on one device: the same micro-batches, the same grouping of gradient
// sums, the same weight versions, one task at a time.
Job oracle_of(const Job& job);

// Throws Error (BadInput) when the plan asks for what no backend of this build does.
void check_runnable(const Job& job);
// And when a trace of all steps, every task of which leaves an event that is copied once, takes too much memory.
void check_whole_trace(const Job& job);
// The part of it that needs no job: that the transport `link` carries all that the plan moves.
void check_link(const Config& config, const Shape& shape);

// When it throws Error (PeerSilent) the thread of the silent device may still be there, and use what `job` refers to
// when it comes back.
RunResult run(const Job& job, const RunOptions& options);

// NUMA node that each of `devices` devices of `run.backend` is nearest to, -1: not known. Empty: they are the cores.
std::vector<int> numa_nodes(const Config& config, int devices);
// The kernels of one of `devices` devices of `run.backend`; call it on the device's own thread. Throws Error
// (RunFailed) when this build or this machine does not have them.
std::shared_ptr<const Kernels> open_kernels(const Config& config, int device, int devices);

struct BackendRow {
    std::string_view name;
    std::string_view summary;
    std::string status;  // "ready", or why not: "not in this build", "no NVIDIA driver"
};
std::vector<BackendRow> backends();
std::vector<BackendRow> transports();

// What a message between devices 0 and 1 costs on the backend and transport of `config`.
struct HandOver {
    Link link;
    Link sums;                 // as Profile::sums
    bool sent_copies = false;  // the sender keeps a copy
};
HandOver measure_hand_over(const Config& config);
HandOver measure_host_hand_over(const Config& config);

// Measures every layer and pass of the model, the optimizer, the data and the hand-over on the
// backend of `config`, at the given micro-batch sizes.
Profile measure_profile(const Config& config, const Model& model, const std::vector<int>& samples,
                        const std::function<void(int done, int all)>& progress);

}  // namespace pw
