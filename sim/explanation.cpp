#include "sim/explain.h"
#include "sim/idle.h"
#include "workloads/units.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

namespace pw {

namespace {

NodeTimes node_times(const TimedPlan& timed) {
    const auto size = static_cast<std::size_t>(timed.graph.size());
    NodeTimes times{std::vector<Ns>(size), std::vector<Ns>(size), std::vector<Ns>(size)};
    for (int node = 0; node < timed.graph.size(); ++node) {
        times.start[node] = timed.recurrence.start(node);
        times.end[node] = timed.recurrence.end(node);
        if (is_send(timed.graph.task(node).op))
            times.latency[node] = timed.recurrence.latency(node);
    }
    return times;
}

std::vector<IdlePart> idle_parts(const TimedPlan& timed, const NodeTimes& times, Ns makespan) {
    return idle_parts(timed.plan, timed.graph, timed.mode.blocks(), times, makespan, &IdleCauses::send_memory);
}

// By node: how long its device waits for other devices' compute before it.
std::vector<Ns> waits_by_node(const std::vector<IdlePart>& parts, int nodes) {
    std::vector<Ns> waits(static_cast<std::size_t>(nodes), 0);
    for (const IdlePart& part : parts)
        if (part.cause == &IdleCauses::dependency)
            waits[part.node] = part.to - part.from;
    return waits;
}

// Returns the causes of idle time by device. All waiting for other devices' compute counts as dependency.
std::vector<IdleCauses> idle_causes(const TimedPlan& timed, const NodeTimes& times,
                                    const std::vector<IdlePart>& parts) {
    std::vector<IdleCauses> all(timed.plan.order.size());
    for (const IdlePart& part : parts)
        all[part.device].*part.cause += part.to - part.from;
    for (int node = 0; node < timed.graph.size(); ++node)
        if (is_closing(timed.graph.task(node).op))
            all[timed.graph.device_of(node)].updates += times.end[node] - times.start[node];
    return all;
}

void add_critical_path(const PlanGraph& graph, const Recurrence& times, int node, Explanation& all) {
    std::map<std::pair<int, int>, Ns> links;
    std::vector<int> turns(static_cast<std::size_t>(graph.size()));
    for (int turn = 0; turn < graph.size(); ++turn)
        turns[times.order()[turn]] = turn;
    while (node >= 0) {
        all.path.push_back(node);
        const Op op = graph.task(node).op;
        const auto link = [&](int send, int recv) -> Ns& {
            return links[{graph.device_of(send), graph.device_of(recv)}];
        };
        Ns reached = times.start(node);
        if (is_recv(op)) {
            const int send = graph.inputs(node).front();
            if (times.end(send) + times.latency(send) == times.end(node)) {
                link(send, node) += times.latency(send);
                node = send;
                continue;
            }
            reached = times.end(node);
        } else if (is_send(op)) {
            link(node, graph.find(other_end(graph.task(node)))) += times.end(node) - reached;
        } else if (is_copy(op)) {
            link(node, node) += times.end(node) - reached;
        } else {
            all.critical[graph.device_of(node)] += times.end(node) - reached;
            all.critical_of_stages[graph.task(node).stage] += times.end(node) - reached;
        }
        const std::span<const int> waits = times.waits(turns[node]);
        const auto before =
            std::find_if(waits.begin(), waits.end(), [&](int other) { return times.end(other) == reached; });
        node = before == waits.end() ? -1 : *before;
    }
    std::reverse(all.path.begin(), all.path.end());
    for (const auto& [ends, time] : links)
        all.links.push_back({ends.first, ends.second, time});
    std::stable_sort(all.links.begin(), all.links.end(), [](const auto& a, const auto& b) { return a.time > b.time; });
}

std::vector<Ns> slack_of(const PlanGraph& graph, const Recurrence& times, Ns makespan) {
    std::vector<Ns> latest(static_cast<std::size_t>(graph.size()), makespan);
    for (int turn = graph.size() - 1; turn >= 0; --turn) {
        const int node = times.order()[turn];
        const bool received = is_recv(graph.task(node).op);
        const Ns start = latest[node] - (received ? 0 : times.end(node) - times.start(node));
        for (const int other : times.waits(turn))
            latest[other] = std::min(latest[other], start);
        if (received) {
            const int send = graph.inputs(node).front();
            latest[send] = std::min(latest[send], latest[node] - times.latency(send));
        }
    }
    for (int node = 0; node < graph.size(); ++node)
        latest[node] -= times.end(node);
    return latest;
}

}  // namespace

namespace {

// Returns by kind the mean time of its nodes.
std::vector<double> mean_times(const TimedPlan& timed) {
    std::vector<double> means(timed.kinds.all().size(), 0);
    for (int node = 0; node < timed.graph.size(); ++node)
        if (const int kind = timed.kinds.of(node); kind != TaskKinds::kNone)
            means[kind] += static_cast<double>(timed.times.durations[timed.timed_kinds.of(node)]);
    for (std::size_t kind = 0; kind < means.size(); ++kind)
        means[kind] /= timed.kinds.all()[kind].count;
    return means;
}

// Returns by kind the mean time of R for each pass of the kind on its stage and device. Passes without R count.
std::vector<double> recompute_times(const TaskKinds& kinds, const std::vector<double>& means) {
    using Place = std::tuple<int, int, bool>;  // device, stage, of the last micro-batch
    const auto place_of = [](const TaskKinds::Kind& kind) {
        return Place{kind.device, kind.stage, kind.last_microbatch};
    };
    std::map<Place, double> time_of;
    std::map<Place, int> passes;
    for (std::size_t kind = 0; kind < means.size(); ++kind) {
        const TaskKinds::Kind& one = kinds.all()[kind];
        if (one.op == Op::Recompute)
            time_of[place_of(one)] += means[kind] * one.count;
        else if (makes_input_gradient(one.op))
            passes[place_of(one)] += one.count;
    }
    for (auto& [place, time] : time_of)
        time /= std::max(passes[place], 1);
    std::vector<double> times(means.size(), 0);
    for (std::size_t kind = 0; kind < means.size(); ++kind)
        if (makes_input_gradient(kinds.all()[kind].op))
            if (const auto found = time_of.find(place_of(kinds.all()[kind])); found != time_of.end())
                times[kind] = found->second;
    return times;
}

Recurrence::Times with_equal_stages(const TimedPlan& timed) {
    using Class = std::tuple<Op, bool, bool, bool, int, int>;
    struct Share {
        double all = 0;
        int count = 0;
    };
    const std::vector<TaskKinds::Kind>& kinds = timed.kinds.all();
    const std::vector<double> means = mean_times(timed), recomputed = recompute_times(timed.kinds, means);
    const auto class_of = [&](const TaskKinds::Kind& kind) {
        const Shape& shape = timed.plan.shape;
        const auto at = static_cast<std::size_t>(shape.whole_of(kind.microbatch));
        return Class{kind.op,
                     kind.last_microbatch,
                     kind.accumulates,
                     kind.predicts,
                     timed.lengths.empty() ? 0 : timed.lengths[at % timed.lengths.size()],
                     shape.slice_of(kind.microbatch)};
    };
    const auto holders_of = [&](const TaskKinds::Kind& kind) {
        return static_cast<double>(timed.graph.index().devices_of(kind.stage).size());
    };
    const auto is_levelled = [](Op op) { return is_compute(op) && op != Op::Recompute; };
    std::map<Class, Share> shares;
    for (std::size_t kind = 0; kind < kinds.size(); ++kind) {
        if (!is_levelled(kinds[kind].op))
            continue;
        Share& share = shares[class_of(kinds[kind])];
        share.all += (means[kind] + recomputed[kind]) / holders_of(kinds[kind]);
        ++share.count;
    }
    Recurrence::Times equal = timed.times;
    for (int node = 0; node < timed.graph.size(); ++node) {
        const int kind = timed.kinds.of(node);
        if (kind == TaskKinds::kNone || !is_levelled(kinds[kind].op))
            continue;
        const auto& [all, count] = shares.at(class_of(kinds[kind]));
        const double time = std::max(0.0, all / count * holders_of(kinds[kind]) - recomputed[kind]);
        const Ns own = timed.times.durations[timed.timed_kinds.of(node)];
        equal.durations[timed.timed_kinds.of(node)] =
            std::llround(means[kind] > 0 ? static_cast<double>(own) * (time / means[kind]) : time);
    }
    return equal;
}

// Returns the node that ends last, transfers left out. Returns -1 if there is none.
int last_node(const TimedPlan& timed) {
    int last = -1;
    for (int node = 0; node < timed.graph.size(); ++node)
        if (!moves_data(timed.graph.task(node).op) &&
            (last < 0 || timed.recurrence.end(node) > timed.recurrence.end(last)))
            last = node;
    return last;
}

Ns end_of(const TimedPlan& timed, int last) { return last < 0 ? 0 : timed.recurrence.end(last); }

}  // namespace

Explanation explain(const TimedPlan& timed) {
    Explanation all;
    timed.recurrence.evaluate(with_equal_stages(timed));
    const NodeTimes of_equal = node_times(timed);
    const std::vector<IdlePart> parts_of_equal = idle_parts(timed, of_equal, 0);
    const std::vector<IdleCauses> with_equal = idle_causes(timed, of_equal, parts_of_equal);  // but for the cool-down
    all.balanced = end_of(timed, last_node(timed));
    timed.recurrence.evaluate(timed.times);
    const int last = last_node(timed);
    all.makespan = end_of(timed, last);
    NodeTimes times = node_times(timed);
    all.parts = idle_parts(timed, times, all.makespan);
    all.idle = idle_causes(timed, times, all.parts);
    all.last_inputs = last_inputs(timed.graph, times.end);
    const std::vector<Ns> waits = waits_by_node(parts_of_equal, timed.graph.size());
    for (IdlePart& part : all.parts)
        if (part.cause == &IdleCauses::dependency)
            part.with_equal_stages = waits[part.node];
    for (std::size_t device = 0; device < all.idle.size(); ++device) {
        IdleCauses& idle = all.idle[device];
        idle.imbalance = std::max<Ns>(0, idle.dependency - with_equal[device].dependency);
        idle.dependency -= idle.imbalance;
    }
    all.critical.assign(timed.plan.order.size(), 0);
    all.critical_of_stages.assign(static_cast<std::size_t>(timed.plan.shape.stages), 0);
    add_critical_path(timed.graph, timed.recurrence, last, all);
    all.slack = slack_of(timed.graph, timed.recurrence, all.makespan);
    all.latencies = std::move(times.latency);
    return all;
}

std::vector<Ns> waits_for_calls(const PlanGraph& graph, const Recurrence& order, const EventQueue& events) {
    std::vector<Ns> waits(static_cast<std::size_t>(graph.size()), 0);
    for (int turn = 0; turn < graph.size(); ++turn) {
        const int node = order.order()[turn];
        if (moves_data(graph.task(node).op))
            continue;
        Ns ready = 0;
        for (const int other : order.waits(turn))
            ready = std::max(ready, events.end(other));
        waits[node] = events.start(node) - ready;
    }
    return waits;
}

void add_waits_for_calls(const PlanGraph& graph, const EventQueue& events, const std::vector<Ns>& waits,
                         Explanation& all) {
    for (int node = 0; node < graph.size(); ++node)
        if (is_compute(graph.task(node).op) && waits[node] > 0) {
            const int device = graph.device_of(node);
            all.idle[device].dispatcher += waits[node];
            all.parts.push_back(
                {device, events.start(node) - waits[node], events.start(node), &IdleCauses::dispatcher, node});
        }
    std::ranges::stable_sort(all.parts, {}, [](const IdlePart& part) { return std::pair(part.device, part.from); });
}

}  // namespace pw
