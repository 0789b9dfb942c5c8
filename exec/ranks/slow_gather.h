// Gathers messages of all ranks on rank 0, a piece at a time with pauses in between, so that devices that compute
// at the same time are hardly slowed.
#pragma once

#include "exec/ranks/ranks.h"
#include "workloads/units.h"

#include <cstdint>
#include <optional>
#include <vector>

namespace pw {

// Each rank makes an object per gathering when it is ready, and calls its functions on its main thread until its
// part is done. Gatherings do not overlap.
class SlowGather {
public:
    SlowGather(Ranks& ranks, Message own);  // rank 0's own message is not sent

    // Begins the next piece if none is in transit and the pause since the last piece is over. If `urgent`, there is no
    // pause. It never waits. Returns whether this rank's part is done.
    bool advance(bool urgent);
    std::vector<Message> take_messages();  // by rank, on rank 0, when all is done

private:
    void begin_piece();
    std::span<std::byte> next_piece(Message& message) const;

    Ranks& ranks_;
    Message own_;
    std::vector<Message> messages_;
    int other_;               // the rank at the other end: rank 0, or the current sender
    std::uint64_t size_ = 0;  // of the message
    bool has_size_ = false;
    std::size_t done_ = 0, under_way_ = 0;  // bytes
    std::optional<Ranks::Ticket> ticket_;
    Ns last_ = 0;  // the time at which the last piece was begun
};

}  // namespace pw
