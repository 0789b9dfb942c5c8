#include "schedules/plan/shape_index.h"

#include <algorithm>

namespace pw {

namespace {

Rows rows_of(std::vector<std::vector<int>> lists) {
    Rows rows;
    for (std::vector<int>& list : lists) {
        std::sort(list.begin(), list.end());
        rows.push(list);
        rows.close();
    }
    return rows;
}

}  // namespace

ShapeIndex::ShapeIndex(const Shape& shape) : joined_(shape.joined) {
    const auto stages = static_cast<std::size_t>(shape.stages), devices = static_cast<std::size_t>(shape.devices);
    std::vector<std::vector<int>> stages_of(devices), before(stages), after(stages);
    for (int stage = 0; stage < shape.stages; ++stage) {
        const std::vector<int> holders = shape.devices_of(stage);
        holders_.push(holders);
        holders_.close();
        for (const int device : holders)
            stages_of[device].push_back(stage);
    }
    const auto join = [&](int from, int to) {
        after[from].push_back(to);
        before[to].push_back(from);
    };
    if (shape.edges)
        for (const Edge& edge : *shape.edges)
            join(edge.from, edge.to);
    else
        for (int stage = 0; stage + 1 < shape.stages; ++stage)
            join(stage, stage + 1);
    std::vector<std::vector<int>> to = before, from = after;
    for (int stage = 0; stage < shape.stages && !shape.forwards_only.empty(); ++stage)
        for (std::vector<int>* peers : {&to[stage], &from[stage]})
            std::erase_if(*peers,
                          [&](int peer) { return shape.runs_forwards_only(stage) || shape.runs_forwards_only(peer); });
    gradients_to_ = rows_of(std::move(to));
    gradients_from_ = rows_of(std::move(from));
    stages_ = rows_of(std::move(stages_of));
    before_ = rows_of(std::move(before));
    after_ = rows_of(std::move(after));
}

bool ShapeIndex::holds(int device, int stage) const {
    const std::span<const int> stages = stages_of(device);
    return std::binary_search(stages.begin(), stages.end(), stage);
}

std::size_t ShapeIndex::row_of(int device, int stage) const {
    const std::span<const int> stages = stages_of(device);
    return static_cast<std::size_t>(std::lower_bound(stages.begin(), stages.end(), stage) - stages.begin());
}

int ShapeIndex::edge(int from, int to) const {
    const std::span<const int> neighbours = after(from);
    constexpr std::size_t kFew = 8;
    const auto found = neighbours.size() <= kFew ? std::find(neighbours.begin(), neighbours.end(), to)
                                                 : std::lower_bound(neighbours.begin(), neighbours.end(), to);
    return found != neighbours.end() && *found == to ? after_.first(from) + static_cast<int>(found - neighbours.begin())
                                                     : -1;
}

}  // namespace pw
