// Messages as NCCL send and receive kernels. One communicator per route: a pair of devices and a direction.
// Both ends are put on their streams in one group, when the tensor is made, so that no kernel holds a
// multiprocessor while it waits for a peer. Sums have a communicator per set of GPUs; their devices have met before.
// NCCL permits one thread at a time on a GPU, and on a communicator.
#include "exec/cuda/nccl.h"

#include "exec/engine/mailbox.h"
#include "workloads/error.h"

#include <algorithm>
#include <deque>
#include <exception>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

namespace pw::cuda {

void check(ncclResult_t status, const char* call) {
    if (status != ncclSuccess && status != ncclInProgress)
        fail_with(ExitCode::RunFailed, "{}: {}: {}", call, ncclGetErrorString(status), ncclGetLastError(nullptr));
}

Communicator::Communicator(const ncclUniqueId& id, int ranks, int rank, const char* name) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    config.maxCTAs = 8;
    config.commName = name;
    check(ncclCommInitRankConfig(&comm_, ranks, id, rank, &config), "ncclCommInitRankConfig");
}

Communicator::~Communicator() {
    if (comm_ != nullptr)  // without a handshake: the streams are idle, or their work is lost
        (void)ncclCommAbort(comm_);
}

void Communicator::wait(Ns timeout) const {
    const Ns start = clock_now();
    ncclResult_t state = ncclInProgress;
    while (state == ncclInProgress) {
        check(ncclCommGetAsyncError(comm_, &state), "ncclCommGetAsyncError");
        check(state, "NCCL");
        if (state == ncclInProgress && clock_now() - start > timeout)
            fail_with(ExitCode::PeerSilent, "NCCL: no connection to the peer since {}", print_time(timeout));
        std::this_thread::yield();
    }
}

void Communicator::check_state() const {
    ncclResult_t state = ncclSuccess;
    check(ncclCommGetAsyncError(comm_, &state), "ncclCommGetAsyncError");
    check(state, "NCCL");
}

void Communicator::abort() {
    if (comm_ != nullptr)
        (void)ncclCommAbort(std::exchange(comm_, nullptr));
}

ncclUniqueId new_id() {
    ncclUniqueId id{};
    check(ncclGetUniqueId(&id), "ncclGetUniqueId");
    return id;
}

namespace {

// Held from the beginning of a group until no communicator of it is in progress: threads of this process may share
// GPUs.
std::mutex& turn() {
    static std::mutex mutex;
    return mutex;
}

class Nccl : public Transport {
public:
    Nccl(const Network& network, bool in_order, Ns timeout)
        : devices_(network.devices), in_order_(in_order), timeout_(timeout) {
        for (const Route& route : network.routes)
            connect(routes_[route], gpus_of({route.from_device, route.to_device}),
                    route.forward ? "forward" : "backward");
        for (const std::vector<int>& sum : network.sums)
            if (Ends& ends = sums_[gpus_of(sum)]; ends.empty())
                connect(ends, gpus_of(sum), "sum");
    }

    void move(const Parcel& parcel) override {
        if (parcel.bytes == 0)
            return;
        const Ends& ends = routes_.at({parcel.from_device, parcel.to_device, parcel.forward});
        const bool alone = ends.size() == 1;  // one GPU: the message to oneself is a copy by a kernel
        in_group(ends, [&] {
            send(parcel.from, parcel.bytes, alone ? 0 : 1, ends.front(), parcel.out);
            receive(parcel.to, parcel.bytes, 0, ends.back(), alone ? parcel.out : parcel.in);
        });
    }

    void fetch(const std::vector<int>& devices, std::span<const Fetch> all) override {
        const std::vector<int> gpus = gpus_of(devices);
        const Ends& ends = sums_.at(gpus);
        const auto rank_of = [&](int device) { return rank_in(gpus, devices_[device]->gpu()); };
        in_group(ends, [&] {
            for (const Fetch& each : all) {
                const int from = rank_of(each.from_device), to = rank_of(each.to_device);
                send(each.from, each.bytes, to, ends[from], devices_[each.from_device]->stream());
                receive(each.to, each.bytes, from, ends[to], devices_[each.to_device]->stream());
            }
        });
    }

    bool reduces() const override { return !in_order_; }

    void reduce(const std::vector<int>& devices, std::span<std::byte* const> blocks, Bytes bytes) override {
        const std::vector<int> gpus = gpus_of(devices);
        const Ends& ends = sums_.at(gpus);
        in_group(ends, [&] {
            for (std::size_t k = 0; k < devices.size(); ++k) {
                const GpuShare& device = *devices_[devices[k]];
                check(ncclAllReduce(blocks[k], blocks[k], static_cast<std::size_t>(bytes) / sizeof(float), ncclFloat32,
                                    ncclSum, ends[rank_in(gpus, device.gpu())].get(), device.stream()),
                      "ncclAllReduce");
            }
        });
    }

    void check_connections() override {
        const std::unique_lock lock(turn(), std::try_to_lock);
        if (lock.owns_lock())  // else whoever has it looks at what it waits for
            for_each([](const Communicator& end) { end.check_state(); });
    }

    void abort() override {
        for_each([](Communicator& end) { end.abort(); });
    }

private:
    using Ends = std::deque<Communicator>;  // by rank

    std::vector<int> gpus_of(const std::vector<int>& devices) const {
        std::vector<int> gpus;
        for (const int device : devices)
            if (const int gpu = devices_[device]->gpu(); std::find(gpus.begin(), gpus.end(), gpu) == gpus.end())
                gpus.push_back(gpu);
        return gpus;
    }
    static int rank_in(const std::vector<int>& gpus, int gpu) {
        return static_cast<int>(std::find(gpus.begin(), gpus.end(), gpu) - gpus.begin());
    }

    void connect(Ends& ends, const std::vector<int>& gpus, const char* name) const {
        const ncclUniqueId id = new_id();
        const auto ranks = static_cast<int>(gpus.size());
        in_group(ends, [&] {
            for (int rank = 0; rank < ranks; ++rank) {
                const CurrentGpu current(gpus[rank]);
                ends.emplace_back(id, ranks, rank, name);
            }
        });
    }

    static void send(const std::byte* from, Bytes bytes, int to, const Communicator& end, cudaStream_t stream) {
        check(ncclSend(from, static_cast<std::size_t>(bytes), ncclInt8, to, end.get(), stream), "ncclSend");
    }
    static void receive(std::byte* to, Bytes bytes, int from, const Communicator& end, cudaStream_t stream) {
        check(ncclRecv(to, static_cast<std::size_t>(bytes), ncclInt8, from, end.get(), stream), "ncclRecv");
    }

    // All calls of a communicator's ends, so that their order is the same for all of them.
    template <class Calls>
    void in_group(const Ends& ends, Calls calls) const {
        const std::lock_guard lock(turn());
        check(ncclGroupStart(), "ncclGroupStart");
        std::exception_ptr failed;
        try {
            calls();
        } catch (...) {
            failed = std::current_exception();
        }
        const ncclResult_t ended = ncclGroupEnd();
        if (failed)
            std::rethrow_exception(failed);
        check(ended, "ncclGroupEnd");
        for (const Communicator& end : ends)  // what follows on the streams must come after the kernels
            end.wait(timeout_);
    }

    template <class Act>
    void for_each(Act act) {
        for (auto& [route, ends] : routes_)
            std::for_each(ends.begin(), ends.end(), act);
        for (auto& [gpus, ends] : sums_)
            std::for_each(ends.begin(), ends.end(), act);
    }

    const std::vector<GpuShare*> devices_;
    const bool in_order_;
    const Ns timeout_;
    std::map<Route, Ends> routes_;           // sender, receiver; one when they share a GPU
    std::map<std::vector<int>, Ends> sums_;  // by GPUs
};

}  // namespace

std::unique_ptr<Transport> make_nccl(const Network& network, bool in_order, Ns timeout) {
    return std::make_unique<Nccl>(network, in_order, timeout);
}

}  // namespace pw::cuda
