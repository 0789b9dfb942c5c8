#include "schedules/trace/trace_plan.h"

#include <algorithm>
#include <limits>
#include <set>

namespace pw {

namespace {

// Stages that one device holds, and sums nevertheless, share a parameter.
std::vector<Edge> ties_of(const Plan& plan) {
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
        plan.shape.slices = std::max(plan.shape.slices, task.slice + 1);
        if (task.op == Op::Update)
            first_update = std::min(first_update, task.microbatch + 1);
        if (is_transfer(task.op))
            edges.insert(edge_of(task));
    }
    if (!edges.empty())
        plan.shape.edges.emplace(edges.begin(), edges.end());
    if (first_update < plan.shape.microbatches)
        plan.shape.per_update = first_update;
    plan.shape.ties = ties_of(plan);
    return plan;
}

}  // namespace pw
