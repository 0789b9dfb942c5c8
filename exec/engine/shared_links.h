// Messages in transit on emulated links that share capacities: at every moment each has its max-min fair rate, by
// the rule of the simulator (workloads/cluster/fair_shares.h).
#pragma once

#include "workloads/cluster/fair_shares.h"
#include "workloads/units.h"

#include <optional>
#include <vector>

namespace pw {

class SharedLinks {
public:
    SharedLinks() = default;
    // `demands` are by node, in the unit of the capacities. A SEND without a demand is not carried here.
    SharedLinks(std::vector<double> capacities, std::vector<Demand> demands)
        : shares_(std::move(capacities)), demands_(std::move(demands)) {}

    bool carry(int send) const { return !demands_.empty() && !demands_[static_cast<std::size_t>(send)].takes.empty(); }
    // Starts a message that takes the time `alone` if no other message shares its links.
    void start(int send, Ns alone, Ns now);
    // Returns which message leaves next, and when, unless another message starts earlier.
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
