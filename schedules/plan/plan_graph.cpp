#include "schedules/plan/plan_graph.h"

#include "schedules/plan/sum_groups.h"
#include "workloads/error.h"

#include <algorithm>
#include <utility>

namespace pw {

namespace {

std::size_t number_of(Op op) { return static_cast<std::size_t>(op); }

constexpr bool waits_since_update(const OpInput& input) { return input.from == OpInput::From::SinceUpdate; }

// The operations that wait for all tasks of certain operations since the last U, and these operations.
constexpr OpSet kWaitsSinceUpdate =
    ops_that([](const OpFacts& waiting) { return std::ranges::any_of(waiting.inputs, waits_since_update); });
constexpr OpSet kCountedSinceUpdate = ops_that([](const OpFacts& made) {
    return std::ranges::any_of(kOpFacts, [&](const OpFacts& waiting) {
        return std::ranges::any_of(waiting.inputs, [&](const OpInput& input) {
            return waits_since_update(input) && does(made.op, input.made_by);
        });
    });
});

bool in_shape(const Task& task, const Shape& shape, const ShapeIndex& index, int device) {
    if (task.stage < 0 || task.stage >= shape.stages || task.microbatch < 0 || task.microbatch >= shape.microbatches)
        return false;
    if (is_transfer(task.op) && (task.peer < 0 || task.peer >= shape.stages))
        return false;
    return index.holds(device, task.stage);
}

}  // namespace

void refuse_foreign(const Task& task, const Plan& plan, const ShapeIndex& index, int device, int position) {
    if (!in_shape(task, plan.shape, index, device))
        fail("plan '{}': device {} step {}: {} is not a task of this device ({} stages, {} micro-batches)",
             plan.schedule, device, position, print(task), plan.shape.stages,
             plan.shape.whole_of(plan.shape.microbatches));
}

PlanGraph::PlanGraph(const Plan& plan)
    : stages_(plan.shape.stages),
      microbatches_(plan.shape.microbatches),
      slices_(plan.shape.slices),
      index_(plan.shape) {
    add_nodes(plan);
    connect(plan);
    connect_barriers(plan);
}

int PlanGraph::row_of(const Task& task) const {
    return is_transfer(task.op) ? index_.edge(edge_of(task).from, edge_of(task).to) : task.stage;
}

// F, B, I, W, R and transfers are on a single device. What runs once per update is on every holder: its cell has the
// last holder, and connect() goes through the lists instead.
int& PlanGraph::cell_of(const Task& task) {
    const int row = row_of(task);
    if (row < 0)
        return off_edges_.try_emplace(task, -1).first->second;
    std::vector<int>& table = node_of_[number_of(task.op)];
    if (table.empty())
        table.assign(static_cast<std::size_t>(is_transfer(task.op) ? index_.edges() : stages_) * microbatches_, -1);
    return table[static_cast<std::size_t>(row) * microbatches_ + task.microbatch];
}

int PlanGraph::at_cell_of(const Task& task) const {
    const int row = row_of(task);
    if (row < 0) {
        const auto found = off_edges_.find(task);
        return found == off_edges_.end() ? -1 : found->second;
    }
    const std::vector<int>& table = node_of_[number_of(task.op)];
    return table.empty() ? -1 : table[static_cast<std::size_t>(row) * microbatches_ + task.microbatch];
}

void PlanGraph::add_nodes(const Plan& plan) {
    std::size_t tasks = 0;
    for (const std::vector<Task>& order : plan.order)
        tasks += order.size();
    tasks_.reserve(tasks);
    device_.reserve(tasks);
    for (int device = 0; device < static_cast<int>(plan.order.size()); ++device) {
        first_.push_back(size());
        int position = 0;
        for (const Task& task : plan.order[device]) {
            refuse_foreign(task, plan, index_, device, position);
            int& known = cell_of(task);
            if (known >= 0 && !(runs_once_per_update(task.op) && device_[known] != device))
                fail("plan '{}': device {} step {}: {} is listed twice; device {} has it at step {}", plan.schedule,
                     device, position, print(task), device_[known], position_of(known));
            known = size();
            has_transfers_ |= is_transfer(task.op);
            tasks_.push_back(task);
            device_.push_back(device);
            ++position;
        }
    }
}

bool PlanGraph::is_of(const Plan& plan) const {
    if (plan.order.size() != first_.size())
        return false;
    auto own = tasks_.begin();
    for (const std::vector<Task>& order : plan.order) {
        if (tasks_.end() - own < std::ssize(order) || !std::equal(order.begin(), order.end(), own))
            return false;
        own += std::ssize(order);
    }
    return own == tasks_.end();
}

int PlanGraph::find(const Task& task) const {
    if (task.stage < 0 || task.stage >= stages_ || task.microbatch < 0 || task.microbatch >= microbatches_)
        return -1;
    if (is_transfer(task.op) && (task.peer < 0 || task.peer >= stages_))
        return -1;
    return find_in_shape(task);
}

int PlanGraph::find_in_shape(const Task& task) const {
    if (const int node = at_cell_of(task); node >= 0)
        return node;
    const std::optional<Op> whole = facts_of(task.op).whole;
    return whole ? at_cell_of({*whole, task.stage, task.microbatch}) : -1;
}

int PlanGraph::paired_with(int node) const {
    if (tasks_[node].with_next)
        return node + 1 < size() && device_[node + 1] == device_[node] ? node + 1 : -1;
    return position_of(node) > 0 && tasks_[node - 1].with_next ? node - 1 : -1;
}

int PlanGraph::holder(int stage, int microbatch) const {
    const int node = find({Op::Forward, stage, microbatch});
    return node < 0 ? -1 : device_[node];
}

// Calls visit(input, its node or -1) for the inputs of a task, without inputs that follow from positions in the list.
template <class Visit>
void PlanGraph::visit_inputs(const Task& task, int device, Visit visit) const {
    const auto task_of = [&](Op op, int stage, int peer = -1) {
        return Task{op, stage, task.microbatch, task.slices, peer};
    };
    const auto is_received_from = [&](int maker) {
        if (!has_transfers_)
            return false;
        const int forward = at_cell_of({Op::Forward, maker, task.microbatch});
        return forward < 0 || device_[forward] != device;
    };
    const auto visit_task = [&](const Task& input) { visit(input, find_in_shape(input)); };
    const auto visit_slice = [&](Op op, int step) {
        const int slice = task.microbatch % slices_ + step;
        if (slice >= 0 && slice < slices_)
            visit_task({op, task.stage, task.microbatch + step, task.slices});
    };
    for (const OpInput& input : facts_of(task.op).inputs)
        switch (input.from) {
            case OpInput::From::Stage: {
                const Task made = task_of(input.made_by, task.stage);
                if (const int node = find_in_shape(made); node >= 0 || !input.if_any)
                    visit(made, node);
                break;
            }
            case OpInput::From::EarlierSlice:
                visit_slice(input.made_by, -1);
                break;
            case OpInput::From::LaterSlice:
                visit_slice(input.made_by, 1);
                break;
            case OpInput::From::Peers:
                for (const int maker : index_.peers_of(*input.received_by, task.stage))
                    visit_task(is_received_from(maker) ? task_of(*input.received_by, task.stage, maker)
                                                       : task_of(input.made_by, maker));
                break;
            case OpInput::From::OtherEnd:
                visit_task(other_end(task));
                break;
            case OpInput::From::Joined:
                for (const int stage : index_.joined_with(task.stage))
                    if (stage != task.stage)
                        visit_task(task_of(input.made_by, stage));
                break;
            case OpInput::From::SinceUpdate:
                break;
        }
}

void PlanGraph::connect(const Plan& plan) {
    inputs_.reserve(tasks_.size(), 2 * tasks_.size());
    std::vector<std::vector<int>> since_update(static_cast<std::size_t>(stages_));  // nodes of the device, by stage
    for (int here = 0; here < size(); ++here) {
        const Task& task = tasks_[here];
        if (position_of(here) == 0)
            for (const int stage : index_.stages_of(device_[here]))
                since_update[stage].clear();
        const auto push_inputs_of = [&](int node) {
            visit_inputs(tasks_[node], device_[node], [&](const Task& input, int made) {
                if (made < 0)
                    fail("plan '{}': device {} waits forever at step {}: {} needs {}, which no device runs",
                         plan.schedule, device_[node], position_of(node), print(tasks_[node]), print(input));
                if (made == here && node != here)
                    return;  // check() refuses a pair whose tasks need each other
                inputs_.push(made);
                // the tensor is there when both tasks of its pair have ended
                if (const bool leaves = is_transfer(task.op) || device_[made] != device_[node];
                    leaves && tasks_[made].with_next && paired_with(made) >= 0)
                    inputs_.push(made + 1);
            });
        };
        push_inputs_of(here);
        if (task.with_next && paired_with(here) >= 0)
            push_inputs_of(here + 1);
        if (is_in(task.op, kWaitsSinceUpdate))
            for (const OpInput& input : facts_of(task.op).inputs)
                for (const int node : since_update[task.stage])
                    if (waits_since_update(input) && does(tasks_[node].op, input.made_by))
                        inputs_.push(node);
        if (task.op == Op::Update)
            since_update[task.stage].clear();
        else if (is_in(task.op, kCountedSinceUpdate))
            since_update[task.stage].push_back(here);
        inputs_.close();
    }
}

// Every input of a barrier on one device is an input on all of its devices, and so is the device's last task ahead of
// the barrier.
void PlanGraph::connect_barriers(const Plan& plan) {
    const auto last_task_before = [&](int node) {
        const int first = first_[device_[node]];
        do
            --node;
        while (node >= first && moves_data(tasks_[node].op));
        return node < first ? -1 : node;
    };
    std::map<int, std::vector<int>> inputs_at;  // of the nodes of barriers
    for (const Barrier& barrier : barriers_of(*this, plan.shape)) {
        std::vector<int> brought;
        for (const int node : barrier.nodes)
            brought.insert(brought.end(), inputs(node).begin(), inputs(node).end());
        std::sort(brought.begin(), brought.end());
        brought.erase(std::unique(brought.begin(), brought.end()), brought.end());
        for (const int here : barrier.nodes) {
            std::vector<int>& all = inputs_at[here] = brought;
            for (const int node : barrier.first)
                if (const int before = last_task_before(node);
                    before >= 0 && device_[node] != device_[here] &&
                    !std::binary_search(brought.begin(), brought.end(), before))
                    all.push_back(before);
        }
    }
    if (inputs_at.empty())
        return;
    Rows rows;
    rows.reserve(tasks_.size(), 2 * tasks_.size());
    for (int node = 0; node < size(); ++node) {
        const auto found = inputs_at.find(node);
        rows.push(found == inputs_at.end() ? inputs(node) : std::span<const int>(found->second));
        rows.close();
    }
    inputs_ = std::move(rows);
}

// The inputs on one device are in the order of its list.
int PlanGraph::last_gradients_of(int sum) const {
    const std::span<const int> all = inputs(sum);
    const auto last = std::find_if(all.rbegin(), all.rend(), [&](int input) {
        return device_[input] == device_[sum] && tasks_[input].stage == tasks_[sum].stage &&
               makes_weight_gradient(tasks_[input].op);
    });
    return last == all.rend() ? -1 : *last;
}

Rows PlanGraph::readers() const {
    std::vector<int> count(tasks_.size(), 0);
    for (const int input : inputs_.all())
        ++count[input];
    Rows rows(count);
    for (int here = size() - 1; here >= 0; --here)
        for (const int input : inputs(here))
            rows.item(input, --count[input]) = here;
    return rows;
}

std::vector<int> PlanGraph::topological_order() const {
    // the device's next node among the nodes bound to its list
    std::vector<int> waits(tasks_.size(), 0), next(tasks_.size(), -1);
    int before = -1;
    for (int here = 0; here < size(); ++here) {
        waits[here] = static_cast<int>(inputs(here).size());
        if (position_of(here) == 0)
            before = -1;
        if (moves_data(tasks_[here].op))
            continue;
        if (before >= 0) {
            next[before] = here;
            ++waits[here];
        }
        before = here;
    }
    std::vector<int> order;
    order.reserve(tasks_.size());
    for (int here = 0; here < size(); ++here)
        if (waits[here] == 0)
            order.push_back(here);
    const Rows read_by = readers();
    const auto done_for = [&](int reader) {
        if (--waits[reader] == 0)
            order.push_back(reader);
    };
    for (std::size_t done = 0; done < order.size(); ++done) {
        for (const int reader : read_by[order[done]])
            done_for(reader);
        if (next[order[done]] >= 0)
            done_for(next[order[done]]);
    }
    return order;
}

}  // namespace pw
