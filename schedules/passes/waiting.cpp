#include "schedules/passes/waiting.h"

#include <array>
#include <numeric>
#include <utility>

namespace pw {

Waiting::Waiting(const PlanGraph& graph, const TransferMode& mode, std::vector<char> by_rendezvous)
    : graph_(graph),
      rendezvous_(mode.protocol == TransferMode::Protocol::Rendezvous),
      by_rendezvous_(std::move(by_rendezvous)) {
    LaneTable table(graph, mode.communicator);
    const auto size = static_cast<std::size_t>(graph.size());
    waits_.reserve(size, 2 * size);
    next_.assign(size, -1);
    std::vector<int> last_in_lane(static_cast<std::size_t>(table.lanes), -1);
    int computed = -1;
    std::array<int, 2> copied{-1, -1};  // by lane
    // what the list waits for: its last task that computes, offloads, and sends whose copies are kept
    std::vector<int> since;
    std::vector<int> exchange;  // with blocking exchanges: the transfers since that task
    const auto follow = [&](int before, int node) { (before >= 0 ? next_[before] : first_.emplace_back()) = node; };
    for (int node = 0; node < graph.size(); ++node) {
        const Op op = graph.task(node).op;
        if (graph.position_of(node) == 0) {
            computed = -1;
            copied = {-1, -1};
            since.clear();
            exchange.clear();
        }
        if (const int earlier = is_send(op) && mode.sent_copies ? table.earlier_on_edge[node] : -1; earlier >= 0)
            since.push_back(earlier);
        if (leaves_device(op))
            waits_.push(graph.inputs(node));
        else if (!is_recv(op) || !mode.early_receive())
            waits_.push(since);
        if (!is_recv(op) && !leaves_device(op))
            for (const int input : graph.inputs(node))
                if (graph.device_of(input) != graph.device_of(node) || moves_data(graph.task(input).op) || input > node)
                    waits_.push(input);  // other inputs are earlier in its list
        if (is_transfer(op)) {
            const int lane = table.lane_of[node];
            const int before = lane < 0 ? -1 : std::exchange(last_in_lane[lane], node);
            if (before >= 0)
                waits_.push(before);
            follow(before, node);
            if (mode.blocks())
                exchange.push_back(node);
        } else if (is_copy(op)) {
            const int before = std::exchange(copied[static_cast<std::size_t>(mode.lane_of_copy(op))], node);
            if (before >= 0)
                waits_.push(before);
            follow(before, node);
            if (leaves_device(op))
                since.push_back(node);
        } else {
            waits_.push(exchange);
            exchange.clear();
            follow(std::exchange(computed, node), node);
            since.assign(1, node);
        }
        waits_.close();
    }
    other_end_ = std::move(table.partner);
    for (int node = 0; node < graph.size(); ++node)
        if (is_send(graph.task(node).op))
            other_end_[node] = -2 - other_end_[node];
}

// Returns a node that this one still waits for, or -1. Updates the number of nodes in of(node) that have ended.
int Waiting::first_not_ended(int node, const std::vector<char>& ended, std::size_t& own_ended) const {
    if (const int send = send_of(node); send >= 0 && !ended[send])
        return send;
    for (const std::span<const int> own = of(node); own_ended < own.size(); ++own_ended)
        if (!ended[own[own_ended]])
            return own[own_ended];
    if (const int recv = awaited_by(node); recv >= 0)
        for (const int other : of(recv))
            if (!ended[other])
                return other;
    return -1;
}

std::vector<int> Waiting::order() const {
    const auto size = static_cast<std::size_t>(graph_.size());
    std::vector<int> order;
    order.reserve(size);
    std::vector<char> ended(size, 0);
    // A chain stops at a node that has not ended. Chains that stop at the same node form a list.
    std::vector<int> stopped_at(size, -1), next_stopped(first_.size(), -1), head = first_, to_do(first_.size());
    std::iota(to_do.rbegin(), to_do.rend(), 0);
    // how many of the nodes that the head of each chain waits for have ended
    std::vector<std::size_t> own_ended(first_.size(), 0);
    while (!to_do.empty()) {
        const int chain = to_do.back();
        to_do.pop_back();
        for (int& node = head[chain]; node >= 0; node = next_[node]) {
            if (const int other = first_not_ended(node, ended, own_ended[chain]); other >= 0) {
                next_stopped[chain] = std::exchange(stopped_at[other], chain);
                break;
            }
            own_ended[chain] = 0;
            ended[node] = 1;
            order.push_back(node);
            for (int stopped = stopped_at[node]; stopped >= 0; stopped = next_stopped[stopped])
                to_do.push_back(stopped);
        }
    }
    return order;
}

}  // namespace pw
