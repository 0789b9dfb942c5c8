#include "schedules/passes/passes.h"
#include "schedules/plan/plan_graph.h"
#include "schedules/plan/shape_index.h"
#include "schedules/plan/sum_groups.h"

#include <algorithm>
#include <limits>
#include <map>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

namespace pw {

namespace {

// Returns the end of a step. No S or U is inserted into an overlapped pair, and the tensors of a task are sent
// before anything else runs.
int end_of_step(const std::vector<Task>& order, int position) {
    const int last = static_cast<int>(order.size()) - 1;
    while (position < last && (order[position].with_next || is_send(order[position + 1].op)))
        ++position;
    return position;
}

// Returns by stage whether a device computes gradients of its weights.
std::vector<bool> trained_stages(const Plan& plan) {
    std::vector<bool> trained(static_cast<std::size_t>(plan.shape.stages), false);
    for (const std::vector<Task>& order : plan.order)
        for (const Task& task : order)
            if (makes_weight_gradient(task.op))
                trained[task.stage] = true;
    return trained;
}

// Where a device ends a mini-batch of a stage: at its last B or W, or at its S.
struct Ending {
    int position = -1;  // -1: before its list
    bool summed = false;
};

// How a device ends the mini-batches of a stage, and whether its list has the U.
struct StageEndings {
    std::vector<Ending> of_mini_batch;
    bool updated = false;
};
using Endings = std::vector<std::vector<StageEndings>>;  // by device, then by its stages

// Returns the endings by stage of the device. A holder without a gradient of a mini-batch ends that mini-batch where it
// ends the previous mini-batch.
std::vector<StageEndings> endings_of(const Plan& plan, int device, const ShapeIndex& index) {
    std::vector<StageEndings> endings(index.stages_of(device).size());
    for (StageEndings& of_stage : endings)
        of_stage.of_mini_batch.resize(static_cast<std::size_t>(plan.shape.updates()));
    const std::vector<Task>& order = plan.order[device];
    for (int position = 0; position < static_cast<int>(order.size()); ++position) {
        const Task& task = order[position];
        const bool sums = task.op == Op::SumGradients;
        if (!makes_weight_gradient(task.op) && !sums && task.op != Op::Update)
            continue;
        StageEndings& of_stage = endings[index.row_of(device, task.stage)];
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

// Returns the last position of a task that computes or sums, or of the SENDs that follow it. Returns -1 for none.
int end_of_work(const std::vector<Task>& order) {
    for (int position = static_cast<int>(order.size()) - 1; position >= 0; --position)
        if (is_compute(order[position].op) || order[position].op == Op::SumGradients)
            return end_of_step(order, position);
    return -1;
}

// Returns by stage the place of its S in the sequence of a mini-batch. The last entry is the place of U. All devices
// sum in this order, so that they do not wait for each other: stages from last to first, as backwards end, then groups
// of tied stages.
std::vector<int> sum_sequence(const Shape& shape) {
    const std::vector<SumGroup> groups = sum_groups(shape);
    std::vector<int> sequence(static_cast<std::size_t>(shape.stages), 0);
    int next = 0;
    for (auto group = groups.rbegin(); group != groups.rend(); ++group)
        if (group->stages.size() == 1)
            sequence[group->stages.front()] = next++;
    for (const SumGroup& group : groups)
        if (group.stages.size() > 1) {
            for (const int stage : group.stages)
                sequence[stage] = next;
            ++next;
        }
    sequence.push_back(next);
    return sequence;
}

// At the same position, the S of a mini-batch precede its U, and both precede the next mini-batch. But if only its
// holders sum a stage, its U follows its S at once: a sharded optimizer distributes the new weights there.
std::multimap<int, Task> in_sequence(const Shape& shape, const std::vector<int>& sequence,
                                     const std::multimap<int, Task>& sums, const std::multimap<int, Task>& updates) {
    std::vector<std::tuple<int, int, int, bool, Task>> all;
    for (const auto& [position, task] : sums)
        all.push_back({position, task.microbatch, sequence[task.stage], false, task});
    for (const auto& [position, task] : updates) {
        const bool alone = needs_sum(shape, task.stage) && !is_tied(shape, task.stage) && !shape.global_norm;
        all.push_back({position, task.microbatch, alone ? sequence[task.stage] : sequence.back(), true, task});
    }
    std::sort(all.begin(), all.end());
    std::multimap<int, Task> ordered;
    for (const auto& [position, microbatch, at, updates_stage, task] : all)
        ordered.insert({position, task});
    return ordered;
}

// Moves sums whose holders have further stages to positions where devices wait for each other as little as possible,
// and never in a cycle. By the times, a sum runs once the last of its gradients is made, all earlier sums of the
// sequence have run, and no holder is within a task. Each holder runs it after its own tasks that begin before.
class SumPositions {
public:
    SumPositions(const Plan& plan, const ShapeIndex& index, const std::vector<int>& sequence, const KnownTimes& times,
                 Endings& endings)
        : plan_(plan), index_(index), times_(times), endings_(endings) {
        for (int stage = 0; stage < plan.shape.stages; ++stage)
            if (is_moved(stage))
                stages_.push_back(stage);
        std::sort(stages_.begin(), stages_.end(), [&](int a, int b) { return sequence[a] < sequence[b]; });
    }

    void move() {
        if (stages_.empty() || has_equal_copies(plan_.shape))
            return;
        find_times();
        for (int mini_batch = 0; mini_batch < plan_.shape.updates(); ++mini_batch)
            for (const int stage : stages_)
                move_sum(stage, mini_batch);
    }

private:
    struct Times {
        Ns begin = std::numeric_limits<Ns>::max(), end = 0;
    };

    // At least 1, so that no task ends when its inputs begin.
    Ns time_of(const Task& task, int device) const {
        return !is_compute(task.op)      ? 0
               : times_.task             ? std::max<Ns>(1, times_.task(task, device))
               : task.op == Op::Backward ? 2
                                         : 1;
    }

    void find_times() {
        const PlanGraph graph(plan_);
        found_.assign(plan_.order.size(), {});
        for (std::size_t device = 0; device < plan_.order.size(); ++device)
            found_[device].resize(plan_.order[device].size());
        std::vector<Ns> ends(static_cast<std::size_t>(graph.size()), 0), free(plan_.order.size(), 0);
        for (const int node : graph.topological_order()) {
            const int device = graph.device_of(node);
            const Task& task = graph.task(node);
            const bool computes = is_compute(task.op);
            Ns begin = computes ? free[device] : 0;
            for (const int input : graph.inputs(node)) {
                const int sender = graph.device_of(input);
                const bool travels = times_.message && sender != device;
                begin = std::max(begin,
                                 ends[input] + (travels ? times_.message(graph.task(input), sender, task, device) : 0));
            }
            ends[node] = begin + time_of(task, device);
            found_[device][graph.position_of(node)] = {begin, ends[node]};
            if (computes)
                free[device] = ends[node];
        }
    }

    Ending& ending_of(int stage, int device, int mini_batch) {
        return endings_[device][index_.row_of(device, stage)].of_mini_batch[mini_batch];
    }

    bool is_moved(int stage) const {
        const std::span<const int> holders = index_.devices_of(stage);
        return holders.size() > 1 && !is_tied(plan_.shape, stage) &&
               std::ranges::any_of(holders, [&](int holder) { return index_.stages_of(holder).size() > 1; });
    }

    // Returns the times of the last task up to there that is no transfer.
    Times times_at(int device, int position) const {
        while (position >= 0 && is_transfer(plan_.order[device][position].op))
            --position;
        return position < 0 ? Times{-1, 0} : found_[device][position];
    }

    // Returns the end of the last step on the device, from `position` on, that begins before `reached_`.
    int last_reached(int device, int position) const {
        const std::vector<Task>& order = plan_.order[device];
        for (int next = position + 1; next < std::ssize(order); ++next) {
            if (is_transfer(order[next].op))
                continue;
            if (found_[device][next].begin >= reached_)
                break;
            position = next = end_of_step(order, next);
        }
        return position;
    }

    void move_sum(int stage, int mini_batch) {
        const std::span<const int> holders = index_.devices_of(stage);
        if (std::ranges::any_of(holders, [&](int holder) { return ending_of(stage, holder, mini_batch).summed; }))
            return;  // placed by the schedule
        for (const int holder : holders)
            reached_ = std::max(reached_, times_at(holder, ending_of(stage, holder, mini_batch).position).end);
        for (Ns before = -1; before != reached_;) {  // so that no holder waits for another holder's task
            before = reached_;
            for (const int holder : holders) {
                int& position = ending_of(stage, holder, mini_batch).position;
                position = last_reached(holder, position);
                reached_ = std::max(reached_, times_at(holder, position).end);
            }
        }
    }

    const Plan& plan_;
    const ShapeIndex& index_;
    const KnownTimes& times_;
    Endings& endings_;
    std::vector<int> stages_;                // in the sequence of their sums
    std::vector<std::vector<Times>> found_;  // [device][position]
    Ns reached_ = 0;                         // when the sum runs
};

// The S and U that a device's list lacks, by the position that they follow. S and U of tied stages follow all tasks of
// the device's stages.
std::multimap<int, Task> missing_updates(const Plan& plan, const ShapeIndex& index, const std::vector<bool>& trained,
                                         const std::vector<int>& sequence, const Endings& all, int device) {
    const Shape& shape = plan.shape;
    const int end = end_of_work(plan.order[device]);
    std::multimap<int, Task> sums, updates;
    const std::span<const int> stages = index.stages_of(device);
    const std::vector<StageEndings>& endings = all[device];
    for (std::size_t k = 0; k < stages.size(); ++k) {
        const int stage = stages[k];
        if (endings[k].updated || !trained[stage])
            continue;
        const bool tied = is_tied(shape, stage);
        for (int mini_batch = 0; mini_batch < shape.updates(); ++mini_batch) {
            const auto& [own_end, summed] = endings[k].of_mini_batch[mini_batch];
            const int last = shape.last_of(mini_batch);
            if (needs_sum(shape, stage) && !summed)
                sums.insert({tied ? end : own_end, shape.task(Op::SumGradients, stage, last)});
            updates.insert({tied || shape.global_norm ? end : own_end, shape.task(Op::Update, stage, last)});
        }
    }
    return in_sequence(shape, sequence, sums, updates);
}

}  // namespace

void add_updates(Plan& plan, const KnownTimes& times) {
    const std::vector<bool> trained = trained_stages(plan);
    const std::vector<int> sequence = sum_sequence(plan.shape);
    const ShapeIndex index(plan.shape);
    Endings endings;
    for (int device = 0; device < plan.shape.devices; ++device)
        endings.push_back(endings_of(plan, device, index));
    SumPositions(plan, index, sequence, times, endings).move();
    for (int device = 0; device < plan.shape.devices; ++device) {
        std::vector<Task>& order = plan.order[device];
        const std::multimap<int, Task> missing = missing_updates(plan, index, trained, sequence, endings, device);
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

}  // namespace pw
