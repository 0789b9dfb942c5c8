// Messages as NCCL send and receive kernels. One communicator per route: a pair of devices and a direction.
// Both ends are put on their streams in one group, when the tensor is made, so that no kernel holds a
// multiprocessor while it waits for a peer. NCCL permits one thread at a time on a GPU, and on a communicator.
#include "exec/cuda/nccl.h"

#include "exec/host/mailbox.h"
#include "workloads/error.h"

#include <deque>
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

// Held from the beginning of a group until no communicator of it is in progress: threads of this process may share GPUs.
std::mutex& turn() {
    static std::mutex mutex;
    return mutex;
}

class Nccl : public Transport {
public:
    Nccl(const std::vector<Device*>& devices, const std::vector<Route>& routes, Ns timeout) : timeout_(timeout) {
        const std::lock_guard lock(turn());
        for (const Route& route : routes)
            connect(route, devices[route.from_device]->gpu(), devices[route.to_device]->gpu());
        for (const auto& [route, ends] : ends_)
            for (const Communicator& end : ends)
                end.wait(timeout_);
    }

    void move(const Parcel& parcel) override {
        if (parcel.bytes == 0)
            return;
        const Ends& ends = ends_.at({parcel.from_device, parcel.to_device, parcel.forward});
        const bool alone = ends.size() == 1;  // one GPU: the message to oneself is a copy by a kernel
        const auto bytes = static_cast<std::size_t>(parcel.bytes);
        const std::lock_guard lock(turn());
        check(ncclGroupStart(), "ncclGroupStart");
        const ncclResult_t sent = ncclSend(parcel.from, bytes, ncclInt8, alone ? 0 : 1, ends.front().get(), parcel.out);
        const ncclResult_t received =
            ncclRecv(parcel.to, bytes, ncclInt8, 0, ends.back().get(), alone ? parcel.out : parcel.in);
        check(ncclGroupEnd(), "ncclGroupEnd");
        check(sent, "ncclSend");
        check(received, "ncclRecv");
        for (const Communicator& end : ends)  // what follows on the streams must come after the kernels
            end.wait(timeout_);
    }

    void check_connections() override {
        const std::unique_lock lock(turn(), std::try_to_lock);
        if (!lock.owns_lock())  // whoever has it looks at what it waits for
            return;
        for (const auto& [route, ends] : ends_)
            for (const Communicator& end : ends)
                end.check_state();
    }

    void abort() override {
        for (auto& [route, ends] : ends_)
            for (Communicator& end : ends)
                end.abort();
    }

private:
    using Ends = std::deque<Communicator>;  // sender, receiver; one when they share a GPU

    void connect(const Route& route, int from, int to) {
        Ends& ends = ends_[route];
        const ncclUniqueId id = new_id();
        const char* name = route.forward ? "forward" : "backward";
        const int ranks = from == to ? 1 : 2;
        check(ncclGroupStart(), "ncclGroupStart");
        for (int rank = 0; rank < ranks; ++rank) {
            const CurrentGpu current(rank == 0 ? from : to);
            ends.emplace_back(id, ranks, rank, name);
        }
        check(ncclGroupEnd(), "ncclGroupEnd");
    }

    const Ns timeout_;
    std::map<Route, Ends> ends_;
};

}  // namespace

std::unique_ptr<Transport> make_nccl(const std::vector<Device*>& devices, const std::vector<Route>& routes,
                                     Ns timeout) {
    return std::make_unique<Nccl>(devices, routes, timeout);
}

}  // namespace pw::cuda
