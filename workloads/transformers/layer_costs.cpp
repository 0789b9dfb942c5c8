#include "workloads/transformers/layer_costs.h"

#include "workloads/transformers/adapter_cost.h"
#include "workloads/transformers/layer_sum.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

namespace pw {

namespace {

// Computing takes this many times as long while messages are under way (PKU-DAIR/Hetu-Galvatron@cea12ff,
// hardware_configs).
constexpr double kSlowedByMessages = 1.126;

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
    return std::max(0.0, messages - computing) + (kSlowedByMessages - 1) * std::min(messages, computing);
}

double TransformerLayers::rows_of(int sequences) const { return sequences * range_.count() / job_.parallel.context; }

double TransformerLayers::output_bytes(int sequences) const {
    const Parallel& parallel = job_.parallel;
    const double rows = rows_of(sequences);
    return kValue * rows * job_.model.hidden / (parallel.sequence ? parallel.tensor : 1);
}

void TransformerLayers::add_norms(Sum& sum, const LayerForm& form) const {
    const ReleaseFacts release = job_.parallel.program();
    const Transformer& model = job_.model;
    const bool fused = release.fuses_norms || model.norm != NormKind::RmsNorm;  // PyTorch has a kernel of LayerNorm
    const double hidden = model.hidden, values = sum.divided * hidden;
    const int parts = form.parts(), norms = parts * (model.post_norms ? 2 : 1);
    // Each norm reads and writes the residual stream. If not fused, norms are in fp32 with separate kernels.
    const double seconds = kernels_.moved(norms * values * (fused ? 4 : 30));
    sum.forward += seconds;
    if (job_.parallel.recompute == RecomputeKind::Norms)
        sum.recomputed += seconds + norms * (fused ? 1 : 6) * kKernelEnds;
    sum.backward += kernels_.moved(norms * values * (fused ? 6 : 50));
    // A residual sum for each part, and the sums of their gradients. Parallel parts are added in one kernel.
    const bool at_once = model.parallel && parts == 2;
    const double forward = at_once ? (release.dropout ? 10 : 8) : parts * (release.dropout ? 7 : 6);
    const double backward = at_once ? (release.dropout ? 18 : 8) : parts * (release.dropout ? 11 : 6);
    sum.forward += kernels_.moved(values * forward);
    sum.backward += kernels_.moved(values * backward);
    sum.kernels += norms * (fused ? 1 : 6) + (at_once ? 1 : parts);
    sum.saved += at_once ? 0 : kValue * values * (parts - 1);  // the residual stream between attention and MLP
    if (form.mixer != Mixer::None)                             // outputs of the norms
        sum.recomputed_saved += keeps_input_of(LoraTarget::Qkv) ? kValue * values : 0;
    if (form.feed != Feed::None)
        sum.recomputed_saved += keeps_input_of(LoraTarget::Fc1) ? kValue * values : 0;
    sum.saved += model.post_norms ? kValue * values * parts : 0;  // inputs of the norms after the parts
    sum.saved += release.dropout ? values * parts : 0;            // masks
    sum.saved += fused ? 0 : norms * (kFloat + kValue) * values;  // copies in fp32, and before the weights
    sum.parameters.add_other((model.norm == NormKind::LayerNorm ? 2 : 1) * norms * hidden);
}

// The gradients of frozen matrices are not computed. With `adapters` the layer has adapters.
void TransformerLayers::freeze(Sum& sum, bool adapters) const {
    if (!job_.lora)
        return;
    sum.products.weight = 0;
    sum.frozen = std::exchange(sum.parameters, {});
    if (!adapters)
        return;
    const AdapterCost added = adapter_cost(job_, kernels_, sum.rows);
    sum.products += added.products;
    sum.forward += added.forward;
    sum.backward += added.backward;
    sum.kernels += added.kernels;
    sum.saved += added.saved;
    sum.parameters.dense += added.parameters;
}

TransformerLayerCost TransformerLayers::finished(const Sum& sum, bool recomputes) const {
    const Parallel& parallel = job_.parallel;
    const ReleaseFacts release = parallel.program();
    TransformerLayerCost cost;
    cost.parameters = sum.parameters;
    cost.frozen = sum.frozen;
    const double ends = sum.kernels * kKernelEnds, back = sum.goes_back ? 2 : 0;
    double forward = sum.products.forward + sum.forward + ends;
    double backward = sum.products.input + sum.backward + back * ends;
    const double weight = sum.products.weight, computing = forward + backward + weight;
    cost.parts = sum.messages;
    cost.parts.products = sum.products.forward + sum.products.input + weight;
    cost.parts.attention = sum.attention;
    cost.parts.moved = sum.forward + sum.backward + (1 + back) * ends - sum.attention;
    forward = std::max(forward, sum.kernels * kLaunch);
    backward = std::max(backward, back * sum.kernels * kLaunch - weight);
    cost.parts.launches = forward + backward + weight - computing;
    forward += sum.exposed_forward;
    backward += sum.exposed_backward;
    const double once = backward;
    const double share = recomputes ? parallel.recomputed : 0;
    const double kept = sum.saved + sum.recomputed_saved;
    cost.saved = kept;
    cost.keys_and_values = sum.keys_and_values;
    cost.scratch = sum.scratch;
    if (parallel.recompute == RecomputeKind::Full) {
        // A checkpointed block saves the states of its random numbers. Recomputation saves them, sets them, and sets
        // them back (Megatron-LM, tensor_parallel/random.py).
        const double states = release.dropout ? kRandomStates * kLaunch : 0;
        const double launched_forward = sum.kernels * kLaunch + states;
        cost.parts.launches += std::max(0.0, launched_forward - forward);
        forward = std::max(forward, launched_forward);
        backward += share * std::max(forward, launched_forward + 2 * states);
        cost.saved = (1 - share) * kept;
        cost.scratch += share * kept;
    } else {
        backward += share * sum.recomputed;
        if (parallel.recompute == RecomputeKind::Norms)
            cost.saved = sum.saved + (1 - share) * sum.recomputed_saved;
    }
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
            const double in_backward = kernels_.moved(2 * value * numbers + (kValue + kFloat) * trained);
            forward += in_forward;
            backward += in_backward;
            cost.parts.moved += in_forward + in_backward;
        }
        const double in_forward = exposed(gather, forward), in_backward = exposed(gather + scatter, backward + weight);
        forward += in_forward;
        backward += in_backward;
        cost.parts.weights += in_forward + in_backward;
    }
    cost.forward = kUnaccounted * forward;
    cost.backward_input = kUnaccounted * backward;
    cost.backward_weight = kUnaccounted * weight;
    cost.parts.other = (kUnaccounted - 1) * (forward + backward + weight);
    return cost;
}

// A kind of part is a row here.
TransformerLayers::AddPart TransformerLayers::adder_of(Mixer mixer) {
    constexpr AddPart kAdders[] = {nullptr, &TransformerLayers::add_full_attention,
                                   &TransformerLayers::add_windowed_attention, &TransformerLayers::add_mamba};
    return kAdders[static_cast<std::size_t>(mixer)];
}

TransformerLayers::AddPart TransformerLayers::adder_of(Feed feed) {
    constexpr AddPart kAdders[] = {nullptr, &TransformerLayers::add_mlp, &TransformerLayers::add_experts};
    return kAdders[static_cast<std::size_t>(feed)];
}

TransformerLayers::Sum TransformerLayers::sum_of(int sequences) const {
    Sum sum;
    sum.sequences = sequences;
    sum.rows = rows_of(sequences);
    sum.divided = sum.rows / (job_.parallel.sequence ? job_.parallel.tensor : 1);
    return sum;
}

// Adds the messages of tensor ranks: `parts` times they gather the input of `products` and scatter the output, or sum
// it.
void TransformerLayers::add_tensor_messages(Sum& sum, double parts, const LinearSeconds& products) const {
    const Parallel& parallel = job_.parallel;
    const ReleaseFacts release = parallel.program();
    const double bytes = kValue * sum.rows * job_.model.hidden;
    const RankGroup group{parallel.tensor, 1};
    const double sum_all = collective_seconds(Collective::AllReduce, bytes, group, job_.fabric);
    const double gather = collective_seconds(Collective::AllGather, bytes, group, job_.fabric);
    const double scatter = collective_seconds(Collective::ReduceScatter, bytes, group, job_.fabric);
    const double each = products.weight / 2 / parts;  // gradients of weights while a message is under way
    if (parallel.sequence) {
        const double messages = gather + scatter;
        if (release.overlap.tensor) {
            // Messages and products alternate in as many pieces as there are ranks. The first piece is not hidden.
            const double first = messages / parallel.tensor;
            sum.expose(
                &PassParts::tensor, parts * (first + exposed(messages - first, products.forward / parts)),
                parts * (first + exposed(messages - first + gather, (products.input + products.weight) / parts)));
        } else {
            // First, the gradient of the output is gathered. Then the input is gathered again and the gradient
            // scattered.
            const double hidden_ones =
                release.overlap.tensor_backward ? exposed(gather, each) + exposed(scatter, each) : gather + scatter;
            sum.expose(&PassParts::tensor, parts * messages, parts * (gather + hidden_ones));
        }
    } else {
        sum.expose(&PassParts::tensor, parts * sum_all,
                   parts * (release.overlap.tensor_backward ? exposed(sum_all, each) : sum_all));
    }
    sum.kernels += 2 * parts;
}

void TransformerLayers::add_parts(Sum& sum, const LayerForm& form) const {
    const Transformer& model = job_.model;
    add_norms(sum, form);
    if (const AddPart add = adder_of(form.mixer))
        (this->*add)(sum);
    const LinearSeconds of_mixer = sum.products;
    if (const AddPart add = adder_of(form.feed))
        (this->*add)(sum);
    freeze(sum, true);
    // Parts that all tensor ranks compute together. Routed experts have messages of their own.
    const bool has_dense = form.feed == Feed::Mlp || (form.feed == Feed::Experts && model.experts->shared_width > 0);
    const int parts = (form.mixer != Mixer::None ? 1 : 0) + (has_dense ? 1 : 0);
    if (job_.parallel.tensor > 1 && parts > 0)
        add_tensor_messages(sum, model.parallel ? 1 : parts, has_dense ? sum.products : of_mixer);
}

TransformerLayerCost TransformerLayers::block(const LayerForm& form, int sequences) const {
    Sum sum = sum_of(sequences);
    add_parts(sum, form);
    return finished(sum, true);
}

// A module on another device than the embedding has a copy of the embedding's table, as in Megatron-Core. The
// projection divides its outputs among the tensor ranks, which gather them.
TransformerLayerCost TransformerLayers::mtp(int sequences) const {
    const Parallel& parallel = job_.parallel;
    const Transformer& model = job_.model;
    const double hidden = model.hidden, norm = model.norm == NormKind::LayerNorm ? 2 : 1;
    Sum sum = sum_of(sequences);
    add_lookup(sum);
    const double values = sum.divided * hidden;
    // Three norms, and the joining of two inputs, each read and written.
    sum.forward += kernels_.moved(values * (3 * 4 + 8));
    sum.backward += kernels_.moved(values * (3 * 6 + 8));
    sum.kernels += 4;
    sum.saved += kValue * values * 5;  // inputs of the norms, and the joined inputs
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
    return finished(sum, true);
}

void TransformerLayers::add_lookup(Sum& sum) const {
    const Parallel& parallel = job_.parallel;
    const double values = sum.rows * job_.model.hidden;
    sum.forward += kernels_.moved(4 * values);
    // The gradient of the table is written and added up for each micro-batch, whatever rows it has.
    const bool is_trained = !job_.lora;
    if (is_trained)
        sum.backward +=
            kernels_.moved(8 * values + (2 * kValue + 2 * static_cast<double>(job_.kept().gradient)) * table_of_rank());
    if (parallel.tensor > 1) {
        const double seconds = collective_seconds(parallel.sequence ? Collective::ReduceScatter : Collective::AllReduce,
                                                  kValue * values, {parallel.tensor, 1}, job_.fabric);
        sum.expose(&PassParts::tensor, seconds, is_trained ? seconds : 0);
    }
    sum.kernels += 3;
}

TransformerLayerCost TransformerLayers::embedding(int sequences) const {
    Sum sum = sum_of(sequences);
    add_lookup(sum);
    sum.goes_back = !job_.lora;
    const double positions = job_.model.position == PositionKind::Learned ? job_.model.positions : 0;
    sum.parameters.add_other(table_of_rank() + positions * job_.model.hidden / job_.parts);
    freeze(sum, false);
    return finished(sum, false);
}

// Returns the rows of a rank. Frameworks pad the vocabulary to a multiple of 128 rows per rank.
double TransformerLayers::vocabulary_part() const {
    return std::ceil(job_.model.vocabulary / (128.0 * job_.parallel.tensor * job_.parts)) * 128;
}

double TransformerLayers::norm_parameters() const {
    return (job_.model.norm == NormKind::LayerNorm ? 2.0 : 1.0) * job_.model.hidden;
}

TransformerLayerCost TransformerLayers::final_norm(int sequences) const {
    Sum sum = sum_of(sequences);
    const double values = sum.divided * job_.model.hidden;
    sum.forward = kernels_.moved(4 * values);
    sum.backward = kernels_.moved(6 * values);
    sum.kernels = 1;
    sum.saved = kValue * values;
    sum.parameters.add_other(norm_parameters());
    freeze(sum, false);
    return finished(sum, false);
}

double TransformerLayers::table_of_rank() const { return vocabulary_part() * job_.model.hidden; }

// The head also computes the losses of all modules that predict further tokens, each in a pass of its own.
TransformerLayerCost TransformerLayers::head(int sequences) const {
    const Parallel& parallel = job_.parallel;
    const ReleaseFacts release = parallel.program();
    const Transformer& model = job_.model;
    const double hidden = model.hidden, passes = 1 + model.mtp;
    Sum sum = sum_of(sequences);
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
    freeze(sum, false);
    return finished(sum, false);
}

std::vector<TransformerLayerCost> TransformerLayers::all(int sequences) const {
    const auto parts = static_cast<std::size_t>(job_.parts);
    std::vector<TransformerLayerCost> costs(parts, embedding(sequences));
    std::map<LayerForm, TransformerLayerCost> blocks;  // equal blocks are computed once
    for (int layer = 0; layer < job_.model.layers; ++layer) {
        const LayerForm form = job_.model.form(layer);
        auto found = blocks.find(form);
        if (found == blocks.end())
            found = blocks.emplace(form, block(form, sequences)).first;
        costs.push_back(found->second);
    }
    if (job_.model.mtp > 0)
        costs.insert(costs.end(), static_cast<std::size_t>(job_.model.mtp), mtp(sequences));
    if (parts > 1)
        costs.push_back(final_norm(sequences));
    costs.insert(costs.end(), parts, head(sequences));
    return costs;
}

}  // namespace pw
