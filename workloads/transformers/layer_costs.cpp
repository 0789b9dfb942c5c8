#include "workloads/transformers/layer_costs.h"

#include "workloads/transformers/adapter_cost.h"
#include "workloads/transformers/layer_sum.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>
#include <utility>

namespace pw {

namespace {

// How often a checkpointed block reads or sets a state of random numbers: the states of the CPU, of the GPU and of the
// tensor ranks, and twice in each of two dropouts of attention and MLP.
constexpr double kRandomStates = 7;

// By how much a step takes longer than its kernels and messages: a calculator with kernels that were measured on the
// same machine is 3.68 % short in the median of 12 runs (MooreThreads/SimuMax@4dcaae5, docs/b200, its own errors).
constexpr double kUnaccounted = 1 / (1 - 0.0368);
// Seconds in which the host launches a kernel from Python: PyTorch 2.11 on the host of results/h100
// (host_us_per_kernel).
constexpr double kLaunch = 27.45e-6;

}  // namespace

double collective_seconds(Collective kind, double bytes_per_number, const LayerParameters& parameters,
                          const ParameterRanks& ranks, const Fabric& fabric) {
    return collective_seconds(kind, bytes_per_number * parameters.dense, ranks.dense, fabric) +
           collective_seconds(kind, bytes_per_number * parameters.experts, ranks.experts, fabric);
}

// Returns by how much messages make a pass longer that computes meanwhile.
double TransformerLayers::exposed(double messages, double computing) const {
    if (!job_.parallel.hides_messages)
        return messages;
    return std::max(0.0, messages - computing) + (kSlowedByMessages - 1) * std::min(messages, computing);
}

double TransformerLayers::rows_of(int sequences) const { return sequences * range_.count() / job_.parallel.context; }

double TransformerLayers::output_bytes(int sequences) const {
    const Parallel& parallel = job_.parallel;
    const double rows = rows_of(sequences);
    return kValue * rows * job_.model.hidden / (parallel.sequence ? parallel.tensor : 1);
}

// The backward of a matrix without gradients does not read the matrix's input.
bool TransformerLayers::keeps_input_of(const Sum& sum, LoraTarget target) const {
    return sum.passes.trained || (sum.passes.adapters && job_.lora->has(target));
}

// The gradients of frozen matrices are not computed.
void TransformerLayers::freeze(Sum& sum) const {
    if (sum.passes.trained)
        return;
    sum.products.weight = 0;
    sum.frozen = std::exchange(sum.parameters, {});
    if (!sum.passes.adapters)
        return;
    const AdapterCost added = adapter_cost(job_, kernels_, sum.rows);
    sum.products += added.products;
    sum.forward += added.forward;
    sum.backward += added.backward;
    sum.kernels += added.kernels;
    sum.saved += added.saved;
    sum.parameters.dense += added.parameters;
}

// Returns the kernels of a forward that the host launches one by one.
double TransformerLayers::launched(const Sum& sum) const {
    switch (job_.parallel.cuda_graphs) {
        case CudaGraphs::None:
            return sum.kernels;
        case CudaGraphs::Dense:
            return sum.routed_kernels;
        case CudaGraphs::All:
            return 0;
    }
    return 0;
}

TransformerLayerCost TransformerLayers::finished(const Sum& sum) const {
    const Parallel& parallel = job_.parallel;
    const ReleaseFacts release = parallel.program();
    TransformerLayerCost cost;
    cost.parameters = sum.parameters;
    cost.frozen = sum.frozen;
    const bool goes_back = sum.passes.goes_back;
    const double ends = sum.kernels * kKernelEnds, back = goes_back ? 2 : 0;
    const double input = goes_back ? sum.products.input : 0, others = goes_back ? sum.backward : 0;
    double forward = sum.products.forward + sum.forward + ends;
    double backward = input + others + back * ends;
    const double weight = sum.products.weight, computing = forward + backward + weight;
    const double launch = job_.calibration.outside * kLaunch, kernels = launched(sum);
    const double unaccounted = 1 + job_.calibration.outside * (kUnaccounted - 1);
    cost.parts = sum.messages;
    cost.parts.products = sum.products.forward + input + weight;
    cost.parts.attention = sum.attention;
    cost.parts.moved = sum.forward + others + (1 + back) * ends - sum.attention;
    forward = std::max(forward, kernels * launch);
    backward = std::max(backward, back * kernels * launch - weight);
    cost.parts.launches = forward + backward + weight - computing;
    forward += sum.exposed_forward;
    backward += sum.exposed_backward;
    const double once = backward;
    const double kept = sum.saved + sum.dropped;
    cost.keys_and_values = sum.keys_and_values;
    cost.scratch = sum.scratch;
    if (has(sum.recompute, BlockModule::Block)) {
        // A checkpointed block saves the states of its random numbers. Recomputation saves them, sets them, and sets
        // them back (Megatron-LM, tensor_parallel/random.py).
        const double states = release.dropout ? kRandomStates * launch : 0;
        const double launched_forward = kernels * launch + states;
        cost.parts.launches += std::max(0.0, launched_forward - forward);
        forward = std::max(forward, launched_forward);
        const double again = forward - (release.repeats_last ? 0 : sum.unread);
        backward += sum.share * std::max(again, launched_forward + 2 * states);
        cost.saved = (1 - sum.share) * kept;
        cost.scratch += kept;
    } else {
        backward += sum.share * sum.recomputed;
        cost.saved = sum.saved + (1 - sum.share) * sum.dropped;
        cost.scratch += sum.dropped;
    }
    cost.saved = goes_back ? cost.saved : 0;
    cost.parts.again = backward - once;
    const ParameterRanks sharers = parallel.sharing_ranks();
    const auto not_here = [&](const LayerParameters& all) {
        return (sharers.dense.ranks > 1 ? all.dense : 0) + (sharers.experts.ranks > 1 ? all.experts : 0);
    };
    const LayerParameters all{sum.parameters.dense + sum.frozen.dense, sum.parameters.experts + sum.frozen.experts};
    const double numbers = not_here(all), trained = not_here(sum.parameters);
    if (parallel.zero == 3 && numbers > 0) {
        const KeptBytes kept_of_each = job_.kept();
        const auto gradient = static_cast<double>(kept_of_each.gradient);
        const auto value = static_cast<double>(kept_of_each.weight);
        cost.gathered = value * numbers;
        const double gather = collective_seconds(Collective::AllGather, value, all, sharers, job_.fabric);
        const double scatter =
            collective_seconds(Collective::ReduceScatter, gradient, sum.parameters, sharers, job_.fabric);
        if (release.copies_gathered) {  // FSDP2 of PyTorch, sums are in fp32
            const double in_forward = kernels_.moved(2 * value * numbers);
            const double in_backward =
                goes_back ? kernels_.moved(2 * value * numbers + (kValue + kFloat) * trained) : 0;
            forward += in_forward;
            backward += in_backward;
            cost.parts.moved += in_forward + in_backward;
        }
        const double in_forward = exposed(gather, forward);
        const double in_backward = goes_back ? exposed(gather + scatter, backward + weight) : 0;
        forward += in_forward;
        backward += in_backward;
        cost.parts.weights += in_forward + in_backward;
    }
    cost.forward = unaccounted * forward;
    cost.backward_input = unaccounted * backward;
    cost.backward_weight = unaccounted * weight;
    const auto scaled = [&](const ExpertSeconds& own) {
        return ExpertSeconds{unaccounted * own.messages, unaccounted * own.computing};
    };
    cost.expert_forward = scaled(sum.expert_forward);
    cost.expert_backward = scaled(sum.expert_backward);
    cost.parts.other = (unaccounted - 1) * (forward + backward + weight);
    return cost;
}

TransformerLayers::Sum TransformerLayers::sum_of(int sequences, const Passes& passes, double share) const {
    Sum sum;
    sum.passes = passes;
    sum.share = passes.goes_back ? share : 0;
    sum.recompute = sum.share > 0 ? job_.parallel.recompute : ModuleSet{};
    sum.sequences = sequences;
    sum.rows = rows_of(sequences);
    sum.divided = sum.rows / (job_.parallel.sequence ? job_.parallel.tensor : 1);
    return sum;
}

// A module on another device than the embedding has a copy of the embedding's table, as in Megatron-Core. The
// projection divides its outputs among the tensor ranks, which gather them.
TransformerLayerCost TransformerLayers::mtp(int sequences, const Passes& passes) const {
    const Parallel& parallel = job_.parallel;
    const Transformer& model = job_.model;
    const double hidden = model.hidden, norm = model.norm == NormKind::LayerNorm ? 2 : 1;
    Sum sum = sum_of(sequences, passes, parallel.recomputed.share_of_further());
    add_lookup(sum);
    const double values = sum.divided * hidden;
    // Three norms, and the joining of two inputs, each read and written.
    sum.forward += kernels_.moved(values * (3 * 4 + 8));
    sum.backward += kernels_.moved(values * (3 * 6 + 8));
    sum.kernels += 4;
    sum.save(kValue * values * 5, {});  // inputs of the norms, and the joined inputs
    const double outputs = per_rank(model.hidden, parallel.tensor);
    sum.products += kernels_.linear(sum.rows, 2 * hidden, outputs);
    sum.kernels += 1;
    sum.parameters.dense += 2 * hidden * outputs;
    sum.parameters.add_other(3 * norm * hidden + (parallel.pipeline > 1 ? table_of_rank() : 0));
    if (parallel.tensor > 1) {
        const double bytes = kValue * sum.rows * hidden;
        const RankGroup group{parallel.tensor, 1};
        sum.expose(&PassParts::tensor, collective_seconds(Collective::AllGather, bytes, group, job_.fabric),
                   collective_seconds(Collective::ReduceScatter, bytes, group, job_.fabric));
    }
    add_parts(sum, model.form_of_mtp());
    return finished(sum);
}

void TransformerLayers::add_lookup(Sum& sum) const {
    const Parallel& parallel = job_.parallel;
    const double values = sum.rows * job_.model.hidden;
    sum.forward += kernels_.moved(4 * values);
    // The gradient of the table is written and added up for each micro-batch, whatever rows it has.
    if (sum.passes.trained)
        sum.backward +=
            kernels_.moved(8 * values + (2 * kValue + 2 * static_cast<double>(job_.kept().gradient)) * table_of_rank());
    if (parallel.tensor > 1) {
        const double seconds = collective_seconds(parallel.sequence ? Collective::ReduceScatter : Collective::AllReduce,
                                                  kValue * values, {parallel.tensor, 1}, job_.fabric);
        sum.expose(&PassParts::tensor, seconds, sum.passes.trained ? seconds : 0);
    }
    sum.kernels += 3;
}

TransformerLayerCost TransformerLayers::embedding(int sequences, const Passes& passes) const {
    Sum sum = sum_of(sequences, passes);
    add_lookup(sum);
    const double positions = job_.model.position == PositionKind::Learned ? job_.model.positions : 0;
    sum.parameters.add_other(table_of_rank() + positions * job_.model.hidden / job_.parts);
    freeze(sum);
    return finished(sum);
}

// Returns the rows of a rank. Frameworks pad the vocabulary to a multiple of 128 rows per rank.
double TransformerLayers::vocabulary_part() const {
    return std::ceil(job_.model.vocabulary / (128.0 * job_.parallel.tensor * job_.parts)) * 128;
}

double TransformerLayers::norm_parameters() const {
    return (job_.model.norm == NormKind::LayerNorm ? 2.0 : 1.0) * job_.model.hidden;
}

TransformerLayerCost TransformerLayers::final_norm(int sequences, const Passes& passes) const {
    Sum sum = sum_of(sequences, passes);
    const double values = sum.divided * job_.model.hidden;
    sum.forward = kernels_.moved(4 * values);
    sum.backward = kernels_.moved(6 * values);
    sum.kernels = 1;
    sum.saved = kValue * values;
    sum.parameters.add_other(norm_parameters());
    freeze(sum);
    return finished(sum);
}

double TransformerLayers::table_of_rank() const { return vocabulary_part() * job_.model.hidden; }

// The head also computes the losses of all modules that predict further tokens, each in a pass of its own.
TransformerLayerCost TransformerLayers::head(int sequences, const Passes& own) const {
    const Parallel& parallel = job_.parallel;
    const ReleaseFacts release = parallel.program();
    const Transformer& model = job_.model;
    const double hidden = model.hidden, passes = 1 + model.mtp;
    Sum sum = sum_of(sequences, own);
    const double columns = vocabulary_part();
    const bool has_norm = job_.parts == 1;
    const LinearSeconds product = kernels_.head(sum.rows, hidden, columns);
    for (int pass = 0; pass <= model.mtp; ++pass)
        sum.products += product;
    const double logits = sum.rows * columns * (release.splits_logits ? 1 : parallel.tensor);
    const double normed = has_norm ? sum.divided * hidden : 0;
    // The cap reads and writes the logits, and its backward reads them once more.
    const double forward = release.loss.forward + (model.caps_logits ? 2 * kValue : 0);
    const double backward = release.loss.backward + job_.corrected + (model.caps_logits ? 3 * kValue : 0);
    sum.forward = kernels_.moved(passes * logits * forward + 4 * normed);
    sum.backward = kernels_.moved(passes * logits * backward + 6 * normed);
    sum.kernels = 12 * passes + (model.caps_logits ? passes : 0);
    sum.saved = passes * logits * (release.loss.saved + (model.caps_logits ? kValue : 0)) + 2 * kValue * normed +
                model.mtp * kValue * sum.divided * hidden;
    sum.scratch = logits * release.loss.scratch;
    if (parallel.tensor > 1) {
        const double bytes = kValue * sum.rows * hidden;
        const RankGroup group{parallel.tensor, 1};
        const double gather =
            parallel.sequence ? collective_seconds(Collective::AllGather, bytes, group, job_.fabric) : 0;
        const Collective back = parallel.sequence ? Collective::ReduceScatter : Collective::AllReduce;
        sum.expose(&PassParts::tensor, passes * gather, passes * collective_seconds(back, bytes, group, job_.fabric));
        if (!release.splits_logits) {  // they are gathered, and their gradient is divided again
            sum.expose(&PassParts::tensor,
                       passes * collective_seconds(Collective::AllGather, kValue * logits, group, job_.fabric), 0);
            sum.saved += passes * 2 * kValue * logits;
            sum.scratch += 3 * kValue * logits;
        }
    }
    const bool shares = model.tied && (parallel.pipeline == 1 || job_.parts > 1);
    sum.parameters.add_other((has_norm ? norm_parameters() : 0) + (shares ? 0 : columns * hidden));
    freeze(sum);
    return finished(sum);
}

TransformerLayerCost TransformerLayers::cost_of(const ListedLayer& layer, int sequences, double share) const {
    switch (layer.kind) {
        case ListedLayer::Kind::Patches:
            return patches(sequences, layer.passes);
        case ListedLayer::Kind::EncoderBlock:
            return encoder_block(job_.encoder->blocks.form(layer.number), sequences, share, layer.passes);
        case ListedLayer::Kind::Projector:
            return projector(sequences, layer.passes);
        case ListedLayer::Kind::Embedding:
            return embedding(sequences, layer.passes);
        case ListedLayer::Kind::Block:
            return block(job_.model.form(layer.number), sequences, share, layer.passes);
        case ListedLayer::Kind::Mtp:
            return mtp(sequences, layer.passes);
        case ListedLayer::Kind::Norm:
            return final_norm(sequences, layer.passes);
        case ListedLayer::Kind::Head:
            return head(sequences, layer.passes);
    }
    return {};
}

double TransformerLayers::output_of(const ListedLayer& layer, int sequences) const {
    switch (layer.kind) {
        case ListedLayer::Kind::Patches:
        case ListedLayer::Kind::EncoderBlock:
            return encoder_bytes(sequences);
        case ListedLayer::Kind::Projector:
            return kValue * sequences * job_.encoder->tokens_of_decoder() * job_.model.hidden;
        case ListedLayer::Kind::Mtp:
            // The head also reads the outputs of the last block and of all modules before a module.
            return (2 + layer.number) * output_bytes(sequences);
        case ListedLayer::Kind::Head:
            return 0;
        default:
            return output_bytes(sequences);
    }
}

std::vector<TransformerLayerCost> TransformerLayers::all(int sequences) const {
    const std::vector<ListedLayer> layers = listed_layers(job_);
    const std::vector<int> places = places_in_stages(layers);
    using Likeness = std::tuple<ListedLayer::Kind, LayerForm, double, LayerPasses>;
    std::map<Likeness, TransformerLayerCost> known;  // equal layers are computed once
    std::vector<TransformerLayerCost> costs;
    for (std::size_t number = 0; number < layers.size(); ++number) {
        const ListedLayer& layer = layers[number];
        const double share = layer.is_block() ? job_.parallel.recomputed.share_at(places[number]) : 0;
        const LayerForm form = layer.kind == ListedLayer::Kind::EncoderBlock ? job_.encoder->blocks.form(layer.number)
                               : layer.kind == ListedLayer::Kind::Block      ? job_.model.form(layer.number)
                                                                             : LayerForm{};
        const Likeness likeness{layer.kind, form, share, layer.passes};
        auto found = known.find(likeness);
        if (found == known.end())
            found = known.emplace(likeness, cost_of(layer, sequences, share)).first;
        costs.push_back(found->second);
        costs.back().made = output_of(layer, sequences);
        costs.back().is_block = layer.is_block() || layer.kind == ListedLayer::Kind::Mtp;
    }
    join_groups(costs, places);
    return costs;
}

// Returns for each block its place among the blocks of its stage and of its model, or -1 if the stages are not known.
// -2: no block.
std::vector<int> TransformerLayers::places_in_stages(const std::vector<ListedLayer>& layers) const {
    std::vector<int> places;
    for (std::size_t layer = 0; layer < layers.size(); ++layer) {
        if (!layers[layer].is_block() || job_.stage_of.empty()) {
            places.push_back(layers[layer].is_block() ? -1 : -2);
            continue;
        }
        const bool follows = layer > 0 && places[layer - 1] >= 0 && job_.stage_of[layer - 1] == job_.stage_of[layer];
        places.push_back(follows ? places[layer - 1] + 1 : 0);
    }
    return places;
}

// The backward of a group first repeats its forward. It then has all that the blocks of the group keep, their inputs
// but the first, and a gradient between two blocks. Blocks that only run forwards are of no group.
void TransformerLayers::join_groups(std::vector<TransformerLayerCost>& costs, const std::vector<int>& places) const {
    const int most = job_.parallel.recomputed.group();
    for (std::size_t begin = 0, end = 0; begin < places.size(); begin = end) {
        double scratch = 0;
        for (end = begin; end < places.size() && (end == begin || (places[end] > 0 && places[end] % most > 0)); ++end)
            scratch += costs[end].scratch;
        if (most == 1 || places[begin] < 0 || end == begin + 1)
            continue;
        for (std::size_t block = begin; block < end; ++block) {
            costs[block].scratch = scratch + static_cast<double>(end - begin) * costs[block].made;
            costs[block].saves_output = block + 1 == end;
        }
    }
}

}  // namespace pw
