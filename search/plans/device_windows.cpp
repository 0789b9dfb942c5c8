#include "search/plans/device_windows.h"

#include <algorithm>
#include <utility>

namespace pw {

namespace {

Window window_of(int device, int from, int to, Op first, const Plan& plan) {
    const auto stages = static_cast<std::size_t>(plan.shape.stages);
    return {device, from, to, first, std::vector<PlanBound::PathCounts>(stages), std::vector<char>(stages)};
}

// A window of a device's list goes from the first F of a stage to the last backward of a later stage, or to the
// updates.
void add_windows_of_list(int device, const Plan& plan, const PlanBound& bound, std::vector<Window>& windows) {
    const std::vector<Task>& order = plan.order[device];
    const std::vector<int> stages = plan.shape.stages_of(device);
    for (const int from : stages) {
        const auto begin = std::find_if(order.begin(), order.end(),
                                        [&](const Task& task) { return task.op == Op::Forward && task.stage == from; });
        const auto ends_at = [&](int to) {
            auto end = order.end();
            while (to != kUpdates && end != begin &&
                   !(makes_input_gradient(std::prev(end)->op) && std::prev(end)->stage == to))
                --end;
            return end;
        };
        std::vector<int> ends = stages;
        ends.push_back(kUpdates);
        for (const int to : ends) {
            const auto end = ends_at(to);
            if (end == begin)
                continue;  // no backward of the stage follows: a plan that does not train has none
            Window& window = windows.emplace_back(window_of(device, from, to, Op::Forward, plan));
            std::for_each(begin, end, [&](const Task& task) { bound.count(task, window.paths[task.stage]); });
        }
    }
}

// Whatever the order of a device's stages a < b < ..., paths of layers to the first tasks of their kinds get longer in
// the order F a, F b, ..., I b, W b, I a, W a, and paths back from the last tasks get shorter in the order F a, F b,
// ..., I b, I a, W. A window has the kinds whose path to is no shorter than the path to its first kind, and whose path
// back is no shorter than the path back from its last kind.
void add_windows_of_any_order(int device, const Plan& plan, const PlanBound& bound, std::vector<Window>& windows) {
    const std::vector<int> stages = plan.shape.stages_of(device);
    for (const Op first : {Op::Forward, Op::BackwardInput})
        for (const int from : stages)
            for (int last = 0; last <= std::ssize(stages); ++last) {
                const int to = last == std::ssize(stages) ? kUpdates : stages[static_cast<std::size_t>(last)];
                const bool from_forward = first == Op::Forward;
                if (!from_forward && to > from)
                    continue;
                const auto has_forward = [&](int stage) { return from_forward && stage >= from; };
                const auto has_input = [&](int stage) { return (from_forward || stage <= from) && stage >= to; };
                const auto has_weight = [&](int stage) { return to == kUpdates && (from_forward || stage <= from); };
                Window& window = windows.emplace_back(window_of(device, from, to, first, plan));
                for (const Task& task : plan.order[device])
                    if ((task.op == Op::Forward && has_forward(task.stage)) ||
                        (task.op == Op::Recompute && has_forward(task.stage) && has_input(task.stage)) ||
                        (makes_input_gradient(task.op) && has_input(task.stage)) ||
                        (task.op == Op::BackwardWeight && has_weight(task.stage)))
                        bound.count(task, window.paths[task.stage]);
                for (const int stage : stages)
                    window.updates[static_cast<std::size_t>(stage)] = has_weight(stage);
            }
}

// In any order, devices with the same stages and as many tasks have the same windows.
bool is_like_an_earlier_device(int device, const Plan& plan) {
    for (int earlier = 0; earlier < device; ++earlier)
        if (plan.order[earlier].size() == plan.order[device].size() &&
            plan.shape.stages_of(earlier) == plan.shape.stages_of(device))
            return true;
    return false;
}

}  // namespace

std::vector<Window> windows_of(const Plan& plan, const PlanBound& bound, bool listed) {
    std::vector<Window> windows;
    for (int device = 0; device < plan.shape.devices; ++device)
        if (listed)
            add_windows_of_list(device, plan, bound, windows);
        else if (bound.has_speed_of_stages(device, plan.shape) && !is_like_an_earlier_device(device, plan))
            add_windows_of_any_order(device, plan, bound, windows);
    return windows;
}

}  // namespace pw
