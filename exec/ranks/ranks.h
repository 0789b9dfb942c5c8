// The ranks of a run: processes, on one host or several, each of which hosts some of its devices. All that
// they exchange goes through this interface; exec/ranks/mpi_ranks.cpp is MPI's.
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

// Two ranks cannot reach each other. Why is often known to others: one of them may be gone.
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

    // Start to send and to receive, and return at once. The bytes stay the transport's until done() returns true.
    // Messages of one tag between two ranks come in the order in which they were sent. A send that `waits` is done only
    // when its message is being received. Any thread may call these; they throw Error (RunFailed) when the transport
    // fails.
    virtual Ticket send(int to, int tag, std::span<const std::byte> bytes, bool waits) = 0;
    virtual Ticket receive(int from, int tag, std::span<std::byte> bytes) = 0;
    // Returns whether a message is through; then its ticket is spent. It throws Error (RunFailed) when it failed, and
    // when what came had another size than the receiver expected.
    virtual bool done(Ticket ticket) = 0;
    virtual void get_on() = 0;  // lets messages that are under way get on; does nothing after a failure

    // To be called after a failure: the transport no longer accesses memory, the functions above throw Unreachable, and
    // so do waits in those below.
    virtual void give_up() = 0;
    void keep(std::shared_ptr<void> what) { kept_.push_back(std::move(what)); }  // until the process ends

private:
    std::vector<std::shared_ptr<void>> kept_;
};

// Tags below kFirstTag are for what all ranks do together; plans take the others.
enum RankTag { kSize, kContent, kClock, kTurn, kStateSize, kStateContent, kNetwork };
inline constexpr int kFirstTag = 16;

// Waits until all messages are through. Waiting threads look again and again, and sleep between.
void wait_for(Ranks& ranks, std::span<const Ranks::Ticket> tickets);
// Does the same where others measure meanwhile: it looks once per millisecond.
void wait_idly(Ranks& ranks, Ranks::Ticket ticket);

// All ranks call these together, on their main threads. Rank 0 gets what every rank gave, by rank; the others get
// nothing.
std::vector<Message> gather(Ranks& ranks, const Message& own);
// Returns on every rank what rank 0 gave.
Message broadcast(Ranks& ranks, const Message& of_first);
// Returns on the others when rank 0 has called it, whatever that takes; they wait idly.
void wait_for_first(Ranks& ranks);
// Returns on every rank what every rank gave, by rank.
std::vector<Message> all_gather(Ranks& ranks, const Message& own);
// Sends one message to each of `others` and returns one from each, in their order. All of them call it with the same
// `tag`; it uses that tag and the next.
std::vector<Message> exchange(Ranks& ranks, const std::vector<int>& others, const std::vector<Message>& messages,
                              int tag);

inline void write_bytes(Message& message, const void* from, std::size_t count) {
    const std::size_t size = message.size();
    message.resize(size + count);
    if (count > 0)
        std::memcpy(message.data() + size, from, count);
}

// Writes values one after the other, and reads them in the same order. Ranks run the same program on machines of one
// kind: values are sent as they lie in memory.
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
    const std::byte* take(std::size_t bytes);  // throws Error (RunFailed) when there are fewer
    [[noreturn]] static void fail_short();
    std::span<const std::byte> rest_;
};

// The devices of a plan on its ranks: consecutive ones, and no rank has two more than another.
class RankMap {
public:
    RankMap() = default;  // all on one
    RankMap(int devices, int own, int size) : own_(own), devices_(devices), size_(size) {}
    RankMap(int devices, const Ranks& ranks) : RankMap(devices, ranks.rank(), ranks.size()) {}
    int own() const { return own_; }
    int size() const { return size_; }
    int rank_of(int device) const {
        return devices_ == 0 ? 0 : static_cast<int>(std::int64_t{device} * size_ / devices_);
    }
    bool is_here(int device) const { return rank_of(device) == own_; }
    int devices_of(int rank) const {  // how many
        int count = 0;
        for (int device = 0; device < devices_; ++device)
            count += rank_of(device) == rank ? 1 : 0;
        return count;
    }

private:
    int own_ = 0, devices_ = 0, size_ = 1;
};

// How far the clock of a rank was ahead of rank 0's, and how wrong that may be.
struct ClockOffset {
    Ns ahead = 0, uncertain = 0;
    Ns at = 0;  // on the clock of rank 0
};
// All ranks call it together; rank 0 gets an offset of every rank, by rank, the others nothing. Those of `others`, the
// same on all ranks, have another clock than rank 0.
std::vector<ClockOffset> measure_clocks(Ranks& ranks, const std::vector<int>& others);

// Joins the other ranks; once per process, and the same object after that. It throws Error (RunFailed) when this build
// has no MPI.
Ranks& join_ranks();
std::string ranks_status();  // "ready", or why not

}  // namespace pw
