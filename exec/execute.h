// Executes a plan on this machine's devices and returns its results.
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
    std::string dump;  // folder for the tensors of the first mini-batch as .npy (empty: none)
    std::string save;  // folder for all parameters after the run as .npy (empty: none)
    std::shared_ptr<CheckpointFolder> checkpoints = {};  // the run opens it on rank 0 (null: none)
    // In steps. There is always a checkpoint at the end. Asynchronous plans have no further checkpoints.
    int checkpoint_every = 0;
    std::shared_ptr<const FoundCheckpoint> resumed = {};  // the training resumes from it (null: it begins anew)
    std::function<bool()> should_stop = {};               // called after every step
    std::function<void(const Progress&)> progress;        // called between steps, on the caller's thread
    // Called on every rank before the next step, on the caller's thread. No rank continues before it has returned
    // on all ranks.
    std::function<void(int done, int steps)> between_steps = {};
    // Called with all results before files are written, so that a full disk does not lose them.
    std::function<void(const RunResult&)> finished = {};
    bool whole_trace = true;  // false: the trace has only the step of the median makespan, and memory stays bounded
    // The last two are for tests on the host.
    bool guarded = false;  // the run fails when a task writes outside its buffers, and freed memory is NaN
    std::function<void(int device, const Task& task)> before_task = {};  // called on the device's thread
};

// The processes of a run on several ranks.
struct RankReport {
    std::vector<std::string> hosts;  // by rank
    std::string version;             // "Open MPI v4.1.4"
};

// Where a device computed: its rank, the host of the rank, and the cores of its threads by the system's logical
// numbers. The NUMA node contains the first core. It is -1 if it is not known.
struct DevicePlace {
    int rank = 0;
    std::string host;
    std::vector<int> cores;
    int numa_node = -1;
};

// The memory in use on a GPU of the run, by any program, and its growth since just before the run reserved its
// devices' memory there. It is measured (cudaMemGetInfo) after the last step.
struct GpuUse {
    int rank = 0, gpu = 0;     // the GPU's number on its rank
    std::vector<int> devices;  // the run's devices on this GPU
    Bytes used = 0, grown = 0;
};

struct RunResult {
    Trace trace;
    std::vector<double> losses;          // mean over the samples, by mini-batch
    std::vector<double> gradient_norms;  // L2 over all parameters, by update
    std::string weights_hash;
    std::vector<MemoryUse> peak;  // by device, as counted by the allocator
    std::vector<Bytes> arena;     // by device, reserved (the system rounds up to whole pages)
    // The growth of the process's resident memory from just before it reserved the arenas to the end of the last
    // step. It is measured if devices compute on cores.
    std::optional<Bytes> resident_growth;
    std::vector<GpuUse> gpus;  // empty if devices are not on GPUs
    Disturbance disturbance;
    std::vector<DevicePlace> places;   // by device (empty if devices do not compute on cores)
    std::optional<RankReport> ranks;   // if the devices are on several ranks
    bool asked_to_stop = false;        // should_stop() has returned true on a rank (set on every rank)
    std::optional<int> stopped_after;  // steps, if should_stop() ended the run
    std::optional<Ns>
        clock_error;  // on several ranks: the error of a difference between times of two ranks, without drift
    // Why the checkpoint of the last step could not be written. Empty if it was written, or if none is due.
    std::string lost_checkpoint;
    std::vector<std::string> notes;     // lines about the devices
    std::vector<std::string> warnings;  // lines that say why the times are not comparable
};

// If the devices are on several ranks, every rank calls run(). Only rank 0 gets more than the losses and norms, and
// only rank 0 calls functions of the options other than between_steps.
// When it throws Error (PeerSilent), the thread of the silent device may still exist, and may access the data that
// `job` refers to.
RunResult run(const Job& job, const RunOptions& options);

}  // namespace pw
