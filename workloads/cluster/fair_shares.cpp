#include "workloads/cluster/fair_shares.h"

#include "workloads/rounding.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace pw {

double FairShares::share_of(const Demand& demand) const {
    double share = demand.most;
    for (const int capacity : demand.takes)
        share = std::min(share, room_[capacity] / takers_[capacity]);
    return share;
}

std::vector<std::size_t> FairShares::share(const std::vector<Demand*>& demands) {
    for (const Demand* demand : demands)
        for (const int capacity : demand->takes) {
            room_[capacity] = capacities_[capacity];
            takers_[capacity] = 0;
        }
    for (const Demand* demand : demands)
        for (const int capacity : demand->takes)
            ++takers_[capacity];
    std::vector<std::size_t> in_order, open(demands.size());
    std::iota(open.begin(), open.end(), std::size_t{0});
    while (!open.empty()) {
        double least = demands[open.front()]->most;
        for (const std::size_t number : open)
            least = std::min(least, share_of(*demands[number]));
        std::vector<std::size_t> rest, decided;
        for (const std::size_t number : open)
            (share_of(*demands[number]) <= least * (1 + kRounding) ? decided : rest).push_back(number);
        for (const std::size_t number : decided) {
            for (const int capacity : demands[number]->takes) {
                room_[capacity] = std::max(0.0, room_[capacity] - least);
                --takers_[capacity];
            }
            demands[number]->rate = least;
            in_order.push_back(number);
        }
        open = std::move(rest);
    }
    return in_order;
}

}  // namespace pw
