#include "report/measured_idle.h"

#include "report/traced_plan.h"
#include "schedules/plan/contention.h"
#include "sim/idle.h"
#include "sim/replay.h"
#include "sim/simulate.h"
#include "workloads/error.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace pw {

namespace {

// The times of a trace whose events are the nodes of the graph.
NodeTimes times_of(const Trace& trace, const PlanGraph& graph, Ns begin, const std::vector<Ns>& latencies) {
    const std::size_t size = trace.events.size();
    if (std::ssize(trace.events) != graph.size())
        fail("the trace has {} tasks, and its plan {}", size, graph.size());
    NodeTimes times{std::vector<Ns>(size), std::vector<Ns>(size), latencies};
    for (std::size_t node = 0; node < size; ++node) {
        const TraceEvent& event = trace.events[node];
        if (graph.task(static_cast<int>(node)) != event.task)
            fail("the events of the trace are not in the order of its devices");
        times.start[node] = event.start - begin;
        times.end[node] = event.end - begin;
    }
    return times;
}

}  // namespace

int number_of(Ns IdleCauses::*cause) {
    const auto* found = std::ranges::find(kIdleCauses, cause, &IdleCauseName::time);
    return static_cast<int>(found - std::begin(kIdleCauses));
}

Ns begin_of(const Trace& trace) {
    Ns begin = std::numeric_limits<Ns>::max();
    for (const TraceEvent& event : trace.events)
        begin = std::min(begin, event.start);
    return begin;
}

std::vector<IdlePart> idle_of(const Trace& step, const TracedPlan& traced, const Explanation& explanation) {
    const bool predicted = step.label == kPredicted;
    const NodeTimes times = times_of(step, traced.proof->graph, begin_of(step), explanation.latencies);
    if (predicted && may_wait_for_calls(traced.plan.shape, traced.rules.costs))
        return explanation.parts;
    return idle_parts(traced.plan, traced.proof->graph, traced.rules.mode.blocks(), times,
                      *std::ranges::max_element(times.end), predicted ? &IdleCauses::send_memory : nullptr);
}

IdleTimes::IdleTimes(int devices)
    : of(static_cast<std::size_t>(kHandOver) + 1, std::vector<Ns>(static_cast<std::size_t>(devices), 0)) {}

void IdleTimes::add_updates(const Trace& trace) {
    std::vector<Ns>& updates = of[static_cast<std::size_t>(number_of(&IdleCauses::updates))];
    for (const TraceEvent& event : trace.events)
        if (is_closing(event.task.op))
            updates[static_cast<std::size_t>(event.device)] += event.end - event.start;
}

Ns IdleTimes::of_device(int device) const {
    Ns all = 0;
    for (const std::vector<Ns>& times : of)
        all += times[static_cast<std::size_t>(device)];
    return all;
}

IdleTimes idle_times(const std::vector<IdlePart>& parts, const Trace& trace) {
    IdleTimes times(trace.devices);
    for (const IdlePart& part : parts)
        times.of[static_cast<std::size_t>(number_of(part.cause))][static_cast<std::size_t>(part.device)] +=
            part.to - part.from;
    times.add_updates(trace);
    return times;
}

std::vector<std::vector<std::string>> rows_of(const IdleTimes& times, const std::vector<std::string>& devices) {
    const std::size_t count = times.of.front().size();
    std::vector<std::vector<std::string>> rows = {{"device", "idle"}};
    for (std::size_t device = 0; device < count; ++device)
        rows.push_back({device < devices.size() ? devices[device] : std::to_string(device),
                        print_time(times.of_device(static_cast<int>(device)))});
    for (std::size_t cause = 0; cause < times.of.size(); ++cause) {
        if (std::ranges::all_of(times.of[cause], [](Ns time) { return time == 0; }))
            continue;
        rows.front().emplace_back(static_cast<int>(cause) == kHandOver ? "hand-over" : kIdleCauses[cause].title);
        for (std::size_t device = 0; device < count; ++device)
            rows[device + 1].push_back(print_time(times.of[cause][device]));
    }
    return rows;
}

}  // namespace pw
