// The handshake on the TCP connections between rank 0 and the other ranks. Any program can connect to the same port,
// so both ends prove that they have the key of the run, which MPI distributes. The key itself is never sent over
// TCP: rank 0 sends a random number, the caller sends its rank, a random number and the hash of both numbers, and
// rank 0 sends another hash.
#pragma once

#include "workloads/units.h"

#include <netinet/in.h>

#include <array>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace pw {

// Owns a file descriptor (-1: none).
class Socket {
public:
    explicit Socket(int number = -1) : number_(number) {}
    ~Socket();
    Socket(Socket&& other) noexcept : number_(other.take()) {}
    Socket& operator=(Socket&& other) noexcept {
        std::swap(number_, other.number_);
        return *this;
    }
    int number() const { return number_; }
    bool is_open() const { return number_ >= 0; }
    int take() { return std::exchange(number_, -1); }

private:
    int number_;
};

using HandshakeKey = std::array<std::uint64_t, 2>;
HandshakeKey random_key();

// SipHash-2-4 of the words, little-endian bytes (Aumasson and Bernstein, 2012).
std::uint64_t keyed_hash(const HandshakeKey& key, std::span<const std::uint64_t> words);

inline constexpr Ns kCallerTime = 1'000'000'000;  // for a whole handshake, at rank 0

struct AcceptedRanks {
    std::vector<Socket> sockets;  // by rank - 1 (not open if the rank has not called)
    int rejected = 0;             // closed connections that were not a rank's
};
// Accepts connections until ranks 1 to `size` - 1 have called or `timeout` has passed. Each caller has
// `caller_time` for its handshake, in parallel with the other callers. A later call of a rank replaces its earlier
// connection. `listener` must not block.
AcceptedRanks accept_ranks(int listener, const HandshakeKey& key, int size, Ns timeout, Ns caller_time = kCallerTime);

// Calls rank 0 at each of the addresses, repeatedly until `timeout` has passed. Returns the connection, which is
// not open if rank 0 was not found.
Socket call_first_rank(std::span<const sockaddr_in> addresses, const HandshakeKey& key, int rank, Ns timeout);

}  // namespace pw
