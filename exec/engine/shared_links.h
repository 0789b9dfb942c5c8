// Messages under way on emulated links that share what they take: at every moment each goes at its max-min fair rate,
// by the rule of the simulator (workloads/cluster/fair_shares.h).
#pragma once

#include "workloads/cluster/fair_shares.h"
#include "workloads/units.h"

#include <optional>
#include <vector>

namespace pw {

class SharedLinks {
public:
    SharedLinks() = default;
    // What sends take is by node, in the unit of the capacities; those that take nothing do not come here.
    SharedLinks(std::vector<double> capacities, std::vector<Demand> demands)
        : shares_(std::move(capacities)), demands_(std::move(demands)) {}

    bool carry(int send) const { return !demands_.empty() && !demands_[static_cast<std::size_t>(send)].takes.empty(); }
    // Starts a message that takes the time `alone` when no other shares its links.
    void start(int send, Ns alone, Ns now);
    // Returns which message leaves next, and when, if no other starts before.
    struct Leaving {
        int send;
        Ns time;
    };
    std::optional<Leaving> next() const;
    void leave(const Leaving& leaving);

private:
    struct Message {
        int send;
        Demand demand;
        Progressing way;
    };
    void share(Ns now);

    FairShares shares_;
    std::vector<Demand> demands_;
    std::vector<Message> under_way_;
};

}  // namespace pw
