#include "workloads/stages/stage_layout.h"

#include "workloads/stages/gradient_layout.h"
#include "workloads/stages/stage_view.h"
#include "workloads/stages/transients.h"

#include <algorithm>
#include <utility>

namespace pw {

namespace {

void place_parameters(const StageView& view, StageLayout& layout) {
    for (const int layer : view.layers) {
        layout.weight_offset[layer] = layout.weights;
        layout.weights += view.bytes[layer].weights;
        layout.statistics_offset[layer] = layout.statistics;
        layout.statistics += view.bytes[layer].statistics;
    }
    for (const int layer : view.layers)
        if (const Bytes frozen = view.bytes[layer].frozen; frozen > 0) {
            layout.weight_offset[layer] = layout.weights + layout.frozen;
            layout.frozen += frozen;
        }
}

Bytes largest_sent_output(const StageView& view, const StageLayout& layout) {
    Bytes largest = 0;
    for (const int layer : view.layers)
        if (layout.output[layer].region == Region::Outbox && view.graph[layer].recomputed)
            largest = std::max(largest, view.bytes[layer].output);
    return largest;
}

// These return a slot of what a layer saves until I, or until W.
Slot slot_until_input(const StageView& view, int layer, Bytes bytes, StageLayout& layout) {
    if (view.graph[layer].offloaded)
        return slot_at_end(layout.offloaded_until_input, Region::OffloadedUntilInput, bytes);
    return view.graph[layer].recomputed ? slot_at_end(layout.until_input, Region::UntilInput, bytes)
                                        : slot_at_end(layout.first_until_input, Region::FirstUntilInput, bytes);
}
Slot slot_until_weight(const StageView& view, int layer, Bytes bytes, StageLayout& layout) {
    if (view.graph[layer].offloaded)
        return slot_at_end(layout.offloaded_until_weight, Region::OffloadedUntilWeight, bytes);
    return view.graph[layer].recomputed ? slot_at_end(layout.until_weight, Region::UntilWeight, bytes)
                                        : slot_at_end(layout.first_until_weight, Region::FirstUntilWeight, bytes);
}

// A tensor lives as long as the last pass of this stage that reads the tensor. A tensor that only other stages read is
// written straight into the landing buffer of the first of them.
void place_outputs(const StageView& view, StageLayout& layout) {
    std::vector<Transient> transients;
    for (const int layer : view.layers) {
        std::vector<Slot>& copies = layout.copies[layer] = view.landing_slots(layer);
        bool read_by_weight = false, read_by_input = false, read_again = false;
        int last_reader = -1;
        for (const int reader : readers_of_layer(view.graph, layer)) {
            if (!view.local(reader))
                continue;
            last_reader = reader;
            read_by_weight |= rereads_input_for_weight_gradient(view.graph[reader]);
            read_by_input |= rereads_input_for_input_gradient(view.graph[reader]);
            read_again |= !view.graph[layer].recomputed && view.graph[reader].recomputed;
        }
        Slot& output = layout.output[layer];
        const Bytes bytes = view.bytes[layer].output;
        if (read_by_weight)
            output = slot_until_weight(view, layer, bytes, layout);
        else if (read_by_input)
            output = slot_until_input(view, layer, bytes, layout);
        else if (read_again)
            output = slot_at_end(layout.first_until_again, Region::FirstUntilAgain, bytes);
        else if (last_reader < 0 && !copies.empty()) {
            output = copies.front();
            copies.erase(copies.begin());
        } else if (bytes > 0) {
            output.region = Region::Workspace;
            transients.push_back({bytes, view.step(layer), view.step(std::max(layer, last_reader)), &output});
        }
    }
    layout.forward_scratch = pack_transients(std::move(transients));
    layout.forward_workspace = layout.forward_scratch + view.largest_scratch();
    layout.recompute_workspace = layout.forward_workspace + largest_sent_output(view, layout);
}

void place_inputs(const StageView& view, Bytes data_bytes, StageLayout& layout) {
    for (const int layer : view.layers) {
        const std::vector<int> producers = inputs_of_layer(view.graph, layer);
        for (const int producer : producers)
            layout.input[layer].push_back(view.local(producer) ? layout.output[producer] : view.inbox(producer));
        if (producers.empty()) {
            layout.input[layer].push_back({Region::Data, 0, -1});
            layout.data = data_bytes;
        }
    }
}

// The bytes of an attention's keys, or of its values: they have as many heads as the output, or fewer.
Bytes bytes_of_keys(const Layer& layer, const LayerBytes& bytes) {
    constexpr Bytes kUnit = 64;  // sizes are multiples of it
    const Bytes shared_by = layer.kind == LayerKind::GroupedAttention ? layer.heads / layer.key_value_heads : 1;
    return (bytes.output / kUnit + shared_by - 1) / shared_by * kUnit;
}

void place_saved_state(const StageView& view, StageLayout& layout) {
    for (const int layer : view.layers) {
        const LayerBytes& bytes = view.bytes[layer];
        layout.saved[layer] = slot_until_input(view, layer, bytes.saved_until_input, layout);
        layout.kept[layer] = slot_until_weight(view, layer, bytes.kept_until_weight, layout);
        layout.gradient_kept += bytes.gradient_until_weight;
        if (is_attention(view.kind(layer)))
            layout.slice_gradient[layer] = slot_at_end(layout.slice_gradients, Region::SliceGradients,
                                                       2 * bytes_of_keys(view.graph[layer], bytes));
    }
}

void join_norms(const StageView& view, StageLayout& layout) {
    for (const int add : view.layers)
        for (const int input : inputs_of_layer(view.graph, add))
            if (view.kind(add) == LayerKind::Add)
                layout.norms[add].push_back(view.joins(input, add) ? input : -1);
}

}  // namespace

namespace {

StageLayout layout_of(const StageView& view, Bytes data_bytes) {
    const std::size_t all = boost::num_vertices(view.graph);
    StageLayout layout;
    layout.stage = view.stage;
    layout.layers = view.layers;
    layout.output.resize(all);
    layout.input.resize(all);
    layout.copies.resize(all);
    layout.saved.resize(all);
    layout.kept.resize(all);
    layout.slice_gradient.resize(all);
    layout.norms.resize(all);
    layout.weight_offset.resize(all);
    layout.statistics_offset.resize(all);
    place_parameters(view, layout);
    place_outputs(view, layout);
    place_inputs(view, data_bytes, layout);
    place_saved_state(view, layout);
    join_norms(view, layout);
    layout.backward = layout_gradients(view, false, layout.gradient_kept);
    layout.backward_input = layout_gradients(view, true, layout.gradient_kept);
    layout.weight_workspace = view.largest_scratch();
    return layout;
}

}  // namespace

LayerBytes without_unused(const Layer& layer, LayerBytes bytes) {
    if (!layer.weight_pass) {
        bytes.frozen += bytes.weights;
        bytes.weights = bytes.kept_until_weight = bytes.gradient_until_weight = 0;
    }
    if (!has_backward(layer))
        bytes.saved_until_input = 0;
    return bytes;
}

StageLayout layout_stage(const LayerGraph& graph, const StageSplit& split, int stage,
                         const std::vector<LayerBytes>& bytes, Bytes data_bytes) {
    const SplitBoundaries boundaries(graph, split, bytes);
    return layout_of({graph, split, stage, bytes, boundaries}, data_bytes);
}

std::vector<StageBytes> bytes_of_stages(const LayerGraph& graph, const StageSplit& split,
                                        const std::vector<LayerBytes>& bytes, Bytes data_bytes) {
    const SplitBoundaries boundaries(graph, split, bytes);
    std::vector<StageBytes> stages;
    for (int stage = 0; stage < split.stages(); ++stage)
        stages.push_back(stage_bytes(layout_of({graph, split, stage, bytes, boundaries}, data_bytes)));
    return stages;
}

StageBytes stage_bytes(const StageLayout& layout) {
    return {.weights = layout.weights,
            .frozen = layout.frozen,
            .statistics = layout.statistics,
            .data = layout.data,
            .until_input = layout.until_input,
            .until_weight = layout.until_weight,
            .gradient_kept = layout.gradient_kept,
            .first_until_again = layout.first_until_again,
            .first_until_input = layout.first_until_input,
            .first_until_weight = layout.first_until_weight,
            .offloaded_until_input = layout.offloaded_until_input,
            .offloaded_until_weight = layout.offloaded_until_weight,
            .forward_workspace = layout.forward_workspace,
            .backward_workspace = layout.backward.workspace,
            .input_workspace = layout.backward_input.workspace,
            .weight_workspace = layout.weight_workspace,
            .recompute_workspace = layout.recompute_workspace,
            .uncut_workspace = layout.weight_workspace,
            .keys_and_values = layout.slice_gradients};
}

}  // namespace pw
