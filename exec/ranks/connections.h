// The TCP connections between ranks: rank 0 has one to every other rank, the others have one to rank 0. Bytes
// come in the order in which they were sent, in pieces of any size.
#pragma once

#include "exec/ranks/ranks.h"
#include "workloads/units.h"

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace pw {

class Connections {
public:
    virtual ~Connections() = default;                   // closes what is open
    virtual const std::vector<int>& ranks() const = 0;  // at the other ends, by connection
    virtual int rejected() const { return 0; }          // connections of other programs, closed at the start

    struct Entry {
        int connection = 0;
        bool writes = false;                       // is to be waited for until it takes bytes, too
        bool can_read = false, can_write = false;  // found
    };
    // Waits until something can be done, at most for `time`.
    virtual void wait(std::vector<Entry>& entries, Ns time) = 0;
    virtual void wake() = 0;  // on any thread: the wait that is under way, or else the next one, ends
    // Return how many bytes came, or were taken, without waiting; nothing where the connection has ended.
    virtual std::optional<std::size_t> receive(int connection, std::span<std::byte> bytes) = 0;
    virtual std::optional<std::size_t> send(int connection, std::span<const std::byte> bytes) = 0;
    virtual void close(int connection) = 0;
};

// Connects all ranks, which call it together, over TCP. Rank 0 gets the connections of those that have called it within
// `timeout`. Throws Error (RunFailed) on a rank that does not reach rank 0 within `timeout`.
std::unique_ptr<Connections> connect_ranks(Ranks& ranks, Ns timeout);

}  // namespace pw
