// Max-min fairness over any number of capacities: no demand can get more unless another that has no more gets less
// (Bertsekas, Gallager, "Data Networks", 1992, section 6.5.2: progressive filling).
#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

namespace pw {

struct Demand {
    std::vector<int> takes;  // numbers of capacities, each once
    double most = 0;         // the rate that it has when it is alone
    double rate = 0;         // the rate that it gets
};

// Work under way at a rate that changes.
struct Progressing {
    double left = 0;   // remaining nanoseconds at the rate 1
    double since = 0;  // the time of that remainder
    double rate = 0;   // 0 before it begins

    double time_left() const { return left / rate; }
    void go_at(double new_rate, double now) {
        if (rate > 0) {
            left = std::max(0.0, left - rate * (now - since));
            since = now;
        }
        rate = new_rate;
    }
};

class FairShares {
public:
    FairShares() = default;
    explicit FairShares(std::vector<double> capacities) : capacities_(std::move(capacities)) {
        room_ = capacities_;
        takers_.assign(room_.size(), 0);
    }

    // Gives every demand its rate, in the unit of the capacities. Returns the capacities' numbers in the order in which
    // they were decided: first the one that leaves least to each of its takers.
    std::vector<std::size_t> share(const std::vector<Demand*>& demands);

private:
    double share_of(const Demand& demand) const;

    std::vector<double> capacities_, room_;
    std::vector<int> takers_;  // by capacity: demands without a rate yet
};

}  // namespace pw
