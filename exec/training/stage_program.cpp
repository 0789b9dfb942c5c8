#include "exec/training/stage_program.h"

#include "workloads/models/initial_parameters.h"
#include "workloads/random.h"

#include <algorithm>
#include <utility>

namespace pw {

namespace {

std::byte* at(std::byte* base, Bytes offset) { return base == nullptr ? nullptr : base + offset; }

std::byte* tensor_at(const Slot& slot, const Places& places) {
    switch (slot.region) {
        case Region::None:
            return nullptr;
        case Region::Data:
            return at(places.data, slot.offset);
        case Region::UntilInput:
            return at(places.until_input, slot.offset);
        case Region::UntilWeight:
            return at(places.until_weight, slot.offset);
        case Region::FirstUntilAgain:
            return at(places.first_until_again, slot.offset);
        case Region::FirstUntilInput:
            return at(places.first_until_input, slot.offset);
        case Region::FirstUntilWeight:
            return at(places.first_until_weight, slot.offset);
        case Region::OffloadedUntilInput:
            return at(places.offloaded_until_input, slot.offset);
        case Region::OffloadedUntilWeight:
            return at(places.offloaded_until_weight, slot.offset);
        case Region::GradientKept:
            return at(places.gradient_kept, slot.offset);
        case Region::SliceGradients:
            return at(places.slice_gradients, slot.offset);
        case Region::Workspace:
            return at(places.workspace, slot.offset);
        case Region::Inbox:
            return at(places.tensor_in[slot.edge], slot.offset);
        case Region::Outbox:
            return at(places.tensor_out[slot.edge], slot.offset);
    }
    return nullptr;
}

std::byte* gradient_at(const Slot& slot, const Places& places) {
    if (slot.region == Region::Inbox)
        return at(places.gradient_in[slot.edge], slot.offset);
    if (slot.region == Region::Outbox)
        return at(places.gradient_out[slot.edge], slot.offset);
    return tensor_at(slot, places);
}

// The last sum before an add, if it is the sum of the add's own gradient and a norm does the add's I: the norm then
// does this sum, too.
std::span<const Sum> done_by_norm(int add, const PassLayout& pass) {
    const std::span<const Sum> sums = pass.before[add];
    const bool is_left = pass.joined[add] >= 0 && !sums.empty() && sums.back().to == pass.output_gradient[add];
    return sums.last(is_left ? 1 : 0);
}

}  // namespace

StageProgram::StageProgram(const Model& model, const StageSplit& split, int stage, const Kernels& kernels, int samples)
    : model_(model), family_(kernels), layers_(split.layers[stage]) {
    kernels_.resize(boost::num_vertices(model.layers));
    for (int layer : layers_) {
        const bool reads_data = inputs_of_layer(model.layers, layer).empty();
        kernels_[layer] = kernels.make(model.layers[layer], samples, reads_data);
        reads_data_ |= reads_data;
        has_loss_ |= is_loss(model.layers[layer].kind);
    }
    call_.inputs.reserve(8);
    call_.earlier.reserve(16);
    call_.input_gradients.reserve(8);
}

void StageProgram::set_layout(StageLayout layout) {
    layout_ = std::move(layout);
    std::vector<StageBlock> blocks;
    for (const int layer : layers_) {
        const Dims input = model_.layers[layer].input;
        const LayerBytes bytes = bytes_of(layer);
        blocks.push_back({.layer = layer,
                          .is_measured = is_measured(layer),
                          .weights_at = layout_.weight_offset[layer],
                          .weights = bytes.weights,
                          .statistics_at = layout_.statistics_offset[layer],
                          .statistics = bytes.statistics,
                          .channels = input.channels,
                          .per_sample = std::int64_t{input.height} * input.width});
    }
    all_ = family_.make_stage(blocks);
    leaves_output_.assign(kernels_.size(), false);
    for (const int add : layers_)
        for (const int norm : layout_.norms[add])
            if (norm >= 0)
                leaves_output_[norm] = true;
}

template <class Act>
void StageProgram::observed(int layer, Pass pass, const LayerArgs& args, Act act) const {
    if (observer_ != nullptr)
        observer_->before(layer, pass, args);
    act();
    if (observer_ != nullptr)
        observer_->after(layer, pass, args);
}

void StageProgram::bind_parameters(int layer, const Places& places, LayerArgs& args) const {
    args.weights = places.weights + layout_.weight_offset[layer];
    args.statistics = at(places.statistics, layout_.statistics_offset[layer]);
    if (const Layer& own = model_.layers[layer]; own.weight_pass)
        args.weight_gradient = at(places.gradients, layout_.weight_offset[layer]);
    if (has_backward(model_.layers[layer]))
        args.saved = tensor_at(layout_.saved[layer], places);
    args.kept = tensor_at(layout_.kept[layer], places);
}

void StageProgram::bind_slices(int layer, const Places& places) const {
    LayerArgs& args = call_.args;
    args.slice = static_cast<int>(places.earlier.size());
    if (!is_attention(model_.layers[layer].kind))
        return;
    call_.earlier.clear();
    for (const Places& earlier : places.earlier) {
        EarlierSlice& slice = call_.earlier.emplace_back();
        for (std::size_t k = 0; k < layout_.input[layer].size(); ++k)
            slice.inputs[k] = tensor_at(layout_.input[layer][k], earlier);
        slice.gradients = tensor_at(layout_.slice_gradient[layer], earlier);
    }
    args.earlier = call_.earlier;
    args.later_gradients = tensor_at(layout_.slice_gradient[layer], places);
}

void StageProgram::bind_forward(int layer, const Places& places) const {
    LayerArgs& args = call_.args = {};
    call_.inputs.clear();
    for (const Slot& slot : layout_.input[layer])
        call_.inputs.push_back(tensor_at(slot, places));
    args.inputs = call_.inputs;
    args.output = tensor_at(layout_.output[layer], places);
    args.scratch = at(places.workspace, layout_.forward_scratch);
    args.seed = dropout_seed(model_.layers[layer].name, places.training_seed, places.first_sample);
    args.labels = places.labels;
    args.loss = places.loss;
    bind_parameters(layer, places, args);
    bind_slices(layer, places);
}

// An add reads the inputs of its norms, and the blocks that they have saved.
void StageProgram::bind_saving_forward(int layer, const Places& places) const {
    bind_forward(layer, places);
    if (leaves_output_[layer])
        call_.args.output = nullptr;
    const std::vector<int>& norms = layout_.norms[layer];
    if (std::ranges::all_of(norms, [](int norm) { return norm < 0; }))
        return;
    call_.norms.assign(norms.size(), nullptr);
    for (std::size_t k = 0; k < norms.size(); ++k)
        if (norms[k] >= 0) {
            call_.inputs[k] = tensor_at(layout_.input[norms[k]].front(), places);
            call_.norms[k] = tensor_at(layout_.saved[norms[k]], places);
        }
    call_.args.norms = call_.norms;
}

// Without a backward, the F of a training is the F of an evaluation, except for layers that compute something else
// there.
bool StageProgram::saves(int layer) const {
    const Layer& own = model_.layers[layer];
    return has_backward(own) || own.kind == LayerKind::BatchNorm || own.kind == LayerKind::Dropout;
}

void StageProgram::forward(const Places& places, bool save) const {
    for (int layer : layers_) {
        save ? bind_saving_forward(layer, places) : bind_forward(layer, places);
        const LayerArgs& args = call_.args;
        observed(layer, Pass::Forward, args, [&] { kernel(layer).forward(args, save && saves(layer)); });
        for (const Slot& copy : layout_.copies[layer])
            family_.copy(args.output, tensor_at(copy, places), bytes_of(layer).output);
    }
}

// Tensors that were sent earlier are written into the workspace: their landing buffers may be reused by now.
void StageProgram::recompute(const Places& places) const {
    for (int layer : layers_) {
        if (!model_.layers[layer].recomputed)
            continue;
        bind_saving_forward(layer, places);
        LayerArgs& args = call_.args;
        if (layout_.output[layer].region == Region::Outbox)
            args.output = at(places.workspace, layout_.forward_workspace);
        args.statistics = nullptr;
        args.loss = nullptr;
        observed(layer, Pass::Forward, args, [&] { kernel(layer).forward(args, saves(layer)); });
    }
}

void StageProgram::bind_backward(int layer, const PassLayout& pass, const Places& places) const {
    LayerArgs& args = call_.args = {};
    call_.inputs.clear();
    call_.input_gradients.clear();
    const Layer& own = model_.layers[layer];
    const bool kept = rereads_input_for_input_gradient(own) || rereads_input_for_weight_gradient(own);
    for (const Slot& slot : layout_.input[layer])
        call_.inputs.push_back(kept ? tensor_at(slot, places) : nullptr);
    for (const Slot& slot : pass.input_gradient[layer])
        call_.input_gradients.push_back(gradient_at(slot, places));
    if (call_.input_gradients.empty())
        call_.input_gradients.push_back(nullptr);  // the gradient of the data is not needed
    args.inputs = call_.inputs;
    args.input_gradients = call_.input_gradients;
    args.output_gradient = gradient_at(pass.output_gradient[layer], places);
    args.scratch = at(places.workspace, pass.scratch);
    bind_parameters(layer, places, args);
    bind_slices(layer, places);
}

void StageProgram::join_add(int add, const PassLayout& pass, const Places& places) const {
    JoinedAdd& joined = call_.args.joined;
    joined.gradient = gradient_at(pass.output_gradient[add], places);
    for (const Sum& sum : done_by_norm(add, pass))
        joined.summand = gradient_at(sum.from, places);
    if (bytes_of(add).saved_until_input > 0)
        joined.saved = tensor_at(layout_.saved[add], places);
}

void StageProgram::run_sums(int layer, std::span<const Sum> sums, const Places& places) const {
    for (const Sum& sum : sums) {
        const LayerArgs none;
        observed(layer, Pass::Sum, none,
                 [&] { family_.add(gradient_at(sum.from, places), gradient_at(sum.to, places), sum.bytes); });
    }
}

void StageProgram::backward(const Places& places, double loss_scale, Begun begun, bool weights_too) const {
    const PassLayout& pass = weights_too ? layout_.backward : layout_.backward_input;
    for (auto layer = layers_.rbegin(); layer != layers_.rend(); ++layer) {
        const std::span<const Sum> sums = pass.before[*layer];
        run_sums(*layer, sums.first(sums.size() - done_by_norm(*layer, pass).size()), places);
        if (pass.joined[*layer] >= 0) {
            observed(*layer, Pass::Input, {}, [] {});  // the norm, which is next, does it
            run_sums(*layer, pass.after[*layer], places);
            continue;
        }
        const Layer& own = model_.layers[*layer];
        bind_backward(*layer, pass, places);
        LayerArgs& args = call_.args;
        if (layer != layers_.rbegin() && pass.joined[*(layer - 1)] == *layer)
            join_add(*(layer - 1), pass, places);
        args.labels = places.labels;
        args.loss_scale = loss_scale;
        args.accumulate = begun.input;
        if (own.input_pass)
            observed(*layer, Pass::Input, args, [&] { kernel(*layer).backward_input(args); });
        args.accumulate = begun.weight;
        if (weights_too && has_weight_pass(own))
            observed(*layer, Pass::Weight, args, [&] { kernel(*layer).backward_weight(args); });
        run_sums(*layer, pass.after[*layer], places);
    }
}

void StageProgram::backward_weight(const Places& places, Begun begun) const {
    for (auto layer = layers_.rbegin(); layer != layers_.rend(); ++layer) {
        if (!has_weight_pass(model_.layers[*layer]))
            continue;
        bind_backward(*layer, layout_.backward_input, places);
        LayerArgs& args = call_.args;
        args.scratch = places.workspace;
        args.accumulate = begun.weight;
        observed(*layer, Pass::Weight, args, [&] { kernel(*layer).backward_weight(args); });
    }
}

void StageProgram::update(const UpdateRule& rule, const std::byte* weights, const std::byte* gradients,
                          const OptimizerStates& states, std::byte* new_weights, double* squares) const {
    const LayerArgs none;
    if (all_) {
        observed(kAllLayers, Pass::Update, none,
                 [&] { all_->update(rule, weights, gradients, states, new_weights, squares); });
        return;
    }
    for (int layer : layers_) {
        const Bytes offset = layout_.weight_offset[layer], bytes = bytes_of(layer).weights;
        if (bytes == 0)
            continue;
        observed(layer, Pass::Update, none, [&] {
            if (squares != nullptr)
                measure(layer, gradients, squares);
            family_.update(rule, weights + offset, gradients + offset, states.from(offset), new_weights + offset,
                           bytes);
        });
    }
}

void StageProgram::update(const UpdateRule& rule, const Extent& part, const std::byte* weights,
                          const std::byte* gradients, const OptimizerStates& states, std::byte* new_weights) const {
    const LayerArgs none;
    observed(kAllLayers, Pass::Update, none, [&] {
        family_.update(rule, weights + part.first, gradients + part.first, states, new_weights + part.first,
                       part.bytes);
    });
}

void StageProgram::predict(const std::byte* weights, const std::byte* momentum, double factor, std::byte* out) const {
    if (all_) {
        all_->predict(weights, momentum, factor, out);
        return;
    }
    for (int layer : layers_) {
        const Bytes offset = layout_.weight_offset[layer], bytes = bytes_of(layer).weights;
        if (bytes > 0)
            family_.predict(weights + offset, momentum + offset, factor, out + offset, bytes);
    }
}

void StageProgram::measure(const std::byte* gradients, double* squares) const {
    if (all_) {
        all_->measure(gradients, squares);
        return;
    }
    for (const int layer : layers_)
        measure(layer, gradients, squares);
}

// A shared parameter is measured in the layer that owns it.
bool StageProgram::is_measured(int layer) const {
    return bytes_of(layer).weights > 0 && model_.layers[layer].tied_to.empty();
}

void StageProgram::measure(int layer, const std::byte* gradients, double* squares) const {
    const Bytes bytes = bytes_of(layer).weights;
    if (is_measured(layer))
        family_.sum_of_squares(gradients + layout_.weight_offset[layer], bytes, squares + layer);
}

void StageProgram::gather_statistics(BatchStatistics of, std::byte* running) const {
    if (all_) {
        all_->gather_statistics(of, running);
        return;
    }
    for (int layer : layers_) {
        if (bytes_of(layer).statistics == 0)
            continue;
        of.offset = layout_.statistics_offset[layer];
        kernel(layer).gather_statistics(of, running + of.offset);
    }
}

// Returns the layer that owns the parameters: a tied layer has the parameters of another layer.
const Layer& StageProgram::owner_of_parameters(int layer) const {
    const Layer& own = model_.layers[layer];
    return own.tied_to.empty() ? own : model_.layers[find_layer(model_.layers, own.tied_to)];
}

void StageProgram::initialise(const Values& values, std::byte* weights, std::byte* statistics) const {
    for (int layer : layers_) {
        const std::vector<std::vector<float>> own = values(layer);
        if (!own.empty())
            kernel(layer).load(own, weights + layout_.weight_offset[layer],
                               at(statistics, layout_.statistics_offset[layer]));
    }
}

void StageProgram::initialise(std::int64_t seed, std::byte* weights, std::byte* statistics) const {
    initialise([&](int layer) { return initial_parameters(model_.layers, layer, seed); }, weights, statistics);
}

std::vector<NamedTensor> StageProgram::named(const std::byte* weights, const std::byte* statistics,
                                             bool trained_only) const {
    std::vector<NamedTensor> tensors;
    for (int layer : layers_) {
        const std::vector<ParameterShape> parameters = parameters_of(owner_of_parameters(layer));
        if (parameters.empty() || (trained_only && model_.layers[layer].frozen))
            continue;
        auto values =
            kernel(layer).store(weights + layout_.weight_offset[layer], statistics + layout_.statistics_offset[layer]);
        for (std::size_t k = 0; k < parameters.size(); ++k)
            if (parameters[k].trained || !trained_only)
                tensors.push_back({parameters[k].name, parameters[k].shape, std::move(values[k])});
    }
    return tensors;
}

}  // namespace pw
