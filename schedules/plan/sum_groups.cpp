#include "schedules/plan/sum_groups.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>
#include "schedules/plan/plan_graph.h"

namespace pw {

namespace {

// Stage -> the first stage of its group.
std::vector<int> groups_by_stage(const Shape& shape) {
    std::vector<int> group(static_cast<std::size_t>(shape.stages));
    std::iota(group.begin(), group.end(), 0);
    for (const Edge& tie : shape.ties) {
        const auto [first, second] = std::minmax(group[tie.from], group[tie.to]);
        std::replace(group.begin(), group.end(), int{second}, int{first});
    }
    return group;
}

}  // namespace

std::vector<SumGroup> sum_groups(const Shape& shape) {
    const std::vector<int> group_of = groups_by_stage(shape);
    std::map<int, SumGroup> groups;
    for (int stage = 0; stage < shape.stages; ++stage) {
        SumGroup& group = groups[group_of[stage]];
        group.stages.push_back(stage);
        const std::vector<int> holders = shape.devices_of(stage);
        group.devices.insert(group.devices.end(), holders.begin(), holders.end());
    }
    std::vector<SumGroup> all;
    for (auto& [first, group] : groups) {
        std::sort(group.devices.begin(), group.devices.end());
        group.devices.erase(std::unique(group.devices.begin(), group.devices.end()), group.devices.end());
        all.push_back(std::move(group));
    }
    return all;
}

bool is_tied(const Shape& shape, int stage) {
    return std::any_of(shape.ties.begin(), shape.ties.end(),
                       [&](const Edge& tie) { return tie.from == stage || tie.to == stage; });
}

bool has_equal_copies(const Shape& shape) {
    return shape.copies > 1 && shape.microbatches % shape.copies == 0 &&
           std::ranges::all_of(shape.placement,
                               [&](const std::vector<int>& holders) { return std::ssize(holders) == shape.copies; });
}

bool may_overlap_sum(const Shape& shape, int stage) {
    const std::vector<int> holders = shape.devices_of(stage);
    return holders.size() > 1 && !is_tied(shape, stage) &&
           (has_equal_copies(shape) ||
            std::ranges::all_of(holders, [&](int holder) { return shape.stages_of(holder).size() == 1; }));
}

bool needs_sum(const Shape& shape, int stage) { return shape.devices_of(stage).size() > 1 || is_tied(shape, stage); }

std::vector<Barrier> barriers_of(const PlanGraph& graph, const Shape& shape) {
    const std::vector<int> group_of = groups_by_stage(shape);
    const int all_stages = -1;
    std::map<std::pair<int, int>, Barrier> barriers;  // by mini-batch and group
    for (int node = 0; node < graph.size(); ++node) {
        const Task& task = graph.task(node);
        const bool sums = task.op == Op::SumGradients;
        if (!sums && !(task.op == Op::Update && shape.global_norm))
            continue;
        const int mini_batch = shape.mini_batch_of(task.microbatch);
        Barrier& barrier = barriers[{mini_batch, sums ? group_of[task.stage] : all_stages}];
        // nodes are numbered device by device
        if (barrier.nodes.empty() || graph.device_of(barrier.nodes.back()) != graph.device_of(node))
            barrier.first.push_back(node);
        barrier.nodes.push_back(node);
    }
    std::vector<Barrier> all;
    for (auto& [key, barrier] : barriers) {
        for (int stage = 0; stage < shape.stages; ++stage)
            if (key.second == all_stages || group_of[stage] == key.second)
                barrier.stages.push_back(stage);
        all.push_back(std::move(barrier));
    }
    return all;
}

}  // namespace pw
