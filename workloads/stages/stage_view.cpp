#include "workloads/stages/stage_view.h"

#include <boost/range/iterator_range.hpp>

#include <algorithm>
#include <map>
#include <utility>

namespace pw {

namespace {

// The summands of the gradient of a tensor that layers of the stage make.
std::vector<Contribution> local_reads(const StageView& view, int producer) {
    std::vector<Contribution> reads;
    if (!has_backward(view.graph[producer]))
        return reads;
    for (const auto& edge : boost::make_iterator_range(out_edges(static_cast<std::size_t>(producer), view.graph)))
        if (const int reader = static_cast<int>(target(edge, view.graph)); view.local(reader))
            reads.push_back({view.split.group_of(reader), reader, view.graph[edge].position, true, {}});
    sort_for_sum(reads);
    return reads;
}

}  // namespace

SplitBoundaries::SplitBoundaries(const LayerGraph& graph, const StageSplit& split, const std::vector<LayerBytes>& bytes)
    : all(boundaries_of(graph, split)) {
    crossings.resize(num_vertices(graph));
    for (std::size_t e = 0; e < all.size(); ++e) {
        offsets.push_back(offsets_of(graph, all[e], bytes));
        for (std::size_t t = 0; t < all[e].tensors.size(); ++t)
            crossings[static_cast<std::size_t>(all[e].tensors[t].layer)].push_back({e, t});
    }
}

StageView::StageView(const LayerGraph& all_layers, const StageSplit& all_stages, int number,
                     const std::vector<LayerBytes>& bytes_of_layers, const SplitBoundaries& of_split)
    : graph(all_layers),
      split(all_stages),
      bytes(bytes_of_layers),
      stage(number),
      layers(all_stages.layers[number]),
      boundaries(of_split.all),
      offsets(of_split.offsets),
      crossings(of_split.crossings) {}

int StageView::step(int layer) const {
    return static_cast<int>(std::lower_bound(layers.begin(), layers.end(), layer) - layers.begin());
}

Bytes StageView::largest_scratch() const {
    Bytes largest = 0;
    for (const int layer : layers)
        largest = std::max(largest, bytes[layer].scratch);
    return largest;
}

bool StageView::joins(int norm, int add) const {
    return local(norm) && kind(norm) == LayerKind::BatchNorm && has_backward(graph[norm]) && !graph[norm].relu &&
           bytes[norm].joins && bytes[add].joins && readers_of_layer(graph, norm) == std::vector<int>{add};
}

Slot StageView::inbox(int producer) const {
    for (const auto& [e, t] : crossings[producer])
        if (boundaries[e].to == stage)
            return {Region::Inbox, offsets[e].forward[t], static_cast<int>(e)};
    return {};
}

std::vector<Slot> StageView::landing_slots(int layer) const {
    std::vector<Slot> slots;
    for (const auto& [e, t] : crossings[layer])
        if (boundaries[e].from == stage)
            slots.push_back({Region::Outbox, offsets[e].forward[t], static_cast<int>(e)});
    return slots;
}

std::vector<Contribution> StageView::contributions_of(int layer) const {
    std::vector<Contribution> found = local_reads(*this, layer);
    for (const auto& [e, t] : crossings[layer]) {
        if (boundaries[e].from != stage)
            continue;
        const BoundaryTensor& tensor = boundaries[e].tensors[t];
        for (std::size_t k = 0; k < offsets[e].backward[t].size(); ++k) {
            const int reader = tensor.gradients_summed ? tensor.readers.back() : tensor.readers[k];
            const Slot arrives{Region::Inbox, offsets[e].backward[t][k], static_cast<int>(e)};
            found.push_back({split.group_of(reader), reader, 0, false, arrives});
        }
    }
    sort_for_sum(found);
    return found;
}

std::vector<SentGradient> StageView::sent_gradients() const {
    std::vector<SentGradient> sent;
    for (std::size_t e = 0; e < boundaries.size(); ++e) {
        if (boundaries[e].to != stage)
            continue;
        for (std::size_t t = 0; t < boundaries[e].tensors.size(); ++t) {
            const BoundaryTensor& tensor = boundaries[e].tensors[t];
            if (!has_backward(graph[tensor.layer]))
                continue;
            const auto send = [&](std::size_t k, std::vector<Contribution> parts) {
                const Slot home{Region::Outbox, offsets[e].backward[t][k], static_cast<int>(e)};
                sent.push_back({home, std::move(parts), tensor.layer});
            };
            std::vector<Contribution> reads = local_reads(*this, tensor.layer);
            if (tensor.gradients_summed) {
                send(0, std::move(reads));
                continue;
            }
            std::map<int, std::vector<Contribution>> by_reader;
            for (Contribution& read : reads)
                by_reader[read.reader].push_back(read);
            for (std::size_t k = 0; k < tensor.readers.size(); ++k)
                send(k, std::move(by_reader[tensor.readers[k]]));
        }
    }
    return sent;
}

}  // namespace pw
