#include "schedules/plan/contention.h"

#include "workloads/costs/sum_times.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <vector>

namespace pw {

namespace {

// By capacity, the share that each lane or sum could use. The messages of a lane follow each other. A lane is its
// number, the sum of a stage is -1 - stage.
using Uses = std::vector<std::map<int, double>>;

void add_uses_of_messages(const PlanGraph& graph, const TransferMode& mode, const Cluster& cluster, Uses& uses) {
    const LaneTable table(graph, mode.communicator);
    std::set<std::array<int, 3>> pairs;  // lane, sender, receiver
    for (int send = 0; send < graph.size(); ++send)
        if (is_send(graph.task(send).op) && table.partner[send] >= 0)
            pairs.insert({table.lane_of[send], graph.device_of(send), graph.device_of(table.partner[send])});
    for (const auto& [lane, from, to] : pairs)
        for (const int capacity : cluster.routes.takes(from, to)) {
            double& use = uses[capacity][lane];
            use = std::max(use, std::min(cluster.link_of(from, to).bandwidth, cluster.routes.most(from, to)));
        }
}

// The messages of one round of a sum share capacities too; the duration of the sum includes that.
void add_uses_of_sums(const std::vector<StageSum>& sums, const Cluster& cluster, Uses& uses) {
    for (std::size_t stage = 0; stage < sums.size(); ++stage)
        for (const SumRound& round : sums[stage].rounds) {
            std::map<int, double> of_round;
            for (const SumRound::Pair& pair : round.messages)
                for (const int capacity : cluster.routes.takes(pair.from, pair.to))
                    of_round[capacity] += std::min(adapters_of(pair, cluster) * sum_link_of(pair, cluster).bandwidth,
                                                   cluster.routes.most(pair.from, pair.to));
            for (const auto& [capacity, use] : of_round) {
                double& most = uses[capacity][-1 - static_cast<int>(stage)];
                most = std::max(most, std::min(use, cluster.routes.capacities()[capacity]));
            }
        }
}

bool is_short(const Uses& uses, const Routes& routes) {
    for (std::size_t capacity = 0; capacity < uses.size(); ++capacity) {
        double all = 0;
        for (const auto& [lane_or_sum, use] : uses[capacity])
            all += use;
        if (all > routes.capacities()[capacity])
            return true;
    }
    return false;
}

}  // namespace

bool may_share_links(const PlanGraph& graph, const TransferMode& mode, const Costs& costs) {
    const Routes& routes = costs.cluster->routes;
    if (routes.capacities().empty())
        return false;
    Uses uses(routes.capacities().size());
    add_uses_of_messages(graph, mode, *costs.cluster, uses);
    return is_short(uses, routes);
}

bool may_share_with_sums(const PlanGraph& graph, const TransferMode& mode, const Costs& costs) {
    const Routes& routes = costs.cluster->routes;
    if (routes.capacities().empty())
        return false;
    Uses uses(routes.capacities().size());
    add_uses_of_messages(graph, mode, *costs.cluster, uses);
    add_uses_of_sums(costs.stage_sums, *costs.cluster, uses);
    add_uses_of_sums(costs.stage_gathers, *costs.cluster, uses);  // never at the same time as its stage's sum
    return is_short(uses, routes);
}

bool may_wait_for_calls(const Shape& shape, const Costs& costs) {
    if (!costs.cluster->dispatch_by_host || costs.dispatch == 0)
        return false;
    std::set<int> hosts;
    for (int device = 0; device < shape.devices; ++device)
        hosts.insert(costs.cluster->host_of(device));
    return std::ssize(hosts) < shape.devices;
}

}  // namespace pw
