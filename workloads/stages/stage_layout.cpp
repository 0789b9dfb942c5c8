#include "workloads/stages/stage_layout.h"

#include "workloads/stages/edge_offsets.h"
#include "workloads/stages/fan_outs.h"
#include "workloads/stages/transients.h"

#include <algorithm>
#include <array>
#include <numeric>

namespace pw {

namespace {

class Layouter {
public:
    Layouter(const LayerGraph& graph, const StageSplit& split, int stage, const std::vector<LayerBytes>& bytes)
        : graph_(graph), split_(split), bytes_(bytes), boundaries_(boundaries_of(graph, split)) {
        for (const Boundary& boundary : boundaries_)
            offsets_.push_back(offsets_of(boundary, bytes));
        layout_.stage = stage;
        layout_.layers = split.layers[stage];
    }

    StageLayout make(Bytes data_bytes) {
        const std::size_t all = boost::num_vertices(graph_);
        layout_.output.resize(all);
        layout_.input.resize(all);
        layout_.copies.resize(all);
        layout_.saved.resize(all);
        layout_.kept.resize(all);
        layout_.norms.resize(all);
        layout_.weight_offset.resize(all);
        layout_.statistics_offset.resize(all);
        place_parameters();
        place_outputs();
        place_inputs(data_bytes);
        place_saved_state();
        join_norms();
        layout_.backward = backward_pass(false);
        layout_.backward_input = backward_pass(true);
        layout_.weight_workspace = largest_scratch();
        return std::move(layout_);
    }

private:
    bool local(int layer) const { return split_.stage_of[layer] == layout_.stage; }
    LayerKind kind(int layer) const { return graph_[layer].kind; }
    int step(int layer) const {
        const auto& layers = layout_.layers;
        return static_cast<int>(std::lower_bound(layers.begin(), layers.end(), layer) - layers.begin());
    }
    Bytes largest_scratch() const {
        Bytes largest = 0;
        for (int layer : layout_.layers)
            largest = std::max(largest, bytes_[layer].scratch);
        return largest;
    }
    static Slot take(Bytes& region_size, Region region, Bytes bytes) {
        const Slot slot{region, region_size, -1};
        region_size += bytes;
        return slot;
    }

    void place_parameters() {
        for (int layer : layout_.layers) {
            layout_.weight_offset[layer] = layout_.weights;
            layout_.weights += bytes_[layer].weights;
            layout_.statistics_offset[layer] = layout_.statistics;
            layout_.statistics += bytes_[layer].statistics;
        }
    }

    // The landing slots that a tensor made here has on other stages, nearest stage first.
    std::vector<Slot> landing_slots(int layer) const {
        std::vector<Slot> slots;
        for (std::size_t e = 0; e < boundaries_.size(); ++e) {
            if (boundaries_[e].from != layout_.stage)
                continue;
            for (std::size_t t = 0; t < boundaries_[e].tensors.size(); ++t)
                if (boundaries_[e].tensors[t].layer == layer)
                    slots.push_back({Region::Outbox, offsets_[e].forward[t], static_cast<int>(e)});
        }
        return slots;
    }

    // A tensor lives as long as the last pass of this stage that reads it; one that only other
    // stages read is written straight into the first one's landing buffer.
    void place_outputs() {
        std::vector<Transient> transients;
        for (int layer : layout_.layers) {
            layout_.copies[layer] = landing_slots(layer);
            bool read_by_weight = false, read_by_input = false;
            int last_reader = -1;
            for (int reader : readers_of_layer(graph_, layer)) {
                if (!local(reader))
                    continue;
                last_reader = reader;
                read_by_weight |= rereads_input_for_weight_gradient(kind(reader));
                read_by_input |= rereads_input_for_input_gradient(kind(reader));
            }
            Slot& output = layout_.output[layer];
            if (read_by_weight)
                output = take(layout_.until_weight, Region::UntilWeight, bytes_[layer].output);
            else if (read_by_input)
                output = take(layout_.until_input, Region::UntilInput, bytes_[layer].output);
            else if (last_reader < 0 && !layout_.copies[layer].empty()) {
                output = layout_.copies[layer].front();
                layout_.copies[layer].erase(layout_.copies[layer].begin());
            } else if (bytes_[layer].output > 0) {
                output.region = Region::Workspace;
                transients.push_back({bytes_[layer].output, step(layer), step(std::max(layer, last_reader)), &output});
            }
        }
        layout_.forward_scratch = pack_transients(std::move(transients));
        layout_.forward_workspace = layout_.forward_scratch + largest_scratch();
        layout_.recompute_workspace = layout_.forward_workspace + largest_sent_output();
    }

    Bytes largest_sent_output() const {
        Bytes largest = 0;
        for (int layer : layout_.layers)
            if (layout_.output[layer].region == Region::Outbox)
                largest = std::max(largest, bytes_[layer].output);
        return largest;
    }

    void place_inputs(Bytes data_bytes) {
        for (int layer : layout_.layers) {
            const std::vector<int> producers = inputs_of_layer(graph_, layer);
            for (int producer : producers)
                layout_.input[layer].push_back(local(producer) ? layout_.output[producer] : inbox(producer));
            if (producers.empty()) {
                layout_.input[layer].push_back({Region::Data, 0, -1});
                layout_.data = data_bytes;
            }
        }
    }

    Slot inbox(int producer) const {
        for (std::size_t e = 0; e < boundaries_.size(); ++e) {
            if (boundaries_[e].to != layout_.stage)
                continue;
            for (std::size_t t = 0; t < boundaries_[e].tensors.size(); ++t)
                if (boundaries_[e].tensors[t].layer == producer)
                    return {Region::Inbox, offsets_[e].forward[t], static_cast<int>(e)};
        }
        return {};
    }

    void place_saved_state() {
        for (int layer : layout_.layers) {
            layout_.saved[layer] = take(layout_.until_input, Region::UntilInput, bytes_[layer].saved_until_input);
            layout_.kept[layer] = take(layout_.until_weight, Region::UntilWeight, bytes_[layer].kept_until_weight);
            (void)take(layout_.gradient_kept, Region::GradientKept, bytes_[layer].gradient_until_weight);
        }
    }

    // Whether the input of an add is a batch norm that it is run with.
    bool joins(int norm, int add) const {
        return local(norm) && kind(norm) == LayerKind::BatchNorm && !graph_[norm].relu && bytes_[norm].joins &&
               bytes_[add].joins && readers_of_layer(graph_, norm) == std::vector<int>{add};
    }

    void join_norms() {
        for (const int add : layout_.layers)
            for (const int input : inputs_of_layer(graph_, add))
                if (kind(add) == LayerKind::Add)
                    layout_.norms[add].push_back(joins(input, add) ? input : -1);
    }

    // Summands of the gradient of the tensor that `layer` makes, in the order of the sum.
    std::vector<Contribution> contributions_of(int layer) const {
        std::vector<Contribution> found = local_reads(layer, readers_of_layer(graph_, layer));
        for (std::size_t e = 0; e < boundaries_.size(); ++e) {
            if (boundaries_[e].from != layout_.stage)
                continue;
            for (std::size_t t = 0; t < boundaries_[e].tensors.size(); ++t) {
                const BoundaryTensor& tensor = boundaries_[e].tensors[t];
                if (tensor.layer != layer)
                    continue;
                for (std::size_t k = 0; k < offsets_[e].backward[t].size(); ++k) {
                    const int reader = tensor.gradients_summed ? tensor.readers.back() : tensor.readers[k];
                    const Slot inbox{Region::Inbox, offsets_[e].backward[t][k], static_cast<int>(e)};
                    found.push_back({split_.group_of(reader), reader, 0, false, inbox});
                }
            }
        }
        sort_for_sum(found);
        return found;
    }

    // The summands that the layers of this stage among the readers of a tensor make.
    std::vector<Contribution> local_reads(int producer, const std::vector<int>& readers) const {
        std::vector<Contribution> reads;
        for (const int reader : readers) {
            if (!local(reader))
                continue;
            const std::vector<int> producers = inputs_of_layer(graph_, reader);
            for (int position = 0; position < static_cast<int>(producers.size()); ++position)
                if (producers[position] == producer)
                    reads.push_back({split_.group_of(reader), reader, position, true, {}});
        }
        sort_for_sum(reads);
        return reads;
    }

    struct BackwardState {
        PassLayout pass;
        std::vector<Transient> transients;
        bool split;
        int steps;
        std::vector<int> home_of;  // by layer: the one whose gradient's home its own shares; itself, or an add
        std::vector<int> needed;   // the first layer, in backward order the last, for which a home is needed
    };
    int backward_step(const BackwardState& state, int layer) const { return state.steps - 1 - step(layer); }

    PassLayout backward_pass(bool split) {
        const std::size_t all = boost::num_vertices(graph_);
        BackwardState state{{}, {}, split, static_cast<int>(layout_.layers.size()), {}, {}};
        state.pass.output_gradient.resize(all);
        state.pass.input_gradient.resize(all);
        state.pass.before.resize(all);
        state.pass.after.resize(all);
        for (int layer : layout_.layers)
            state.pass.input_gradient[layer].resize(inputs_of_layer(graph_, layer).size());
        state.pass.joined.assign(all, -1);
        share_homes(state);
        // Two sweeps, because packing keeps pointers to the slots, and sums copy them afterwards.
        for (int layer : layout_.layers)
            place_gradient(state, layer);
        for_each_sent([&](const Slot&, const std::vector<Contribution>& parts, int producer) {
            place_summands(state, parts, producer);
        });
        state.pass.scratch = pack_transients(state.transients);
        state.pass.workspace = state.pass.scratch + largest_scratch();
        for (int layer : layout_.layers)
            state.pass.output_gradient[layer] = state.pass.output_gradient[state.home_of[layer]];
        for (int layer : layout_.layers)
            add_sums(state, contributions_of(layer), state.pass.output_gradient[layer], layer);
        for_each_sent([&](const Slot& home, const std::vector<Contribution>& parts, int producer) {
            add_sums(state, parts, home, producer);
        });
        return std::move(state.pass);
    }

    // Returns the last layer that may change the gradient of `layer`'s tensor if `add` has made it first, or -1 for
    // none.
    int changed_by(int layer, int add) const {
        const std::vector<Contribution> parts = contributions_of(layer);
        int last = kind(layer) == LayerKind::Add ? layer : -1;
        for (std::size_t n = 1; n < parts.size(); ++n)
            last = std::max(last, parts[n].local ? parts[n].reader : add);
        return last;
    }

    // Returns, by input of an add that joins, whether its gradient has the home of the add's. Both have it if neither
    // is changed before the other has been read.
    std::array<bool, 2> shared_homes(bool split, int add) const {
        const std::vector<int> inputs = inputs_of_layer(graph_, add);
        if (kind(add) != LayerKind::Add || !bytes_[add].joins || inputs[0] == inputs[1] ||
            contributions_of(add).empty())
            return {false, false};
        const auto can = [&](int input) {
            if (!local(input) || (split && has_weight_pass(kind(input))))
                return false;
            const Contribution first = contributions_of(input).front();
            return first.local && first.reader == add;
        };
        std::array<bool, 2> shared{can(inputs[0]), can(inputs[1])};
        if (shared[0] && shared[1] &&
            (changed_by(inputs[0], add) > inputs[1] || changed_by(inputs[1], add) > inputs[0]))
            shared[inputs[0] < inputs[1] ? 1 : 0] = false;
        return shared;
    }

    void share_homes(BackwardState& state) const {
        state.home_of.resize(boost::num_vertices(graph_));
        std::iota(state.home_of.begin(), state.home_of.end(), 0);
        state.needed = state.home_of;
        for (auto add = layout_.layers.rbegin(); add != layout_.layers.rend(); ++add) {
            const std::vector<int> inputs = inputs_of_layer(graph_, *add);
            const std::array<bool, 2> shared = shared_homes(state.split, *add);
            const int home = state.home_of[*add];
            for (std::size_t k = 0; k < 2; ++k)
                if (shared[k]) {
                    state.home_of[inputs[k]] = home;
                    state.needed[home] = std::min(state.needed[home], inputs[k]);
                }
            if (add + 1 != layout_.layers.rend() && shared[0] && shared[1] && joins(*(add + 1), *add))
                state.pass.joined[*add] = *(add + 1);
        }
    }

    // The gradient's home: the slot of its first summand.
    void place_gradient(BackwardState& state, int layer) {
        const std::vector<Contribution> parts = contributions_of(layer);
        if (parts.empty())
            return;
        if (state.home_of[layer] == layer)
            place_home(state, layer, parts.front());
        place_summands(state, parts, layer);
    }

    void place_home(BackwardState& state, int layer, const Contribution& first) {
        Slot& home = state.pass.output_gradient[layer];
        if (!first.local)
            home = first.inbox;
        else if (state.split && has_weight_pass(kind(layer)))
            home = take(layout_.gradient_kept, Region::GradientKept, bytes_[layer].output);
        else {
            home.region = Region::Workspace;
            state.transients.push_back({bytes_[layer].output, backward_step(state, first.reader),
                                        backward_step(state, state.needed[layer]), &home});
        }
    }

    // Further summands: each is written to the workspace, and lives until it is added.
    void place_summands(BackwardState& state, const std::vector<Contribution>& parts, int producer) {
        for (const Addition& addition : additions_of(parts)) {
            const Contribution& part = parts[addition.from];
            if (!part.local)
                continue;
            Slot& slot = state.pass.input_gradient[part.reader][part.position];
            slot.region = Region::Workspace;
            const int last = is_joined(state, parts, addition, producer) ? state.pass.joined[producer] : addition.after;
            state.transients.push_back(
                {bytes_[producer].output, backward_step(state, part.reader), backward_step(state, last), &slot});
        }
    }

    // If an add runs together with a norm, their I adds the contribution of the layer above the add to its gradient,
    // provided that it comes last.
    bool is_joined(const BackwardState& state, const std::vector<Contribution>& parts, const Addition& addition,
                   int producer) const {
        const auto from = parts.begin() + static_cast<std::ptrdiff_t>(addition.from);
        return local(producer) && state.pass.joined[producer] >= 0 && from->local &&
               step(from->reader) == step(producer) + 1 && addition.to == 0 &&
               std::none_of(from + 1, parts.end(), [](const Contribution& later) { return later.local; });
    }

    // Calls act(home, summands, producer) for every gradient that this stage sends, whose home is the landing buffer.
    template <class Act>
    void for_each_sent(Act act) const {
        for (std::size_t e = 0; e < boundaries_.size(); ++e) {
            if (boundaries_[e].to != layout_.stage)
                continue;
            for (std::size_t t = 0; t < boundaries_[e].tensors.size(); ++t) {
                const BoundaryTensor& tensor = boundaries_[e].tensors[t];
                const auto send = [&](std::size_t k, const std::vector<int>& readers) {
                    const Slot home{Region::Outbox, offsets_[e].backward[t][k], static_cast<int>(e)};
                    act(home, local_reads(tensor.layer, readers), tensor.layer);
                };
                if (tensor.gradients_summed)
                    send(0, tensor.readers);
                else
                    for (std::size_t k = 0; k < tensor.readers.size(); ++k)
                        send(k, {tensor.readers[k]});
            }
        }
    }

    // Sums the gradient of the producer's tensor at its home. Contributions of other stages wait for the local summands
    // that follow them in the order of the sum.
    void add_sums(BackwardState& state, const std::vector<Contribution>& parts, const Slot& home, int producer) {
        const auto slot_of = [&](std::size_t n) -> const Slot& {
            return parts[n].local ? state.pass.input_gradient[parts[n].reader][parts[n].position] : parts[n].inbox;
        };
        if (!parts.empty() && parts.front().local)
            state.pass.input_gradient[parts.front().reader][parts.front().position] = home;
        for (const Addition& addition : additions_of(parts)) {
            const Sum sum{slot_of(addition.from), slot_of(addition.to), bytes_[producer].output};
            if (!parts[addition.from].local) {
                const auto next = std::find_if(parts.begin() + static_cast<std::ptrdiff_t>(addition.from), parts.end(),
                                               [](const Contribution& later) { return later.local; });
                state.pass.before[next == parts.end() ? producer : next->reader].push_back(sum);
            } else if (is_joined(state, parts, addition, producer)) {
                state.pass.before[producer].push_back(sum);
            } else {
                state.pass.after[addition.after].push_back(sum);
            }
        }
    }

    const LayerGraph& graph_;
    const StageSplit& split_;
    const std::vector<LayerBytes>& bytes_;
    std::vector<Boundary> boundaries_;
    std::vector<EdgeOffsets> offsets_;
    StageLayout layout_;
};

}  // namespace

StageLayout layout_stage(const LayerGraph& graph, const StageSplit& split, int stage,
                         const std::vector<LayerBytes>& bytes, Bytes data_bytes) {
    return Layouter(graph, split, stage, bytes).make(data_bytes);
}

StageBytes stage_bytes(const StageLayout& layout) {
    return {.weights = layout.weights,
            .statistics = layout.statistics,
            .data = layout.data,
            .until_input = layout.until_input,
            .until_weight = layout.until_weight,
            .gradient_kept = layout.gradient_kept,
            .forward_workspace = layout.forward_workspace,
            .backward_workspace = layout.backward.workspace,
            .input_workspace = layout.backward_input.workspace,
            .weight_workspace = layout.weight_workspace,
            .recompute_workspace = layout.recompute_workspace};
}

}  // namespace pw
