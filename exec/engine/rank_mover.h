// The mover of messages between ranks.
#pragma once

#include "exec/engine/mover.h"
#include "exec/ranks/ranks.h"
#include "exec/system/threads.h"

#include <exception>
#include <vector>

namespace pw {

class Mailbox;

// The messages between ranks. There are none if the map has one rank.
struct RankMessages {
    Ranks* ranks = nullptr;
    RankMap map;
    std::vector<int> tag;            // by node, for transfers, equal at both ends (empty if there is a carrier)
    std::vector<int> lands_from;     // by node, for RECVs: the position from which the device has their memory
    RankCarrier* carrier = nullptr;  // null: the ranks carry the messages
};

// Passes messages to the ranks, or to the carrier. A thread polls the ranks while no device waits.
class RankMover : public Mover {
public:
    RankMover(Mailbox& mailbox, const RankMessages& messages, Payload& payload);
    ~RankMover() override;

    void begin_step() override;
    void start(int transfer, Lock& lock) override;
    void reach(int device, int position, Lock& lock) override;
    bool is_polled() const override { return messages_.carrier == nullptr; }
    bool poll(Lock& lock) override;

private:
    struct Pending {
        int node;
        Ranks::Ticket ticket;
    };
    bool has_memory(int recv) const;
    void begin(int node, Lock& lock);
    void run();

    Mailbox& mailbox_;
    const RankMessages& messages_;
    Payload& payload_;
    std::vector<Pending> pending_;  // under way
    std::vector<int> too_early_;    // RECVs whose memory is still in use
    std::vector<int> landing_;      // RECVs of these whose memory has become free
    std::vector<int> reached_;      // by device: its position
    std::exception_ptr failure_;    // of the thread
    Condition changed_;
    bool closing_ = false;
    Thread thread_;  // uses all of the above
};

}  // namespace pw
