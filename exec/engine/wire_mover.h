// The mover of messages over emulated links, which take time.
#pragma once

#include "exec/engine/mover.h"
#include "exec/engine/shared_links.h"
#include "exec/system/threads.h"

#include <cstdint>
#include <functional>
#include <queue>
#include <vector>

namespace pw {

class Mailbox;

// An emulated link: a message leaves `occupation` after its start, or later if it shares the link, and arrives
// `latency` after that.
struct LinkTimes {
    std::vector<Ns> occupation, latency;  // by node, for SENDs (empty if no link is emulated)
    SharedLinks shared;

    bool take_time() const;
};

class WireMover : public Mover {
public:
    WireMover(Mailbox& mailbox, const LinkTimes& times);
    ~WireMover() override;

    void start(int send, Lock& lock) override;

private:
    struct Event {
        Ns time;
        std::int64_t number;  // a message leaves before it arrives
        int node;             // a SEND leaves, the message of a RECV arrives
        auto operator<=>(const Event&) const = default;
    };
    void end_at(Ns time, Ns now, int node, Lock& lock);
    void run();
    void leave(const SharedLinks::Leaving& leaving, Lock& lock);

    Mailbox& mailbox_;
    const LinkTimes& times_;
    std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
    std::int64_t events_so_far_ = 0;
    SharedLinks shared_;
    Condition changed_;
    bool closing_ = false;
    Thread thread_;  // uses all of the above
};

}  // namespace pw
