// Executes a plan on this machine's devices and returns what happened.
#pragma once

#include "exec/engine/disturbance.h"
#include "exec/kernels.h"
#include "schedules/buffers.h"
#include "schedules/lanes.h"
#include "schedules/plan.h"
#include "schedules/trace/trace.h"
#include "workloads/config.h"

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace pw {

struct Progress {
    int step = 0, steps = 0;
    double loss = 0;   // of the last finished update
    Ns step_time = 0;
};

struct RunResult;

struct RunOptions {
    std::string dump;  // folder for the first mini-batch as .npy; empty: none
    std::string save;  // folder for all parameters after the run as .npy; empty: none
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

// Everything an execution needs, made once by the caller.
struct Job {
    const Config& config;
    const Model* model;  // none for a uniform workload
    StageSplit split;
    Plan plan;
    VersionTable versions;  // usually versions_of(plan); the oracle keeps those of its plan
    int steps = 1;          // repeats of a synchronous plan; an asynchronous plan holds all its steps
    Costs costs = {};       // what emulated devices sleep and reserve
    bool within_memory = true;  // refuse buffers that exceed the memory of cluster.devices
    // [stage][micro-batch]: gradients with one number are added up, and S sums those sums in ascending order. Empty: a
    // device has one sum. The oracle of a plan with replicas numbers the holders.
    std::vector<std::vector<int>> gradient_parts = {};
    std::vector<ConvolutionChoice> convolutions = {};  // of the profile, for devices that time them else
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

// When it throws Error (PeerSilent) the thread of the silent device may still be there, and use what `job` refers to when
// it comes back.
RunResult run(const Job& job, const RunOptions& options);

// Whether the devices of a `run.backend` sleep instead of computing: then costs are enough to run.
bool is_emulated(const Config& config);

// How the backend of a config moves transfers: as the config says, but devices that compute have nowhere to
// hold a message, so that with deferred receives it leaves when its RECV is posted.
TransferMode executed_mode(const Config& config);
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
