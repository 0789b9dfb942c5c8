#include "schedules/passes/passes.h"

#include <utility>
#include <vector>

namespace pw {

namespace {

// Returns whether a task is for a backward of a stage that runs forwards only.
bool goes_back(const Task& task, const Shape& shape) {
    if (is_transfer(task.op))
        return carries_gradients(task.op) &&
               (shape.runs_forwards_only(task.stage) || shape.runs_forwards_only(task.peer));
    return task.op != Op::Forward && shape.runs_forwards_only(task.stage);
}

}  // namespace

void drop_backwards(Plan& plan) {
    if (plan.shape.forwards_only.empty())
        return;
    for (std::vector<Task>& order : plan.order) {
        std::vector<Task> kept;
        for (const Task& task : order)
            if (!goes_back(task, plan.shape))
                kept.push_back(task);
            else if (!kept.empty())
                kept.back().with_next = false;
        order = std::move(kept);
    }
}

}  // namespace pw
