#include "sim/recurrence.h"

#include "schedules/waiting.h"

#include <algorithm>
#include <cassert>

namespace pw {

Recurrence::Recurrence(const PlanGraph& graph, const TransferMode& mode) : graph_(graph) {
    const Waiting waiting(graph, mode);
    order_ = waiting.order();
    if (!runs_through())
        return;
    waits_.reserve(order_.size(), 2 * order_.size());
    partner_.reserve(order_.size());
    std::vector<int> waits;
    for (const int node : order_) {
        const std::span<const int> own = waiting.of(node);
        waits.assign(own.begin(), own.end());
        if (const int recv = waiting.awaited_by(node); recv >= 0) {
            const std::span<const int> more = waiting.of(recv);
            waits.insert(waits.end(), more.begin(), more.end());
        }
        std::sort(waits.begin(), waits.end());
        waits.erase(std::unique(waits.begin(), waits.end()), waits.end());
        waits_.push(waits);
        waits_.close();
        partner_.push_back(waiting.send_of(node));
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
