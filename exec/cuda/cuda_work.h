// Devices that compute on GPUs. The host threads only queue work: tasks on a compute stream per device,
// messages on a stream per lane, and events between them. Which thread may queue what, and in which
// order lanes take their messages, is the mailbox's business, as for devices on the host.
#pragma once

#include "exec/cuda/cuda_kernels.h"
#include "exec/cuda/events.h"
#include "exec/cuda/transport.h"
#include "exec/host/kernel_work.h"

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace pw::cuda {

class CudaWork;

class CudaDevice : public KernelDevice {
public:
    CudaDevice(CudaWork& work, int device) : KernelDevice(work_of(work), device), work_(work) {}

    void begin() override;
    void run(const Task& task, int node) override;
    void wait_for_received(int recv) override;
    void about_to_post(int transfer, int earlier) override;
    Interval finish(int node, Interval by_host) override;

    Device& device() const { return kernels_->device(); }

protected:
    std::shared_ptr<const Kernels> open() override;

private:
    static KernelWork& work_of(CudaWork& work);

    CudaWork& work_;
    std::shared_ptr<CudaKernels> kernels_;
};

class CudaWork : public KernelWork {
public:
    CudaWork(const HostPlan& the_plan, const RunOptions& options);

    Costs costs() override;
    void begin_step(int step) override;
    void leave(int send) override;
    void finish(RunResult& result) override;
    void abort() override;

    // Waits for an event of the run. Throws Error (PeerSilent) after run.timeout, (RunFailed) when a peer is lost.
    void wait(const Event& event, int node);
    Interval interval(int node) const;

    const std::vector<Seat> seats;
    // By node. A RECV starts with its SEND; `posted` is when a transfer came up in its device's list.
    struct NodeEvents {
        std::optional<Event> start, end, posted;
    };
    std::vector<NodeEvents> events;
    std::vector<std::string> names;  // by node, for profilers

private:
    CudaDevice& cuda_device(int number) const { return static_cast<CudaDevice&>(*devices_[number]); }
    void make_lanes();

    const bool early_;
    Lanes lanes_;                        // asked for lanes and partners; it does not run
    std::vector<cudaStream_t> streams_;  // by lane
    std::unique_ptr<Transport> transport_;
    std::map<int, EventClock> clocks_;   // by GPU
};

}  // namespace pw::cuda
