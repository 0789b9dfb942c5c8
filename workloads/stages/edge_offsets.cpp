#include "workloads/stages/edge_offsets.h"

#include <algorithm>

namespace pw {

EdgeOffsets offsets_of(const LayerGraph& graph, const Boundary& boundary, const std::vector<LayerBytes>& bytes) {
    EdgeOffsets offsets;
    for (const BoundaryTensor& tensor : boundary.tensors) {
        offsets.forward.push_back(offsets.forward_bytes);
        offsets.forward_bytes += bytes[tensor.layer].output;
        std::vector<Bytes>& gradients = offsets.backward.emplace_back();
        const std::size_t count = !has_backward(graph[tensor.layer]) ? 0
                                  : tensor.gradients_summed          ? 1
                                                                     : tensor.readers.size();
        for (std::size_t k = 0; k < count; ++k) {
            gradients.push_back(offsets.backward_bytes);
            offsets.backward_bytes += bytes[tensor.layer].output;
        }
    }
    return offsets;
}

std::vector<EdgeBytes> edge_bytes(const LayerGraph& graph, const StageSplit& split,
                                  const std::vector<LayerBytes>& bytes) {
    std::vector<EdgeBytes> edges;
    for (const Boundary& boundary : boundaries_of(graph, split)) {
        const EdgeOffsets offsets = offsets_of(graph, boundary, bytes);
        EdgeBytes edge{boundary.from, boundary.to, offsets.forward_bytes, offsets.backward_bytes};
        for (const BoundaryTensor& tensor : boundary.tensors) {
            for (int reader : tensor.readers)
                if (split.stage_of[reader] == boundary.to) {
                    edge.forward_until_weight |= rereads_input_for_weight_gradient(graph[reader]);
                    edge.forward_until_input |= rereads_input_for_input_gradient(graph[reader]);
                }
            // The sum of the producer's output gradient is kept where its first summand landed.
            if (has_weight_pass(graph[tensor.layer]) && split.stage_of[tensor.layer] == boundary.from) {
                const int first = first_summed(split, readers_of_layer(graph, tensor.layer));
                edge.backward_until_weight |= std::ranges::find(tensor.readers, first) != tensor.readers.end();
            }
        }
        edges.push_back(edge);
    }
    return edges;
}

}  // namespace pw
