// The makespan of a plan whose tasks wait only for their inputs and the tasks before them in the list.
#pragma once

#include "schedules/plan/plan.h"
#include "schedules/plan/plan_graph.h"
#include "workloads/costs/costs.h"

#include <algorithm>
#include <vector>

namespace pw {

// Returns the length of a longest path: tasks in list order, a hop of `latency` between devices, and nothing else.
inline Ns longest_path(const Plan& plan, const Costs& costs) {
    const PlanGraph graph(plan);
    std::vector<Ns> end(static_cast<std::size_t>(graph.size()), 0);
    std::vector<Ns> free(plan.order.size(), 0);
    Ns last = 0;
    for (const int node : graph.topological_order()) {
        const Task& task = graph.task(node);
        Ns start = 0;
        for (const int input : graph.inputs(node))
            start = std::max(start, end[input]);
        if (is_transfer(task.op)) {
            end[node] = start + (is_recv(task.op) ? costs.cluster->link.latency : 0);
            continue;
        }
        const StageCost& cost = costs.stage[task.stage];
        const Ns time = task.op == Op::Forward          ? cost.forward
                        : task.op == Op::Backward       ? cost.backward
                        : task.op == Op::BackwardInput  ? cost.backward_input
                        : task.op == Op::BackwardWeight ? cost.backward_weight
                        : task.op == Op::SumGradients   ? cost.sum_gradients
                        : task.op == Op::Update         ? cost.update
                                                        : 0;
        Ns& device = free[graph.device_of(node)];
        end[node] = device = std::max(start, device) + time;
        last = std::max(last, end[node]);
    }
    return last;
}

}  // namespace pw
