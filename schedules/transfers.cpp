#include "schedules/passes.h"

#include <algorithm>
#include <deque>
#include <map>
#include <tuple>

namespace pw {

namespace {

bool makes_gradient(Op op) { return op == Op::Backward || op == Op::BackwardWeight; }

bool has_update(const std::vector<Task>& order, int stage) {
    return std::any_of(order.begin(), order.end(),
                       [&](const Task& task) { return task.stage == stage && task.op == Op::Update; });
}

// Nothing stands inside an overlapped pair, and what a task makes is sent before anything else runs.
int end_of_step(const std::vector<Task>& order, int position) {
    const int last = static_cast<int>(order.size()) - 1;
    while (position < last && (order[position].with_next || is_send(order[position + 1].op)))
        ++position;
    return position;
}

}  // namespace

void add_updates(Plan& plan) {
    const int per_update = plan.shape.per_update == 0 ? plan.shape.microbatches : plan.shape.per_update;
    for (int device = 0; device < plan.shape.devices; ++device) {
        std::vector<Task>& order = plan.order[device];
        struct Last {
            int position = 0, microbatch = 0;
            bool summed = false;
        };
        std::map<std::pair<int, int>, Last> last;  // [stage, mini-batch] -> its last B or W here, or its S
        for (int position = 0; position < static_cast<int>(order.size()); ++position) {
            const Task& task = order[position];
            const bool sums = task.op == Op::SumGradients;
            if (!(makes_gradient(task.op) || sums) || has_update(order, task.stage))
                continue;
            auto& [at, newest, summed] = last[{task.stage, task.microbatch / per_update}];
            at = sums ? position : end_of_step(order, position);
            newest = std::max(newest, task.microbatch);
            summed |= sums;
        }
        std::multimap<int, Task> after;  // position -> what follows it
        for (const auto& [key, value] : last) {
            if (plan.shape.devices_of(key.first).size() > 1 && !value.summed)
                after.insert({value.position, {Op::SumGradients, key.first, value.microbatch}});
            after.insert({value.position, {Op::Update, key.first, value.microbatch}});
        }
        std::vector<Task> longer;
        for (int position = 0; position < static_cast<int>(order.size()); ++position) {
            longer.push_back(order[position]);
            const auto [first, end] = after.equal_range(position);
            for (auto follow = first; follow != end; ++follow)
                longer.push_back(follow->second);
        }
        order = std::move(longer);
    }
}

namespace {

struct LaneKey {
    int from, to;  // devices
    bool backward;
    auto operator<=>(const LaneKey&) const = default;
};

// The transfers that follow a task, and those that must have arrived before it.
class TransferRule {
public:
    explicit TransferRule(const Plan& plan) : plan_(plan), graph_(plan) {}

    std::vector<Task> sends_after(const Task& task, int device) const {
        std::vector<Task> sends;
        const bool forward = task.op == Op::Forward;
        if (!forward && task.op != Op::Backward && task.op != Op::BackwardInput)
            return sends;
        for (int peer : forward ? plan_.shape.after(task.stage) : plan_.shape.before(task.stage))
            if (const int other = graph_.holder(peer, task.microbatch); other >= 0 && other != device)
                sends.push_back(
                    {forward ? Op::SendForward : Op::SendBackward, task.stage, task.microbatch, task.slice, peer});
        return sends;
    }

    std::vector<Task> receives_before(const Task& task, int device) const {
        std::vector<Task> receives;
        const bool forward = task.op == Op::Forward;
        if (!forward && task.op != Op::Backward && task.op != Op::BackwardInput)
            return receives;
        for (int peer : forward ? plan_.shape.before(task.stage) : plan_.shape.after(task.stage))
            if (const int other = graph_.holder(peer, task.microbatch); other >= 0 && other != device)
                receives.push_back(
                    {forward ? Op::RecvForward : Op::RecvBackward, task.stage, task.microbatch, task.slice, peer});
        return receives;
    }

    LaneKey lane_of_send(const Task& send, int device) const {
        return {device, graph_.holder(send.peer, send.microbatch), send.op == Op::SendBackward};
    }
    LaneKey lane_of_recv(const Task& recv, int device) const {
        return {graph_.holder(recv.peer, recv.microbatch), device, recv.op == Op::RecvBackward};
    }

private:
    const Plan& plan_;
    PlanGraph graph_;
};

Task receipt_of(const Task& send) {
    return {send.op == Op::SendForward ? Op::RecvForward : Op::RecvBackward, send.peer, send.microbatch, send.slice,
            send.stage};
}

}  // namespace

// Both ends of a lane list its transfers in the order in which the sender makes the tensors: a
// receiver that wants a later one first posts the earlier ones before it.
void add_transfers(Plan& plan) {
    const TransferRule rule(plan);
    std::map<LaneKey, std::deque<Task>> coming;  // receives of a lane, in the sender's order
    std::vector<std::vector<Task>> with_sends(plan.order.size());
    for (int device = 0; device < plan.shape.devices; ++device)
        for (const Task& task : plan.order[device]) {
            with_sends[device].push_back(task);
            for (const Task& send : rule.sends_after(task, device)) {
                coming[rule.lane_of_send(send, device)].push_back(receipt_of(send));
                with_sends[device].push_back(send);
            }
        }
    for (int device = 0; device < plan.shape.devices; ++device) {
        std::vector<Task> order;
        for (const Task& task : with_sends[device]) {
            for (const Task& recv : rule.receives_before(task, device)) {
                std::deque<Task>& lane = coming[rule.lane_of_recv(recv, device)];
                if (std::find(lane.begin(), lane.end(), recv) == lane.end())
                    continue;  // posted already, before an earlier task
                while (lane.front() != recv) {
                    order.push_back(lane.front());
                    lane.pop_front();
                }
                order.push_back(recv);
                lane.pop_front();
            }
            order.push_back(task);
        }
        plan.order[device] = std::move(order);
    }
}

}  // namespace pw
