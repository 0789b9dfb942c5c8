// Messages as NCCL send and receive kernels. There is a communicator per route: a pair of devices and a
// direction. Both ends are put on their streams in one group, when the tensor is made, so that no kernel holds a
// multiprocessor while it waits for a peer. Sums have a communicator per set of GPUs. Their devices have passed a
// barrier first. NCCL permits one thread at a time on a GPU, and on a communicator.
//
// Between ranks each process puts its own end on its stream, and a kernel may wait for the other end. These waits
// end for three reasons. The ranks make communicators and their connections in the same order, before the first
// step, so that no call in a step waits for another rank. Every lane has a stream of its own, in which both ends
// have the order of the plan's proof for rendezvous. The kernels of all lanes of a device fit on it together with
// the compute kernels (most_blocks).
#include "exec/cuda/nccl.h"

#include "exec/cuda/device/events.h"
#include "exec/engine/mailbox.h"
#include "exec/system/threads.h"
#include "workloads/error.h"
#include "workloads/first_failure.h"

#include <algorithm>
#include <deque>
#include <exception>
#include <map>
#include <mutex>
#include <optional>
#include <utility>

namespace pw::cuda {

void check(ncclResult_t status, const char* call) {
    if (status == ncclRemoteError)
        throw Unreachable(fmt::format("{}: {}", call, ncclGetErrorString(status)));
    if (status != ncclSuccess && status != ncclInProgress)
        fail_with(ExitCode::RunFailed, "{}: {}: {}", call, ncclGetErrorString(status), ncclGetLastError(nullptr));
}

Communicator::Communicator(const ncclUniqueId& id, int ranks, int rank, const char* name, int most_blocks) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    config.maxCTAs = most_blocks;
    config.commName = name;
    check(ncclCommInitRankConfig(&comm_, ranks, id, rank, &config), "ncclCommInitRankConfig");
}

Communicator::~Communicator() {
    if (comm_ != nullptr)  // abort needs no handshake: the streams are idle, or their work is lost
        (void)ncclCommAbort(comm_);
}

void Communicator::wait(Ns timeout, const std::function<bool()>& has_stopped) const {
    for (const Ns start = clock_now();; rest_in_wait(start)) {
        ncclResult_t state = ncclInProgress;
        check(ncclCommGetAsyncError(comm_, &state), "ncclCommGetAsyncError");
        check(state, "NCCL");
        if (state != ncclInProgress)
            return;
        if (has_stopped())
            fail_because_of_others();
        if (clock_now() - start > timeout)
            fail_with(ExitCode::PeerSilent, "NCCL: no connection to the peer for {}", print_time(timeout));
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

// Locked from the beginning of a group until none of its communicators is in progress, since threads of this
// process may share GPUs. The mutex belongs to the process, as do the GPUs and NCCL: all its jobs use it.
std::mutex& group_mutex() {
    static std::mutex mutex;
    return mutex;
}

// The ends of a communicator.
struct Ends {
    std::vector<Gpu> gpus;            // by rank of the communicator
    std::deque<Communicator> here{};  // communicators in this process
    std::vector<Communicator*> at{};  // by rank of the communicator, null in another process

    int rank_of(Gpu gpu) const { return static_cast<int>(std::find(gpus.begin(), gpus.end(), gpu) - gpus.begin()); }
    bool is_on(int rank) const {
        return std::any_of(gpus.begin(), gpus.end(), [=](Gpu gpu) { return gpu.rank == rank; });
    }
    bool crosses() const {
        return std::any_of(gpus.begin(), gpus.end(), [&](Gpu gpu) { return gpu.rank != gpus.front().rank; });
    }
};

class Nccl : public Transport {
public:
    Nccl(Network network, bool in_order, Ns timeout)
        : network_(std::move(network)), in_order_(in_order), timeout_(timeout) {
        for (const Route& route : network_.routes)
            routes_[route].gpus = gpus_of({route.from_device, route.to_device});
        for (const std::vector<int>& sum : network_.sums)
            sums_[gpus_of(sum)].gpus = gpus_of(sum);
        connect_all();
    }

    void move(const DeviceMessage& message) override {
        if (message.bytes == 0)
            return;
        const Ends& ends = ends_of(message);
        const bool alone = ends.gpus.size() == 1;  // on one GPU NCCL sends the message to itself: a kernel copies it
        in_group(ends, [&] {
            put(message.from, message.bytes, alone ? 0 : 1, ends.here.front(), message.out);
            get(message.to, message.bytes, 0, ends.here.back(), alone ? message.out : message.in);
        });
    }

    void send(const DeviceMessage& message) override {
        const Ends& ends = ends_of(message);
        if (message.bytes > 0)
            in_group(ends, [&] { put(message.from, message.bytes, 1, ends.here.front(), message.out); });
    }

    void receive(const DeviceMessage& message) override {
        const Ends& ends = ends_of(message);
        if (message.bytes > 0)
            in_group(ends, [&] { get(message.to, message.bytes, 0, ends.here.front(), message.in); });
    }

    void fetch(const std::vector<int>& devices, std::span<const Fetch> all) override {
        const Ends& ends = sums_.at(gpus_of(devices));
        in_group(ends, [&] {
            for (const Fetch& each : all) {
                const int from = ends.rank_of(network_.gpus[each.from_device]);
                const int to = ends.rank_of(network_.gpus[each.to_device]);
                if (const Communicator* end = ends.at[from]; end != nullptr)
                    put(each.from, each.bytes, to, *end, network_.devices[each.from_device]->stream());
                if (const Communicator* end = ends.at[to]; end != nullptr)
                    get(each.to, each.bytes, from, *end, network_.devices[each.to_device]->stream());
            }
        });
    }

    bool reduces() const override { return !in_order_; }

    void reduce(const std::vector<int>& devices, std::span<std::byte* const> blocks, Bytes bytes) override {
        const Ends& ends = sums_.at(gpus_of(devices));
        in_group(ends, [&] {
            for (std::size_t k = 0; k < devices.size(); ++k)
                if (const Communicator* end = ends.at[ends.rank_of(network_.gpus[devices[k]])]; end != nullptr)
                    add_up(blocks[k], bytes, *end, network_.devices[devices[k]]->stream());
        });
    }

    void check_connections() override {
        const std::unique_lock lock(group_mutex(), std::try_to_lock);
        if (lock.owns_lock())  // otherwise the thread that has it checks its own communicators
            for_each([](const Communicator& end) { end.check_state(); });
    }

    void abort() override {
        for_each([](Communicator& end) { end.abort(); });
    }

private:
    std::vector<Gpu> gpus_of(const std::vector<int>& devices) const {
        std::vector<Gpu> gpus;
        for (const int device : devices)
            if (const Gpu gpu = network_.gpus[device]; std::find(gpus.begin(), gpus.end(), gpu) == gpus.end())
                gpus.push_back(gpu);
        return gpus;
    }
    const Ends& ends_of(const DeviceMessage& message) const {
        return routes_.at({message.from_device, message.to_device, message.forward});
    }

    // All ranks connect in the same order, so that all ranks of the first incomplete communicator wait for that
    // communicator.
    void connect_all() {
        std::vector<std::pair<Ends*, const char*>> all;
        for (auto& [route, ends] : routes_)
            all.emplace_back(&ends, route.forward ? "forward" : "backward");
        for (auto& [gpus, ends] : sums_)
            all.emplace_back(&ends, "sum");
        const std::vector<Message> messages = ids_of_ranks(all);
        std::vector<MessageReader> ids(messages.begin(), messages.end());
        for (const auto& [ends, name] : all) {
            const int maker = ends->gpus.front().rank;
            std::optional<ncclUniqueId> id;
            if (ends->crosses())
                id = ids[static_cast<std::size_t>(maker)].read<ncclUniqueId>();
            if (ends->is_on(network_.own_rank))
                connect(*ends, id ? *id : new_id(), name);
        }
    }

    // The id of a communicator between ranks is made by the rank of its first GPU.
    std::vector<Message> ids_of_ranks(const std::vector<std::pair<Ends*, const char*>>& all) const {
        if (network_.ranks == nullptr)
            return {};
        Message own;
        for (const auto& [ends, name] : all)
            if (ends->crosses() && ends->gpus.front().rank == network_.own_rank)
                pw::write(own, new_id());
        return all_gather(*network_.ranks, own);
    }

    void connect(Ends& ends, const ncclUniqueId& id, const char* name) const {
        const auto ranks = static_cast<int>(ends.gpus.size());
        ends.at.assign(ends.gpus.size(), nullptr);
        in_group(ends, [&] {
            for (int rank = 0; rank < ranks; ++rank)
                if (const Gpu gpu = ends.gpus[rank]; gpu.rank == network_.own_rank) {
                    const CurrentGpu current(gpu.number);
                    ends.at[rank] = &ends.here.emplace_back(id, ranks, rank, name, network_.most_blocks);
                }
        });
        if (ends.crosses())
            exchange_with_peers(ends);
    }

    // NCCL connects two ends when their first message is queued, and waits for both. So each pair exchanges a
    // message now.
    void exchange_with_peers(const Ends& ends) const {
        constexpr Bytes kWord = 256;
        const auto ranks = static_cast<int>(ends.gpus.size());
        std::vector<cudaStream_t> streams(ends.gpus.size(), nullptr);
        std::vector<DeviceMemory> words(ends.gpus.size());
        for (std::size_t device = 0; device < network_.devices.size(); ++device)
            if (const int rank = ends.rank_of(network_.gpus[device]); rank < ranks && ends.at[rank] != nullptr) {
                const CurrentGpu current(ends.gpus[rank].number);
                streams[rank] = network_.devices[device]->stream();
                words[rank] = allocate((ranks + 1) * kWord);
            }
        const auto for_own = [&](auto act) {
            for (int rank = 0; rank < ranks; ++rank)
                if (ends.at[rank] != nullptr)
                    act(rank);
        };
        in_group(ends, [&] {
            for_own([&](int rank) {
                for (int peer = 0; peer < ranks; ++peer) {
                    if (peer == rank)
                        continue;
                    put(words[rank].get(), kWord, peer, *ends.at[rank], streams[rank]);
                    get(words[rank].get() + (peer + 1) * kWord, kWord, peer, *ends.at[rank], streams[rank]);
                }
            });
        });
        if (reduces())
            in_group(ends, [&] {
                for_own([&](int rank) { add_up(words[rank].get(), kWord, *ends.at[rank], streams[rank]); });
            });
        for_own([&](int rank) {
            const CurrentGpu current(ends.gpus[rank].number);
            wait_until_idle(streams[rank], *ends.at[rank]);
        });
    }

    void wait_until_idle(cudaStream_t stream, const Communicator& end) const {
        const Event idle(Event::Kind::Untimed);
        idle.record(stream);
        for (const Ns start = clock_now(); !idle.passed(); rest_in_wait(start)) {
            end.check_state();
            if (network_.has_stopped())
                fail_because_of_others();
            if (clock_now() - start > timeout_)
                fail_with(ExitCode::PeerSilent, "NCCL: no message from a peer for {}", print_time(timeout_));
        }
    }

    static void put(const std::byte* from, Bytes bytes, int to, const Communicator& end, cudaStream_t stream) {
        check(ncclSend(from, static_cast<std::size_t>(bytes), ncclInt8, to, end.get(), stream), "ncclSend");
    }
    static void get(std::byte* to, Bytes bytes, int from, const Communicator& end, cudaStream_t stream) {
        check(ncclRecv(to, static_cast<std::size_t>(bytes), ncclInt8, from, end.get(), stream), "ncclRecv");
    }
    static void add_up(std::byte* block, Bytes bytes, const Communicator& end, cudaStream_t stream) {
        check(ncclAllReduce(block, block, static_cast<std::size_t>(bytes) / sizeof(float), ncclFloat32, ncclSum,
                            end.get(), stream),
              "ncclAllReduce");
    }

    // Makes the calls of all of a communicator's ends in this process in a single group, so that all ends have the
    // same order.
    template <class Calls>
    void in_group(const Ends& ends, Calls calls) const {
        const std::lock_guard lock(group_mutex());
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
        for (const Communicator& end : ends.here)  // later work must be put on the streams after the kernels
            end.wait(timeout_, network_.has_stopped);
    }

    template <class Act>
    void for_each(Act act) {
        for (auto& [route, ends] : routes_)
            std::for_each(ends.here.begin(), ends.here.end(), act);
        for (auto& [gpus, ends] : sums_)
            std::for_each(ends.here.begin(), ends.here.end(), act);
    }

    const Network network_;
    const bool in_order_;
    const Ns timeout_;
    std::map<Route, Ends> routes_;           // ends: sender and receiver, or a single end if they share a GPU
    std::map<std::vector<Gpu>, Ends> sums_;  // by GPUs
};

}  // namespace

std::unique_ptr<Transport> make_nccl(Network network, bool in_order, Ns timeout) {
    return std::make_unique<Nccl>(std::move(network), in_order, timeout);
}

}  // namespace pw::cuda
