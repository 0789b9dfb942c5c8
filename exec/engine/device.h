// What the devices of this process do, and what differs between devices that compute and devices that are emulated.
// Lists, lanes, memory, intervals and the trace are the same for all of them. Letters stand for tasks: S the sum of
// gradients over the holders of a stage, U the optimizer update.
#pragma once

#include "exec/engine/barriers.h"
#include "exec/engine/device_queue.h"
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

// Knows the address of the tensor or gradient of an edge and micro-batch; it is null where the tensor has no bytes.
class EdgeBuffers {
public:
    EdgeBuffers() = default;
    EdgeBuffers(std::size_t edges, int microbatches);

    void place(const Buffer& buffer, std::byte* address);  // landing and sent buffers
    std::byte* landed(bool forward, int edge, int microbatch) const { return landing_[forward][at(edge, microbatch)]; }
    // Returns the address where its maker writes it: the sender's copy when there is one.
    std::byte* made(bool forward, int edge, int microbatch) const;

private:
    std::size_t at(int edge, int microbatch) const {
        return static_cast<std::size_t>(edge) * static_cast<std::size_t>(microbatches_) +
               static_cast<std::size_t>(microbatch);
    }
    int microbatches_ = 0;
    std::vector<std::byte*> landing_[2], sent_[2];  // [forward][edge, micro-batch]
};

// What the devices of a run share. The buffers are planned when all devices are prepared.
struct RunPlan {
    const Job& job;
    PlanGraph graph;
    MicroBatchSizes sizes;
    std::vector<EdgeBytes> edges;
    std::vector<Bytes> moved;  // by node: bytes that a transfer moves
    std::vector<Buffer> buffers;
    Packing packing;
    EdgeBuffers tensors;              // every entry has one writer; it is read after the next phase begins
    const Checkpoint* const resumed;  // null: the training begins
    Ranks& ranks;
    const RankMap map;
    const bool on_ranks;  // launched as ranks, be it one: messages cost what the transport costs
    const std::unique_ptr<ProgressMonitor> monitor;
    const std::unique_ptr<Barriers> barriers;

    RunPlan(const Job& the_job, const Checkpoint* from, Ranks& the_ranks)
        : job(the_job),
          graph(the_job.plan),
          sizes(sizes_of(the_job.config.pipeline)),
          resumed(from),
          ranks(the_ranks),
          map(the_job.plan.shape.devices, the_ranks),
          on_ranks(runs_on_ranks(the_job.config.run)),
          monitor(std::make_unique<ProgressMonitor>(graph, the_job.plan.shape.devices)),
          barriers(std::make_unique<Barriers>(graph, the_job.plan.shape, the_job.config.run.timeout, monitor.get(), map,
                                              the_job.config.training.shard_optimizer)) {
        for (int stage = 0; stage < job.plan.shape.stages; ++stage)
            first_holders_.push_back(job.plan.shape.devices_of(stage).front());
    }
    bool is_here(int device) const { return map.is_here(device); }
    std::int64_t samples_of(int update) const;
    bool trains() const;  // has updates
    int edge_of(const Task& transfer) const;
    // Return the number of the block that a micro-batch's gradients of a stage are added to, and how many blocks there
    // are.
    int gradient_part(int stage, int microbatch) const;
    int gradient_parts(int stage) const;
    // Tells whether the device speaks for the stage: of several holders one does, in norms and dumps.
    bool speaks_for(int device, int stage) const { return first_holder(stage) == device; }
    int first_holder(int stage) const { return first_holders_[static_cast<std::size_t>(stage)]; }
    std::vector<int> devices_of_rank(int rank) const;  // ascending

private:
    std::vector<int> first_holders_;  // by stage
};

// One device. Its functions are called on its own thread, in this order.
class Device {
public:
    virtual ~Device() = default;
    virtual void prepare() = 0;                                        // on all devices before the memory is planned
    virtual std::unique_ptr<Memory> reserve(Bytes bytes) = 0;          // memory for all its buffers
    virtual void place(const Buffer& buffer, std::byte* address) = 0;  // called for all but landing and sent buffers
    virtual void begin() = 0;                                          // memory is placed, initial values are written
    virtual void begin_step(int step) = 0;
    // Waits, before S and U, for the other devices of the task's barrier.
    virtual void wait_at_barrier(const Task& task, int node) = 0;
    // Waits until the host issues the call of a task, which is then run.
    virtual void wait_for_dispatcher() {}
    virtual void run(const Task& task, int node) = 0;  // F B I W R U S
    // Called after run(), when the clock has been read: what other threads begin from here on, begins after the task.
    virtual void has_run(int /*node*/) {}
    virtual void end_step() {}    // all nodes are finished
    virtual void keep_state() {}  // copies what a checkpoint after this step has of the device

    virtual DeviceQueue& queue() { return no_queue_; }

private:
    DeviceQueue no_queue_;
};

// What checkpoints contain of devices: tensors by device, and those of other ranks as messages.
struct DeviceStates {
    std::vector<std::vector<NamedTensor>> parameters, momenta;
    Message message;                // of this rank to rank 0
    std::vector<Message> messages;  // by rank, on rank 0
};

class Devices : public Payload {
public:
    virtual Device& device(int number) = 0;
    // Is called on the main thread when all devices are prepared; returns the bytes, and the times of links.
    virtual Costs prepare_memory() = 0;
    // Returns what carries messages between ranks in place of the ranks, or null.
    virtual RankCarrier* carrier() { return nullptr; }
    // Returns whether the devices compute; else nothing is pinned to a core, and memory is reserved but not touched.
    virtual bool computes() const = 0;
    virtual bool uses_cores() const { return false; }  // whether run() computes on the core of the device's thread
    virtual std::string machine() const = 0;           // what the devices of this rank run on; after the set-up
    virtual std::vector<GpuUse> gpus() const { return {}; }  // those of this rank, now; nothing has grown
    virtual void begin_step(int /*step*/) {}                 // on the main thread, before the devices begin it

    // For runs on several ranks: write what other ranks need from this one, and read what another one has written. The
    // first pair is called once, when memory is placed, the second after every step.
    virtual void write_addresses(Message&) const {}
    virtual void read_addresses(int /*rank*/, MessageReader&) {}
    virtual void write_step(Message&) const {}
    virtual void read_step(int /*rank*/, MessageReader&) {}

    // These two are called on the main thread after a step and speak of it: the loss is summed over the samples of a
    // micro-batch, the norms are those of its updates.
    virtual double loss(int microbatch) const = 0;
    virtual std::vector<double> gradient_norms() const = 0;
    virtual void check_numbers(int /*step*/) const {}  // throws Error (RunFailed) when losses or norms are not finite
    virtual void stop() {}     // after a failure, on any thread: devices give up what they wait for
    virtual void abort() {}    // when no thread works any more: lets go what waits for peers
    virtual void explain() {}  // after abort(): throws an error with more detail than the failure, if there is any

    // What a checkpoint has of the devices, in this order. The first is called on the main thread between steps:
    // devices that have not kept their state keep it now. The second, on any thread, makes tensors of it; until it
    // returns no device keeps another one. The last, on any thread of rank 0, makes one of what several devices have.
    virtual void take_state() {}
    virtual DeviceStates make_state() { return {}; }
    virtual void save(DeviceStates /*all*/, Checkpoint& /*checkpoint*/) const {}
    virtual void finish(RunResult& result) = 0;               // sets weights_hash at the end of the run
    virtual void write_files(const RunResult& /*result*/) {}  // writes the files that were asked for, after finish()
};

// Make the devices of `run.backend`. They throw Error when this build does not have it.
std::unique_ptr<Devices> make_devices(const RunPlan& plan, const RunOptions& options);
std::unique_ptr<Devices> make_training(const RunPlan& plan, const RunOptions& options);
std::unique_ptr<Devices> make_emulation(const RunPlan& plan, const RunOptions& options);

}  // namespace pw
