#include "search/clusters/host_orders.h"

#include "job/makes.h"
#include "job/setup/rank_groups.h"
#include "job/transformer_job.h"
#include "search/clusters/choice_list.h"
#include "search/exposed_work.h"
#include "search/plan_choice.h"
#include "workloads/transformers/layer_costs.h"

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <set>
#include <tuple>
#include <utility>

namespace pw {

namespace {

constexpr std::size_t kMostKinds = 4;      // of hosts that are put into every order
constexpr std::size_t kMostOrders = 5000;  // that are listed

struct HostKind {
    std::vector<int> hosts;
    std::map<int, double> speeds;  // by make: the speeds of the devices of one host, added up
};

std::vector<HostKind> kinds_of_hosts(const ClusterRanks& ranks) {
    using DeviceKey = std::tuple<int, double, Bytes>;
    std::map<int, std::vector<DeviceKey>> devices_of;
    for (std::size_t rank = 0; rank < ranks.devices.size(); ++rank)
        devices_of[ranks.host[rank]].emplace_back(ranks.devices[rank].make, ranks.devices[rank].speed,
                                                  ranks.usable[rank]);
    std::map<std::vector<DeviceKey>, std::size_t> known;
    std::vector<HostKind> kinds;
    for (const auto& [host, devices] : devices_of) {
        const auto [found, is_new] = known.try_emplace(devices, kinds.size());
        if (is_new) {
            HostKind& kind = kinds.emplace_back();
            for (const auto& [make, speed, memory] : devices)
                kind.speeds[make] += speed;
        }
        kinds[found->second].hosts.push_back(host);
    }
    return kinds;
}

// Returns the least device-seconds of each layer for one sample, by make: of all ways to share it that are searched.
std::vector<std::vector<double>> least_work(const SearchSetup& setup) {
    const std::size_t makes = std::max<std::size_t>(1, setup.cluster.makes.size());
    std::vector<std::vector<double>> least(makes);
    for (const PlanChoice& choice : ways_to_share_layers(setup))
        for (std::size_t make = 0; make < makes; ++make) {
            Setup alike =
                setup.cluster.makes.empty() ? static_cast<const Setup&>(setup) : of_make(setup, static_cast<int>(make));
            alike.parallel.degrees = choice.degrees;
            const TransformerJob job = transformer_job_of(alike);
            const std::vector<TransformerLayerCost> layers = TransformerLayers(job).all(choice.micro_batch_size);
            const double share =
                static_cast<double>(choice.degrees.tensor * choice.degrees.context) / choice.micro_batch_size;
            least[make].resize(layers.size(), std::numeric_limits<double>::infinity());
            for (std::size_t layer = 0; layer < layers.size(); ++layer) {
                const TransformerLayerCost& cost = layers[layer];
                least[make][layer] =
                    std::min(least[make][layer], share * (cost.forward + cost.backward_input + cost.backward_weight));
            }
        }
    return least;
}

// All devices work all the time at best. A second of a device counts as much as the work of all layers that the device
// does in it; a layer counts where it counts least.
class WorkBound {
public:
    explicit WorkBound(const SearchSetup& setup) : least_(least_work(setup)), samples_(setup.search.mini_batch) {}

    Ns of(const std::map<int, double>& speeds) const {
        double rate = 0;
        for (const auto& [make, speed] : speeds)
            rate += speed / work(make);
        double work_of_sample = 0;
        for (std::size_t layer = 0; layer < least_.front().size(); ++layer) {
            double counted = std::numeric_limits<double>::infinity();
            for (const auto& [make, speed] : speeds)
                counted = std::min(counted, least_[static_cast<std::size_t>(make)][layer] / work(make));
            work_of_sample += counted;
        }
        return static_cast<Ns>(static_cast<double>(samples_) * work_of_sample / rate * 1e9 * kNoMore);
    }

private:
    double work(int make) const {
        const std::vector<double>& layers = least_[static_cast<std::size_t>(make)];
        return std::accumulate(layers.begin(), layers.end(), 0.0);
    }

    std::vector<std::vector<double>> least_;
    std::int64_t samples_;
};

// Counts up, the first number fastest. Returns false after the largest numbers.
bool next_counts(std::vector<std::size_t>& counts, const std::vector<HostKind>& kinds) {
    for (std::size_t digit = 0; digit < kinds.size(); ++digit) {
        if (counts[digit] < kinds[digit].hosts.size()) {
            ++counts[digit];
            return true;
        }
        counts[digit] = 0;
    }
    return false;
}

// Takes the first `counts` hosts of each kind, in this order of the kinds.
HostOrder order_of(const std::vector<HostKind>& kinds, const std::vector<std::size_t>& order,
                   const std::vector<std::size_t>& counts, const WorkBound& bound) {
    HostOrder taken;
    std::map<int, double> speeds;
    for (const std::size_t number : order) {
        const HostKind& kind = kinds[number];
        const std::size_t count = counts[number];
        taken.hosts.insert(taken.hosts.end(), kind.hosts.begin(),
                           kind.hosts.begin() + static_cast<std::ptrdiff_t>(count));
        for (const auto& [make, speed] : kind.speeds)
            if (count > 0)
                speeds[make] += static_cast<double>(count) * speed;
    }
    taken.least = bound.of(speeds);
    return taken;
}

}  // namespace

std::vector<HostOrder> host_orders(const SearchSetup& setup) {
    if (has_own_network(setup.cluster))  // which names hosts and devices
        return {};
    const std::vector<HostKind> kinds = kinds_of_hosts(*setup.parallel.ranks);
    if (kinds.size() < 2 || kinds.size() > kMostKinds)
        return {};
    const WorkBound bound(setup);
    std::vector<int> in_file(static_cast<std::size_t>(*std::ranges::max_element(setup.parallel.ranks->host)) + 1);
    std::iota(in_file.begin(), in_file.end(), 0);
    std::set<std::vector<int>> known = {in_file};
    std::vector<HostOrder> orders;
    std::vector<std::size_t> order(kinds.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    do {
        std::vector<std::size_t> counts(kinds.size(), 0);
        while (orders.size() < kMostOrders && next_counts(counts, kinds))
            if (HostOrder taken = order_of(kinds, order, counts, bound); known.insert(taken.hosts).second)
                orders.push_back(std::move(taken));
    } while (std::ranges::next_permutation(order).found);
    std::ranges::stable_sort(orders, {}, &HostOrder::least);
    // Kernels may have higher rates for slices than for whole sequences.
    if (std::ranges::any_of(searched_schedules(setup),
                            [&](const std::string& name) { return searched_schedule(setup, name).cuts_sequences(); }))
        for (HostOrder& each : orders)
            each.least = 0;
    return orders;
}

}  // namespace pw
