// The movement of messages between the ends of communicators, and the sums of ranks.
#include "tests/cuda/host_cuda/communicators.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace host_cuda {

namespace {

// Returns true when the transfer has ended.
bool advance(ncclComm& comm, Transfer& transfer) {
    World& world = *comm.world;
    if (transfer.message == nullptr) {
        const int from = transfer.sends ? comm.rank : transfer.peer, to = transfer.sends ? transfer.peer : comm.rank;
        transfer.message = &world.pair(from, to).message(transfer.number);
        if (transfer.sends) {
            transfer.message->from = transfer.memory;
            transfer.message->bytes = transfer.bytes;
            transfer.message->state.store(Message::kSent, std::memory_order_release);
            if (const auto& way = world.way[to])
                way->report_sent(from, to, transfer.number, transfer.memory, transfer.bytes);
            world.ring();
        } else if (transfer.peer != comm.rank) {
            std::memset(transfer.memory, 0xff, transfer.bytes);  // from now on NCCL owns it
        }
    }
    Message& message = *transfer.message;
    auto sent = Message::kSent;
    if (transfer.sends)
        return message.state.load(std::memory_order_acquire) == Message::kCopied ||
               (comm.aborted && message.state.compare_exchange_strong(sent, Message::kWithdrawn));
    if (!message.state.compare_exchange_strong(sent, Message::kTaken, std::memory_order_acquire))
        return comm.aborted;
    if (message.bytes != transfer.bytes)
        comm.error = ncclInvalidUsage;
    else if (transfer.memory != message.from)
        std::memcpy(transfer.memory, message.from, transfer.bytes);
    message.state.store(Message::kCopied, std::memory_order_release);
    if (const auto& way = world.way[transfer.peer])
        way->report_copied(transfer.peer, comm.rank, transfer.number);
    world.ring();
    return true;
}

void issue_first(ncclComm& comm, int peer, bool sends) {
    const auto& way = comm.world->way[peer];
    if (!way)
        return;
    const int from = sends ? comm.rank : peer, to = sends ? peer : comm.rank;
    const int end = sends ? Pair::kSender : Pair::kReceiver;
    comm.world->pair(from, to).ends |= end;
    way->report_issued(from, to, end);
}

void progress(ncclComm& comm, std::vector<Transfer>& transfers) {
    while (!transfers.empty()) {
        const int heard = comm.world->bell.load(std::memory_order_relaxed);
        std::erase_if(transfers, [&](Transfer& transfer) { return advance(comm, transfer); });
        if (!transfers.empty())
            sleep_while(comm.world->bell, heard, true);  // a change may be visible only after its ring
    }
}

}  // namespace

bool start(ncclComm& comm, std::vector<Transfer> transfers) {
    Launch& launch = comm.launches.emplace_back();
    for (Transfer& transfer : transfers) {
        transfer.number = comm.issued[transfer.sends][transfer.peer]++;
        if (transfer.number == 0)
            issue_first(comm, transfer.peer, transfer.sends);
        if (std::find(launch.streams.begin(), launch.streams.end(), transfer.stream) == launch.streams.end())
            launch.streams.push_back(transfer.stream);
        if (transfer.then)
            launch.ends.push_back(std::move(transfer.then));
    }
    launch.transfers = std::move(transfers);
    launch.arrived = std::make_unique<Signal[]>(launch.streams.size());
    bool all = true;
    for (std::size_t i = 1; i < launch.streams.size(); ++i)
        all &= launch.streams[i]->push([&launch, i] {
            launch.arrived[i].set();
            launch.done.wait();
        });
    all &= launch.streams[0]->push([&comm, &launch] {
        for (std::size_t i = 1; i < launch.streams.size(); ++i)
            launch.arrived[i].wait();
        progress(comm, launch.transfers);
        for (const auto& end : launch.ends)
            end();
        launch.done.set();
    });
    return all;
}

// Sums as in a ring: each rank begins with another part, whose sum goes from rank to rank. The result is equal on
// all ranks, but its order is not specified.
void add_in_ring(const std::vector<std::vector<float>>& of_ranks, float* to) {
    const std::size_t ranks = of_ranks.size(), count = of_ranks.front().size();
    for (std::size_t i = 0; i < count; ++i) {
        const std::size_t first = i * ranks / count;
        float sum = of_ranks[first][i];
        for (std::size_t k = 1; k < ranks; ++k)
            sum += of_ranks[(first + k) % ranks][i];
        to[i] = sum;
    }
}

}  // namespace host_cuda
