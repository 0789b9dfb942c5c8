// The ranks of a run: processes, on a host or several, each of which hosts some of the run's devices. All their
// communication uses this interface. exec/ranks/mpi_ranks.cpp implements it with MPI.
#pragma once

#include "workloads/error.h"
#include "workloads/units.h"

#include <cstddef>
#include <cstring>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace pw {

using Message = std::vector<std::byte>;

// Two ranks cannot reach each other. Often another rank reports the cause: one of the two ranks may be gone.
class Unreachable : public Error {
public:
    explicit Unreachable(const std::string& what) : Error(ExitCode::RunFailed, what) {}
};

class Ranks {
public:
    using Ticket = int;

    virtual ~Ranks() = default;
    virtual int rank() const = 0;
    virtual int size() const = 0;
    virtual int largest_tag() const = 0;
    virtual const std::string& version() const = 0;  // "Open MPI 4.1.4"

    // Start a send or a receive, and return at once. The transport owns the bytes until done() returns true.
    // Messages of a tag between two ranks arrive in the order in which they were sent. A send that `waits` is
    // done only when its message is being received. Any thread may call these functions. They throw Error
    // (RunFailed) when the transport fails.
    virtual Ticket send(int to, int tag, std::span<const std::byte> bytes, bool waits) = 0;
    virtual Ticket receive(int from, int tag, std::span<std::byte> bytes) = 0;
    // Returns whether a message is complete. Its ticket is then invalid. Throws Error (RunFailed) when the
    // transport fails, and if the message has another size than the receiver expected.
    virtual bool done(Ticket ticket) = 0;
    virtual void progress() = 0;  // gives messages in transit the chance to make progress, does nothing after a failure

    // Called after a failure: the transport no longer accesses memory, and the functions above throw Unreachable,
    // as do waits in the functions below.
    virtual void give_up() = 0;
    void keep(std::shared_ptr<void> what) { kept_.push_back(std::move(what)); }  // keeps it until the process ends

private:
    std::vector<std::shared_ptr<void>> kept_;
};

// Tags below kFirstTag are for exchanges between all ranks. Plans use the remaining tags.
enum RankTag { kSize, kContent, kClock, kTurn, kStateSize, kStateContent, kNetwork };
inline constexpr int kFirstTag = 16;

// Waits until all messages are complete. A waiting thread polls, and sleeps between the polls.
void wait_for(Ranks& ranks, std::span<const Ranks::Ticket> tickets);
// Does the same while other ranks measure: it polls once per millisecond.
void wait_idly(Ranks& ranks, Ranks::Ticket ticket);

// All ranks call these together, on their main threads. On rank 0 gather() returns the messages of all ranks,
// by rank. On all remaining ranks it returns nothing.
std::vector<Message> gather(Ranks& ranks, const Message& own);
// Returns the message of rank 0 on every rank.
Message broadcast(Ranks& ranks, const Message& of_first);
// Returns on every rank when rank 0 has called it. Ranks wait without using their cores, without a time limit.
void wait_for_first(Ranks& ranks);
// Returns the messages of all ranks on every rank, by rank.
std::vector<Message> all_gather(Ranks& ranks, const Message& own);
// Sends a message to each of `others` and returns a message from each, in their order. All of these ranks call it
// with the same `tag`. It uses `tag` and `tag` + 1.
std::vector<Message> exchange(Ranks& ranks, const std::vector<int>& others, const std::vector<Message>& messages,
                              int tag);

inline void write_bytes(Message& message, const void* from, std::size_t count) {
    const std::size_t size = message.size();
    message.resize(size + count);
    if (count > 0)
        std::memcpy(message.data() + size, from, count);
}

// Values are written in order, and read in the same order. Ranks run the same program on machines of the same kind,
// so values are sent as they are in memory.
template <class Value>
void write(Message& message, const Value& value) {
    static_assert(std::is_trivially_copyable_v<Value>);
    write_bytes(message, &value, sizeof value);
}
template <class Value>
void write_all(Message& message, const std::vector<Value>& values) {
    static_assert(std::is_trivially_copyable_v<Value>);
    write(message, values.size());
    write_bytes(message, values.data(), values.size() * sizeof(Value));
}
void write_text(Message& message, const std::string& text);

class MessageReader {
public:
    explicit MessageReader(const Message& message) : rest_(message) {}
    template <class Value>
    Value read() {
        Value value{};
        std::memcpy(&value, take(sizeof value), sizeof value);
        return value;
    }
    template <class Value>
    std::vector<Value> read_all() {
        const auto count = read<std::size_t>();
        if (count > rest_.size() / sizeof(Value))
            fail_short();
        std::vector<Value> values(count);
        if (!values.empty())
            std::memcpy(values.data(), take(count * sizeof(Value)), count * sizeof(Value));
        return values;
    }
    std::string read_text();
    bool at_end() const { return rest_.empty(); }

private:
    const std::byte* take(std::size_t bytes);  // throws Error (RunFailed) if there are fewer
    [[noreturn]] static void fail_short();
    std::span<const std::byte> rest_;
};

// The devices of a plan on its ranks: each rank has consecutive devices, and their numbers differ by at most 1.
class RankMap {
public:
    RankMap() = default;  // all devices on one rank
    RankMap(int devices, int own, int size) : own_(own), devices_(devices), size_(size) {}
    RankMap(int devices, const Ranks& ranks) : RankMap(devices, ranks.rank(), ranks.size()) {}
    int own() const { return own_; }
    int size() const { return size_; }
    int rank_of(int device) const {
        return devices_ == 0 ? 0 : static_cast<int>(std::int64_t{device} * size_ / devices_);
    }
    bool is_here(int device) const { return rank_of(device) == own_; }
    int devices_of(int rank) const {  // the number of devices
        int count = 0;
        for (int device = 0; device < devices_; ++device)
            count += rank_of(device) == rank ? 1 : 0;
        return count;
    }

private:
    int own_ = 0, devices_ = 0, size_ = 1;
};

// The offset of a rank's clock from rank 0's, and its uncertainty.
struct ClockOffset {
    Ns ahead = 0, uncertain = 0;
    Ns at = 0;  // the time of the measurement, on the clock of rank 0
};
// All ranks call it together. Only rank 0 gets the offset of every rank, by rank. The ranks in `others`, the same on
// all ranks, have another clock than rank 0.
std::vector<ClockOffset> measure_clocks(Ranks& ranks, const std::vector<int>& others);

// Joins all ranks at its first call in the process. Later calls return the same object. Throws Error
// (RunFailed) if this build has no MPI.
Ranks& join_ranks();
std::string ranks_status();  // "ready", or the reason why not

}  // namespace pw
