// Executes a plan on this machine's devices and returns what happened.
#pragma once

#include "exec/checkpoint/checkpoint_folder.h"
#include "exec/system/disturbance.h"
#include "job/job.h"
#include "schedules/memory/buffers.h"
#include "schedules/plan/plan.h"
#include "schedules/trace/trace.h"

#include <functional>
#include <memory>
#include <optional>
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
    std::string dump;  // folder for the first mini-batch as .npy; empty for none
    std::string save;  // folder for all parameters after the run as .npy; empty for none
    std::shared_ptr<CheckpointFolder> checkpoints = {};  // which the run opens, on rank 0; null for none
    int checkpoint_every = 0;  // steps; there is one at the end in any case, of asynchronous plans no other
    std::shared_ptr<const FoundCheckpoint> resumed = {};  // the training goes on from there; null: it begins
    std::function<bool()> should_stop = {};               // asked after every step
    std::function<void(const Progress&)> progress;        // called between steps, on the caller's thread
    // Called on every rank before the next step, on the caller's thread: no rank goes on before it returns there.
    std::function<void(int done, int steps)> between_steps = {};
    // The run calls it with everything it found before files are written: a full disk takes no results along.
    std::function<void(const RunResult&)> finished = {};
    bool whole_trace = true;  // else the trace has the step of the median makespan only, and memory stays bounded
    // The last two are for tests on the host.
    bool guarded = false;  // the run fails when a task writes outside its buffers; freed memory is NaN
    std::function<void(int device, const Task& task)> before_task = {};  // called on the device's thread
};

// The processes of a run that has several.
struct RankReport {
    std::vector<std::string> hosts;  // by rank
    std::string version;             // "Open MPI v4.1.4"
};

// Where a device computed: its rank is on a host, and its threads had these cores, logical numbers of the system. The
// NUMA node is that of the first, -1 where it is not known.
struct DevicePlace {
    int rank = 0;
    std::string host;
    std::vector<int> cores;
    int numa_node = -1;
};

// What is in use on one of the run's GPUs, by anybody, and by how much more than right before the run reserved its
// devices' memory there. It is measured (cudaMemGetInfo) after the last step.
struct GpuUse {
    int rank = 0, gpu = 0;     // by its number on its rank
    std::vector<int> devices;  // of the run, that it has
    Bytes used = 0, grown = 0;
};

struct RunResult {
    Trace trace;
    std::vector<double> losses;          // mean over the samples, one per mini-batch
    std::vector<double> gradient_norms;  // L2 over all parameters, one per update
    std::string weights_hash;
    std::vector<MemoryUse> peak;  // per device, counted by the allocator
    std::vector<Bytes> arena;     // per device, reserved; the system rounds up to whole pages
    // By how much this process has grown from right before it reserved them to the end of the last step: measured,
    // where devices compute on cores.
    std::optional<Bytes> resident_growth;
    std::vector<GpuUse> gpus;  // empty where devices are not on GPUs
    Disturbance disturbance;
    std::vector<DevicePlace> places;   // per device; empty where devices do not compute on cores
    std::optional<RankReport> ranks;   // where the devices are on several ranks
    bool asked_to_stop = false;        // by should_stop() of a rank, on every rank
    std::optional<int> stopped_after;  // steps, when should_stop() said so
    std::optional<Ns> clock_error;     // on ranks: error of the difference between times of two ranks, without drift
    std::string lost_checkpoint;  // why the one of the last step could not be written; empty where it was, or none is
    std::vector<std::string> notes;     // lines about the devices, for people
    std::vector<std::string> warnings;  // why the times are not comparable, for people
};

// Where the devices are on several ranks every rank calls run(), and only on rank 0 the result has more than the losses
// and norms, and options but between_steps are called.
// When it throws Error (PeerSilent) the thread of the silent device may still be there, and use what `job` refers to
// when it comes back.
RunResult run(const Job& job, const RunOptions& options);

}  // namespace pw
