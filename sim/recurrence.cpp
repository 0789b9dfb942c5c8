#include "sim/recurrence.h"

#include <algorithm>
#include <cassert>
#include <utility>

namespace pw {

namespace {

// By node what its list waits for before it: the last task that computes, and the ends of the sends whose copies are
// kept since then.
Rows waits_in_lists(const PlanGraph& graph, const Lanes& lanes, bool keeps_copies) {
    Rows waits;
    waits.reserve(static_cast<std::size_t>(graph.size()), 2 * static_cast<std::size_t>(graph.size()));
    std::vector<int> since;  // the last task that computes, or what has come since
    for (int node = 0; node < graph.size(); ++node) {
        if (graph.position_of(node) == 0)
            since.clear();
        const Op op = graph.task(node).op;
        if (const int earlier = is_send(op) && keeps_copies ? lanes.earlier_on_edge(node) : -1; earlier >= 0)
            since.push_back(earlier);
        waits.push(since);
        waits.close();
        if (!is_transfer(op))
            since.assign(1, node);
    }
    return waits;
}

std::vector<int> before_in_lanes(const PlanGraph& graph, const Lanes& lanes) {
    std::vector<int> before(static_cast<std::size_t>(graph.size()), -1);
    std::vector<int> last(static_cast<std::size_t>(lanes.size()), -1);
    for (int node = 0; node < graph.size(); ++node)
        if (const int lane = lanes.lane_of(node); lane >= 0)
            before[node] = std::exchange(last[lane], node);
    return before;
}

}  // namespace

Recurrence::Recurrence(const Plan& plan, const PlanGraph& graph, const TransferMode& mode) : graph_(graph) {
    Walk walk(plan, graph, mode);
    walk.go_on();
    order_ = std::move(walk.ended);
    if (!runs_through())
        return;
    const Lanes& lanes = walk.lanes();
    const Rows lists = waits_in_lists(graph, lanes, mode.sent_copies);
    const std::vector<int> before = before_in_lanes(graph, lanes);
    const bool early = mode.early_receive(), rendezvous = mode.protocol == TransferMode::Protocol::Rendezvous;
    std::vector<int> waits;
    const auto wait_in_list = [&](int node) { waits.insert(waits.end(), lists[node].begin(), lists[node].end()); };
    const auto wait_in_lane = [&](int node) {
        if (before[node] >= 0)
            waits.push_back(before[node]);
    };
    const auto wait_for_receive = [&](int recv) {
        wait_in_lane(recv);
        if (!early)
            wait_in_list(recv);
    };
    waits_.reserve(order_.size(), 2 * order_.size());
    partner_.reserve(order_.size());
    for (const int node : order_) {
        const Op op = graph.task(node).op;
        waits.clear();
        if (is_recv(op)) {
            wait_for_receive(node);
        } else {
            wait_in_list(node);
            if (is_send(op))
                wait_in_lane(node);
            if (is_send(op) && rendezvous)
                wait_for_receive(lanes.partner(node));
            if (!is_transfer(op))
                for (const int input : graph.inputs(node))
                    if (graph.device_of(input) != graph.device_of(node) || is_transfer(graph.task(input).op))
                        waits.push_back(input);
        }
        std::sort(waits.begin(), waits.end());
        waits.erase(std::unique(waits.begin(), waits.end()), waits.end());
        waits_.push(waits);
        waits_.close();
        partner_.push_back(is_recv(op) ? lanes.partner(node) : -1);
    }
}

void Recurrence::evaluate(const std::vector<Ns>& duration, Ns latency, std::vector<Ns>& start,
                          std::vector<Ns>& end) const {
    assert(runs_through());
    start.resize(order_.size());
    end.resize(order_.size());
    for (std::size_t at = 0; at < order_.size(); ++at) {
        const int node = order_[at];
        Ns from = 0;
        for (const int other : waits_[at])
            from = std::max(from, end[other]);
        if (const int send = partner_[at]; send >= 0) {
            start[node] = start[send];
            end[node] = std::max(from, end[send] + latency);
        } else {
            start[node] = from;
            end[node] = from + duration[node];
        }
    }
}

}  // namespace pw
