#include "sim/recurrence.h"

#include "schedules/passes.h"
#include "schedules/waiting.h"

#include <algorithm>
#include <cassert>
#include <utility>

namespace pw {

Recurrence::Recurrence(const PlanGraph& graph, const TaskKinds& kinds, const TransferMode& mode, const Proof& proof)
    : graph_(graph), kinds_(kinds), order_(proof.holds_in(mode) ? proof.order : own_order_) {
    const Waiting waiting(graph, mode);
    if (!proof.holds_in(mode))
        own_order_ = waiting.order();
    if (!runs_through())
        return;
    waits_.reserve(order_.size(), 2 * order_.size());
    for (const int node : order_) {
        if (const int send = waiting.send_of(node); send >= 0)
            waits_.push(send);
        waits_.push(waiting.of(node));
        if (const int recv = waiting.awaited_by(node); recv >= 0)
            waits_.push(waiting.of(recv));
        waits_.close();
    }
}

void Recurrence::evaluate(std::vector<Ns> durations, Ns latency) {
    assert(runs_through());
    durations_ = std::move(durations);
    end_.resize(order_.size());
    for (std::size_t turn = 0; turn < order_.size(); ++turn) {
        const std::span<const int> waits = waits_[turn];
        const int node = order_[turn], kind = kinds_.of(node);
        Ns reached = kind == TaskKinds::kNone ? end_[waits.front()] + latency : 0;
        for (const int other : waits)
            reached = std::max(reached, end_[other]);
        end_[node] = kind == TaskKinds::kNone ? reached : reached + durations_[kind];
    }
}

// A RECV starts with its SEND.
Ns Recurrence::start(int node) const {
    const int starts = kinds_.of(node) == TaskKinds::kNone ? graph_.inputs(node).front() : node;
    return end_[starts] - durations_[kinds_.of(starts)];
}

}  // namespace pw
