// Sums of gradients in the queue of events: their steps are flows that share what they take with messages and other
// sums.
#include "sim/event_queue.h"
#include "workloads/costs/sum_times.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

namespace pw {

// Sums that take nothing others could take stay tasks of a known length.
void EventQueue::lay_sums(const Routes& routes) {
    sums_.clear();
    sum_of_.assign(static_cast<std::size_t>(graph_.size()), -1);
    rounds_.assign(costs_->stage_sums.size(), {});
    for (std::size_t stage = 0; stage < rounds_.size(); ++stage) {
        const StageSum& sum = costs_->stage_sums[stage];
        bool takes = false;
        for (const SumRound& round : sum.rounds) {
            Round& own = rounds_[stage].emplace_back(Round{{}, round.steps});
            const double bytes = static_cast<double>(sum.bytes) / round.parts;
            for (const SumRound::Pair& pair : round.messages) {
                Demand demand = demand_of_sum(pair, bytes, *costs_, routes);
                const double time = bytes > 0 ? bytes / demand.most * 1e9 : 0;
                demand.most /= unit_;
                takes = takes || !demand.takes.empty();
                own.messages.push_back({std::move(demand), time, sum_link_of(pair, *costs_).latency});
            }
        }
        if (!takes)
            rounds_[stage].clear();
    }
    std::map<std::pair<int, int>, int> number_of;  // stage, mini-batch
    for (int node = 0; node < graph_.size() && !rounds_.empty(); ++node) {
        const Task& task = graph_.task(node);
        if (task.op != Op::SumGradients || rounds_[task.stage].empty())
            continue;
        const std::pair key(task.stage, plan_.shape.mini_batch_of(task.microbatch));
        const auto [found, added] = number_of.try_emplace(key, static_cast<int>(sums_.size()));
        if (added)
            sums_.push_back({.stage = task.stage});
        sum_of_[node] = found->second;
        sums_[static_cast<std::size_t>(found->second)].nodes.push_back(node);
    }
}

// All gradients are there when the first device comes to its S: then the messages begin. A device that comes to it
// later, for its list had to wait for a send, is as much later through.
void EventQueue::join_sum(int node, Ns now) {
    const int number = sum_of_[node];
    Sum& sum = sums_[number];
    progress_[graph_.device_of(node)].end = -1;
    if (sum.ended >= 0)
        return end_share_of_sum(node);
    if (sum.begun >= 0)
        return;
    sum.begun = now;
    begin_step(number, static_cast<double>(now), now);
}

// `at` is when the step begins to the fraction of a nanosecond, so that a sum of many steps takes as long as it says.
void EventQueue::begin_step(int number, double at, Ns now) {
    Sum& sum = sums_[number];
    const Round& round = rounds_[sum.stage][sum.round];
    sum.reached = at;
    for (const SumMessage& message : round.messages) {
        if (message.demand.takes.empty()) {
            sum.reached = std::max(sum.reached, at + message.alone + static_cast<double>(message.latency));
            continue;
        }
        ++sum.under_way;
        flows_.push_back(
            {.demand = message.demand, .sum = number, .latency = message.latency, .left = message.alone, .since = at});
    }
    if (sum.under_way > 0) {
        share_is_due_ = true;
        return;
    }
    if (sum.step == 0) {  // all steps of the round alike
        sum.reached = at + (sum.reached - at) * round.steps;
        sum.step = round.steps - 1;
    }
    push(std::max<Ns>(now, std::llround(sum.reached)), What::StepEnds, number);
}

void EventQueue::end_flow_of_sum(const Flow& flow, Ns now) {
    Sum& sum = sums_[flow.sum];
    const double left_at = flow.since + flow.left / flow.rate;
    sum.reached = std::max(sum.reached, left_at + static_cast<double>(flow.latency));
    if (--sum.under_way == 0)
        push(std::max<Ns>(now, std::llround(sum.reached)), What::StepEnds, flow.sum);
}

void EventQueue::end_step(int number, Ns now) {
    Sum& sum = sums_[number];
    const std::vector<Round>& rounds = rounds_[sum.stage];
    if (++sum.step == rounds[sum.round].steps) {
        sum.step = 0;
        ++sum.round;
    }
    if (sum.round < rounds.size())
        return begin_step(number, sum.reached, now);
    sum.ended = now;
    for (const int node : sum.nodes)
        if (progress_[graph_.device_of(node)].node == node)
            end_share_of_sum(node);
}

// What S takes beside its messages: the sums of ties, and the dispatch.
void EventQueue::end_share_of_sum(int node) {
    const Sum& sum = sums_[sum_of_[node]];
    const Ns rest = std::max<Ns>(0, alone_of(node) - costs_->stage_sums[sum.stage].alone);
    progress_[graph_.device_of(node)].end = seq_;
    push(start_[node] + (sum.ended - sum.begun) + rest, What::ComputeEnds, node);
}

}  // namespace pw
