#include "schedules/durations.h"

#include "schedules/plan_graph.h"
#include "workloads/bounded.h"

#include <algorithm>
#include <cmath>
#include <map>
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
        durations.push_back(is_send(kind.op) ? occupation_of(traffic.bytes(graph.task(kind.first)),
                                                             costs.link_of(kind.device, kind.receiver))
                                             : duration_of(kind, costs, stages, last));
    return durations;
}

std::vector<int> devices_of(const Shape& shape, const StageTie& tie) {
    std::set<int> devices;
    for (const int stage : {tie.from, tie.to})
        for (const int device : shape.devices_of(stage))
            devices.insert(device);
    return {devices.begin(), devices.end()};
}

// A ring goes through all devices of a host before it leaves it: where it goes on is what is slowest in every step.
Ns sum_among(const std::vector<int>& devices, Bytes bytes, const Costs& costs) {
    const auto holders = static_cast<int>(devices.size());
    const Ns time = ring_sum(holders, bytes, costs.sums);
    const bool leaves = std::any_of(devices.begin(), devices.end(),
                                    [&](int device) { return costs.are_apart(device, devices.front()); });
    return leaves && costs.between_hosts ? std::max(time, ring_sum(holders, bytes, *costs.between_hosts)) : time;
}

}  // namespace

TaskKinds::TaskKinds(const Plan& plan, const PlanGraph& graph, const VersionTable& versions)
    : of_(static_cast<std::size_t>(graph.size()), kNone) {
    for (int node = 0; node < graph.size(); ++node)
        if (is_recv(graph.task(node).op))
            of_[graph.inputs(node).front()] = graph.device_of(node);  // the receiver of each SEND, for now
    // Kinds so far: of the sends by edge, gradients and last micro-batch, the last one and all by their devices; of a
    // device's other tasks by its stage, operation, last micro-batch and accumulation.
    std::vector<int> of_sends(static_cast<std::size_t>(graph.index().edges() + 1) * 4, kNone), of_tasks;
    std::map<std::array<int, 3>, int> of_pairs;
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
        int receiver = kNone;
        int* known = nullptr;
        if (is_send(task.op)) {
            const Edge edge = edge_of(task);
            const auto row = static_cast<std::size_t>(graph.index().edge(edge.from, edge.to) + 1);
            const std::size_t one = row * 4 + (task.op == Op::SendBackward ? 2 : 0) + last;
            receiver = of_[static_cast<std::size_t>(node)];
            known = &of_sends[one];
            if (*known != kNone && (all_[*known].device != device || all_[*known].receiver != receiver)) {
                of_pairs[{static_cast<int>(one), all_[*known].device, all_[*known].receiver}] = *known;
                const auto other = of_pairs.find({static_cast<int>(one), device, receiver});
                *known = other == of_pairs.end() ? kNone : other->second;
            }
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
                {task.op, device, task.stage, last != 0, accumulates, ahead_of(task, versions) > 0, node, 0, receiver});
        }
        of_[static_cast<std::size_t>(node)] = *known;
        ++all_[static_cast<std::size_t>(*known)].count;
    }
}

TaskKinds::TaskKinds(const PlanGraph& graph) {
    for (int node = 0; node < graph.size(); ++node)
        of_.push_back(is_recv(graph.task(node).op) ? kNone : node);
}

std::vector<Ns> TaskKinds::durations(const PlanGraph& graph, const Shape& shape, const Costs& costs) const {
    return durations_of(*this, graph, shape, costs, costs.stage, costs.last);
}

std::vector<Ns> TaskKinds::latencies(const Costs& costs) const {
    std::vector<Ns> latencies;
    latencies.reserve(all_.size());
    for (const Kind& kind : all_)
        latencies.push_back(is_send(kind.op) ? costs.link_of(kind.device, kind.receiver).latency : 0);
    return latencies;
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
        Ns time = sum_among(shape.devices_of(stage), costs.bytes[stage].weights, costs);
        for (const StageTie& tie : ties)
            if (tie.from == stage || tie.to == stage)
                time = bounded_sum(time, sum_among(devices_of(shape, tie), tie.bytes, costs));
        costs.stage[stage].sum_gradients = time;
        if (!costs.busy.empty())
            costs.busy[stage].sum_gradients = time;
    }
}

Traffic::Traffic(const Shape& shape, const ShapeIndex& index, const Costs& costs) : shape_(shape), index_(index) {
    const auto loads_of = [&](const std::vector<EdgeBytes>& edges) {
        Loads loads;
        for (std::vector<Bytes>& kind : loads)
            kind.resize(static_cast<std::size_t>(index.edges()));
        for (const EdgeBytes& edge : edges)
            if (const int number = index.edge(edge.from, edge.to); number >= 0) {
                loads[0][number] = edge.forward;
                loads[1][number] = edge.backward;
            }
        return loads;
    };
    full_ = loads_of(costs.edges);
    if (!costs.last_edges.empty())
        last_ = loads_of(costs.last_edges);
}

Bytes Traffic::bytes(const Task& task) const {
    if (!is_transfer(task.op))
        return 0;
    const Edge edge = edge_of(task);
    const int number = index_.edge(edge.from, edge.to);
    if (number < 0)
        return 0;
    const bool gradient = task.op == Op::SendBackward || task.op == Op::RecvBackward;
    const bool smaller = !last_.front().empty() && shape_.ends_mini_batch(task.microbatch);
    return (smaller ? last_ : full_)[gradient ? 1 : 0][number];
}

bool may_share_links(const PlanGraph& graph, const TransferMode& mode, const Costs& costs) {
    if (!costs.between_hosts || std::isinf(costs.between_hosts->bandwidth) || costs.host.empty())
        return false;
    const LaneTable table(graph, mode.communicator);
    std::vector<int> lane_of_end(2 * (*std::max_element(costs.host.begin(), costs.host.end()) + 1), -1);
    for (int send = 0; send < graph.size(); ++send) {
        if (!is_send(graph.task(send).op) || table.partner[send] < 0)
            continue;
        const int from = graph.device_of(send), to = graph.device_of(table.partner[send]);
        if (costs.are_apart(from, to))
            for (int* lane : {&lane_of_end[2 * costs.host[from]], &lane_of_end[2 * costs.host[to] + 1]})
                if (const int before = std::exchange(*lane, table.lane_of[send]); before >= 0 && before != *lane)
                    return true;  // messages of one lane follow each other
    }
    return false;
}

Ns occupation_of(Bytes bytes, const Link& link) { return bounded(static_cast<double>(bytes) / link.bandwidth * 1e9); }

}  // namespace pw
