#include "workloads/cluster/routes.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace pw {

Routes::Routes(const std::vector<Capacity>& capacities) {
    for (const Capacity& capacity : capacities)
        add(capacity);
}

void Routes::add(const Capacity& capacity) {
    if (std::isinf(capacity.bandwidth))
        return;
    const auto number = static_cast<int>(capacities_.size());
    capacities_.push_back(capacity.bandwidth);
    for (const int device : capacity.devices) {
        of_device_.resize(std::max(of_device_.size(), static_cast<std::size_t>(device) + 1));
        of_device_[device].push_back({number, capacity.of});
    }
}

bool Routes::is_member(int device, int capacity) const {
    if (device >= static_cast<int>(of_device_.size()))
        return false;
    const std::vector<Membership>& all = of_device_[device];
    return std::any_of(all.begin(), all.end(), [&](const Membership& one) { return one.capacity == capacity; });
}

std::vector<int> Routes::takes(int from, int to) const {
    std::vector<int> takes;
    if (from < 0 || to < 0)
        return takes;  // a SEND without a receiver
    const auto add_of = [&](int device, int other, Capacity::Of of) {
        if (device < static_cast<int>(of_device_.size()))
            for (const Membership& one : of_device_[device])
                if ((one.of == of && !is_member(other, one.capacity)) || one.of == Capacity::Of::Touching)
                    takes.push_back(one.capacity);
    };
    add_of(from, to, Capacity::Of::Leaving);
    add_of(to, from, Capacity::Of::Entering);
    std::sort(takes.begin(), takes.end());
    takes.erase(std::unique(takes.begin(), takes.end()), takes.end());
    return takes;
}

double Routes::most(int from, int to) const {
    double most = std::numeric_limits<double>::infinity();
    for (const int capacity : takes(from, to))
        most = std::min(most, capacities_[capacity]);
    return most;
}

}  // namespace pw
