#include "workloads/stages/ties.h"

#include <algorithm>
#include <map>
#include <utility>

namespace pw {

std::vector<Tie> ties_of(const LayerGraph& graph) {
    std::vector<Tie> ties;
    for (int layer = 0; layer < static_cast<int>(boost::num_vertices(graph)); ++layer)
        if (!graph[layer].tied_to.empty())
            ties.push_back({find_layer(graph, graph[layer].tied_to), layer});
    return ties;
}

std::vector<StageTie> ties_of(const LayerGraph& graph, const StageSplit& split, Bytes gradient) {
    std::map<std::pair<int, int>, Bytes> bytes;
    for (const Tie& tie : ties_of(graph)) {
        const auto [from, to] = std::minmax(split.stage_of[tie.table], split.stage_of[tie.reader]);
        if (from != to && !graph[tie.table].frozen)
            bytes[{from, to}] += graph[tie.table].parameters * gradient;
    }
    std::vector<StageTie> ties;
    for (const auto& [stages, size] : bytes)
        ties.push_back({stages.first, stages.second, size});
    return ties;
}

}  // namespace pw
