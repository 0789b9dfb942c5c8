#include "schedules/passes/passes.h"
#include "schedules/plan/lanes.h"
#include "schedules/plan/plan_graph.h"
#include "schedules/plan/shape_index.h"
#include "schedules/plan/sum_groups.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <tuple>
#include <unordered_map>
#include <utility>

namespace pw {

namespace {

// Returns where a step ends: nothing stands inside an overlapped pair, and what a task makes is sent before anything
// else runs.
int end_of_step(const std::vector<Task>& order, int position) {
    const int last = static_cast<int>(order.size()) - 1;
    while (position < last && (order[position].with_next || is_send(order[position + 1].op)))
        ++position;
    return position;
}

// Returns, by stage, whether a device makes gradients of its weights.
std::vector<bool> trained_stages(const Plan& plan) {
    std::vector<bool> trained(static_cast<std::size_t>(plan.shape.stages), false);
    for (const std::vector<Task>& order : plan.order)
        for (const Task& task : order)
            if (makes_weight_gradient(task.op))
                trained[task.stage] = true;
    return trained;
}

// Where a device ends a mini-batch of a stage: at its last B or W of it, or at its S.
struct Ending {
    int position = -1;  // -1: before its list
    bool summed = false;
};

// How a device ends the mini-batches of a stage, and whether its list has U of it.
struct StageEndings {
    std::vector<Ending> of_mini_batch;
    bool updated = false;
};

// Returns the endings by stage of the device. A holder without a gradient of a mini-batch ends it with the one before.
std::vector<StageEndings> endings_of(const Plan& plan, int device, std::span<const int> stages) {
    std::vector<StageEndings> endings(stages.size());
    for (StageEndings& of_stage : endings)
        of_stage.of_mini_batch.resize(static_cast<std::size_t>(plan.shape.updates()));
    const std::vector<Task>& order = plan.order[device];
    for (int position = 0; position < static_cast<int>(order.size()); ++position) {
        const Task& task = order[position];
        const bool sums = task.op == Op::SumGradients;
        if (!makes_weight_gradient(task.op) && !sums && task.op != Op::Update)
            continue;
        StageEndings& of_stage = endings[std::lower_bound(stages.begin(), stages.end(), task.stage) - stages.begin()];
        if (task.op == Op::Update) {
            of_stage.updated = true;
            continue;
        }
        auto& [at, summed] = of_stage.of_mini_batch[plan.shape.mini_batch_of(task.microbatch)];
        at = sums ? position : end_of_step(order, position);
        summed |= sums;
    }
    for (StageEndings& of_stage : endings)
        for (std::size_t k = 1; k < of_stage.of_mini_batch.size(); ++k)
            if (of_stage.of_mini_batch[k].position < 0)
                of_stage.of_mini_batch[k].position = of_stage.of_mini_batch[k - 1].position;
    return endings;
}

// Returns the last position of a task that computes or sums, and of what is sent then, or -1 for none.
int end_of_work(const std::vector<Task>& order) {
    for (int position = static_cast<int>(order.size()) - 1; position >= 0; --position)
        if (is_compute(order[position].op) || order[position].op == Op::SumGradients)
            return end_of_step(order, position);
    return -1;
}

// Returns by stage when its S comes among those that stand together, and last when U does: all devices sum the groups
// in one order, or they would wait for each other.
std::vector<int> turns_of(const Shape& shape) {
    const std::vector<SumGroup> groups = sum_groups(shape);
    const auto last = static_cast<int>(groups.size());
    std::vector<int> turns(static_cast<std::size_t>(shape.stages), last);
    for (int turn = last - 1; turn >= 0; --turn)
        for (const int stage : groups[turn].stages)
            turns[stage] = turn;
    turns.push_back(last);
    return turns;
}

// At one position the S of a mini-batch come before its U, and those before the next mini-batch.
std::multimap<int, Task> in_turn(const std::vector<int>& turns, const std::multimap<int, Task>& sums,
                                 const std::multimap<int, Task>& updates) {
    std::vector<std::tuple<int, int, int, Task>> all;
    for (const auto& [position, task] : sums)
        all.push_back({position, task.microbatch, turns[task.stage], task});
    for (const auto& [position, task] : updates)
        all.push_back({position, task.microbatch, turns.back(), task});
    std::sort(all.begin(), all.end());
    std::multimap<int, Task> ordered;
    for (const auto& [position, microbatch, turn, task] : all)
        ordered.insert({position, task});
    return ordered;
}

// The S and U that the list of a device lacks, by the position that they follow. Devices that wait for those of other
// stages do so when all their own stages are through.
std::multimap<int, Task> missing_updates(const Plan& plan, const ShapeIndex& index, const std::vector<bool>& trained,
                                         const std::vector<int>& turns, int device) {
    const Shape& shape = plan.shape;
    const std::vector<Task>& order = plan.order[device];
    const int end = end_of_work(order);
    std::multimap<int, Task> sums, updates;
    const std::span<const int> stages = index.stages_of(device);
    const std::vector<StageEndings> endings = endings_of(plan, device, stages);
    for (std::size_t k = 0; k < stages.size(); ++k) {
        const int stage = stages[k];
        if (endings[k].updated || !trained[stage])
            continue;
        const bool tied = is_tied(shape, stage);
        for (int mini_batch = 0; mini_batch < shape.updates(); ++mini_batch) {
            const auto& [own_end, summed] = endings[k].of_mini_batch[mini_batch];
            const int last = shape.last_of(mini_batch);
            if (needs_sum(shape, stage) && !summed)
                sums.insert({tied ? end : own_end, {Op::SumGradients, stage, last}});
            updates.insert({tied || shape.global_norm ? end : own_end, {Op::Update, stage, last}});
        }
    }
    return in_turn(turns, sums, updates);
}

}  // namespace

void add_recomputes(Plan& plan, const std::vector<int>& stages) {
    const auto is_recomputed = [&](int stage) {
        return std::find(stages.begin(), stages.end(), stage) != stages.end();
    };
    for (std::vector<Task>& order : plan.order) {
        std::vector<Task> longer;
        std::ptrdiff_t pair = 0;  // where the task, or the pair it is in, starts in `longer`
        bool in_pair = false;
        for (const Task& task : order) {
            if (!is_transfer(task.op) && !std::exchange(in_pair, task.with_next))
                pair = std::ssize(longer);
            if (makes_input_gradient(task.op) && is_recomputed(task.stage))
                longer.insert(longer.begin() + pair++, {Op::Recompute, task.stage, task.microbatch, task.slice});
            longer.push_back(task);
        }
        order = std::move(longer);
    }
}

void add_updates(Plan& plan) {
    const std::vector<bool> trained = trained_stages(plan);
    const std::vector<int> turns = turns_of(plan.shape);
    const ShapeIndex index(plan.shape);
    for (int device = 0; device < plan.shape.devices; ++device) {
        std::vector<Task>& order = plan.order[device];
        const std::multimap<int, Task> missing = missing_updates(plan, index, trained, turns, device);
        std::vector<Task> longer;
        for (int position = -1; position < static_cast<int>(order.size()); ++position) {
            if (position >= 0)
                longer.push_back(order[position]);
            const auto [first, end] = missing.equal_range(position);
            for (auto follow = first; follow != end; ++follow)
                longer.push_back(follow->second);
        }
        order = std::move(longer);
    }
}

namespace {

// The transfers that follow a task, and those that must have arrived before it.
class TransferRule {
public:
    explicit TransferRule(const Plan& plan)
        : index_(plan.shape),
          microbatches_(static_cast<std::size_t>(plan.shape.microbatches)),
          holder_(static_cast<std::size_t>(plan.shape.stages) * microbatches_, -1) {
        for (int device = 0; device < static_cast<int>(plan.order.size()); ++device)
            for (int position = 0; position < static_cast<int>(plan.order[device].size()); ++position) {
                const Task& task = plan.order[device][position];
                refuse_foreign(task, plan, index_, device, position);
                if (task.op == Op::Forward)
                    holder_[cell_of(task.stage, task.microbatch)] = device;
            }
    }

    // Calls visit(transfer, the device at the other end).
    template <class Visit>
    void visit_sends_after(const Task& task, int device, Visit visit) const {
        for (const OpFacts& send : kOpFacts)
            if (is_send(send.op) && does(task.op, send.inputs.front().made_by))
                visit_peers(send.op, task, device, visit);
    }
    template <class Visit>
    void visit_receives_before(const Task& task, int device, Visit visit) const {
        for (const OpInput& input : facts_of(task.op).inputs)
            if (input.received_by)
                visit_peers(*input.received_by, task, device, visit);
    }

private:
    std::size_t cell_of(int stage, int microbatch) const {
        return static_cast<std::size_t>(stage) * microbatches_ + static_cast<std::size_t>(microbatch);
    }

    template <class Visit>
    void visit_peers(Op transfer, const Task& task, int device, Visit& visit) const {
        for (const int peer : index_.peers_of(transfer, task.stage))
            if (const int other = holder_[cell_of(peer, task.microbatch)]; other >= 0 && other != device)
                visit(Task{transfer, task.stage, task.microbatch, task.slice, peer}, other);
    }

    ShapeIndex index_;
    std::size_t microbatches_;
    std::vector<int> holder_;  // [stage][micro-batch]: the device that runs its F, or -1
};

// The receives of a lane, in the order in which its sender makes the tensors, and how many of them are posted.
struct Coming {
    std::vector<Task> receives;
    std::size_t posted = 0;
};

// The lanes between pairs of devices, apart for each kind of traffic.
class ComingLanes {
public:
    Coming& at(int from, int to, bool backward) {
        const std::uint64_t key =
            static_cast<std::uint64_t>(from) << 33 | static_cast<std::uint64_t>(to) << 1 | (backward ? 1 : 0);
        if (Known& known = last_[backward ? 1 : 0]; known.key != key || !known.lane)
            known = {key, &lanes_[key]};
        return *last_[backward ? 1 : 0].lane;
    }

private:
    struct Known {
        std::uint64_t key = 0;
        Coming* lane = nullptr;
    };
    std::unordered_map<std::uint64_t, Coming> lanes_;
    std::array<Known, 2> last_;  // devices mostly ask for the same ones again
};

// Both ends of an edge list its transfers in the order in which the sender makes the tensors: a
// receiver that wants a later one first posts the earlier ones before it.
void receive_before_use(Plan& plan) {
    const TransferRule rule(plan);
    ComingLanes coming;
    std::vector<std::size_t> receives(plan.order.size(), 0);
    std::vector<std::vector<Task>> with_sends(plan.order.size());
    for (int device = 0; device < plan.shape.devices; ++device) {
        std::vector<Task>& sending = with_sends[device];
        sending.reserve(2 * plan.order[device].size());
        for (const Task& task : plan.order[device]) {
            sending.push_back(task);
            rule.visit_sends_after(task, device, [&](const Task& send, int to) {
                coming.at(device, to, carries_gradients(send.op)).receives.push_back(other_end(send));
                ++receives[to];
                sending.push_back(send);
            });
        }
        plan.order[device] = {};
    }
    for (int device = 0; device < plan.shape.devices; ++device) {
        std::vector<Task>& order = plan.order[device];
        order.reserve(with_sends[device].size() + receives[device]);
        for (const Task& task : with_sends[device]) {
            rule.visit_receives_before(task, device, [&](const Task& recv, int from) {
                auto& [lane, posted] = coming.at(from, device, carries_gradients(recv.op));
                const auto at = std::find(lane.begin() + static_cast<std::ptrdiff_t>(posted), lane.end(), recv);
                if (at == lane.end())
                    return;  // posted already, before an earlier task
                const auto first = lane.begin() + static_cast<std::ptrdiff_t>(posted);
                order.insert(order.end(), first, at + 1);
                posted += static_cast<std::size_t>(at + 1 - first);
            });
            order.push_back(task);
        }
        with_sends[device] = {};
    }
}

// PyTorch's lowering: one ready task per device and sweep; its SEND follows it, and the RECV is put
// at the end of what the receiver has so far. One transfer after the other, so it cannot deadlock in
// any mode, but a receive may stand long before its tensor is made. False when a sweep finds nothing
// ready: the compute tasks themselves wait in a circle.
bool receive_as_sent(Plan& plan) {
    const TransferRule rule(plan);
    const PlanGraph graph(plan);
    std::vector<std::vector<Task>> order(plan.order.size());
    std::vector<bool> placed(static_cast<std::size_t>(graph.size()), false);
    std::vector<std::size_t> next(plan.order.size(), 0);
    const auto is_ready = [&](int node) {  // a placed maker elsewhere has put its RECV here
        const std::span<const int> inputs = graph.inputs(node);
        return std::all_of(inputs.begin(), inputs.end(), [&](int input) { return placed[input]; });
    };
    for (std::size_t left = placed.size(); left > 0;) {
        const std::size_t before = left;
        for (int device = 0; device < plan.shape.devices; ++device) {
            if (next[device] == plan.order[device].size())
                continue;
            const int node = graph.node(device, static_cast<int>(next[device]));
            if (!is_ready(node))
                continue;
            const Task& task = plan.order[device][next[device]++];
            placed[node] = true;
            --left;
            order[device].push_back(task);
            rule.visit_sends_after(task, device, [&](const Task& send, int to) {
                order[device].push_back(send);
                order[to].push_back(other_end(send));
            });
        }
        if (left == before)
            return false;
    }
    plan.order = std::move(order);
    return true;
}

// All devices go in step, each with a task whose inputs from elsewhere the steps before have made, or without one. What
// a step has made is sent and received behind it on both sides: so a device that waits for all of an exchange waits for
// none that is at another step. Devices with several stages do a forward and the backward behind it in one step, as
// Megatron-LM's interleaved pipelines do, which exchange once for both. False when a step has no task.
bool exchange_in_step(Plan& plan) {
    const TransferRule rule(plan);
    const PlanGraph graph(plan);
    std::vector<std::vector<Task>> order(plan.order.size());
    std::vector<bool> done(static_cast<std::size_t>(graph.size()), false);
    std::vector<int> next(plan.order.size(), 0), step;
    const auto take = [&](int device) {
        const int node = graph.node(device, next[device]);
        for (const int input : graph.inputs(node))
            if (!done[input] && graph.device_of(input) != device)
                return false;
        order[device].push_back(plan.order[device][next[device]++]);
        step.push_back(node);
        return true;
    };
    const auto has_next = [&](int device) { return next[device] < std::ssize(plan.order[device]); };
    for (std::size_t left = done.size(); left > 0; left -= step.size()) {
        step.clear();
        for (int device = 0; device < plan.shape.devices; ++device)
            if (has_next(device) && take(device) && graph.index().stages_of(device).size() > 1 &&
                order[device].back().op == Op::Forward && has_next(device) &&
                makes_input_gradient(plan.order[device][next[device]].op))
                take(device);
        if (step.empty())
            return false;
        for (const int node : step)
            done[node] = true;
        for (const int node : step)
            rule.visit_sends_after(graph.task(node), graph.device_of(node), [&](const Task& send, int to) {
                order[graph.device_of(node)].push_back(send);
                order[to].push_back(other_end(send));
            });
    }
    plan.order = std::move(order);
    return true;
}

// The list of a device as it was reached, with the moved receives at their new positions.
std::vector<Task> list_of(const PlanGraph& graph, const std::vector<int>& reached) {
    std::vector<Task> order;
    std::vector<char> listed(static_cast<std::size_t>(graph.size()), 0);
    for (const int node : reached)
        if (!std::exchange(listed[node], 1))
            order.push_back(graph.task(node));
    return order;
}

// Walks the plan under rendezvous. Where it is stuck, a SEND that heads its lane finds its RECV behind
// another transfer, or not yet reached: that RECV goes first. Its message is ready, so nothing waits
// longer for it.
void hoist_receives(Plan& plan, TransferMode mode) {
    mode.protocol = TransferMode::Protocol::Rendezvous;
    const PlanGraph graph(plan);
    Walk walk(plan, graph, mode);
    bool changed = false;
    for (walk.go_on(); !walk.finished(); walk.go_on()) {
        const std::vector<int> sends = walk.lanes().waiting_sends();
        bool moved = false;
        for (const int send : sends) {
            const int recv = walk.lanes().partner(send);
            const int before = walk.lanes().hoist(recv);
            if (before < 0)
                continue;
            std::vector<int>& reached = walk.reached[graph.device_of(recv)];
            reached.insert(std::find(reached.begin(), reached.end(), before), recv);
            moved = changed = true;
            break;
        }
        if (!moved)
            return;  // the check names the circle
    }
    if (changed)
        for (int device = 0; device < plan.shape.devices; ++device)
            plan.order[device] = list_of(graph, walk.reached[device]);
}

}  // namespace

void add_transfers(Plan& plan, const TransferMode& mode) {
    if (mode.blocks() && exchange_in_step(plan))
        return;
    const bool own_lanes = mode.communicator == TransferMode::Communicator::Edge;
    if (!own_lanes && mode.early_receive() && receive_as_sent(plan))
        return;
    receive_before_use(plan);
    if (!own_lanes || !mode.early_receive())
        hoist_receives(plan, mode);
}

}  // namespace pw
