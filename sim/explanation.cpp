#include "sim/explanation.h"

#include "schedules/plan_graph.h"
#include "sim/recurrence.h"

#include <algorithm>
#include <map>
#include <utility>

namespace pw {

namespace {

// Cuts a gap of a device's time into parts, from its beginning on.
class Gap {
public:
    Gap(Ns from, Ns to) : from_(from), to_(to) {}
    Ns until(Ns time) {
        const Ns end = std::clamp(time, from_, to_);
        return end - std::exchange(from_, end);
    }
    Ns rest() { return until(to_); }

private:
    Ns from_, to_;
};

// Returns the input that comes last, or -1 for none.
int last_input(const PlanGraph& graph, const Recurrence& times, int node) {
    int last = -1;
    for (const int input : graph.inputs(node))
        if (last < 0 || times.end(input) > times.end(last))
            last = input;
    return last;
}

void add_gap(const PlanGraph& graph, const Recurrence& times, int node, Gap gap, IdleCauses& idle) {
    if (const int input = last_input(graph, times, node); input >= 0) {
        int made = input;
        Ns sent = times.end(input);
        if (is_recv(graph.task(input).op)) {
            const int send = graph.inputs(input).front();
            made = graph.inputs(send).front();
            sent = times.start(send);
        }
        idle.imbalance += gap.until(times.end(made));
        idle.lane += gap.until(sent);
        idle.data += gap.until(times.end(input));
    }
    idle.send_memory += gap.rest();
}

std::vector<IdleCauses> idle_causes(const Plan& plan, const PlanGraph& graph, const Recurrence& times, Ns makespan) {
    std::vector<IdleCauses> all;
    int node = 0;
    for (const std::vector<Task>& order : plan.order) {
        IdleCauses& idle = all.emplace_back();
        Ns free = 0;
        bool begun = false;
        for (const Task& task : order) {
            const int here = node++;
            if (is_transfer(task.op))
                continue;
            if (begun)
                add_gap(graph, times, here, {free, times.start(here)}, idle);
            else
                idle.warm_up = times.start(here);
            begun = true;
            free = times.end(here);
            if (!is_compute(task.op))
                idle.updates += free - times.start(here);
        }
        idle.cool_down = makespan - free;
    }
    return all;
}

void add_critical_path(const PlanGraph& graph, const Recurrence& times, int node, Explanation& all) {
    std::map<std::pair<int, int>, Ns> links;
    std::vector<int> turns(static_cast<std::size_t>(graph.size()));
    for (int turn = 0; turn < graph.size(); ++turn)
        turns[times.order()[turn]] = turn;
    while (node >= 0) {
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
        } else {
            all.critical[graph.device_of(node)] += times.end(node) - reached;
        }
        const std::span<const int> waits = times.waits(turns[node]);
        const auto before =
            std::find_if(waits.begin(), waits.end(), [&](int other) { return times.end(other) == reached; });
        node = before == waits.end() ? -1 : *before;
    }
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

Explanation explain(const Plan& plan, const PlanGraph& graph, const Recurrence& times) {
    int last = -1;
    for (int node = 0; node < graph.size(); ++node)
        if (!is_transfer(graph.task(node).op) && (last < 0 || times.end(node) > times.end(last)))
            last = node;
    const Ns makespan = last < 0 ? 0 : times.end(last);
    Explanation all;
    all.idle = idle_causes(plan, graph, times, makespan);
    all.critical.assign(plan.order.size(), 0);
    add_critical_path(graph, times, last, all);
    all.slack = slack_of(graph, times, makespan);
    return all;
}

}  // namespace pw
