// All splits of a layer graph into stages.
#pragma once

#include "workloads/models/models.h"
#include "workloads/stages/stage_split.h"

#include <algorithm>
#include <vector>

namespace pw {

// Visits every assignment of layers to stages that runs forward and leaves no stage empty; `split` begins empty.
template <class Visit>
void for_each_split(const LayerGraph& graph, int stages, StageSplit& split, Visit visit) {
    const int layer = static_cast<int>(split.stage_of.size());
    if (layer == static_cast<int>(num_vertices(graph))) {
        split.layers.assign(static_cast<std::size_t>(stages), {});
        for (int number = 0; number < layer; ++number)
            split.layers[split.stage_of[number]].push_back(number);
        const auto empty = [](const std::vector<int>& layers) { return layers.empty(); };
        if (std::none_of(split.layers.begin(), split.layers.end(), empty))
            visit(split);
        return;
    }
    int least = 0;
    for (const int input : inputs_of_layer(graph, layer))
        least = std::max(least, split.stage_of[input]);
    for (int stage = least; stage < stages; ++stage) {
        split.stage_of.push_back(stage);
        for_each_split(graph, stages, split, visit);
        split.stage_of.pop_back();
    }
}

}  // namespace pw
