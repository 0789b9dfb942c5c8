#include "schedules/passes/passes.h"
#include "schedules/plan/lanes.h"
#include "schedules/plan/plan_graph.h"
#include "schedules/plan/shape_index.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <utility>

namespace pw {

namespace {

// The SEND of the tensor that each operation makes.
constexpr std::array<std::optional<Op>, kOps> kSendAfter = [] {
    std::array<std::optional<Op>, kOps> sends{};
    for (const OpFacts& send : kOpFacts)
        for (const OpFacts& made : kOpFacts)
            if (is_send(send.op) && does(made.op, send.inputs.front().made_by))
                sends[static_cast<std::size_t>(made.op)] = send.op;
    return sends;
}();

// The transfers that follow a task, and the transfers that must have arrived when it starts.
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
        if (const std::optional<Op> send = kSendAfter[static_cast<std::size_t>(task.op)])
            visit_peers(*send, task, device, visit);
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
                visit(Task{transfer, task.stage, task.microbatch, task.slices, peer}, other);
    }

    ShapeIndex index_;
    std::size_t microbatches_;
    std::vector<int> holder_;  // [stage][micro-batch]: the device that runs its F, or -1
};

// The receives of a lane in the order in which its sender makes the tensors, and how many of them are posted.
struct PendingReceives {
    std::vector<Task> receives;
    std::size_t posted = 0;
};

// The lanes between pairs of devices, separate for each kind of traffic.
class PendingLanes {
public:
    PendingReceives& at(int from, int to, bool backward) {
        const std::uint64_t key =
            static_cast<std::uint64_t>(from) << 33 | static_cast<std::uint64_t>(to) << 1 | (backward ? 1 : 0);
        if (Known& known = last_[backward ? 1 : 0]; known.key != key || !known.lane)
            known = {key, &lanes_[key]};
        return *last_[backward ? 1 : 0].lane;
    }

private:
    struct Known {
        std::uint64_t key = 0;
        PendingReceives* lane = nullptr;
    };
    std::unordered_map<std::uint64_t, PendingReceives> lanes_;
    std::array<Known, 2> last_;  // the last lanes used: most calls are for the same lanes again
};

// Both ends of an edge list its transfers in the order in which the sender makes the tensors: a receiver that needs a
// later tensor first posts the earlier receives.
void receive_before_use(Plan& plan) {
    const TransferRule rule(plan);
    PendingLanes pending;
    std::vector<std::size_t> receives(plan.order.size(), 0);
    std::vector<std::vector<Task>> with_sends(plan.order.size());
    for (int device = 0; device < plan.shape.devices; ++device) {
        std::vector<Task>& sending = with_sends[device];
        sending.reserve(2 * plan.order[device].size());
        std::vector<Task> sends;  // of the task, or of its pair
        for (const Task& task : plan.order[device]) {
            sending.push_back(task);
            rule.visit_sends_after(task, device, [&](const Task& send, int to) {
                pending.at(device, to, carries_gradients(send.op)).receives.push_back(other_end(send));
                ++receives[to];
                sends.push_back(send);
            });
            if (task.with_next)
                continue;
            sending.insert(sending.end(), sends.begin(), sends.end());
            sends.clear();
        }
        plan.order[device] = {};
    }
    for (int device = 0; device < plan.shape.devices; ++device) {
        std::vector<Task>& order = plan.order[device];
        order.reserve(with_sends[device].size() + receives[device]);
        const auto receive = [&](const Task& recv, int from) {
            auto& [lane, posted] = pending.at(from, device, carries_gradients(recv.op));
            const auto at = std::find(lane.begin() + static_cast<std::ptrdiff_t>(posted), lane.end(), recv);
            if (at == lane.end())
                return;  // posted already, before an earlier task
            const auto first = lane.begin() + static_cast<std::ptrdiff_t>(posted);
            order.insert(order.end(), first, at + 1);
            posted += static_cast<std::size_t>(at + 1 - first);
        };
        bool in_pair = false;
        for (std::size_t at = 0; at < with_sends[device].size(); ++at) {
            const Task& task = with_sends[device][at];
            if (!std::exchange(in_pair, task.with_next))
                rule.visit_receives_before(task, device, receive);
            if (task.with_next && at + 1 < with_sends[device].size())
                rule.visit_receives_before(with_sends[device][at + 1], device, receive);
            order.push_back(task);
        }
        with_sends[device] = {};
    }
}

// PyTorch's lowering: one ready task, or pair, per device and sweep. Its SENDs follow it, and a RECV is appended to the
// receiver's list so far. Transfers are added sequentially, so no mode can deadlock, but a RECV may be listed long
// before its tensor is made. Returns false if a sweep finds no ready task: the compute tasks wait in a cycle.
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
            const int last = graph.task(node).with_next ? std::max(node, graph.paired_with(node)) : node;
            for (int step = node; step <= last; ++step) {
                placed[step] = true;
                --left;
                ++next[device];
                order[device].push_back(graph.task(step));
            }
            for (int step = node; step <= last; ++step)
                rule.visit_sends_after(graph.task(step), device, [&](const Task& send, int to) {
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

// All devices advance in step. In each step a device has one task whose inputs from other devices were made in earlier
// steps, or none. Tensors made in a step are sent and received right after it on both sides. So a device that waits for
// a whole exchange never waits for a device at another step. Devices with several stages run a forward and the backward
// that follows it in the same step, as Megatron-LM's interleaved pipelines do, which exchange once for both. Returns
// false if a step has no task.
bool exchange_in_step(Plan& plan) {
    const TransferRule rule(plan);
    const PlanGraph graph(plan);
    std::vector<std::vector<Task>> order(plan.order.size());
    std::vector<bool> done(static_cast<std::size_t>(graph.size()), false);
    std::vector<int> next(plan.order.size(), 0), step;
    const auto has_next = [&](int device) { return next[device] < std::ssize(plan.order[device]); };
    const auto take = [&](int device) {
        int node = graph.node(device, next[device]);
        for (const int input : graph.inputs(node))
            if (!done[input] && graph.device_of(input) != device)
                return false;
        for (bool pairs = true; pairs && has_next(device); ++node) {
            pairs = graph.task(node).with_next;
            order[device].push_back(plan.order[device][next[device]++]);
            step.push_back(node);
        }
        return true;
    };
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

// Returns the list of a device in the order reached, with the moved receives at their new positions.
std::vector<Task> list_of(const PlanGraph& graph, const std::vector<int>& reached) {
    std::vector<Task> order;
    std::vector<char> listed(static_cast<std::size_t>(graph.size()), 0);
    for (const int node : reached)
        if (!std::exchange(listed[node], 1))
            order.push_back(graph.task(node));
    return order;
}

// Walks the plan under rendezvous. Where it is stuck, a SEND at the head of its lane waits for a RECV that comes after
// another transfer or has not been reached. That RECV is moved ahead. Its message is ready, so no task waits longer for
// it.
void hoist_receives(Plan& plan, TransferMode mode) {
    mode.protocol = TransferMode::Protocol::Rendezvous;
    const PlanGraph graph(plan);
    Walk walk(plan, graph, mode);
    // Of each device: the nodes at the beginning of its list whose transfers are complete. No lane waits for them.
    std::vector<std::ptrdiff_t> complete(plan.order.size(), 0);
    const auto is_complete = [&](int node) {
        const Op op = graph.task(node).op;
        return is_send(op) ? walk.lanes().has_left(node) : !is_recv(op) || walk.lanes().is_received(node);
    };
    bool changed = false;
    for (walk.run(); !walk.finished(); walk.run()) {
        const std::vector<int> sends = walk.lanes().waiting_sends();
        bool moved = false;
        for (const int send : sends) {
            const int recv = walk.lanes().partner(send);
            const int before = walk.lanes().hoist(recv);
            if (before < 0)
                continue;
            std::vector<int>& reached = walk.reached[graph.device_of(recv)];
            std::ptrdiff_t& first = complete[graph.device_of(recv)];
            first = std::find_if_not(reached.begin() + first, reached.end(), is_complete) - reached.begin();
            reached.insert(std::find(reached.begin() + first, reached.end(), before), recv);
            moved = changed = true;
            break;
        }
        if (!moved)
            return;  // check() reports the cycle
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
