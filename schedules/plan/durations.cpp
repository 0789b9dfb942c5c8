#include "schedules/plan/durations.h"

#include "schedules/plan/plan_graph.h"
#include "schedules/plan/sum_groups.h"
#include "workloads/bounded.h"
#include "workloads/costs/sum_times.h"
#include "workloads/rounding.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <utility>

namespace pw {

namespace {

Ns time_of(Op op, const StageCost& cost) {
    Ns StageCost::*const part = facts_of(op).cost;
    return part == nullptr ? 0 : cost.*part;
}

// The factor of an operation that includes several operations is the mean of their factors, by their times.
double factor_of(Op op, const StageCost& cost, const MicroBatchLength& length) {
    if (!is_compute(op))
        return 1;  // once per mini-batch
    if (double MicroBatchLength::*const own = facts_of(op).length)
        return length.*own;
    double times = 0, scaled = 0;
    std::optional<double> first;
    bool alike = true;
    for (const OpFacts& part : kOpFacts)
        if (part.whole == op) {
            const auto time = static_cast<double>(time_of(part.op, cost));
            const double factor = length.*part.length;
            times += time;
            scaled += time * factor;
            alike = alike && factor == first.value_or(factor);
            first = first.value_or(factor);
        }
    return alike || times == 0 ? *first : scaled / times;
}

// Predicted or corrected weights read two blocks and write one. A U that averages steps also copies the weights and
// does the same three times (exec/training/optimizer.cpp).
Ns time_to_predict(Op op, const StageCost& cost, OptimizerKind optimizer) {
    return cost.update * (op == Op::Update ? 2 + 3 * 3 : 3) / facts_of(optimizer).passes();
}

const std::vector<StageCost>& stages_on(int device, const Costs& costs, bool while_busy) {
    const MakeCosts& times = costs.times_on(device);
    return while_busy ? times.busy : times.stage;
}

Ns duration_of(const TaskKinds::Kind& kind, const Costs& costs, bool while_busy) {
    const MakeCosts& times = costs.times_on(kind.device);
    const std::vector<StageCost>& last = while_busy ? times.busy_last : times.last;
    const bool smaller = !last.empty() && kind.last_microbatch && is_compute(kind.op);
    const StageCost& cost = (smaller ? last : stages_on(kind.device, costs, while_busy))[kind.stage];
    Ns time = time_of(kind.op, cost);
    if (!costs.lengths.empty() || !costs.slices.empty())
        if (const double factor = factor_of(kind.op, cost, costs.length_of(kind.microbatch, kind.stage)); factor != 1)
            time = bounded(static_cast<double>(time) * factor);
    if (kind.predicts)
        time += time_to_predict(kind.op, cost, costs.optimizer);
    if (kind.accumulates)
        time += cost.accumulate;
    const bool computes = kind.op != Op::SumGradients;
    if (const double speed = computes ? costs.cluster->speed_of(kind.device) : 1; speed != 1)
        time = bounded(static_cast<double>(time) / speed);
    if (kind.op == Op::Update)
        time = bounded_sum(time, cost.gather_weights);
    return bounded_sum(time, costs.dispatch);
}

// Returns the measured time of a pair of F and B that take `both` sequentially: it scales as the two tasks do.
std::optional<Ns> measured_pair(const TaskKinds::Kind& a, const TaskKinds::Kind& b, Ns both,
                                const std::vector<StageCost>& stages) {
    const TaskKinds::Kind &forward = a.op == Op::Forward ? a : b, &backward = a.op == Op::Forward ? b : a;
    if (forward.op != Op::Forward || backward.op != Op::Backward || !stages[forward.stage].pair)
        return std::nullopt;
    const Ns pair = *stages[forward.stage].pair;
    const Ns whole = stages[forward.stage].forward + stages[backward.stage].backward;
    return both == whole || whole == 0
               ? pair
               : bounded(static_cast<double>(pair) * static_cast<double>(both) / static_cast<double>(whole));
}

// Replaces the durations of both tasks of each pair by their parts of the time of the pair, which is a single launch.
void overlap_pairs(const std::vector<TaskKinds::Kind>& kinds, const Costs& costs, bool while_busy,
                   std::vector<Ns>& durations) {
    for (std::size_t number = 0; number < kinds.size(); ++number) {
        const int other = kinds[number].pair;
        if (other < static_cast<int>(number))
            continue;
        Ns &first = durations[number], &second = durations[static_cast<std::size_t>(other)];
        first -= costs.dispatch;
        second -= costs.dispatch;
        Ns &longer = first >= second ? first : second, &shorter = first >= second ? second : first;
        if (const auto pair = measured_pair(kinds[number], kinds[other], bounded_sum(first, second),
                                            stages_on(kinds[number].device, costs, while_busy))) {
            longer = std::min(longer, *pair);
            shorter = *pair - longer;
        } else {
            shorter = exposed_part(shorter, costs.pair_exposed);
        }
        first += costs.dispatch;
    }
}

// Returns the stage's sum if it runs in buckets, else null.
const StageSum* sum_in_buckets(int stage, const Costs& costs) {
    const bool known = costs.sum_bucket > 0 && stage < std::ssize(costs.stage_sums);
    return known && costs.stage_sums[stage].buckets > 1 ? &costs.stage_sums[stage] : nullptr;
}

std::vector<Ns> durations_of(const TaskKinds& kinds, const PlanGraph& graph, const Shape& shape, const Costs& costs,
                             bool while_busy) {
    const Traffic traffic(shape, graph.index(), costs);
    std::vector<Ns> durations;
    durations.reserve(kinds.all().size());
    for (const TaskKinds::Kind& kind : kinds.all()) {
        const Task& first = graph.task(kind.first);
        durations.push_back(is_send(kind.op)   ? occupation_of(first, kind.device, kind.receiver, costs, traffic)
                            : is_copy(kind.op) ? time_of_copy(first, costs, traffic)
                                               : duration_of(kind, costs, while_busy));
    }
    overlap_pairs(kinds.all(), costs, while_busy, durations);
    for (std::size_t number = 0; number < durations.size(); ++number)
        if (const TaskKinds::Kind& kind = kinds.all()[number]; kind.op == Op::SumGradients)
            if (const StageSum* sum = sum_in_buckets(kind.stage, costs))
                durations[number] -= sum->alone;
    return durations;
}

}  // namespace

Ns exposed_part(Ns shorter, double exposed) {
    return static_cast<Ns>(std::ceil(static_cast<double>(shorter) * exposed * (1 - kRounding)));
}

Ns duration_of(Op op, int stage, int device, const Costs& costs, int microbatch, bool accumulates) {
    return duration_of(op, stage, device, costs, false, microbatch, accumulates);
}

Ns duration_of(Op op, int stage, int device, const Costs& costs, bool while_busy, int microbatch, bool accumulates) {
    return duration_of({op, device, stage, false, accumulates, false, microbatch, 0, 1}, costs, while_busy);
}

Ns occupation_of(const Task& send, int sender, int receiver, const Costs& costs, const Traffic& traffic) {
    const Cluster& cluster = *costs.cluster;
    return occupation_of(traffic.bytes(send), cluster.link_of(sender, receiver), cluster.routes.most(sender, receiver));
}

Ns time_of_copy(const Task& copy, const Costs& costs, const Traffic& traffic) {
    const Link& link = costs.cluster->to_host;
    return bounded_sum(link.latency, occupation_of(traffic.bytes(copy), link));
}

std::optional<double> measured_share_of_pair(int forward, int backward, const std::vector<StageCost>& stages) {
    const std::optional<Ns>& pair = stages[forward].pair;
    const Ns whole = stages[forward].forward + stages[backward].backward;
    if (!pair || whole == 0)
        return std::nullopt;
    return static_cast<double>(*pair) / static_cast<double>(whole);
}

std::vector<int> classes_of(const std::vector<MicroBatchLength>& lengths) {
    std::map<MicroBatchLength, int> known;
    std::vector<int> classes;
    for (const MicroBatchLength& length : lengths)
        classes.push_back(known.try_emplace(length, static_cast<int>(known.size())).first->second);
    return known.size() > 1 ? classes : std::vector<int>{};
}

TaskKinds::TaskKinds(const Plan& plan, const PlanGraph& graph, const VersionTable& versions,
                     const std::vector<int>& classes, bool pairs)
    : of_(static_cast<std::size_t>(graph.size()), kNone) {
    for (int node = 0; node < graph.size(); ++node)
        if (is_recv(graph.task(node).op))
            of_[graph.inputs(node).front()] = graph.device_of(node);  // for now, the receiver of each SEND
    // Numbers of the kinds found so far. Kinds of sends are by edge, gradients and batch, and by their devices. Kinds
    // of the remaining tasks are by stage of the device, operation, batch and accumulation. A batch is a class, a
    // slice, and whether it is in the last micro-batch of its mini-batch.
    const auto slices = static_cast<std::size_t>(plan.shape.slices);
    const std::size_t batches =
        2 * slices *
        (classes.empty() ? 1 : static_cast<std::size_t>(*std::max_element(classes.begin(), classes.end())) + 1);
    std::vector<int> of_sends(static_cast<std::size_t>(graph.index().edges() + 1) * 2 * batches, kNone), of_tasks;
    std::map<std::array<int, 3>, int> of_pairs;
    std::vector<char> begun;  // by stage of the device: whether it has gradients to add to
    std::span<const int> stages;
    for (int node = 0; node < graph.size(); ++node) {
        const Task& task = graph.task(node);
        const int device = graph.device_of(node);
        if (graph.position_of(node) == 0) {
            stages = graph.index().stages_of(device);
            of_tasks.assign(stages.size() * kOps * 4 * batches, kNone);
            begun.assign(stages.size(), 0);
        }
        if (is_recv(task.op))
            continue;
        const std::size_t last = plan.shape.is_in_last_of_mini_batch(task.microbatch) ? 1 : 0;
        const auto number = static_cast<std::size_t>(task.microbatch), at = number / slices;
        const auto of_class = static_cast<std::size_t>(classes.empty() ? 0 : classes[at % classes.size()]);
        const std::size_t batch = 2 * (of_class * slices + number % slices) + last;
        const bool predicting = predicts(task, versions, plan);
        bool accumulates = false;
        int receiver = kNone;
        int* known = nullptr;
        if (is_send(task.op)) {
            const Edge edge = edge_of(task);
            const auto row = static_cast<std::size_t>(graph.index().edge(edge.from, edge.to) + 1);
            const std::size_t one = (row * 2 + (carries_gradients(task.op) ? 1 : 0)) * batches + batch;
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
            known = &of_tasks[((row * kOps + static_cast<std::size_t>(task.op)) * batches + batch) * 4 +
                              (accumulates ? 2 : 0) + (predicting ? 1 : 0)];
        }
        if (*known == kNone) {
            *known = static_cast<int>(all_.size());
            all_.push_back(
                {task.op, device, task.stage, last != 0, accumulates, predicting, task.microbatch, node, 0, receiver});
        }
        of_[static_cast<std::size_t>(node)] = *known;
        ++all_[static_cast<std::size_t>(*known)].count;
    }
    if (pairs)
        tell_pairs_apart(graph);
    for (int node = 0; node < graph.size(); ++node)
        if (graph.task(node).op == Op::SumGradients) {
            const int maker = graph.last_gradients_of(node);
            all_[static_cast<std::size_t>(of(node))].gradients = maker < 0 ? kNone : of(maker);
        }
}

// Tasks in pairs of the same two kinds become two new kinds. Kinds without tasks are left out.
void TaskKinds::tell_pairs_apart(const PlanGraph& graph) {
    std::map<std::pair<int, int>, int> first_of;  // by the kinds of both: the new kind of the first
    for (int node = 0; node < graph.size(); ++node) {
        const int other = graph.task(node).with_next ? graph.paired_with(node) : -1;
        if (other < 0)
            continue;
        const int kinds[] = {of(node), of(other)};
        const auto [found, added] = first_of.try_emplace({kinds[0], kinds[1]}, static_cast<int>(all_.size()));
        for (const int k : {0, 1}) {
            if (added) {
                Kind kind = all_[static_cast<std::size_t>(kinds[k])];
                kind.first = node + k;
                kind.microbatch = graph.task(node + k).microbatch;
                kind.count = 0;
                kind.pair = found->second + 1 - k;
                all_.push_back(kind);
            }
            --all_[static_cast<std::size_t>(kinds[k])].count;
            of_[static_cast<std::size_t>(node + k)] = found->second + k;
            ++all_[static_cast<std::size_t>(found->second + k)].count;
        }
    }
    std::vector<int> number_of;
    int numbers = 0;
    for (const Kind& kind : all_)
        number_of.push_back(kind.count > 0 ? numbers++ : kNone);
    std::erase_if(all_, [](const Kind& kind) { return kind.count == 0; });
    for (Kind& kind : all_)
        kind.pair = kind.pair < 0 ? -1 : number_of[static_cast<std::size_t>(kind.pair)];
    for (int& kind : of_)
        kind = kind < 0 ? kNone : number_of[static_cast<std::size_t>(kind)];
    for (int node = graph.size(); node-- > 0;)
        if (const int kind = of(node); kind != kNone)
            all_[static_cast<std::size_t>(kind)].first = node;
}

TaskKinds::TaskKinds(const PlanGraph& graph, bool pairs) {
    for (int node = 0; node < graph.size(); ++node) {
        const Task& task = graph.task(node);
        of_.push_back(is_recv(task.op) ? kNone : node);
        all_.push_back({task.op, graph.device_of(node), task.stage, false, false, false, task.microbatch, node, 1});
        if (pairs)
            all_.back().pair = graph.paired_with(node);
    }
}

std::vector<Ns> TaskKinds::durations(const PlanGraph& graph, const Shape& shape, const Costs& costs) const {
    return durations_of(*this, graph, shape, costs, false);
}

std::vector<Ns> TaskKinds::sum_delays(const Costs& costs) const {
    if (costs.sum_bucket == 0 && costs.joined_sums.empty())
        return {};
    std::vector<Ns> delays(all_.size(), 0), durations;
    for (std::size_t number = 0; !costs.joined_sums.empty() && number < all_.size(); ++number)
        if (all_[number].op == Op::Forward)
            delays[number] = costs.joined_sums[all_[number].stage];
    for (const Kind& kind : all_)
        durations.push_back(moves_data(kind.op) ? 0 : duration_of(kind, costs, false));
    overlap_pairs(all_, costs, false, durations);
    for (std::size_t number = 0; number < all_.size(); ++number)
        if (const Kind& pass = all_[number]; makes_weight_gradient(pass.op))
            if (const StageSum* sum = sum_in_buckets(pass.stage, costs))
                delays[number] = sum->alone - sum->overlapped(std::max<Ns>(
                                                  0, durations[number] - dispatch_of(static_cast<int>(number), costs)));
    return delays;
}

std::vector<Ns> TaskKinds::latencies(const Costs& costs) const {
    std::vector<Ns> latencies;
    latencies.reserve(all_.size());
    for (const Kind& kind : all_)
        latencies.push_back(is_send(kind.op) ? costs.cluster->link_of(kind.device, kind.receiver).latency : 0);
    return latencies;
}

std::vector<Ns> TaskKinds::busy_durations(const PlanGraph& graph, const Shape& shape, const Costs& costs) const {
    return costs.busy.empty() ? std::vector<Ns>{} : durations_of(*this, graph, shape, costs, true);
}

std::vector<Ns> durations_of(const Plan& plan, const PlanGraph& graph, const Costs& costs,
                             const VersionTable& versions) {
    const TaskKinds kinds(plan, graph, versions, classes_of(costs.lengths), overlaps_pairs(costs));
    const std::vector<Ns> by_kind = kinds.durations(graph, plan.shape, costs);
    std::vector<Ns> all(static_cast<std::size_t>(graph.size()), 0);
    for (int node = 0; node < graph.size(); ++node)
        if (!is_transfer(graph.task(node).op))
            all[static_cast<std::size_t>(node)] = by_kind[static_cast<std::size_t>(kinds.of(node))];
    return all;
}

std::vector<Ns> sum_delays_of(const Plan& plan, const PlanGraph& graph, const Costs& costs,
                              const VersionTable& versions) {
    std::vector<Ns> all(static_cast<std::size_t>(graph.size()), 0);
    if (costs.sum_bucket == 0)
        return all;
    const TaskKinds kinds(plan, graph, versions, classes_of(costs.lengths), overlaps_pairs(costs));
    const std::vector<Ns> by_kind = kinds.sum_delays(costs);
    for (int node = 0; node < graph.size(); ++node)
        if (!is_transfer(graph.task(node).op))
            all[static_cast<std::size_t>(node)] = by_kind[static_cast<std::size_t>(kinds.of(node))];
    return all;
}

}  // namespace pw
