#include "workloads/stages/stage_view.h"

#include <algorithm>

namespace pw {

namespace {

// The summands that layers of the stage among the readers of a tensor make.
std::vector<Contribution> local_reads(const StageView& view, int producer, const std::vector<int>& readers) {
    std::vector<Contribution> reads;
    for (const int reader : readers) {
        if (!view.local(reader))
            continue;
        const std::vector<int> producers = inputs_of_layer(view.graph, reader);
        for (int position = 0; position < static_cast<int>(producers.size()); ++position)
            if (producers[position] == producer)
                reads.push_back({view.split.group_of(reader), reader, position, true, {}});
    }
    sort_for_sum(reads);
    return reads;
}

}  // namespace

SplitBoundaries::SplitBoundaries(const LayerGraph& graph, const StageSplit& split, const std::vector<LayerBytes>& bytes)
    : all(boundaries_of(graph, split)) {
    for (const Boundary& boundary : all)
        offsets.push_back(offsets_of(boundary, bytes));
}

StageView::StageView(const LayerGraph& all_layers, const StageSplit& all_stages, int number,
                     const std::vector<LayerBytes>& bytes_of_layers, const SplitBoundaries& of_split)
    : graph(all_layers),
      split(all_stages),
      bytes(bytes_of_layers),
      stage(number),
      layers(all_stages.layers[number]),
      boundaries(of_split.all),
      offsets(of_split.offsets) {}

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
    return local(norm) && kind(norm) == LayerKind::BatchNorm && !graph[norm].relu && bytes[norm].joins &&
           bytes[add].joins && readers_of_layer(graph, norm) == std::vector<int>{add};
}

Slot StageView::inbox(int producer) const {
    for (std::size_t e = 0; e < boundaries.size(); ++e) {
        if (boundaries[e].to != stage)
            continue;
        for (std::size_t t = 0; t < boundaries[e].tensors.size(); ++t)
            if (boundaries[e].tensors[t].layer == producer)
                return {Region::Inbox, offsets[e].forward[t], static_cast<int>(e)};
    }
    return {};
}

std::vector<Slot> StageView::landing_slots(int layer) const {
    std::vector<Slot> slots;
    for (std::size_t e = 0; e < boundaries.size(); ++e) {
        if (boundaries[e].from != stage)
            continue;
        for (std::size_t t = 0; t < boundaries[e].tensors.size(); ++t)
            if (boundaries[e].tensors[t].layer == layer)
                slots.push_back({Region::Outbox, offsets[e].forward[t], static_cast<int>(e)});
    }
    return slots;
}

std::vector<Contribution> StageView::contributions_of(int layer) const {
    std::vector<Contribution> found = local_reads(*this, layer, readers_of_layer(graph, layer));
    for (std::size_t e = 0; e < boundaries.size(); ++e) {
        if (boundaries[e].from != stage)
            continue;
        for (std::size_t t = 0; t < boundaries[e].tensors.size(); ++t) {
            const BoundaryTensor& tensor = boundaries[e].tensors[t];
            if (tensor.layer != layer)
                continue;
            for (std::size_t k = 0; k < offsets[e].backward[t].size(); ++k) {
                const int reader = tensor.gradients_summed ? tensor.readers.back() : tensor.readers[k];
                const Slot arrives{Region::Inbox, offsets[e].backward[t][k], static_cast<int>(e)};
                found.push_back({split.group_of(reader), reader, 0, false, arrives});
            }
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
            const auto send = [&](std::size_t k, const std::vector<int>& readers) {
                const Slot home{Region::Outbox, offsets[e].backward[t][k], static_cast<int>(e)};
                sent.push_back({home, local_reads(*this, tensor.layer, readers), tensor.layer});
            };
            if (tensor.gradients_summed)
                send(0, tensor.readers);
            else
                for (std::size_t k = 0; k < tensor.readers.size(); ++k)
                    send(k, {tensor.readers[k]});
        }
    }
    return sent;
}

}  // namespace pw
