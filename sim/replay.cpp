#include "sim/replay.h"

#include "schedules/passes/passes.h"
#include "schedules/plan/contention.h"
#include "schedules/plan/durations.h"
#include "schedules/plan/plan_graph.h"
#include "schedules/plan/sum_groups.h"
#include "sim/event_queue.h"
#include "sim/explain.h"
#include "sim/metrics.h"
#include "sim/recurrence.h"
#include "sim/simulate.h"
#include "workloads/error.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <set>
#include <utility>

namespace pw {

namespace {

using Intervals = std::vector<std::pair<Ns, Ns>>;  // by node: start and end

// By node. For a SEND: the time for which it occupies its link, and the latency until its message arrives. A RECV has
// neither.
struct TaskTimes {
    std::vector<Ns> durations, latencies;
};

// Each task of a pair that overlaps counts half of the launch: which one takes how long is not known.
void put_in_turn(std::pair<Ns, Ns>& first, std::pair<Ns, Ns>& second) {
    if (!overlap(first.first, first.second, second.first))
        return;
    const Ns from = std::min(first.first, second.first), to = std::max(first.second, second.second);
    const Ns middle = from + (to - from) / 2;
    first = {from, middle};
    second = {middle, to};
}

constexpr double kMostTime = 1e18;  // of all tasks together: sums of a few such do not overflow

Ns mean_of(const std::vector<Ns>& times) {
    return std::llround(std::accumulate(times.begin(), times.end(), 0.0) / static_cast<double>(times.size()));
}

// The bytes that its transfers moved, by node. A trace of another plan is refused where its times are read.
std::vector<Bytes> moved_in(const PlanGraph& graph, const Trace& trace) {
    std::vector<Bytes> moved(static_cast<std::size_t>(graph.size()), 0);
    for (const TraceEvent& event : trace.events)
        if (const int node = is_transfer(event.task.op) ? graph.find(event.task) : -1; node >= 0)
            moved[node] = event.bytes;
    return moved;
}

// Returns the parts of costs that a replay reads, apart from the lengths: which devices share a dispatcher. The times
// of tasks contain everything else.
Costs dispatchers_of(const Costs& costs) {
    Costs dispatchers;
    dispatchers.dispatch = costs.dispatch;
    ClusterEdit edit(dispatchers);
    edit->host = costs.cluster->host;
    edit->dispatch_by_host = costs.cluster->dispatch_by_host;
    return dispatchers;
}

// Returns whether the tasks of a pair are a single launch in a trace.
bool overlaps_pairs(const Trace& trace) {
    for (std::size_t at = 0; at + 1 < trace.events.size(); ++at)
        if (const TraceEvent& first = trace.events[at], &second = trace.events[at + 1];
            first.task.with_next && overlap(first.start, first.end, second.start))
            return true;
    return false;
}

// Simulates a plan with times that are given task by task.
class Replay {
public:
    Replay(const Plan& plan, std::shared_ptr<const Proof> proof, const TransferMode& mode, const Trace& trace,
           const Costs& costs)
        : plan_(plan),
          proof_(std::move(proof)),
          graph_(proof_->graph),
          mode_(mode),
          own_kinds_(graph_, overlaps_pairs(trace)),
          kinds_(plan, graph_, nothing_predicted(plan.shape), classes_of(costs.lengths), true),
          by_rendezvous_(sends_by_rendezvous(mode, moved_in(graph_, trace))),
          times_(graph_, own_kinds_, mode, *proof_, by_rendezvous_),
          dispatchers_(dispatchers_of(costs)),
          replayed_(without_hash(plan)) {
        if (!times_.runs_through())
            fail_with(ExitCode::Infeasible, "plan '{}' deadlocks ({})", plan.schedule, print(mode));
        for (int node = 0; node < graph_.size(); ++node)
            replayed_.events.push_back({0, graph_.device_of(node), 0, graph_.task(node), 0, 0, 0, -1});
        for (const Barrier& barrier : barriers_of(graph_, plan.shape))
            barriers_.push_back(barrier.first);
        if (may_wait_for_calls(plan.shape, costs))
            events_.emplace(plan_, graph_, own_kinds_, mode_);
    }

    Mechanics mechanics(const Trace& trace);
    Explanation explanation(const Trace& trace);
    ErrorParts error_parts(const Trace& predicted, const Trace* calibrated, const Trace& measured);

private:
    enum class Gap { Begin, HandOver, Dispatch };

    int size() const { return graph_.size(); }
    const Task& task(int node) const { return graph_.task(node); }
    Ns step_time(const TaskTimes& times);
    Intervals intervals_in(const Trace& trace, int step) const;
    void wait_at_barriers(Intervals& intervals) const;
    TaskTimes times_of(const Intervals& intervals, bool predicted) const;
    TaskTimes times_in_metrics(const Trace& trace) const {
        return times_of(intervals_in(trace, metrics_of(trace).step), trace.label == kPredicted);
    }
    void add_latencies(const Intervals& intervals, bool predicted, TaskTimes& times) const;
    std::vector<Ns> ends_by_rules(const Intervals& intervals, const TaskTimes& times) const;
    std::vector<Ns> calls_before(const Intervals& intervals) const;
    TaskTimes mean_times(const Trace& trace) const;
    std::vector<CostPart> cost_parts(const TaskTimes& means, const TaskTimes& predicted);

    static VersionTable nothing_predicted(const Shape& shape) {
        VersionTable table;
        table.forward_ahead.assign(static_cast<std::size_t>(shape.stages), 0);
        table.backward_ahead = table.forward_ahead;
        return table;
    }
    void add_gaps(const Intervals& intervals, Gap cause, TaskTimes& times) const;

    const Plan& plan_;
    const std::shared_ptr<const Proof> proof_;
    const PlanGraph& graph_;
    const TransferMode mode_;
    const TaskKinds own_kinds_, kinds_;
    const std::vector<char> by_rendezvous_;
    Recurrence times_;
    const Costs dispatchers_;
    std::optional<EventQueue> events_;        // if devices wait for calls of a host
    Trace replayed_;                          // what step_time() fills in
    std::vector<std::vector<int>> barriers_;  // the nodes at which devices wait for each other
};

Ns Replay::step_time(const TaskTimes& times) {
    if (events_)
        events_->run(dispatchers_, times.durations, times.latencies, {}, by_rendezvous_);
    else
        times_.evaluate({times.durations, times.latencies});
    for (int node = 0; node < size(); ++node) {
        replayed_.events[node].start = events_ ? events_->start(node) : times_.start(node);
        replayed_.events[node].end = events_ ? events_->end(node) : times_.end(node);
    }
    return step_time_of(replayed_);
}

Intervals Replay::intervals_in(const Trace& trace, int step) const {
    Intervals intervals;
    std::vector<int> reached;
    for (std::size_t device = 0; device < plan_.order.size(); ++device)
        reached.push_back(graph_.node(static_cast<int>(device), 0));
    std::vector<int> ends(reached.begin() + 1, reached.end());
    ends.push_back(size());
    intervals.resize(static_cast<std::size_t>(size()));
    for (const TraceEvent& event : trace.events) {
        if (!trace.asynchronous && event.step != step)
            continue;
        int& node = reached[event.device];
        if (node == ends[event.device] || graph_.task(node) != event.task)
            fail("step {} of device {} is not the list of the plan: it has {} instead of {}", step, event.device,
                 print(event.task), node == ends[event.device] ? "no more tasks" : print(graph_.task(node)));
        intervals[node++] = {event.start, event.end};
    }
    for (std::size_t device = 0; device < reached.size(); ++device)
        if (reached[device] != ends[device])
            fail("step {} of device {} ends before {}", step, device, print(graph_.task(reached[device])));
    for (int node = 0; node < size(); ++node)
        if (const int next = task(node).with_next ? graph_.paired_with(node) : -1; next >= 0)
            put_in_turn(intervals[node], intervals[next]);
    if (trace.label != kPredicted)
        wait_at_barriers(intervals);
    return intervals;
}

// Devices wait at a barrier until its last task has begun. A predicted task of a waiting device lasts as long as it
// works.
void Replay::wait_at_barriers(Intervals& intervals) const {
    for (const std::vector<int>& barrier : barriers_) {
        Ns last = std::numeric_limits<Ns>::min();
        for (const int node : barrier)
            last = std::max(last, intervals[node].first);
        for (const int node : barrier)
            intervals[node].first = std::min(last, intervals[node].second);
    }
}

// A message takes until it arrives: a RECV ends then, or when its receiver comes to it. If the receiver came after the
// SEND had ended, a message takes as long as messages of its kind whose receivers came earlier, if it then arrives
// before its receiver came, or else until the RECV ended. Without such messages, it takes the time from its receiver's
// coming to the end of the RECV.
void Replay::add_latencies(const Intervals& intervals, bool predicted, TaskTimes& times) const {
    struct Message {
        int send;
        Ns ready, end;  // when the receiver came, and of the RECV
    };
    std::vector<Message> waited;
    std::vector<std::vector<Ns>> known(kinds_.all().size());
    for (int turn = 0; turn < size(); ++turn) {
        const int node = times_.order()[turn];
        if (!is_recv(task(node).op))
            continue;
        const int send = graph_.inputs(node).front();
        const Ns left = intervals[send].second, end = intervals[node].second;
        Ns ready = std::numeric_limits<Ns>::min();
        for (const int other : times_.waits(turn))
            ready = other == send ? ready : std::max(ready, intervals[other].second);
        if (ready > left && !(predicted && end > ready)) {
            waited.push_back({send, ready, end});
            continue;
        }
        times.latencies[send] = std::max<Ns>(0, end - left);
        known[kinds_.of(send)].push_back(times.latencies[send]);
    }
    for (const auto& [send, ready, end] : waited) {
        const Ns left = intervals[send].second;
        const std::vector<Ns>& others = known[kinds_.of(send)];
        const Ns usual = others.empty() ? end - ready : mean_of(others);
        times.latencies[send] = std::max<Ns>(0, others.empty() || left + usual < ready ? usual : end - left);
    }
}

TaskTimes Replay::times_of(const Intervals& intervals, bool predicted) const {
    TaskTimes times;
    times.durations.resize(intervals.size());
    times.latencies.resize(intervals.size());
    for (int node = 0; node < size(); ++node)
        if (!is_recv(task(node).op))
            times.durations[node] = intervals[node].second - intervals[node].first;
    add_latencies(intervals, predicted, times);
    double all = 0;
    for (int node = 0; node < size(); ++node)
        all += static_cast<double>(times.durations[node]) + static_cast<double>(times.latencies[node]);
    if (all > kMostTime)
        fail("the tasks of the trace take {:.3g} s together, more than can be replayed\n  help: times are nanoseconds",
             all / 1e9);
    return times;
}

// Means, because tasks vary to one side, upwards, so that the sum of their medians is less than their step.
TaskTimes Replay::mean_times(const Trace& trace) const {
    std::set<int> steps;
    for (const TraceEvent& event : trace.events)
        steps.insert(trace.asynchronous ? 0 : event.step);
    if (steps.size() > 1)
        steps.erase(steps.begin());
    std::vector<std::vector<Ns>> durations(kinds_.all().size()), latencies = durations;
    for (const int step : steps) {
        const TaskTimes times = times_of(intervals_in(trace, step), trace.label == kPredicted);
        for (int node = 0; node < size(); ++node)
            if (const int kind = kinds_.of(node); kind != TaskKinds::kNone) {
                durations[kind].push_back(times.durations[node]);
                latencies[kind].push_back(times.latencies[node]);
            }
    }
    std::vector<Ns> duration, latency;
    for (std::size_t kind = 0; kind < durations.size(); ++kind) {
        duration.push_back(mean_of(durations[kind]));
        latency.push_back(mean_of(latencies[kind]));
    }
    TaskTimes means{std::vector<Ns>(static_cast<std::size_t>(size())),
                    std::vector<Ns>(static_cast<std::size_t>(size()))};
    for (int node = 0; node < size(); ++node)
        if (const int kind = kinds_.of(node); kind != TaskKinds::kNone) {
            means.durations[node] = duration[kind];
            means.latencies[node] = latency[kind];
        }
    return means;
}

// Returns when every node ended, a RECV by the rules: its receiver takes in a message at once.
std::vector<Ns> Replay::ends_by_rules(const Intervals& intervals, const TaskTimes& times) const {
    std::vector<Ns> ends(intervals.size());
    for (int turn = 0; turn < size(); ++turn) {
        const int node = times_.order()[turn];
        ends[node] = intervals[node].second;
        if (!is_recv(task(node).op))
            continue;
        const int send = graph_.inputs(node).front();
        Ns reached = ends[send] + times.latencies[send];
        for (const int other : times_.waits(turn))
            reached = std::max(reached, ends[other]);
        ends[node] = std::min(ends[node], reached);
    }
    return ends;
}

// Returns by node when its host had issued the call before its own, in the order of the trace.
std::vector<Ns> Replay::calls_before(const Intervals& intervals) const {
    constexpr Ns kNone = std::numeric_limits<Ns>::min();
    std::vector<Ns> before(intervals.size(), kNone);
    if (!events_)
        return before;
    std::vector<int> calls;
    for (int node = 0; node < size(); ++node)
        if (!moves_data(task(node).op) && !own_kinds_.is_second(own_kinds_.of(node)))
            calls.push_back(node);
    std::ranges::stable_sort(calls, {}, [&](int node) { return intervals[node].first; });
    std::map<int, Ns> issued;  // by host
    for (const int node : calls) {
        Ns& last = issued.try_emplace(dispatchers_.cluster->host_of(graph_.device_of(node)), kNone).first->second;
        before[node] = std::exchange(last, intervals[node].first + dispatchers_.dispatch);
    }
    return before;
}

// Adds to every task the time before it that the plan does not explain.
void Replay::add_gaps(const Intervals& intervals, Gap cause, TaskTimes& times) const {
    Ns begin = std::numeric_limits<Ns>::max();
    for (int node = 0; node < size(); ++node)
        if (!moves_data(task(node).op))
            begin = std::min(begin, intervals[node].first);
    const std::vector<Ns> ends = ends_by_rules(intervals, times), calls = calls_before(intervals);
    for (int turn = 0; turn < size(); ++turn) {
        const int node = times_.order()[turn];
        if (is_recv(task(node).op))
            continue;
        int last = -1;
        for (const int other : times_.waits(turn))
            if (last < 0 || ends[other] > ends[last])
                last = other;
        const Gap own = last < 0                                                                     ? Gap::Begin
                        : is_recv(task(last).op) || graph_.device_of(last) != graph_.device_of(node) ? Gap::HandOver
                                                                                                     : Gap::Dispatch;
        if (own == cause)
            times.durations[node] +=
                std::max<Ns>(0, intervals[node].first - std::max(calls[node], last < 0 ? begin : ends[last]));
    }
}

Mechanics Replay::mechanics(const Trace& trace) {
    const Metrics metrics = metrics_of(trace);
    const Intervals intervals = intervals_in(trace, metrics.step);
    TaskTimes times = times_of(intervals, trace.label == kPredicted);
    Ns reached = step_time(times);
    Mechanics mechanics;
    const Ns replayed = reached;
    for (const auto& [cause, part] :
         {std::pair(Gap::Begin, &Mechanics::begin), std::pair(Gap::HandOver, &Mechanics::hand_over),
          std::pair(Gap::Dispatch, &Mechanics::dispatch)}) {
        add_gaps(intervals, cause, times);
        const Ns before = std::exchange(reached, step_time(times));
        mechanics.*part = before - reached;
    }
    // A late call of a shared dispatcher delays the calls after it, which the replay issues on time.
    (events_ ? mechanics.dispatch : mechanics.rules) += replayed - metrics.step_time - mechanics.total();
    return mechanics;
}

Explanation Replay::explanation(const Trace& trace) {
    TaskTimes times = times_in_metrics(trace);
    std::vector<Ns> waits;
    if (events_) {
        step_time(times);
        waits = waits_for_calls(graph_, times_, *events_);
        for (int node = 0; node < size(); ++node)
            times.durations[node] += waits[node];
    }
    Explanation all = explain({plan_, graph_, mode_, kinds_, own_kinds_, {times.durations, times.latencies}, times_});
    if (events_)
        add_waits_for_calls(graph_, *events_, waits, all);
    return all;
}

// Replaces the measured mean times by the predicted times, for one operation and stage after another, once from the
// front and once from the back: the mean of both effects does not depend on their order.
std::vector<CostPart> Replay::cost_parts(const TaskTimes& means, const TaskTimes& predicted) {
    std::map<std::pair<int, Op>, std::vector<int>> nodes_of;
    for (int node = 0; node < size(); ++node)
        if (!is_recv(task(node).op))
            nodes_of[{task(node).stage, task(node).op}].push_back(node);
    const std::vector<std::pair<std::pair<int, Op>, std::vector<int>>> groups(nodes_of.begin(), nodes_of.end());
    const auto put = [&](std::size_t group, TaskTimes& times) {
        for (const int node : groups[group].second) {
            times.durations[node] = predicted.durations[node];
            times.latencies[node] = predicted.latencies[node];
        }
        return step_time(times);
    };
    std::vector<Ns> with_first(groups.size() + 1, step_time(means)), with_last = with_first;
    TaskTimes times = means;
    for (std::size_t group = 0; group < groups.size(); ++group)
        with_first[group + 1] = put(group, times);
    times = means;
    for (std::size_t group = groups.size(); group-- > 0;)
        with_last[group] = put(group, times);

    std::vector<CostPart> parts;
    Ns before = 0;  // all so far, rounded once
    for (std::size_t group = 0; group < groups.size(); ++group) {
        const Ns sum = with_first[group + 1] - with_first.front() + with_last.front() - with_last[group + 1];
        const Ns all = sum >= 0 ? sum / 2 : -(-sum / 2);
        const auto mean = [&, &nodes = groups[group].second](const TaskTimes& of) {
            Ns total = 0;
            for (const int node : nodes)
                total += of.durations[node] + of.latencies[node];
            return total / std::ssize(nodes);
        };
        parts.push_back({groups[group].first.second, groups[group].first.first, all - std::exchange(before, all),
                         mean(predicted), mean(means)});
    }
    std::stable_sort(parts.begin(), parts.end(),
                     [](const CostPart& a, const CostPart& b) { return std::abs(a.time) > std::abs(b.time); });
    return parts;
}

ErrorParts Replay::error_parts(const Trace& predicted, const Trace* calibrated, const Trace& measured) {
    const Trace& costs_of = calibrated == nullptr ? predicted : *calibrated;
    ErrorParts parts;
    parts.predicted = metrics_of(predicted).step_time;
    parts.measured = metrics_of(measured).step_time;
    parts.mechanics = mechanics(measured) - mechanics(predicted);
    const TaskTimes means = mean_times(measured), expected = times_in_metrics(costs_of);
    const Ns with_means = step_time(means), with_costs = step_time(expected);
    parts.jitter = with_means - step_time(times_in_metrics(measured));
    parts.costs = with_costs - with_means;
    if (calibrated != nullptr)
        parts.drift = step_time(times_in_metrics(predicted)) - with_costs;
    parts.by_task = cost_parts(means, expected);
    return parts;
}

}  // namespace

Mechanics mechanics_of(const Plan& plan, std::shared_ptr<const Proof> proof, const TransferMode& mode,
                       const Trace& trace, const Costs& costs) {
    return Replay(plan, std::move(proof), mode, trace, costs).mechanics(trace);
}

Explanation explanation_of(const Plan& plan, std::shared_ptr<const Proof> proof, const TransferMode& mode,
                           const Trace& trace, const Costs& costs) {
    return Replay(plan, std::move(proof), mode, trace, costs).explanation(trace);
}

ErrorParts error_parts(const Plan& plan, std::shared_ptr<const Proof> proof, const TransferMode& mode,
                       const Trace& predicted, const Trace* calibrated, const Trace& measured, const Costs& costs) {
    return Replay(plan, std::move(proof), mode, measured, costs).error_parts(predicted, calibrated, measured);
}

}  // namespace pw
