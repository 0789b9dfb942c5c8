#include "schedules/durations.h"

#include "schedules/plan_graph.h"
#include "workloads/bounded.h"

#include <algorithm>
#include <set>
#include <span>
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
Ns duration_of(const TaskKinds::Kind& kind, const Costs& costs, const std::vector<StageCost>& stages,
               const std::vector<StageCost>& last) {
    const bool smaller = !last.empty() && kind.last_microbatch && is_compute(kind.op);
    const StageCost& cost = (smaller ? last : stages)[kind.stage];
    Ns time = time_of(kind.op, cost);
    if (kind.predicts)
        time += time_to_predict(cost);
    if (kind.accumulates)
        time += cost.accumulate;
    const bool computes = kind.op != Op::SumGradients;
    if (computes && !costs.speed.empty() && costs.speed[kind.device] != 1)
        time = bounded(static_cast<double>(time) / costs.speed[kind.device]);
    return bounded_sum(time, costs.dispatch);
}

std::vector<Ns> durations_of(const TaskKinds& kinds, const PlanGraph& graph, const Shape& shape, const Costs& costs,
                             const std::vector<StageCost>& stages, const std::vector<StageCost>& last) {
    const Traffic traffic(shape, graph.index(), costs);
    std::vector<Ns> durations;
    durations.reserve(kinds.all().size());
    for (const TaskKinds::Kind& kind : kinds.all())
        durations.push_back(is_send(kind.op) ? traffic.occupation(graph.task(kind.first))
                                             : duration_of(kind, costs, stages, last));
    return durations;
}

int count_of_devices(const Shape& shape, const StageTie& tie) {
    std::set<int> devices;
    for (const int stage : {tie.from, tie.to})
        for (const int device : shape.devices_of(stage))
            devices.insert(device);
    return static_cast<int>(devices.size());
}

}  // namespace

TaskKinds::TaskKinds(const Plan& plan, const PlanGraph& graph, const VersionTable& versions)
    : of_(static_cast<std::size_t>(graph.size()), kNone) {
    // Kinds so far: of the sends by edge, gradients and last micro-batch; of a device's other tasks by its stage,
    // operation, last micro-batch and accumulation.
    std::vector<int> of_sends(static_cast<std::size_t>(graph.index().edges() + 1) * 4, kNone), of_tasks;
    std::vector<char> begun;  // by stage of the device: whether there are gradients to add to
    std::span<const int> stages;
    for (int node = 0; node < graph.size(); ++node) {
        const Task& task = graph.task(node);
        const int device = graph.device_of(node);
        if (graph.position_of(node) == 0) {
            stages = graph.index().stages_of(device);
            of_tasks.assign(stages.size() * kOps * 4, kNone);
            begun.assign(stages.size(), 0);
        }
        if (is_recv(task.op))
            continue;
        const std::size_t last = plan.shape.ends_mini_batch(task.microbatch) ? 1 : 0;
        bool accumulates = false;
        int* known = nullptr;
        if (is_send(task.op)) {
            const Edge edge = edge_of(task);
            const auto row = static_cast<std::size_t>(graph.index().edge(edge.from, edge.to) + 1);
            known = &of_sends[row * 4 + (task.op == Op::SendBackward ? 2 : 0) + last];
        } else {
            const auto row = static_cast<std::size_t>(
                stages.size() == 1 ? 0 : std::lower_bound(stages.begin(), stages.end(), task.stage) - stages.begin());
            if (task.op == Op::Update)
                begun[row] = 0;
            if (makes_weight_gradient(task.op))
                accumulates = std::exchange(begun[row], 1) != 0;
            known =
                &of_tasks[((row * kOps + static_cast<std::size_t>(task.op)) * 2 + last) * 2 + (accumulates ? 1 : 0)];
        }
        if (*known == kNone) {
            *known = static_cast<int>(all_.size());
            all_.push_back(
                {task.op, device, task.stage, last != 0, accumulates, ahead_of(task, versions) > 0, node, 0});
        }
        of_[static_cast<std::size_t>(node)] = *known;
        ++all_[static_cast<std::size_t>(*known)].count;
    }
}

std::vector<Ns> TaskKinds::durations(const PlanGraph& graph, const Shape& shape, const Costs& costs) const {
    return durations_of(*this, graph, shape, costs, costs.stage, costs.last);
}

std::vector<Ns> TaskKinds::busy_durations(const PlanGraph& graph, const Shape& shape, const Costs& costs) const {
    return costs.busy.empty() ? std::vector<Ns>{}
                              : durations_of(*this, graph, shape, costs, costs.busy, costs.busy_last);
}

std::vector<Ns> durations_of(const Plan& plan, const PlanGraph& graph, const Costs& costs,
                             const VersionTable& versions) {
    const TaskKinds kinds(plan, graph, versions);
    const std::vector<Ns> by_kind = kinds.durations(graph, plan.shape, costs);
    std::vector<Ns> all(static_cast<std::size_t>(graph.size()), 0);
    for (int node = 0; node < graph.size(); ++node)
        if (!is_transfer(graph.task(node).op))
            all[static_cast<std::size_t>(node)] = by_kind[static_cast<std::size_t>(kinds.of(node))];
    return all;
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
