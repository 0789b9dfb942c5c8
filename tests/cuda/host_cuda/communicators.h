// Communicators and their transfers. The calls of one thread in a group for one communicator are one launch: it
// waits for all of its streams, and blocks them until each of its sends and receives has been matched by the other
// end.
#pragma once

#include "tests/cuda/host_cuda/processes.h"
#include "tests/cuda/host_cuda/streams.h"

#include <nccl.h>

#include <condition_variable>
#include <deque>
#include <string>

struct ncclComm;

namespace host_cuda {

// The n-th message of a pair, numbered when it is issued: sent -> taken -> copied, or withdrawn by its sender.
struct Message {
    enum State { kNone, kSent, kTaken, kCopied, kWithdrawn };
    std::atomic<State> state{kNone};
    const void* from = nullptr;
    std::size_t bytes = 0;
    std::vector<char> came{};  // from another process
};

// The messages from one rank to another. Only the threads of streams at its two ends use its lock.
struct Pair {
    static constexpr int kSender = 1, kReceiver = 2;
    std::mutex mutex;
    std::deque<Message> messages;
    std::atomic<int> ends{
        0};  // between two processes: the ends that have issued the first message; with both they are connected

    Message& message(std::size_t number) {
        std::lock_guard lock(mutex);
        while (messages.size() <= number)
            messages.emplace_back();
        return messages[number];
    }
};

// The state that the ranks with one id share.
struct World {
    explicit World(int count) : ranks(count), pairs(count * count), way(count), gpu_of(count) {}
    Pair& pair(int from, int to) { return pairs[from * ranks + to]; }
    void ring() {  // wakes threads that wait for a change; orders nothing
        bell.fetch_add(1, std::memory_order_relaxed);
        wake_sleepers(bell);
    }

    const int ranks;
    std::vector<Pair> pairs;
    std::atomic<int> bell{0};
    std::vector<std::shared_ptr<Connection>> way;  // by rank; null in this process. Written before all have joined

    bool made_here = false;  // this process made it, and informs the others

    std::mutex mutex;
    std::condition_variable all_joined;
    std::vector<std::string> gpu_of;  // by rank: address; empty: not yet
    std::atomic<int> joined{0};       // written under the lock
};

struct Transfer {
    bool sends;
    int peer;
    std::size_t number;  // in its pair
    void* memory;
    std::size_t bytes;
    CUstream_st* stream;
    Message* message = nullptr;    // set when its stream has reached it
    std::function<void()> then{};  // called when all transfers of its launch have ended
};

struct Launch {
    std::vector<Transfer> transfers;
    std::vector<std::function<void()>> ends{};
    std::vector<CUstream_st*> streams;
    std::unique_ptr<Signal[]> arrived;  // by stream
    Signal done;
};

// A group that is being launched. It ends with ncclGroupEnd, or when its thread has queried every non-blocking
// communicator until none was in progress. It orders no threads.
struct Job {
    const std::thread::id thread = std::this_thread::get_id();
    std::vector<int> devices{};
    std::atomic<int> open{0};  // the number of communicators that have not been queried
    bool in_progress = true;   // the answer to the first query
};

// Puts a launch on its streams; returns false if one of them is closed.
bool start(ncclComm& comm, std::vector<Transfer> transfers);
// Joins the current device to the world of the id; returns null if the rank or the number of ranks does not fit.
ncclComm* join_world(const std::string& id, int ranks, int rank, bool blocking);
// Messages from other processes: a rank joins a world of this process, all have joined, one is gone.
std::shared_ptr<World> join_from_afar(const std::string& name, int ranks, int rank, const std::string& gpu,
                                      const std::shared_ptr<Connection>& way);
void complete(World& world, bool is_refused);
void lose(World& world);
void add_in_ring(const std::vector<std::vector<float>>& of_ranks, float* to);

}  // namespace host_cuda

struct ncclComm {
    std::shared_ptr<host_cuda::World> world;
    int rank;
    int device;
    bool blocking;
    std::vector<std::size_t> issued[2]{};  // [sends][peer]
    std::deque<host_cuda::Launch> launches{};
    std::deque<host_cuda::Job> jobs{};
    std::atomic<host_cuda::Job*> job{nullptr};  // the current one
    std::atomic<bool> is_used{false};           // whether a thread is in one of its calls
    bool usable = true;
    std::atomic<bool> aborted{false};
    std::atomic<ncclResult_t> error{ncclSuccess};
};
