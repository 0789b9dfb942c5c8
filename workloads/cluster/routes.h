// The route of a message from one device to another: capacities that the message may have to share, and its link.
#pragma once

#include <cstdint>
#include <vector>

namespace pw {

// A bandwidth that some messages share while they are under way: the messages that leave a group of devices, the
// messages that enter the group, or the messages with an end in the group in either direction, as on a bus.
struct Capacity {
    enum class Of : std::uint8_t { Leaving, Entering, Touching } of = Of::Touching;
    std::vector<int> devices;  // ascending
    double bandwidth = 0;      // bytes per second
    bool operator==(const Capacity&) const = default;
};

class Routes {
public:
    // Capacities without bound are left out.
    explicit Routes(const std::vector<Capacity>& capacities);

    const std::vector<double>& capacities() const { return capacities_; }  // bytes per second
    std::vector<int> takes(int from, int to) const;                        // numbers of capacities, ascending
    // Returns the largest rate of a message over the capacities that the message takes, infinite if it takes none.
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
