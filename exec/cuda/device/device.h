// A CUDA device of a plan: a whole GPU, or a share of its multiprocessors (a green context), with its own streams
// and library handles.
#pragma once

#include "exec/cuda/device/check.h"
#include "exec/cuda/device/owned.h"
#include "workloads/models/precision.h"
#include "workloads/units.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace pw {
struct Setup;  // its header brings fmt, which nvcc 13.0 cannot compile
}

namespace pw::cuda {

// The GPU, or the share of a GPU, on which a device of the plan runs.
struct Seat {
    int gpu = 0;
    int first_group = 0, groups = 0;  // groups of kGroup multiprocessors (no groups: the whole GPU)
};
inline constexpr int kGroup = 8;  // multiprocessors: on Hopper the smallest share and its granularity

struct JobGpus;  // exec/cuda/device/job_gpus.h

std::string address_of(int gpu);  // on the PCI bus: "0000:3B:00.0"

// Throws Error (BadInput) unless `run.gpus` and `run.sms` are lists for `devices` devices.
void check_seats(const Setup& setup, int devices);
// Throws Error (BadInput) if the device's GPU in `run.gpus` is not one of `gpus` GPUs.
void check_gpu(const Setup& setup, int device, int gpus);
// Returns the seat of every device. `run.gpus` gives the GPUs. Without this key there is a GPU per device if there
// are enough and `run.sms` is not set. Otherwise neighbours share a GPU: equal numbers of devices, or the devices
// whose shares in `run.sms` fill it. A device has the whole GPU, or a share of it: its share in `run.sms`, or an
// equal share. Throws Error (BadInput) if the shares do not fit.
std::vector<Seat> seats_of(const Setup& setup, int devices, JobGpus& job);

// Sets the number of streams that the driver runs concurrently. On several ranks it also makes the driver load all
// code at once: loading may wait for kernels, and these may wait for another rank. Call it before the process's
// first CUDA call.
void set_up_process();
int streams_side_by_side();

using DeviceMemory = std::unique_ptr<std::byte, Destroy<cudaFree>>;
DeviceMemory allocate(Bytes bytes);  // on the thread's GPU, not zeroed

// Pinned memory of the host, which devices read: for values that may change between launches of a captured graph.
using PinnedMemory = std::unique_ptr<std::byte, Destroy<cudaFreeHost>>;
PinnedMemory allocate_pinned(Bytes bytes);

void destroy_green_context(CUgreenCtx context);
using GreenContext = Owned<CUgreenCtx, destroy_green_context>;

// The distance of this step from the step whose calls a graph repeats.
struct Later {
    std::int64_t samples = 0;  // of the endless sequence
    std::int64_t steps = 0;
};

class GpuShare {
public:
    GpuShare(const Seat& seat, Precision precision, bool deterministic, std::shared_ptr<JobGpus> job);
    GpuShare(const Seat& seat, Precision precision, bool deterministic);  // the only device of a job
    ~GpuShare();
    GpuShare(const GpuShare&) = delete;
    GpuShare& operator=(const GpuShare&) = delete;

    void make_current() const;  // sets the calling thread's GPU, and its context if cuDNN needs that
    // The compute stream, which runs all kernels in order. Every stream of the device runs on its share.
    cudaStream_t stream() const { return streams_.front().get(); }
    cudaStream_t add_stream();  // for transfers, exists as long as the device
    cudnnHandle_t cudnn() const { return cudnn_.get(); }
    // Calls `work` while cudnn() queues on a stream of kGroup multiprocessors of the GPU, and waits for that stream.
    // Returns false if either fails. If cuDNN needs the context of the device's own share, it stays there.
    bool on_smallest_share(const std::function<bool()>& work);
    cublasHandle_t cublas() const { return cublas_.get(); }

    JobGpus& job() const { return *job_; }
    const Seat& seat() const { return seat_; }
    int gpu() const { return seat_.gpu; }
    int multiprocessors() const { return multiprocessors_; }  // of the share
    Precision precision() const { return precision_; }
    bool deterministic() const { return deterministic_; }
    // In pinned memory: all zero unless a graph repeats calls. Written between steps.
    Later* later() const { return reinterpret_cast<Later*>(later_.get()); }
    std::string name() const;  // "NVIDIA H200, GPU 0, 64 of 132 multiprocessors"

private:
    void make_green_context();
    void make_cudnn();
    void make_libraries();

    const std::shared_ptr<JobGpus> job_;
    const Seat seat_;
    const Precision precision_;
    const bool deterministic_;
    std::string product_;
    int multiprocessors_ = 0, multiprocessors_of_gpu_ = 0;
    // The following are destroyed from the last to the first.
    GreenContext smallest_;            // null until on_smallest_share() needs it
    GreenContext context_;             // null if the device has the whole GPU
    CUcontext own_context_ = nullptr;  // of the share, null if cuDNN accepts the GPU's
    std::vector<Owned<cudaStream_t, cudaStreamDestroy>> streams_;
    DeviceMemory cublas_workspace_;
    Owned<cudnnHandle_t, cudnnDestroy> cudnn_;
    Owned<cublasHandle_t, cublasDestroy> cublas_;
    PinnedMemory later_;
};

// Makes a GPU current for the calling thread during the lifetime of the object.
class CurrentGpu {
public:
    explicit CurrentGpu(int gpu);
    ~CurrentGpu();
    CurrentGpu(const CurrentGpu&) = delete;
    CurrentGpu& operator=(const CurrentGpu&) = delete;

private:
    int before_ = 0;
};

// The bytes of a GPU that cudaMemGetInfo reports.
struct GpuMemory {
    Bytes free = 0, total = 0;
};
GpuMemory memory_of(int gpu);

}  // namespace pw::cuda
