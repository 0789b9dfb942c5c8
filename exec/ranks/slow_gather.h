// Gathers messages of all ranks on rank 0, a piece at a time with pauses between, so that devices which compute in the
// meantime are hardly slowed.
#pragma once

#include "exec/ranks/ranks.h"
#include "workloads/units.h"

#include <cstdint>
#include <optional>
#include <vector>

namespace pw {

// All ranks make one for each gathering, whenever they are ready to, and call its functions on their main threads until
// it is over there. One gathering follows the other.
class SlowGather {
public:
    SlowGather(Ranks& ranks, Message own);  // rank 0 keeps its own

    // Looks, and begins the next piece if none is under way and `in_haste`, or the rest since the last has been long
    // enough. It never waits. Returns whether all is over for this rank.
    bool advance(bool in_haste);
    std::vector<Message> take_messages();  // by rank, on rank 0, when it is over

private:
    void begin_piece();
    std::span<std::byte> next_piece(Message& message) const;

    Ranks& ranks_;
    Message own_;
    std::vector<Message> messages_;
    int other_;               // the rank at the other end: rank 0, or the one whose message comes
    std::uint64_t size_ = 0;  // of the message
    bool knows_size_ = false;
    std::size_t done_ = 0, under_way_ = 0;  // bytes
    std::optional<Ranks::Ticket> ticket_;
    Ns last_ = 0;  // when the last piece was begun
};

}  // namespace pw
