// The TCP connections between ranks: rank 0 has a connection to every other rank, and every other rank has a
// connection to rank 0. Bytes arrive in the order in which they were sent, in pieces of any size.
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
    virtual ~Connections() = default;                   // closes all connections
    virtual const std::vector<int>& ranks() const = 0;  // the peer ranks, by connection
    virtual int rejected() const { return 0; }          // connections of foreign programs, closed at the start

    struct Entry {
        int connection = 0;
        bool writes = false;                       // whether to wait until it can take bytes, too
        bool can_read = false, can_write = false;  // the result
    };
    // Waits until a connection can be read or written, at most for `time`.
    virtual void wait(std::vector<Entry>& entries, Ns time) = 0;
    virtual void wake() = 0;  // on any thread: ends the current wait, or else the next wait
    // Return the number of bytes received, or taken, without waiting, or nothing if the connection has ended.
    virtual std::optional<std::size_t> receive(int connection, std::span<std::byte> bytes) = 0;
    virtual std::optional<std::size_t> send(int connection, std::span<const std::byte> bytes) = 0;
    virtual void close(int connection) = 0;
};

// Connects all ranks over TCP. All ranks call it together. Rank 0 gets the connections of the ranks that have called it
// within `timeout`. Throws Error (RunFailed) on a rank that does not reach rank 0 within `timeout`.
std::unique_ptr<Connections> connect_ranks(Ranks& ranks, Ns timeout);

}  // namespace pw
