#include "search/plans/stage_space.h"

#include <algorithm>
#include <limits>
#include <numeric>

namespace pw {

namespace {

Successors successors_of(const LayerGraph& graph) {
    Successors successors;
    for (std::size_t layer = 0; layer < num_vertices(graph); ++layer)
        successors.push_back(readers_of_layer(graph, static_cast<int>(layer)));
    return successors;
}

std::vector<int> numbers_below(int count) {
    std::vector<int> numbers(static_cast<std::size_t>(count));
    std::iota(numbers.begin(), numbers.end(), 0);
    return numbers;
}

// Returns the unit of each layer. Ranges of a topological order are in a topological order, too.
std::vector<int> units_of(const LayerGraph& graph, const CutPlaces& places) {
    std::vector<int> units = numbers_below(static_cast<int>(num_vertices(graph)));
    if (!places.empty())
        for (int& unit : units)
            unit = static_cast<int>(std::upper_bound(places.begin(), places.end(), unit) - places.begin()) - 1;
    return units;
}

Successors successors_of_units(const LayerGraph& graph, const std::vector<int>& unit_of) {
    Successors successors(static_cast<std::size_t>(unit_of.back()) + 1);
    for (std::size_t layer = 0; layer < unit_of.size(); ++layer)
        for (const int reader : readers_of_layer(graph, static_cast<int>(layer)))
            if (unit_of[reader] != unit_of[layer])
                successors[unit_of[layer]].push_back(unit_of[reader]);
    for (std::vector<int>& readers : successors) {
        std::sort(readers.begin(), readers.end());
        readers.erase(std::unique(readers.begin(), readers.end()), readers.end());
    }
    return successors;
}

}  // namespace

StageSpace::StageSpace(const LayerGraph& graph, std::size_t most_cuts, const CutPlaces& places)
    : unit_of_(units_of(graph, places)) {
    std::optional<Downsets> all = downsets_of(successors_of_units(graph, unit_of_), most_cuts);
    complete_ = all.has_value();
    downsets_ = complete_ ? std::move(*all) : prefixes_of(numbers_below(unit_of_.back() + 1));
    const auto count = static_cast<std::size_t>(cuts());
    size_.assign(count, 0);
    grown_.resize(count);
    shrunk_.resize(count);
    for (int cut = 0; cut < cuts(); ++cut)
        for (const Downsets::Step step : downsets_.steps_of(cut)) {
            size_[step.next] = size_[cut] + 1;
            grown_[cut].push_back(step.next);
            shrunk_[step.next].push_back(cut);
        }
}

bool StageSpace::precedes(int cut, int later) const {
    const std::size_t words = downsets_.words_each();
    const std::uint64_t* a = downsets_.words.data() + static_cast<std::size_t>(cut) * words;
    const std::uint64_t* b = downsets_.words.data() + static_cast<std::size_t>(later) * words;
    for (std::size_t word = 0; word < words; ++word)
        if (a[word] & ~b[word])
            return false;
    return cut != later;
}

std::vector<int> StageSpace::layers_between(int cut, int later) const {
    std::vector<int> between;
    for (int layer = 0; layer < layers(); ++layer)
        if (contains(later, layer) && !contains(cut, layer))
            between.push_back(layer);
    return between;
}

StageSplit StageSpace::split_of(const std::vector<int>& cuts) const {
    StageSplit split;
    split.stage_of.assign(static_cast<std::size_t>(layers()), -1);
    for (std::size_t stage = 0; stage + 1 < cuts.size(); ++stage) {
        split.layers.push_back(layers_between(cuts[stage], cuts[stage + 1]));
        for (const int layer : split.layers.back())
            split.stage_of[layer] = static_cast<int>(stage);
    }
    return split;
}

namespace {

// Longest paths of layers by a time per layer, the layer itself included.
class Paths {
public:
    Paths(const LayerGraph& graph, const std::vector<Ns>& forward, const std::vector<Ns>& backward)
        : to_forward(forward), to_backward(backward), round_trip(forward.size()) {
        const int layers = static_cast<int>(forward.size());
        for (int layer = 0; layer < layers; ++layer) {
            Ns head = 0, tail = 0;
            for (const int input : inputs_of_layer(graph, layer)) {
                head = std::max(head, to_forward[input]);
                tail = std::max(tail, to_backward[input]);
            }
            to_forward[layer] += head;
            to_backward[layer] += tail;
        }
        for (int layer = layers - 1; layer >= 0; --layer) {
            for (const int reader : readers_of_layer(graph, layer))
                round_trip[layer] = std::max(round_trip[layer], round_trip[reader]);
            round_trip[layer] += forward[layer] + backward[layer];
        }
    }

    std::vector<Ns> to_forward, to_backward;  // from the data to the layer
    std::vector<Ns> round_trip;               // from the layer to the loss and back
};

// The tensor that a layer makes is held for the backward by the stage of its last reader that reads it again. Counted
// there alone, the tensor is counted at most once per stage.
std::vector<Bytes> held_by_layer(const LayerGraph& graph, const std::vector<LayerBytes>& bytes) {
    std::vector<Bytes> held;
    for (const LayerBytes& layer : bytes)
        held.push_back(layer.saved_until_input + layer.kept_until_weight);
    for (std::size_t layer = 0; layer < bytes.size(); ++layer) {
        int reader = -1;
        for (const int other : readers_of_layer(graph, static_cast<int>(layer)))
            if (rereads_input_for_input_gradient(graph[other]) || rereads_input_for_weight_gradient(graph[other]))
                reader = other;
        if (reader >= 0)
            held[reader] += bytes[layer].output;
    }
    return held;
}

// A layer's own share of a piece: sums of these are the sums of the stage.
Piece share_of(const Layer& layer, const StageCost& cost, const LayerBytes& bytes, Bytes held, BackwardForm form) {
    const bool mixed = form == BackwardForm::Mixed, split = form != BackwardForm::Whole;
    const Ns backward = mixed   ? std::min(cost.backward_input, cost.backward)
                        : split ? cost.backward_input
                                : cost.backward;
    return {.forward = cost.forward,
            .backward = backward,
            .weight = split ? cost.backward_weight : 0,
            .rest = mixed ? std::min(cost.backward - backward, cost.backward_weight) : 0,
            .recompute = cost.recompute,
            .update = cost.update,
            .accumulate = cost.accumulate,
            .layers = 1,
            .with_backward = has_backward(layer) ? 1 : 0,
            .weights = bytes.weights,
            .frozen = bytes.frozen,
            .statistics = bytes.statistics,
            .activations = held};
}

void add(Piece& sum, const Piece& other, int sign) {
    sum.forward += sign * other.forward;
    sum.backward += sign * other.backward;
    sum.weight += sign * other.weight;
    sum.rest += sign * other.rest;
    sum.recompute += sign * other.recompute;
    sum.update += sign * other.update;
    sum.accumulate += sign * other.accumulate;
    sum.layers += sign * other.layers;
    sum.with_backward += sign * other.with_backward;
    sum.weights += sign * other.weights;
    sum.frozen += sign * other.frozen;
    sum.statistics += sign * other.statistics;
    sum.activations += sign * other.activations;
}

std::vector<Piece> shares_of(const LayerGraph& graph, const CostTable& costs, BackwardForm form) {
    const std::vector<Bytes> held = held_by_layer(graph, costs.bytes());
    std::vector<Piece> shares;
    for (std::size_t layer = 0; layer < costs.alone().size(); ++layer) {
        const StageCost& alone = costs.alone()[layer];
        const StageCost cost = costs.busy().empty() ? alone : shorter_of(alone, costs.busy()[layer]);
        shares.push_back(share_of(graph[layer], cost, costs.bytes()[layer], held[layer], form));
    }
    return shares;
}

}  // namespace

Pieces::Pieces(const LayerGraph& graph, const StageSpace& space, const CostTable& costs, BackwardForm form,
               Deadline& deadline)
    : pieces_(static_cast<std::size_t>(space.cuts())) {
    const std::vector<Piece> shares = shares_of(graph, costs, form);
    std::vector<Ns> forward, backward;
    for (const Piece& share : shares) {
        forward.push_back(share.forward);
        backward.push_back(share.backward);
    }
    const Paths paths(graph, forward, backward);
    longest_forward_ = *std::max_element(paths.to_forward.begin(), paths.to_forward.end());
    longest_round_ = *std::max_element(paths.round_trip.begin(), paths.round_trip.end());
    const Successors readers_of = successors_of(graph);
    const int cuts = space.cuts();
    std::vector<Piece> before(static_cast<std::size_t>(cuts));  // sums over the layers before a cut
    std::vector<std::vector<int>> boundary(before.size());      // layers before it that feed a layer after it
    std::vector<std::vector<int>> ends(before.size());          // layers before it that feed no layer before it
    std::vector<int> first_with(shares.size(), cuts);           // by layer: the first cut after it
    for (int cut = 0; cut < cuts; ++cut) {
        deadline.check();
        for (int layer = 0; layer < space.layers(); ++layer) {
            if (!space.contains(cut, layer))
                continue;
            first_with[layer] = std::min(first_with[layer], cut);
            add(before[cut], shares[layer], 1);
            const std::vector<int>& readers = readers_of[layer];
            if (std::any_of(readers.begin(), readers.end(), [&](int reader) { return !space.contains(cut, reader); }))
                boundary[cut].push_back(layer);
            if (std::none_of(readers.begin(), readers.end(), [&](int reader) { return space.contains(cut, reader); }))
                ends[cut].push_back(layer);
        }
        Bytes least = 0;
        int first = cut;
        for (const int layer : boundary[cut]) {
            const Bytes sent = costs.bytes()[layer].output;
            least = layer == boundary[cut].front() ? sent : std::min(least, sent);
            first = std::min(first, first_with[layer]);
        }
        least_sent_.push_back(least);
        first_sent_.push_back(first);
    }
    for (int from = 0; from < cuts; ++from) {
        deadline.check();
        for (int to = from + 1; to < cuts; ++to) {
            if (!space.precedes(from, to))
                continue;
            Piece piece = before[to];
            add(piece, before[from], -1);
            piece.from = from;
            piece.to = to;
            for (const int layer : boundary[from])
                for (const int reader : readers_of[layer])
                    if (space.contains(to, reader) && !space.contains(from, reader)) {
                        piece.reads = true;
                        piece.head = std::max(piece.head, paths.to_forward[layer]);
                        piece.tail = std::max(piece.tail, paths.to_backward[layer]);
                    }
            piece.waits_for_all = std::ranges::all_of(ends[from], [&](int layer) {
                return std::ranges::any_of(readers_of[layer], [&](int reader) { return space.contains(to, reader); });
            });
            for (const int layer : boundary[to])
                if (!space.contains(from, layer))
                    for (const int reader : readers_of[layer])
                        if (!space.contains(to, reader))
                            piece.mid = std::max(piece.mid, paths.round_trip[reader]);
            pieces_[from].push_back(piece);
        }
    }
    least_head_.assign(static_cast<std::size_t>(cuts), std::numeric_limits<Ns>::max());
    least_tail_ = least_head_;
    for (int cut = cuts - 1; cut >= 0; --cut)
        for (const Piece& piece : pieces_[cut]) {
            least_head_[cut] = std::min({least_head_[cut], piece.head, least_head_[piece.to]});
            least_tail_[cut] = std::min({least_tail_[cut], piece.tail, least_tail_[piece.to]});
        }
}

const Piece& Pieces::between(int cut, int later) const {
    const auto to = [](const Piece& piece, int wanted) { return piece.to < wanted; };
    return *std::lower_bound(pieces_[cut].begin(), pieces_[cut].end(), later, to);
}

}  // namespace pw
