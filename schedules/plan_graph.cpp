#include "schedules/limits.h"
#include "schedules/plan.h"
#include "schedules/sum_groups.h"
#include "workloads/error.h"

#include <algorithm>

namespace pw {

namespace {

constexpr std::size_t kPlainOps = 7;  // F B I W R U S
constexpr std::size_t kTransferOps = 4;

bool in_shape(const Task& task, const Shape& shape, int device) {
    if (task.stage < 0 || task.stage >= shape.stages || task.microbatch < 0 || task.microbatch >= shape.microbatches)
        return false;
    if (is_transfer(task.op) && (task.peer < 0 || task.peer >= shape.stages))
        return false;
    const std::vector<int> holders = shape.devices_of(task.stage);
    return std::find(holders.begin(), holders.end(), device) != holders.end();
}

}  // namespace

PlanGraph::PlanGraph(const Plan& plan) {
    stages_ = plan.shape.stages;
    microbatches_ = plan.shape.microbatches;
    add_nodes(plan);
    connect(plan);
}

// F, B, I, W, R and transfers stand on one device only; U and S once on every holder, so that their
// slot holds the last holder's and connect() walks lists instead.
std::size_t PlanGraph::slot(const Task& task) const {
    const auto stages = static_cast<std::size_t>(stages_), microbatches = static_cast<std::size_t>(microbatches_);
    const auto op = static_cast<std::size_t>(task.op);
    const std::size_t cell = static_cast<std::size_t>(task.stage) * microbatches + task.microbatch;
    const std::size_t row =
        op < kPlainOps ? op : kPlainOps + (op - kPlainOps) * stages + static_cast<std::size_t>(task.peer);
    return row * stages * microbatches + cell;
}

void PlanGraph::add_nodes(const Plan& plan) {
    const double rows = kPlainOps + kTransferOps * static_cast<double>(stages_);
    refuse_large_table(sizeof(int) * rows * stages_ * microbatches_, plan.shape);
    node_of_.assign(static_cast<std::size_t>(rows) * stages_ * microbatches_, -1);
    for (int device = 0; device < static_cast<int>(plan.order.size()); ++device) {
        first_.push_back(size());
        int position = 0;
        for (const Task& task : plan.order[device]) {
            if (!in_shape(task, plan.shape, device))
                fail("plan '{}': device {} step {}: {} is not a task of this device ({} stages, {} micro-batches)",
                     plan.schedule, device, position, print(task), stages_, microbatches_);
            int& known = node_of_[slot(task)];
            const bool per_holder = task.op == Op::Update || task.op == Op::SumGradients;
            if (known >= 0 && !(per_holder && device_[known] != device))
                fail("plan '{}': device {} step {}: {} stands twice; device {} has it at step {}", plan.schedule,
                     device, position, print(task), device_[known], position_of(known));
            known = size();
            has_transfers_ |= is_transfer(task.op);
            tasks_.push_back(task);
            device_.push_back(device);
            ++position;
        }
    }
    inputs_.resize(tasks_.size());
}

int PlanGraph::find(const Task& task) const {
    if (task.stage < 0 || task.stage >= stages_ || task.microbatch < 0 || task.microbatch >= microbatches_)
        return -1;
    if (is_transfer(task.op) && (task.peer < 0 || task.peer >= stages_))
        return -1;
    const int node = node_of_[slot(task)];
    if (node < 0 && (task.op == Op::BackwardInput || task.op == Op::BackwardWeight)) {
        Task whole = task;
        whole.op = Op::Backward;
        return node_of_[slot(whole)];
    }
    return node;
}

int PlanGraph::holder(int stage, int microbatch) const {
    const int node = find({Op::Forward, stage, microbatch});
    return node < 0 ? -1 : device_[node];
}

// The dependency rule for everything but U and S, whose inputs are a matter of list positions.
std::vector<Task> PlanGraph::inputs_by_rule(const Plan& plan, const Task& task, int device) const {
    const int stage = task.stage, microbatch = task.microbatch;
    const auto from = [&](Op made_by, Op received_by, int peer) -> Task {
        if (has_transfers_ && holder(peer, microbatch) != device)
            return {received_by, stage, microbatch, task.slice, peer};
        return {made_by, peer, microbatch, task.slice};
    };
    std::vector<Task> inputs;
    switch (task.op) {
        case Op::Forward:
            for (int peer : plan.shape.before(stage))
                inputs.push_back(from(Op::Forward, Op::RecvForward, peer));
            break;
        case Op::Backward:
        case Op::BackwardInput:
            inputs.push_back({Op::Forward, stage, microbatch, task.slice});
            if (const Task again{Op::Recompute, stage, microbatch, task.slice}; find(again) >= 0)
                inputs.push_back(again);
            for (int peer : plan.shape.after(stage))
                inputs.push_back(from(Op::BackwardInput, Op::RecvBackward, peer));
            break;
        case Op::BackwardWeight:
            inputs.push_back({Op::BackwardInput, stage, microbatch, task.slice});
            break;
        case Op::Recompute:
            inputs.push_back({Op::Forward, stage, microbatch, task.slice});
            break;
        case Op::SendForward:
            inputs.push_back({Op::Forward, stage, microbatch, task.slice});
            break;
        case Op::SendBackward:
            inputs.push_back({Op::BackwardInput, stage, microbatch, task.slice});
            break;
        case Op::RecvForward:
            inputs.push_back({Op::SendForward, task.peer, microbatch, task.slice, stage});
            break;
        case Op::RecvBackward:
            inputs.push_back({Op::SendBackward, task.peer, microbatch, task.slice, stage});
            break;
        case Op::Update:
        case Op::SumGradients:
            break;
    }
    return inputs;
}

void PlanGraph::connect(const Plan& plan) {
    for (int here = 0; here < size(); ++here)
        for (const Task& input : inputs_by_rule(plan, tasks_[here], device_[here])) {
            const int made = find(input);
            if (made < 0)
                fail("plan '{}': device {} waits forever at step {}: {} needs {}, which no device runs", plan.schedule,
                     device_[here], position_of(here), print(tasks_[here]), print(input));
            inputs_[here].push_back(made);
        }
    connect_gradients(plan);
    connect_meetings(plan);
}

// To S and U of a stage its B or W nodes on the same device since the previous U, to U the S.
void PlanGraph::connect_gradients(const Plan& plan) {
    for (std::size_t device = 0; device < plan.order.size(); ++device) {
        std::vector<std::vector<int>> gradients(static_cast<std::size_t>(stages_)), sums = gradients;
        for (int position = 0; position < static_cast<int>(plan.order[device].size()); ++position) {
            const int here = node(static_cast<int>(device), position);
            const Task& task = tasks_[here];
            std::vector<int>&pending = gradients[task.stage], &summed = sums[task.stage];
            if (makes_weight_gradient(task.op))
                pending.push_back(here);
            if (task.op == Op::SumGradients) {
                inputs_[here] = pending;
                summed.push_back(here);
            }
            if (task.op == Op::Update) {
                inputs_[here] = std::move(pending);
                inputs_[here].insert(inputs_[here].end(), summed.begin(), summed.end());
                pending.clear();
                summed.clear();
            }
        }
    }
}

// What the devices of a meeting bring to it is input of all of them, and so is what they do before it.
void PlanGraph::connect_meetings(const Plan& plan) {
    const auto last_task_before = [&](int node) {
        const int first = first_[device_[node]];
        do
            --node;
        while (node >= first && is_transfer(tasks_[node].op));
        return node < first ? -1 : node;
    };
    for (const Meeting& meeting : meetings_of(*this, plan.shape)) {
        std::vector<int> brought;
        for (const int node : meeting.nodes)
            brought.insert(brought.end(), inputs_[node].begin(), inputs_[node].end());
        std::sort(brought.begin(), brought.end());
        brought.erase(std::unique(brought.begin(), brought.end()), brought.end());
        for (const int here : meeting.nodes) {
            inputs_[here] = brought;
            for (const int node : meeting.first)
                if (const int before = last_task_before(node);
                    before >= 0 && device_[node] != device_[here] &&
                    !std::binary_search(brought.begin(), brought.end(), before))
                    inputs_[here].push_back(before);
        }
    }
}

std::vector<int> PlanGraph::topological_order(bool early) const {
    std::vector<int> waits(tasks_.size(), 0);
    std::vector<std::vector<int>> readers(tasks_.size());
    int before = -1;  // the last one that is bound to the list
    for (int here = 0; here < size(); ++here) {
        for (int input : inputs_[here])
            readers[input].push_back(here);
        waits[here] = static_cast<int>(inputs_[here].size());
        if (position_of(here) == 0)
            before = -1;
        if (early && is_transfer(tasks_[here].op))
            continue;
        if (before >= 0) {
            readers[before].push_back(here);
            ++waits[here];
        }
        before = here;
    }
    std::vector<int> order;
    for (int here = 0; here < size(); ++here)
        if (waits[here] == 0)
            order.push_back(here);
    for (std::size_t next = 0; next < order.size(); ++next)
        for (int reader : readers[order[next]])
            if (--waits[reader] == 0)
                order.push_back(reader);
    return order;
}

}  // namespace pw
