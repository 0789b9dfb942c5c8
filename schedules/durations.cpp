#include "schedules/durations.h"

#include "schedules/plan_graph.h"
#include "workloads/bounded.h"

#include <set>
#include <utility>

namespace pw {

namespace {

Ns time_of(Op op, const StageCost& cost) {
    switch (op) {
        case Op::Forward:
            return cost.forward;
        case Op::Backward:
            return cost.backward;
        case Op::BackwardInput:
            return cost.backward_input;
        case Op::BackwardWeight:
            return cost.backward_weight;
        case Op::Recompute:
            return cost.recompute;
        case Op::Update:
            return cost.update;
        case Op::SumGradients:
            return cost.sum_gradients;
        default:
            return 0;
    }
}

Ns time_to_predict(const StageCost& cost) { return cost.update * 3 / 5; }

// `last` is the costs of a smaller last micro-batch, empty when it is not smaller.
std::vector<Ns> durations(const Plan& plan, const PlanGraph& graph, const Costs& costs, const VersionTable& versions,
                          const std::vector<StageCost>& stages, const std::vector<StageCost>& last) {
    std::vector<Ns> all(static_cast<std::size_t>(graph.size()), 0);
    for (int device = 0; device < plan.shape.devices; ++device) {
        std::vector<bool> begun(static_cast<std::size_t>(plan.shape.stages), false);
        for (int position = 0; position < static_cast<int>(plan.order[device].size()); ++position) {
            const Task& task = plan.order[device][position];
            if (is_transfer(task.op))
                continue;
            const bool smaller = !last.empty() && is_compute(task.op) && plan.shape.ends_mini_batch(task.microbatch);
            const StageCost& cost = (smaller ? last : stages)[task.stage];
            Ns time = time_of(task.op, cost);
            if (ahead_of(task, versions) > 0)
                time += time_to_predict(cost);
            if (task.op == Op::Update)
                begun[task.stage] = false;
            if (makes_weight_gradient(task.op)) {
                time += begun[task.stage] ? cost.accumulate : 0;
                begun[task.stage] = true;
            }
            const bool computes = task.op != Op::SumGradients;
            if (computes && !costs.speed.empty() && costs.speed[device] != 1)
                time = bounded(static_cast<double>(time) / costs.speed[device]);
            all[graph.node(device, position)] = bounded_sum(time, costs.dispatch);
        }
    }
    return all;
}

int count_of_devices(const Shape& shape, const StageTie& tie) {
    std::set<int> devices;
    for (const int stage : {tie.from, tie.to})
        for (const int device : shape.devices_of(stage))
            devices.insert(device);
    return static_cast<int>(devices.size());
}

}  // namespace

std::vector<Ns> durations_of(const Plan& plan, const PlanGraph& graph, const Costs& costs,
                             const VersionTable& versions) {
    return durations(plan, graph, costs, versions, costs.stage, costs.last);
}

std::vector<Ns> busy_durations_of(const Plan& plan, const PlanGraph& graph, const Costs& costs,
                                  const VersionTable& versions) {
    return costs.busy.empty() ? std::vector<Ns>{}
                              : durations(plan, graph, costs, versions, costs.busy, costs.busy_last);
}

void add_gradient_sums(Costs& costs, const Shape& shape, const std::vector<StageTie>& ties) {
    for (int stage = 0; stage < shape.stages; ++stage) {
        const auto holders = static_cast<int>(shape.devices_of(stage).size());
        Ns time = ring_sum(holders, costs.bytes[stage].weights, costs.sums);
        for (const StageTie& tie : ties)
            if (tie.from == stage || tie.to == stage)
                time = bounded_sum(time, ring_sum(count_of_devices(shape, tie), tie.bytes, costs.sums));
        costs.stage[stage].sum_gradients = time;
        if (!costs.busy.empty())
            costs.busy[stage].sum_gradients = time;
    }
}

Traffic::Traffic(const Shape& shape, const ShapeIndex& index, const Costs& costs) : shape_(shape), index_(index) {
    const auto loads_of = [&](const std::vector<EdgeBytes>& edges) {
        const auto load = [&](Bytes bytes) {
            return Load{bytes, bounded(static_cast<double>(bytes) / costs.link.bandwidth * 1e9)};
        };
        Loads loads;
        for (std::vector<Load>& kind : loads)
            kind.resize(static_cast<std::size_t>(index.edges()));
        for (const EdgeBytes& edge : edges)
            if (const int number = index.edge(edge.from, edge.to); number >= 0) {
                loads[0][number] = load(edge.forward);
                loads[1][number] = load(edge.backward);
            }
        return loads;
    };
    full_ = loads_of(costs.edges);
    if (!costs.last_edges.empty())
        last_ = loads_of(costs.last_edges);
}

const Traffic::Load& Traffic::load_of(const Task& task) const {
    if (!is_transfer(task.op))
        return nothing_;
    const Edge edge = edge_of(task);
    const int number = index_.edge(edge.from, edge.to);
    if (number < 0)
        return nothing_;
    const bool gradient = task.op == Op::SendBackward || task.op == Op::RecvBackward;
    const bool smaller = !last_.front().empty() && shape_.ends_mini_batch(task.microbatch);
    return (smaller ? last_ : full_)[gradient ? 1 : 0][number];
}

Bytes Traffic::bytes(const Task& task) const { return load_of(task).bytes; }

Ns Traffic::occupation(const Task& task) const { return load_of(task).time; }

}  // namespace pw
