#include "exec/engine/shared_links.h"

#include <algorithm>
#include <cmath>

namespace pw {

void SharedLinks::start(int send, Ns alone, Ns now) {
    under_way_.push_back(
        {send, demands_[static_cast<std::size_t>(send)], {static_cast<double>(alone), static_cast<double>(now)}});
    share(now);
}

std::optional<SharedLinks::Leaving> SharedLinks::next() const {
    std::optional<Leaving> next;
    for (const Message& message : under_way_)
        if (const Ns time = std::llround(message.way.since + message.way.time_left()); !next || time < next->time)
            next = Leaving{message.send, time};
    return next;
}

void SharedLinks::leave(const Leaving& leaving) {
    std::erase_if(under_way_, [&](const Message& message) { return message.send == leaving.send; });
    share(leaving.time);
}

void SharedLinks::share(Ns now) {
    std::vector<Demand*> demands;
    for (Message& message : under_way_)
        demands.push_back(&message.demand);
    shares_.share(demands);
    for (Message& message : under_way_)
        message.way.go_at(message.demand.rate / message.demand.most, static_cast<double>(now));
}

}  // namespace pw
