// The interface of the devices of this process: the part of a run that differs between computing and emulated
// devices. Lists, lanes, memory, intervals and the trace are the same for both. Letters stand for tasks: S
// the sum of gradients over the holders of a stage, U the optimizer update.
#pragma once

#include "exec/engine/barriers.h"
#include "exec/engine/device_queue.h"
#include "exec/engine/host_copies.h"
#include "exec/engine/mailbox.h"
#include "exec/execute.h"
#include "exec/memory.h"
#include "exec/ranks/ranks.h"
#include "job/launched_ranks.h"
#include "schedules/plan/plan_graph.h"
#include "workloads/costs/micro_batch_sizes.h"
#include "workloads/models/parameters.h"

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

namespace pw {

// The addresses of the tensor and the gradient of each edge and micro-batch, or null if the tensor has no bytes.
class EdgeBuffers {
public:
    EdgeBuffers() = default;
    EdgeBuffers(std::size_t edges, int microbatches);

    void place(const Buffer& buffer, std::byte* address);  // landing and sent buffers
    std::byte* landed(bool forward, int edge, int microbatch) const { return landing_[forward][at(edge, microbatch)]; }
    // Returns the address that the producing task writes: the sender's copy if it exists.
    std::byte* made(bool forward, int edge, int microbatch) const;

private:
    std::size_t at(int edge, int microbatch) const {
        return static_cast<std::size_t>(edge) * static_cast<std::size_t>(microbatches_) +
               static_cast<std::size_t>(microbatch);
    }
    int microbatches_ = 0;
    std::vector<std::byte*> landing_[2], sent_[2];  // [forward][edge, micro-batch]
};

// The data that the devices of a run share. The buffers are planned when all devices are prepared.
struct RunPlan {
    const Job& job;
    PlanGraph graph;
    MicroBatchSizes sizes;
    std::vector<EdgeBytes> edges;
    std::vector<Bytes> moved;  // by node: bytes that a transfer moves
    std::vector<Buffer> buffers;
    Packing packing;
    EdgeBuffers tensors;              // every entry has one writer, and is read only in later phases
    const Checkpoint* const resumed;  // null: the training begins at its first step
    Ranks& ranks;
    const RankMap map;
    const bool on_ranks;  // launched as ranks, even if there is only one: messages have the costs of the transport
    const std::unique_ptr<ProgressMonitor> monitor;
    const std::unique_ptr<Barriers> barriers;

    RunPlan(const Job& the_job, const Checkpoint* from, Ranks& the_ranks)
        : job(the_job),
          graph(the_job.plan),
          sizes(sizes_of(the_job.setup.pipeline)),
          resumed(from),
          ranks(the_ranks),
          map(the_job.plan.shape.devices, the_ranks),
          on_ranks(runs_on_ranks(the_job.setup.run)),
          monitor(std::make_unique<ProgressMonitor>(graph, the_job.plan.shape.devices)),
          barriers(std::make_unique<Barriers>(graph, the_job.plan.shape, the_job.setup.run.timeout, monitor.get(), map,
                                              the_job.setup.training.zero > 0)) {
        for (int stage = 0; stage < job.plan.shape.stages; ++stage)
            first_holders_.push_back(job.plan.shape.devices_of(stage).front());
    }
    bool is_here(int device) const { return map.is_here(device); }
    std::int64_t samples_of(int update) const;
    bool trains() const;  // has updates
    // Returns the number of updates that every stage has had when it begins a mini-batch of a step of this run,
    // including the updates before the resumed checkpoint.
    std::int64_t updates_before(int step, int mini_batch = 0) const;
    int edge_of(const Task& transfer) const;
    // Return the index of the block that a micro-batch's gradients of a stage are added to, and the number of
    // blocks.
    int gradient_part(int stage, int microbatch) const;
    int gradient_parts(int stage) const;
    // Returns whether the device is the first holder of the stage, which alone counts in norms and dumps.
    bool is_first_holder(int device, int stage) const { return first_holder(stage) == device; }
    int first_holder(int stage) const { return first_holders_[static_cast<std::size_t>(stage)]; }
    std::vector<int> devices_of_rank(int rank) const;  // ascending

private:
    std::vector<int> first_holders_;  // by stage
};

// A device. Its functions are called on its own thread, in this order.
class Device {
public:
    virtual ~Device() = default;
    virtual void prepare() = 0;                                        // on all devices before the memory is planned
    virtual std::unique_ptr<Memory> reserve(Bytes bytes) = 0;          // memory for all its buffers
    virtual void place(const Buffer& buffer, std::byte* address) = 0;  // not called for landing and sent buffers
    virtual void begin() = 0;                                          // all memory is placed: writes initial values
    virtual void begin_step(int step) = 0;
    // Waits, before S and U, for the other devices of the task's barrier.
    virtual void wait_at_barrier(const Task& task, int node) = 0;
    // Waits until the host issues the call of a task, which is then run.
    virtual void wait_for_dispatcher(int /*node*/) {}
    virtual void run(const Task& task, int node) = 0;  // F B I W R U S
    // Called after run(), when the clock has been read: all that other threads begin from now on is later than the
    // task.
    virtual void has_run(int /*node*/) {}
    virtual void end_step() {}    // all nodes are finished
    virtual void keep_state() {}  // copies the device's part of a checkpoint after this step

    virtual DeviceQueue& queue() { return no_queue_; }
    virtual HostCopies* copies() { return nullptr; }  // not null if the device's list has copies

private:
    DeviceQueue no_queue_;
};

// The devices' part of a checkpoint: tensors by device, and the tensors of other ranks as messages.
struct DeviceStates {
    std::vector<std::vector<NamedTensor>> parameters, states;  // states of the optimizer
    Message message;                                           // from this rank to rank 0
    std::vector<Message> messages;                             // by rank, on rank 0
};

class Devices : public Payload {
public:
    virtual Device& device(int number) = 0;
    // Called on the main thread when all devices are prepared. Returns the bytes, and the times of links.
    virtual Costs prepare_memory() = 0;
    // Returns the carrier of messages between ranks, or null if the ranks carry them.
    virtual RankCarrier* carrier() { return nullptr; }
    // Returns whether the devices compute. If not, no thread is pinned to a core, and memory is reserved but not
    // touched.
    virtual bool computes() const = 0;
    virtual bool uses_cores() const { return false; }  // whether run() computes on the core of the device's thread
    virtual std::string machine() const = 0;           // the machine of this rank's devices, called after the set-up
    virtual std::vector<GpuUse> gpus() const { return {}; }  // the current use of this rank's GPUs (`grown` is zero)
    virtual void begin_step(int /*step*/) {}                 // on the main thread, before the devices begin it

    // For runs on several ranks: write the data that other ranks need from this rank, and read the data of another
    // rank. The first pair is called once, when memory is placed, the second after every step.
    virtual void write_addresses(Message&) const {}
    virtual void read_addresses(int /*rank*/, MessageReader&) {}
    virtual void write_step(Message&) const {}
    virtual void read_step(int /*rank*/, MessageReader&) {}

    // The loss and the norms of the last step, called on the main thread after it. The loss is the sum over the
    // samples of a micro-batch. There is a norm per update.
    virtual double loss(int microbatch) const = 0;
    virtual std::vector<double> gradient_norms() const = 0;
    virtual void check_numbers(int /*step*/) const {}  // throws Error (RunFailed) when losses or norms are not finite
    virtual void stop() {}                             // after a failure, on any thread: ends the waits of the devices
    virtual void abort() {}    // when all threads have ended: cancels operations that wait for peers
    virtual void explain() {}  // after abort(): throws an error with more detail than the failure, if it exists

    // The three steps that make a checkpoint of the devices. take_state() is called on the main thread between
    // steps: devices that have not kept their state keep it now. make_state(), on any thread, makes tensors of the
    // kept state. Until it returns, no device keeps another state. save(), on any thread of rank 0, merges the
    // states of all devices.
    virtual void take_state() {}
    virtual DeviceStates make_state() { return {}; }
    virtual void save(DeviceStates /*all*/, Checkpoint& /*checkpoint*/) const {}
    virtual void finish(RunResult& result) = 0;               // sets weights_hash at the end of the run
    virtual void write_files(const RunResult& /*result*/) {}  // writes the files that were asked for, after finish()
};

// Make the devices of `run.backend`. They throw Error if this build does not have the backend.
std::unique_ptr<Devices> make_devices(const RunPlan& plan, const RunOptions& options);
std::unique_ptr<Devices> make_training(const RunPlan& plan, const RunOptions& options);
std::unique_ptr<Devices> make_emulation(const RunPlan& plan, const RunOptions& options);

}  // namespace pw
