// The route of a message from one device to another: capacities that it may have to share, and its link.
#pragma once

#include "workloads/costs/costs.h"

#include <vector>

namespace pw {

// The capacities are the ways out of every host and into it, if `between_hosts` gives them, followed by Costs::shared;
// unbounded ones are left out.
class Routes {
public:
    explicit Routes(const Costs& costs);

    const std::vector<double>& capacities() const { return capacities_; }  // bytes per second
    std::vector<int> takes(int from, int to) const;                        // numbers of capacities, ascending
    // Returns the largest rate of a message over the capacities that it takes; infinite if it takes none.
    double most(int from, int to) const;

private:
    struct Membership {
        int capacity;
        Capacity::Of of;
        bool operator==(const Membership&) const = default;
    };
    void add(const Capacity& capacity);
    bool is_member(int device, int capacity) const;

    std::vector<double> capacities_;
    std::vector<std::vector<Membership>> of_device_;
};

}  // namespace pw
