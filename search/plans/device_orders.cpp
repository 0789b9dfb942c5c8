#include "search/plans/device_orders.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <string>

namespace pw {

namespace {

constexpr std::size_t kMostUnequal = 4096;  // devices of which orders are tried at all

// Returns the members after a swap.
std::vector<int> swapped(const std::vector<int>& members, const std::vector<std::pair<int, int>>& swaps) {
    std::vector<int> others = members;
    for (int& member : others)
        for (const auto& [a, b] : swaps)
            if (member == a || member == b) {
                member = member == a ? b : a;
                break;
            }
    std::sort(others.begin(), others.end());
    return others;
}

}  // namespace

AlikeDevices::AlikeDevices(const ClusterConfig& cluster) : cluster_(cluster) {
    number_hosts();
    links_of_.resize(cluster.devices.size());
    for (const ClusterConfig::PairLink& pair : cluster.links) {
        links_of_[pair.from].push_back(pair);
        links_of_[pair.to].push_back(pair);
        linked_.insert({pair.from, pair.to});
    }
    for (const ClusterConfig::Shared& shared : cluster.shared)
        shared_.insert({swapped(shared.devices, {}), shared.bandwidth});
    if (cluster.devices.empty())
        return;
    find_classes();
    const DeviceConfig& first = cluster.devices.front();
    for (int device = 0; device < devices(); ++device) {
        all_alike_ = all_alike_ && alike(device, 0);
        all_equal_ = all_equal_ && cluster.devices[device].speed == first.speed &&
                     cluster.devices[device].memory == first.memory && cluster.devices[device].make == first.make;
    }
}

void AlikeDevices::number_hosts() {
    std::map<std::string, int> hosts;
    for (int device = 0; device < static_cast<int>(cluster_.devices.size()); ++device) {
        const auto [host, is_new] =
            hosts.try_emplace(cluster_.devices[device].host, static_cast<int>(devices_on_.size()));
        if (is_new)
            devices_on_.emplace_back();
        host_of_.push_back(host->second);
        position_of_.push_back(static_cast<int>(devices_on_[host->second].size()));
        devices_on_[host->second].push_back(device);
    }
    for (const ClusterConfig::Switch& group : cluster_.switches) {
        std::vector<int> members;
        for (const std::string& name : group.hosts)
            if (const auto host = hosts.find(name); host != hosts.end())
                members.push_back(host->second);
        switches_.insert({swapped(members, {}), group.bandwidth});
    }
}

// Being alike is transitive: exchanging a and b, then b and c, then a and b again exchanges a and c. Of more devices
// than are ordered it only matters whether all are alike.
void AlikeDevices::find_classes() {
    if (cluster_.devices.size() > kMostUnequal) {
        for (int device = 0; device < static_cast<int>(cluster_.devices.size()); ++device)
            class_of_.push_back(device == 0 || changes_nothing({{0, device}}) ? 0 : device);
        return;
    }
    std::vector<std::vector<int>> firsts(devices_on_.size());  // by host: the first devices of their classes
    std::vector<int> alone;                                    // the same of devices that are alone on their hosts
    for (int device = 0; device < static_cast<int>(cluster_.devices.size()); ++device) {
        const int host = host_of_[device];
        std::vector<int>& others = devices_on_[host].size() == 1 ? alone : firsts[host];
        const auto like = std::find_if(others.begin(), others.end(), [&](int other) {
            return changes_nothing({{other, device}});
        });
        class_of_.push_back(like == others.end() ? device : *like);
        if (like == others.end())
            others.push_back(device);
    }
    for (int host = 0; host < hosts(); ++host) {
        int like = 0;
        for (; like < host; ++like) {
            if (class_of_host_[like] != like || devices_on_[like].size() != devices_on_[host].size())
                continue;
            Swaps swaps;
            for (std::size_t position = 0; position < devices_on_[host].size(); ++position)
                swaps.emplace_back(devices_on_[like][position], devices_on_[host][position]);
            if (changes_nothing(swaps))
                break;
        }
        class_of_host_.push_back(like);
    }
}

bool AlikeDevices::alike_by_hosts(int a, int b) const {
    const int from = host_of_[a], to = host_of_[b];
    return class_of_host_[from] == class_of_host_[to] && alike(devices_on_[to][position_of_[a]], b);
}

bool AlikeDevices::changes_nothing(const Swaps& swaps) const {
    const auto are_equal = [&](const auto& swap) {
        const DeviceConfig &a = cluster_.devices[swap.first], &b = cluster_.devices[swap.second];
        return a.speed == b.speed && a.memory == b.memory && a.make == b.make;
    };
    return std::all_of(swaps.begin(), swaps.end(), are_equal) && keeps_hosts(swaps) && keeps_links(swaps) &&
           keeps_shared(swaps) && keeps_switches(swaps);
}

// Devices of two hosts are exchanged all or none.
bool AlikeDevices::keeps_hosts(const Swaps& swaps) const {
    return std::all_of(swaps.begin(), swaps.end(), [&](const auto& swap) {
        const int a = host_of_[swap.first], b = host_of_[swap.second];
        return a == b || (devices_on_[a].size() == swaps.size() && devices_on_[b].size() == swaps.size());
    });
}

bool AlikeDevices::keeps_links(const Swaps& swaps) const {
    if (linked_.empty())
        return true;
    std::map<int, int> other;
    for (const auto& [a, b] : swaps) {
        other[a] = b;
        other[b] = a;
    }
    const auto place_of = [&](int device) {
        const auto found = other.find(device);
        return found == other.end() ? device : found->second;
    };
    for (const auto& [device, in_its_place] : other)
        for (const ClusterConfig::PairLink& pair : links_of_[device]) {
            const int from = place_of(pair.from), to = place_of(pair.to);
            const std::vector<ClusterConfig::PairLink>& links = links_of_[in_its_place];
            const bool has_it = linked_.contains({from, to}) &&
                                std::any_of(links.begin(), links.end(), [&](const ClusterConfig::PairLink& link) {
                                    return link.from == from && link.to == to && link.link == pair.link;
                                });
            if (!has_it)
                return false;
        }
    return true;
}

bool AlikeDevices::keeps_shared(const Swaps& swaps) const {
    return std::all_of(shared_.begin(), shared_.end(), [&](const auto& one) {
        return shared_.count({swapped(one.first, swaps), one.second}) == shared_.count(one);
    });
}

bool AlikeDevices::keeps_switches(const Swaps& swaps) const {
    const std::pair hosts(host_of_[swaps.front().first], host_of_[swaps.front().second]);
    return hosts.first == hosts.second || std::all_of(switches_.begin(), switches_.end(), [&](const auto& one) {
               return switches_.count({swapped(one.first, {hosts}), one.second}) == switches_.count(one);
           });
}

namespace {

class OrderList {
public:
    OrderList(const AlikeDevices& devices, int count, std::size_t most)
        : devices_(devices),
          count_(count),
          most_(most),
          used_(static_cast<std::size_t>(devices.devices()), false),
          used_on_(static_cast<std::size_t>(devices.hosts()), 0) {
        extend();
    }
    DeviceOrders orders;

private:
    void extend() {
        if (static_cast<int>(chosen_.size()) == count_) {
            orders.complete = orders.complete && orders.all.size() < most_;
            if (orders.complete)
                orders.all.push_back(chosen_);
            return;
        }
        std::vector<int> tried;
        for (int device = 0; device < devices_.devices() && orders.complete; ++device) {
            if (used_[device] ||
                std::any_of(tried.begin(), tried.end(), [&](int other) { return comes_to_the_same(device, other); }))
                continue;
            tried.push_back(device);
            choose(device);
            extend();
            take_back(device);
        }
    }

    // Exchanges that leave the devices chosen so far where they are.
    bool comes_to_the_same(int device, int other) const {
        return devices_.alike(device, other) ||
               (used_on_[devices_.host_of(device)] == 0 && used_on_[devices_.host_of(other)] == 0 &&
                devices_.alike_by_hosts(device, other));
    }
    void choose(int device) {
        used_[device] = true;
        ++used_on_[devices_.host_of(device)];
        chosen_.push_back(device);
    }
    void take_back(int device) {
        used_[device] = false;
        --used_on_[devices_.host_of(device)];
        chosen_.pop_back();
    }

    const AlikeDevices& devices_;
    int count_;
    std::size_t most_;
    std::vector<char> used_;
    std::vector<int> used_on_, chosen_;
};

}  // namespace

DeviceOrders orders_of(const AlikeDevices& devices, int count, std::size_t most) {
    std::vector<int> listed(static_cast<std::size_t>(devices.devices()));
    std::iota(listed.begin(), listed.end(), 0);
    const auto first_of = [&](const std::vector<int>& order) {
        return std::vector<int>(order.begin(), order.begin() + count);
    };
    if (devices.all_alike())
        return {{first_of(listed)}, true};
    if (static_cast<std::size_t>(devices.devices()) > kMostUnequal)
        return {{first_of(listed)}, false};
    DeviceOrders orders = OrderList(devices, count, most).orders;
    if (orders.complete || !devices.all_equal())
        return orders;
    orders.all = {first_of(listed)};
    std::stable_sort(listed.begin(), listed.end(),
                     [&](int a, int b) { return devices.host_of(a) < devices.host_of(b); });
    if (most > 1 && first_of(listed) != orders.all.front())
        orders.all.push_back(first_of(listed));
    return orders;
}

}  // namespace pw
