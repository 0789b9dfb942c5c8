// The orders in which devices of a cluster can take the stages of a plan: an order from each set of equivalent orders.
#pragma once

#include "job/setup/setup.h"

#include <cstddef>
#include <set>
#include <utility>
#include <vector>

namespace pw {

// Devices are alike when exchanging two of them changes nothing: no speed and no memory, and no host, link, switch or
// shared capacity of the network. Hosts are alike when exchanging all their devices, in order, changes nothing.
class AlikeDevices {
public:
    explicit AlikeDevices(const ClusterConfig& cluster);

    int devices() const { return static_cast<int>(class_of_.size()); }
    int hosts() const { return static_cast<int>(devices_on_.size()); }
    int host_of(int device) const { return host_of_[device]; }
    bool all_alike() const { return all_alike_; }
    // Returns whether all have the same speed and memory, so that only the network distinguishes them.
    bool all_equal() const { return all_equal_; }
    bool alike(int a, int b) const { return class_of_[a] == class_of_[b]; }
    // Returns whether exchanging the devices of two hosts, and then perhaps two devices, only makes `a` replace `b`.
    bool alike_by_hosts(int a, int b) const;

private:
    using Swaps = std::vector<std::pair<int, int>>;  // devices, each at most once
    void number_hosts();
    void find_classes();
    bool changes_nothing(const Swaps& swaps) const;
    bool keeps_hosts(const Swaps& swaps) const;
    bool keeps_links(const Swaps& swaps) const;
    bool keeps_shared(const Swaps& swaps) const;
    bool keeps_switches(const Swaps& swaps) const;

    const ClusterConfig& cluster_;
    std::vector<int> host_of_;
    std::vector<std::vector<int>> devices_on_;  // by host
    std::vector<int> position_of_;              // of a device on its host
    std::vector<std::vector<ClusterConfig::PairLink>> links_of_;
    std::set<std::pair<int, int>> linked_;                         // pairs with a link of their own
    std::multiset<std::pair<std::vector<int>, double>> shared_;    // devices, bandwidth
    std::multiset<std::pair<std::vector<int>, double>> switches_;  // hosts, bandwidth
    std::vector<int> class_of_, class_of_host_;                    // the first alike device or host
    bool all_alike_ = true, all_equal_ = true;
};

struct DeviceOrders {
    std::vector<std::vector<int>> all;  // the first order takes the devices as the setup lists them
    bool complete = true;
};

// Returns every choice of `count` devices in every order, with alike devices in the order of the setup. If there are
// more than `most`: the order of the setup and the order by hosts if only the network distinguishes devices, else the
// first orders.
DeviceOrders orders_of(const AlikeDevices& devices, int count, std::size_t most);

}  // namespace pw
