// Measures the cost of a message between two CUDA devices: a line through the times of small and large messages.
#include "exec/backends.h"
#include "exec/cuda/backend.h"
#include "exec/cuda/device/device.h"
#include "exec/cuda/device/events.h"
#include "exec/cuda/device/job_gpus.h"
#include "exec/cuda/transport.h"
#include "workloads/median.h"

#include <algorithm>
#include <limits>
#include <memory>

namespace pw {

namespace cuda {

namespace {

constexpr Bytes kSmall = 4096, kLarge = Bytes{64} << 20;

class Block {
public:
    explicit Block(int gpu) {
        const CurrentGpu current(gpu);
        check(cudaMalloc(&data_, kLarge), "cudaMalloc");
    }
    ~Block() { (void)cudaFree(data_); }
    Block(const Block&) = delete;
    Block& operator=(const Block&) = delete;
    std::byte* data() const { return static_cast<std::byte*>(data_); }

private:
    void* data_ = nullptr;
};

GpuShare open(const Setup& setup, int number, const std::shared_ptr<JobGpus>& job) {
    const int devices = std::max<int>(2, static_cast<int>(setup.cluster.devices.size()));
    const Seat seat = seats_of(setup, devices, *job)[static_cast<std::size_t>(number)];
    return GpuShare(seat, setup.training.precision, setup.run.deterministic, job);
}

// The median time on the sender's stream from the beginning of a message until the receiver's stream can continue.
// It needs no comparison of the clocks of two GPUs.
Ns time_of(const DeviceMessage& message, int receiver_gpu, Transport& transport) {
    constexpr int kRepeats = 20;
    const Event start(Event::Kind::Timed), left(Event::Kind::Untimed), end(Event::Kind::Timed);
    const CurrentGpu current(receiver_gpu);
    const Event arrived(Event::Kind::Untimed);
    std::vector<Ns> times;
    for (int repeat = 0; repeat <= kRepeats; ++repeat) {
        start.record(message.out);
        start.block(message.in);
        transport.move(message);
        left.record(message.out);
        left.block(message.in);
        arrived.record(message.in);
        arrived.block(message.out);
        end.record(message.out);
        check(cudaEventSynchronize(end.get()), "cudaEventSynchronize");
        if (repeat > 0)  // the first one connects the devices
            times.push_back(elapsed(start.get(), end.get()));
    }
    return upper_median(std::move(times));
}

}  // namespace

}  // namespace cuda

TransferCost measure_cuda_transfer_cost(const Setup& setup) {
    using namespace cuda;
    const auto job = std::make_shared<JobGpus>();
    GpuShare sender = open(setup, 0, job), receiver = open(setup, 1, job);
    const Block from(sender.gpu()), to(receiver.gpu());
    const Network network{{&sender, &receiver}, {{0, sender.gpu()}, {0, receiver.gpu()}}, {{0, 1, true}}};
    const std::unique_ptr<Transport> transport = setup.run.transport == RunConfig::Transport::Nccl
                                                     ? make_nccl(network, true, setup.run.timeout)
                                                     : make_copies(network);
    sender.make_current();
    const auto time = [&](Bytes bytes) {
        return time_of({0, 1, true, from.data(), to.data(), bytes, sender.stream(), receiver.stream()}, receiver.gpu(),
                       *transport);
    };
    const Ns small = time(kSmall), large = std::max(time(kLarge), small + 1);
    TransferCost result;
    result.link.bandwidth = static_cast<double>(kLarge - kSmall) / (static_cast<double>(large - small) * 1e-9);
    result.link.latency = small;
    result.sums = result.link;
    result.sent_copies = true;
    return result;
}

}  // namespace pw
