#include "schedules/trace/trace_plan.h"

#include "schedules/passes/passes.h"
#include "workloads/error.h"

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <tuple>
#include <utility>

namespace pw {

namespace {

// Traces of older versions do not list the ties. In them, stages on one device that have sums nevertheless share a
// parameter.
std::vector<Edge> guessed_ties(const Plan& plan) {
    std::set<int> tied;
    for (const std::vector<Task>& order : plan.order)
        for (const Task& task : order)
            if (task.op == Op::SumGradients && plan.shape.devices_of(task.stage).size() == 1)
                tied.insert(task.stage);
    std::vector<Edge> ties;
    for (auto stage = tied.begin(); stage != tied.end(); ++stage)
        if (stage != tied.begin())
            ties.push_back({*tied.begin(), *stage});
    return ties;
}

}  // namespace

Plan plan_of(const Trace& trace, bool global_norm) {
    Plan plan;
    plan.schedule = trace.schedule;
    plan.asynchronous = trace.asynchronous;
    plan.order.resize(static_cast<std::size_t>(trace.devices));
    plan.shape.devices = trace.devices;
    plan.shape.stages = trace.stages;
    plan.shape.global_norm = global_norm;
    plan.shape.placement.resize(static_cast<std::size_t>(trace.stages));
    for (int device = 0; device < trace.devices; ++device)
        for (const int stage : trace.stages_of[static_cast<std::size_t>(device)])
            plan.shape.placement[static_cast<std::size_t>(stage)].push_back(device);

    int step = std::numeric_limits<int>::max(), first_update = step;
    for (const TraceEvent& event : trace.events)
        step = std::min(step, event.step);
    std::set<Edge> edges;
    for (const TraceEvent& event : trace.events) {
        if (event.step != step && !trace.asynchronous)
            continue;
        const Task& task = event.task;
        plan.order[static_cast<std::size_t>(event.device)].push_back(task);
        plan.shape.microbatches = std::max(plan.shape.microbatches, task.microbatch + 1);
        plan.shape.slices = std::max<int>(plan.shape.slices, task.slices);
        if (task.op == Op::Update)
            first_update = std::min(first_update, task.microbatch + 1);
        if (is_transfer(task.op))
            edges.insert(edge_of(task));
    }
    if (!edges.empty())
        plan.shape.edges.emplace(edges.begin(), edges.end());
    if (first_update < plan.shape.microbatches)
        plan.shape.per_update = first_update;
    serve_as_listed(plan);
    run_forwards_as_listed(plan);
    plan.shape.ties = trace.ties.empty() ? guessed_ties(plan) : trace.ties;
    return plan;
}

namespace {

using Spot = std::tuple<int, int, Task>;  // device, step, task

Plan plan_by_starts(const Trace& trace) {
    Trace tasks = trace;
    std::erase_if(tasks.events, [](const TraceEvent& event) { return is_transfer(event.task.op); });
    std::stable_sort(tasks.events.begin(), tasks.events.end(),
                     [](const TraceEvent& a, const TraceEvent& b) { return a.start < b.start; });
    Plan plan = plan_of(tasks);
    std::set<Edge> edges;
    for (const TraceEvent& event : trace.events)
        if (is_transfer(event.task.op))
            edges.insert(edge_of(event.task));
    if (edges.empty())
        return plan;
    plan.shape.edges.emplace(edges.begin(), edges.end());
    add_transfers(plan);
    return plan;
}

}  // namespace

namespace {

// Adds the tasks that each step lacks, in the order of the lists, without time: a message leaves when the task before
// it ends, and arrives at once. Returns false where a step has other tasks or another order.
bool add_untimed(Trace& trace, const std::vector<std::vector<Task>>& lists) {
    std::vector<TraceEvent> events;
    std::map<std::pair<int, Task>, Ns> sent;  // step, SEND -> its end
    std::vector<std::size_t> received;        // of `events`
    for (auto event = trace.events.begin(); event != trace.events.end();) {
        const auto first = event;
        const auto [step, device, rank] = std::tuple(event->step, event->device, event->rank);
        Ns reached = event->start;
        for (const Task& task : lists[static_cast<std::size_t>(device)]) {
            const bool is_there =
                event != trace.events.end() && event->device == device && event->step == step && event->task == task;
            if (!is_there && is_recv(task.op))
                received.push_back(events.size());
            events.push_back(is_there ? *event++ : TraceEvent{step, device, rank, task, reached, reached, 0, -1});
            if (is_send(task.op))
                sent[{step, task}] = events.back().end;
            if (!moves_data(task.op))
                reached = std::max(reached, events.back().end);
        }
        if (event == first || (event != trace.events.end() && event->device == device && event->step == step))
            return false;
    }
    for (const std::size_t k : received)
        if (const auto send = sent.find({events[k].step, other_end(events[k].task)}); send != sent.end())
            events[k].start = events[k].end = send->second;
    trace.events = std::move(events);
    return true;
}

}  // namespace

Trace with_updates(Trace trace) {
    Plan plan = plan_of(trace);
    const std::vector<std::vector<Task>> recorded = plan.order;
    if (!trace.asynchronous)
        add_updates(plan);
    if (plan.order != recorded && add_untimed(trace, plan.order))
        trace.plan_hash = hash_of(plan);
    return trace;
}

Trace as_plan_of(Trace trace, const Trace& other) {
    std::vector<std::vector<Task>> lists(static_cast<std::size_t>(std::max(trace.devices, other.devices)));
    for (const TraceEvent& event : other.events)
        if (event.step == other.events.front().step)
            lists[static_cast<std::size_t>(event.device)].push_back(event.task);
    const std::vector<std::vector<Task>> recorded = plan_of(trace).order;
    for (std::size_t device = 0; device < recorded.size(); ++device) {
        auto next = lists[device].begin();
        for (const Task& task : recorded[device]) {
            next = std::find_if(next, lists[device].end(),
                                [&](const Task& one) { return one == task || is_compute(one.op); });
            if (next == lists[device].end() || *next != task)
                fail(
                    "the traces are of different plans: device {} runs {} where the other has {}\n  help: they must "
                    "have the same stages, micro-batches and schedule",
                    device, print(task), next == lists[device].end() ? "no more tasks" : print(*next));
            ++next;
        }
        next = std::find_if(next, lists[device].end(), [](const Task& one) { return is_compute(one.op); });
        if (next != lists[device].end())
            fail(
                "the traces are of different plans: device {} does not run {}\n  help: they must have the same "
                "stages, micro-batches and schedule",
                device, print(*next));
    }
    if (trace.devices != other.devices || !add_untimed(trace, lists))
        fail("the traces are of different plans: {} devices and {}", trace.devices, other.devices);
    Trace filled = other;
    filled.label = trace.label;
    filled.schedule = trace.schedule;
    filled.config.clear();
    filled.machine.clear();
    filled.memory.clear();
    filled.reserved.clear();
    filled.events = std::move(trace.events);
    return filled;
}

void put_in_list_order(Trace& trace, const std::string& path) {
    const Plan plan = plan_by_starts(trace);
    std::map<Spot, TraceEvent> events;
    std::set<int> steps;
    for (const TraceEvent& event : trace.events) {
        steps.insert(event.step);
        if (!events.emplace(Spot{event.device, event.step, event.task}, event).second)
            fail("trace '{}': device {} runs {} twice in step {}\n  help: number the steps in args.step", path,
                 event.device, print(event.task), event.step);
    }
    trace.events.clear();
    for (int device = 0; device < trace.devices; ++device)
        for (const int step : steps)
            for (const Task& task : plan.order[static_cast<std::size_t>(device)]) {
                const auto found = events.extract(Spot{device, step, task});
                if (found.empty())
                    fail(
                        "trace '{}': step {} of device {} has no {}\n  help: every step runs the tasks of the first; "
                        "with transfers, every tensor that goes to another device has a SEND and a RECV",
                        path, step, device, print(task));
                trace.events.push_back(found.mapped());
            }
    if (!events.empty()) {
        const auto& [device, step, task] = events.begin()->first;
        fail(
            "trace '{}': step {} of device {} has {}, but {}\n  help: every step runs the tasks of the first, and all "
            "of "
            "them are in the trace",
            path, step, device, print(task),
            is_transfer(task.op) ? "the task that makes its tensor or the one that reads it is missing"
                                 : "the first step has not");
    }
    trace.plan_hash = hash_of(plan);
}

}  // namespace pw
