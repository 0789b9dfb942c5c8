// Devices that compute on GPUs. The host threads only queue work: tasks on a compute stream per device, messages on
// a stream per lane, and events between them. As for devices on the host, the mailbox decides which thread queues a
// message, and in which order lanes take their messages. From the second step on the work of a task is launched as a
// graph, if steps repeat. With `run.graph: step` the second step is queued into one graph, which runs it and all later
// ones.
#pragma once

#include "exec/cuda/cuda_kernels.h"
#include "exec/cuda/device/events.h"
#include "exec/cuda/places.h"
#include "exec/cuda/step_graph.h"
#include "exec/cuda/transport.h"
#include "exec/training/training.h"

#include <array>
#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

namespace pw::cuda {

class CudaTraining;

class CudaDevice : public TrainingDevice, public DeviceQueue {
public:
    CudaDevice(CudaTraining& work, int device) : TrainingDevice(work_of(work), device), work_(work) {}

    void begin() override;
    void begin_step(int step) override;
    void wait_at_barrier(const Task& task, int node) override;
    void run(const Task& task, int node) override;
    DeviceQueue& queue() override { return *this; }
    void wait_for_transfer(int node) override;
    void about_to_post(int transfer, int earlier) override;
    void fetch(int node) override;
    void reduce(int node) override;
    void all_queued() override;
    void wait(int node) override;
    void all_done() override;
    Interval interval(int node, Interval by_host) override;

    HostCopies* copies() override { return copies_ ? &*copies_ : nullptr; }

    GpuShare& device() const { return kernels_->device(); }
    std::span<const cudaStream_t> copy_streams() const {
        return copies_ ? copies_->streams() : std::span<const cudaStream_t>{};
    }

protected:
    std::shared_ptr<const Kernels> open() override;
    void arrive(int node, int round) override;
    bool works_at_once() const override { return false; }
    bool reads(int device) const override;
    bool reduces(int stage) const override;

private:
    // During its lifetime only this device puts work into the graph that is being captured. It has no effect if
    // none is.
    class CaptureScope;

    // Queues copies on a stream for each lane. The memory of the host is pinned.
    class Copies : public HostCopies {
    public:
        explicit Copies(CudaDevice& device);
        void post(int node) override;
        void wait(int node) override;
        Interval interval(int) const override { return {}; }  // CudaDevice::interval() has it
        std::span<const cudaStream_t> streams() const { return streams_; }

    private:
        void begin(int node, int lane) override;

        CudaDevice& device_;
        const std::array<cudaStream_t, kLanes> streams_;  // by lane
    };

    static Training& work_of(CudaTraining& work);
    void wait_for_others(int node);
    template <class Act>
    void as_one(int node, Act act);

    void run_as_graph(const Task& task, int node);

    CudaTraining& work_;
    std::map<int, CapturedWork> graphs_;  // by node
    std::unique_lock<std::mutex> capture_lock_;
    std::shared_ptr<CudaKernels> kernels_;
    std::optional<Copies> copies_;  // if its list has copies
};

class CudaTraining : public Training, public RankCarrier {
public:
    CudaTraining(const RunPlan& the_plan, const RunOptions& options);

    Costs prepare_memory() override;
    std::vector<GpuUse> gpus() const override;
    void begin_step(int step) override;
    void leave(int send) override;
    RankCarrier* carrier() override { return plan.on_ranks ? this : nullptr; }
    void enqueue(int transfer) override;
    void finish(RunResult& result) override;
    void stop() override { stopped_ = true; }
    void abort() override;

    // Waits at a node of this step. Throws Error (RunFailed) if a peer is lost, or another device has failed.
    void wait_until(int node, const std::function<bool()>& passed) const;
    void wait(int node) const;
    Interval interval(int node) const;
    bool makes_step_graphs() const { return graphs_ == RunConfig::Graph::Step; }
    bool queues() const { return !graph_ || !graph_->is_made(); }  // false: the graph does this step
    bool makes_task_graph(const Task& task) const;                 // in this step
    // Returns the lock for calls that go into a graph. Its holder never waits for other devices.
    std::unique_lock<std::mutex> capture_lock();
    bool is_on_one_gpu(const Barrier& barrier) const;
    bool is_here(const Barrier& barrier) const;  // whether all its devices are on this rank
    bool crosses(int transfer) const;            // whether it is to or from another rank
    bool reduces(int stage) const;
    // Both do their work at a barrier, for all of its devices on this rank. `others` are the remaining ranks of
    // the barrier.
    void fetch(const Barrier& barrier, const std::vector<int>& others, int tag);
    void reduce(const Barrier& barrier);
    void device_has_room(int device);  // waits for the other devices of this rank
    void device_has_queued();
    void device_is_done(int device);  // waits for the other devices of this rank
    // Makes a call for a node, so that an error names the node. An error in a kernel appears only in a later call.
    void call_for(int node, const char* what, const std::function<void()>& call) const;
    // Record the start and the end of a task or transfer, on the stream that runs it.
    void record_start(int node, cudaStream_t stream) const;
    void record_end(int node, cudaStream_t stream) const;

    const std::shared_ptr<JobGpus> shared;
    const std::vector<Place> places;
    // The events of a node. A RECV starts with its SEND, unless that is on another rank. `posted` is when the
    // device's list reached the transfer or copy. Later work waits for `done`, which graphs need in addition to the
    // timed end.
    struct NodeEvents {
        std::optional<Event> start, end, posted, done;
        std::vector<Event> arrivals;  // arrivals by round, for nodes that begin a barrier
        const Event& awaited() const { return done ? *done : *end; }
    };
    std::vector<NodeEvents> events;
    std::vector<std::string> names;  // by node, shown in profilers

private:
    CudaDevice& cuda_device(int number) const { return static_cast<CudaDevice&>(*devices_[number]); }
    RunConfig::Graph chosen_graphs() const;
    std::string obstacle_to_task_graphs() const;  // empty if there is none
    std::string obstacle_to_step_graphs() const;
    std::vector<int> devices_of(const Barrier& barrier) const;
    std::set<Gpu> gpus_of(const std::vector<int>& devices) const;
    std::vector<std::vector<int>> sums_between_gpus() const;
    void wait_for_squares(const Barrier& barrier) override;
    void poll_until(int node, const std::function<bool()>& passed) const;
    DeviceMessage message_of(int send) const;
    const Event& landing(int recv) const;
    void make_lanes();
    int blocks_of_messages() const;
    std::vector<std::string> notes() const;
    void make_graph();
    void read_clocks(void (EventClock::*read)(cudaStream_t));

    const bool early_;
    const std::vector<int> own_;         // devices of this rank
    Lanes lanes_;                        // only for lanes and partners
    std::vector<int> lands_from_;        // by node, for RECVs, if there are several ranks
    int most_blocks_ = 0;                // as in Network
    std::vector<cudaStream_t> streams_;  // by lane
    std::unique_ptr<Transport> transport_;
    std::map<int, EventClock> clocks_;  // by GPU
    const RunConfig::Graph graphs_;
    int step_ = 0;
    std::unique_ptr<StepGraph> graph_;
    std::mutex capturing_;
    std::atomic<bool> stopped_{false};
    std::atomic<int> have_room_{0};         // number of devices that have allocated all memory
    std::atomic<int> queued_{0};            // number of devices that have queued this step
    std::atomic<bool> all_launched_{true};  // false while a graph waits for devices
    std::atomic<int> done_{0};              // number of devices that have finished this step
    std::atomic<bool> clocks_read_{false};  // whether the clocks are read after this step
};

}  // namespace pw::cuda
