// Sums of gradients in the queue of events: their steps are flows that share capacities with messages and other sums.
#include "sim/event_queue.h"
#include "workloads/bounded.h"
#include "workloads/costs/sum_times.h"

#include <algorithm>
#include <map>
#include <utility>

namespace pw {

std::vector<EventQueue::Round> EventQueue::rounds_for(const StageSum& sum) const {
    std::vector<Round> rounds;
    bool takes = false;
    for (const SumRound& round : sum.rounds) {
        Round& own = rounds.emplace_back(Round{{}, round.steps});
        const double bytes = static_cast<double>(sum.bytes) / round.parts;
        for (const SumRound::Pair& pair : round.messages) {
            Demand demand = demand_of_sum(pair, bytes, *costs_->cluster);
            const double time = bytes > 0 ? bytes / demand.most * 1e9 : 0;
            demand.most /= unit_;
            takes = takes || !demand.takes.empty();
            own.messages.push_back({std::move(demand), time, sum_link_of(pair, *costs_->cluster).latency});
        }
    }
    return takes || costs_->mover_share > 0 ? rounds : std::vector<Round>{};
}

// Sums that share no capacity stay tasks of a known length; in buckets, they end a known time after their first bucket
// is full.
void EventQueue::lay_sums() {
    sums_.clear();
    sum_of_.assign(static_cast<std::size_t>(graph_.size()), -1);
    rounds_.clear();
    for (const std::vector<StageSum>* sums : {&costs_->stage_sums, &costs_->stage_gathers})
        for (const StageSum& sum : *sums)
            rounds_.push_back(rounds_for(sum));
    const auto is_task = [&](int work) {
        return work >= std::ssize(rounds_) || (rounds_[work].empty() && sum_of_work(work).buckets == 1);
    };
    std::map<std::pair<int, int>, int> number_of;  // work, mini-batch
    for (int node = 0; node < graph_.size(); ++node) {
        const Task& task = graph_.task(node);
        if (!is_closing(task.op))
            continue;
        const int work = task.op == Op::Update ? plan_.shape.stages + task.stage : task.stage;
        if (is_task(work))
            continue;
        const std::pair key(work, plan_.shape.mini_batch_of(task.microbatch));
        const auto [found, added] = number_of.try_emplace(key, static_cast<int>(sums_.size()));
        if (added)
            sums_.push_back({.work = work});
        sum_of_[node] = found->second;
        sums_[found->second].nodes.push_back(node);
    }
    fill_buckets();
}

// A sum in buckets starts when the first bucket is full on all of its holders.
void EventQueue::fill_buckets() {
    fills_.clear();
    if (costs_->sum_bucket == 0)
        return;
    fills_.assign(static_cast<std::size_t>(graph_.size()), -1);
    for (int number = 0; number < std::ssize(sums_); ++number) {
        if (sum_of_work(sums_[number].work).buckets == 1)
            continue;
        for (const int node : sums_[number].nodes)
            if (const int maker = graph_.last_gradients_of(node); maker >= 0) {
                fills_[maker] = number;
                ++sums_[number].to_fill;
            }
    }
}

const StageSum& EventQueue::sum_of_work(int work) const {
    const int stages = plan_.shape.stages;
    return work < stages ? costs_->stage_sums[work] : costs_->stage_gathers[work - stages];
}

// Returns the time of the messages at the end of a task, if nothing else is under way.
Ns EventQueue::after_own(int node) const {
    return sum_of_[node] >= 0 && graph_.task(node).op == Op::Update ? sum_of_work(sums_[sum_of_[node]].work).alone : 0;
}

// All gradients are ready when the first device comes to its S: then the messages begin. After U, which all devices
// begin together, they begin with the first device that has its part. A device that comes later, because it is slower
// or its list had to wait for a send, ends later by the same time. Buckets begin earlier and do not wait for lists.
void EventQueue::join_sum(int node, Ns now) {
    const int number = sum_of_[node];
    Sum& sum = sums_[number];
    Progress& progress = progress_[graph_.device_of(node)];
    progress.sums = true;
    progress.since = now;
    progress.end = -1;
    if (sum.ended >= 0)
        return end_share_of_sum(node);
    if (sum.begun < 0 && sum.to_fill == 0)
        begin_sum(number, now);
}

void EventQueue::begin_sum(int number, Ns now) {
    sums_[number].begun = now;
    for (const int node : sums_[number].nodes)
        count_movers(graph_.device_of(node), 1, now);
    if (const int work = sums_[number].work; rounds_[work].empty())
        return push(now + sum_of_work(work).alone, What::StepEnds, number);
    begin_step(number, static_cast<double>(now), now);
}

// `at` is the begin of the step to the fraction of a nanosecond, so that roundings of many steps do not add up.
void EventQueue::begin_step(int number, double at, Ns now) {
    Sum& sum = sums_[number];
    const Round& round = rounds_[sum.work][sum.round];
    sum.reached = at;
    for (const SumMessage& message : round.messages) {
        if (message.demand.takes.empty()) {
            sum.reached = std::max(sum.reached, at + message.alone + static_cast<double>(message.latency));
            continue;
        }
        ++sum.under_way;
        flows_.push_back(
            {.demand = message.demand, .sum = number, .latency = message.latency, .way = {message.alone, at}});
    }
    if (sum.under_way > 0) {
        share_is_due_ = true;
        return;
    }
    if (sum.step == 0) {  // all steps of the round alike
        sum.reached = at + (sum.reached - at) * round.steps;
        sum.step = round.steps - 1;
    }
    push(std::max<Ns>(now, nearest_integer(sum.reached)), What::StepEnds, number);
}

void EventQueue::end_flow_of_sum(const Flow& flow, Ns now) {
    Sum& sum = sums_[flow.sum];
    const double left_at = flow.way.since + flow.way.time_left();
    sum.reached = std::max(sum.reached, left_at + static_cast<double>(flow.latency));
    if (--sum.under_way == 0)
        push(std::max<Ns>(now, nearest_integer(sum.reached)), What::StepEnds, flow.sum);
}

void EventQueue::end_step(int number, Ns now) {
    Sum& sum = sums_[number];
    const std::vector<Round>& rounds = rounds_[sum.work];
    if (!rounds.empty() && ++sum.step == rounds[sum.round].steps) {
        sum.step = 0;
        ++sum.round;
    }
    if (sum.round < rounds.size())
        return begin_step(number, sum.reached, now);
    sum.ended = now;
    for (const int node : sum.nodes)
        count_movers(graph_.device_of(node), -1, now);
    for (const int node : sum.nodes)
        if (const Progress& progress = progress_[graph_.device_of(node)]; progress.node == node && progress.sums)
            end_share_of_sum(node);
}

// The time of S without its messages: the sums of ties, and the dispatch.
void EventQueue::end_share_of_sum(int node) {
    const Sum& sum = sums_[sum_of_[node]];
    const StageSum& work = sum_of_work(sum.work);
    Progress& progress = progress_[graph_.device_of(node)];
    progress.end = seq_;
    if (work.buckets > 1)
        return push(std::max({sum.ended, sum.filled + work.last_bucket(), progress.since}) + costs_->dispatch,
                    What::ComputeEnds, node);
    const bool is_sum = graph_.task(node).op == Op::SumGradients;
    const Ns rest = is_sum ? std::max<Ns>(0, alone_of(node) - work.alone) : 0;
    push(progress.since + (sum.ended - sum.begun) + rest, What::ComputeEnds, node);
}

}  // namespace pw
