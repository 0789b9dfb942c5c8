#include "schedules/plan/traffic.h"

namespace pw {

Traffic::Traffic(const Shape& shape, const ShapeIndex& index, const Costs& costs)
    : shape_(shape), index_(index), costs_(costs) {
    const auto loads_of = [&](const std::vector<EdgeBytes>& edges) {
        Loads loads;
        for (std::vector<Bytes>& kind : loads)
            kind.resize(static_cast<std::size_t>(index.edges()));
        for (const EdgeBytes& edge : edges)
            if (const int number = index.edge(edge.from, edge.to); number >= 0) {
                loads[0][number] = edge.forward;
                loads[1][number] = edge.backward;
            }
        return loads;
    };
    full_ = loads_of(costs.edges);
    if (!costs.last_edges.empty())
        last_ = loads_of(costs.last_edges);
}

Bytes Traffic::bytes(const Task& task) const {
    if (copies_states(task.op))
        return held_state_of(task.stage, static_cast<int>(index_.devices_of(task.stage).size()), costs_).states;
    if (is_copy(task.op)) {
        const StageBytes& stage = costs_.bytes[static_cast<std::size_t>(task.stage)];
        const double length = costs_.length_of(task.microbatch, task.stage).bytes;
        return scaled_bytes(stage.offloaded_until_input, length) + scaled_bytes(stage.offloaded_until_weight, length);
    }
    if (!is_transfer(task.op))
        return 0;
    const Edge edge = edge_of(task);
    const int number = index_.edge(edge.from, edge.to);
    if (number < 0)
        return 0;
    const bool smaller = !last_.front().empty() && shape_.is_in_last_of_mini_batch(task.microbatch);
    const Bytes bytes = (smaller ? last_ : full_)[carries_gradients(task.op) ? 1 : 0][number];
    return scaled_bytes(bytes, costs_.length_of(task.microbatch, edge.from).bytes);
}

std::vector<Bytes> Traffic::bytes(const PlanGraph& graph) const {
    std::vector<Bytes> moved;
    for (int node = 0; node < graph.size(); ++node)
        moved.push_back(bytes(graph.task(node)));
    return moved;
}

}  // namespace pw
