// What a message takes on its way from one device to another: capacities that it may have to share, and its link.
#pragma once

#include "workloads/costs/costs.h"

#include <vector>

namespace pw {

// The capacities are what leads out of every host and into it, where `between_hosts` says how much that is, and then
// Costs::shared; those without bound are not among them.
class Routes {
public:
    explicit Routes(const Costs& costs);

    const std::vector<double>& capacities() const { return capacities_; }  // bytes per second
    std::vector<int> takes(int from, int to) const;                        // numbers of capacities, ascending
    // Returns the most that a message can have of what it takes; infinite when it takes nothing.
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
