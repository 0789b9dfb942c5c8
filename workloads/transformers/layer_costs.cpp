#include "workloads/transformers/layer_costs.h"

#include "workloads/transformers/adapter_cost.h"
#include "workloads/transformers/layer_sum.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

namespace pw {

namespace {

constexpr double kValue = 2;  // bytes of an activation
constexpr double kFloat = 4;
// Computing takes this many times as long while messages are under way (PKU-DAIR/Hetu-Galvatron@cea12ff,
// hardware_configs).
constexpr double kSlowedByMessages = 1.126;

// Kernels that choose experts, count their tokens, sort them and bring them back, of Megatron-Core's layer of experts.
constexpr double kRouting = 40;
// The share of the bandwidth of plain kernels that sorting reaches: 0.5 of 0.67 on a B200
// (MooreThreads/SimuMax@4dcaae5, configs/system/b200_bf16_ceperm.json).
constexpr double kSorting = 0.5 / 0.67;
// How often a checkpointed block reads or sets a state of random numbers: the states of the CPU, of the GPU and of the
// tensor ranks, and twice in each of two dropouts of attention and MLP.
constexpr double kRandomStates = 7;

// By how much a step takes longer than its kernels and messages: a calculator with kernels that were measured on the
// same machine is 3.68 % short in the median of 12 runs (MooreThreads/SimuMax@4dcaae5, docs/b200, its own errors).
constexpr double kUnaccounted = 1 / (1 - 0.0368);
// Seconds in which the host launches a kernel from Python: PyTorch 2.11 on the host of results/h100
// (host_us_per_kernel).
constexpr double kLaunch = 27.45e-6;
// By how much a kernel takes longer than its bytes do: a copy of 4 MB on an H100 takes 3.6 us, and 1.4 us at the rate
// of large copies (results/h100).
constexpr double kKernelEnds = 2.2e-6;

double per_rank(double count, int ranks) { return count / ranks; }

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

void TransformerLayers::add_norms(Sum& sum) const {
    const ReleaseFacts release = job_.parallel.program();
    const bool fused =
        release.fuses_norms || job_.model.norm != NormKind::RmsNorm;  // PyTorch has a kernel of LayerNorm
    const double hidden = job_.model.hidden, values = sum.divided * hidden;
    // Two norms, each reads and writes the residual stream. If not fused, norms are in fp32 with separate kernels.
    const double norms = kernels_.moved(2 * values * (fused ? 4 : 30));
    sum.forward += norms;
    if (job_.parallel.recompute == RecomputeKind::Norms)
        sum.recomputed += norms + (fused ? 2 : 12) * kKernelEnds;
    sum.backward += kernels_.moved(2 * values * (fused ? 6 : 50));
    // Two residual sums, and the sums of both gradients.
    sum.forward += kernels_.moved(2 * values * (release.dropout ? 7 : 6));
    sum.backward += kernels_.moved(2 * values * (release.dropout ? 11 : 6));
    sum.kernels += fused ? 4 : 14;
    sum.saved += kValue * values;                                       // the residual stream between attention and MLP
    for (const LoraTarget reader : {LoraTarget::Qkv, LoraTarget::Fc1})  // outputs of both norms
        sum.recomputed_saved += keeps_input_of(reader) ? kValue * values : 0;
    sum.saved += release.dropout ? 2 * values : 0;            // masks
    sum.saved += fused ? 0 : 2 * (kFloat + kValue) * values;  // copies in fp32, and before the weights
    sum.parameters.add_other((job_.model.norm == NormKind::LayerNorm ? 4 : 2) * hidden);
}

void TransformerLayers::add_attention(Sum& sum, int layer) const {
    const Transformer& model = job_.model;
    const Parallel& parallel = job_.parallel;
    const double hidden = model.hidden, rows = sum.rows;
    const int tensor = parallel.tensor, pieces = parallel.pieces();
    const double heads = per_rank(model.heads, tensor);
    double key_width = model.head_width, value_width = model.head_width;
    LinearSeconds first;
    double made = 0;  // values per token that the products before attention make
    double keys_and_values = 0;
    if (model.latent) {
        const LatentAttention& latent = *model.latent;
        key_width = latent.plain_width + latent.rotary_width;
        value_width = latent.value_width;
        const double queries = heads * key_width;
        if (latent.query_rank > 0) {
            first += kernels_.linear(rows, hidden, latent.query_rank);
            first += kernels_.linear(rows, latent.query_rank, queries);
        } else {
            first += kernels_.linear(rows, hidden, queries);
        }
        first += kernels_.linear(rows, hidden, latent.key_value_rank + latent.rotary_width);
        first += kernels_.linear(rows, latent.key_value_rank, heads * (latent.plain_width + value_width));
        keys_and_values = heads * (key_width + value_width);
        made = queries + keys_and_values + latent.query_rank + latent.key_value_rank + latent.rotary_width;
        sum.parameters.dense += hidden * (latent.key_value_rank + latent.rotary_width) +
                                latent.key_value_rank * heads * (latent.plain_width + value_width) +
                                (latent.query_rank > 0 ? latent.query_rank * (hidden + queries) : hidden * queries);
    } else {
        const double groups = std::max(1.0, per_rank(model.key_value_heads, tensor));
        keys_and_values = 2 * groups * key_width;
        made = heads * key_width + keys_and_values;
        first = kernels_.linear(rows, hidden, made, pieces);
        sum.parameters.dense += hidden * made;
        sum.parameters.add_other(model.bias || model.attention_bias ? made : 0);
    }
    const double out = heads * value_width;
    const LinearSeconds second = kernels_.linear(rows, out, hidden, pieces);
    sum.products += first;
    sum.products += second;
    sum.parameters.dense += out * hidden;
    sum.parameters.add_other(model.bias ? hidden : 0);

    const int window = model.has_window(layer) ? model.window : 0;
    const PassSeconds core = kernels_.attention(range_, sum.sequences, heads, key_width, value_width, window);
    sum.forward += core.forward;
    sum.backward += core.backward;
    sum.attention += core.forward + core.backward;
    sum.kernels += 4;
    // A slice appends its keys and values to a copy of the earlier ones, and its backward adds up all gradients of keys
    // and values that later slices left (Ascend/MindSpeed and thunlp/Seq1F1B, kv_sp_flash_func).
    const double prefix = kValue * rows * range_.end / range_.count() * keys_and_values;
    sum.forward += range_.begin > 0 ? kernels_.moved(2 * prefix) : 0;
    sum.backward += range_.end < job_.tokens ? kernels_.moved(3 * prefix) : 0;
    sum.saved += kValue * rows * (made + out);
    sum.keys_and_values += kValue * rows * keys_and_values;
    if (kernels_.input_bytes() < kValue &&
        keeps_input_of(LoraTarget::Proj))  // attention keeps its output, the next product has a copy of its own
        sum.saved += kernels_.input_bytes() * rows * out;
    const bool unfused = parallel.program().attention == AttentionKernels::Unfused;
    const double queries = sum.sequences * heads * range_.count() / parallel.context, scores = queries * range_.end;
    const double kept = unfused ? scores * (parallel.program().dropout ? 5 : 2) : kFloat * queries;
    if (unfused)
        sum.kernels += 6;
    if (unfused && parallel.recompute == RecomputeKind::Selective)
        sum.recomputed += core.forward;
    else
        sum.saved += kept;
    if (model.position == PositionKind::Rotary) {
        const double rotated = rows * (heads * key_width + keys_and_values / 2);
        const double bytes = (parallel.program().fuses ? 4 : 16) * rotated;
        sum.forward += kernels_.moved(bytes);
        sum.backward += kernels_.moved(bytes);
        sum.kernels += parallel.program().fuses ? 2 : 8;
    }
    if (parallel.context > 1) {  // keys and values of the next part arrive while attention computes
        const double bytes = kValue * rows * keys_and_values * (range_.end / range_.count()) * (parallel.context - 1);
        const double seconds = message_seconds(bytes, tensor, job_.fabric);
        sum.expose(&PassParts::context, exposed(seconds, core.forward), exposed(2 * seconds, core.backward));
    }
}

// Returns the copies that leave with a dispatch that sends a token once to every domain with one of its experts, and
// copies the token to its experts inside the domain (DeepEP). Experts are equally likely.
double TransformerLayers::copies_to_domains(double copies) const {
    const int ranks = job_.parallel.expert, in_domain = RankGroup{ranks, 1}.in_domain(job_.fabric);
    const int domains = job_.fabric.between ? (ranks + in_domain - 1) / in_domain : 1;
    if (domains == 1)
        return copies;
    const double active = job_.model.experts->active;
    return copies * domains * (1 - std::pow(1 - 1.0 / domains, active)) / active;
}

void TransformerLayers::add_mlp(Sum& sum, int layer) const {
    const Transformer& model = job_.model;
    const Parallel& parallel = job_.parallel;
    const ReleaseFacts release = parallel.program();
    const double hidden = model.hidden, matrices = model.gated ? 2 : 1;
    const auto activation = [&](double values) {
        const double forward = model.gated ? (release.fuses ? 6 : 10) : (release.fuses ? 4 : 8);
        const double backward = model.gated ? (release.fuses ? 10 : 16) : (release.fuses ? 6 : 12);
        const double kernels = release.fuses ? 1 : 3;
        sum.forward += kernels_.moved(forward * values);
        if (parallel.recompute == RecomputeKind::Norms)
            sum.recomputed += kernels_.moved(forward * values) + kernels * kKernelEnds;
        sum.backward += kernels_.moved(backward * values);
        sum.kernels += kernels;
        sum.saved += kValue * values * matrices;
        if (!release.fuses && model.gated)
            sum.saved += kValue * values;
        sum.recomputed_saved += keeps_input_of(LoraTarget::Fc2) ? kernels_.input_bytes() * values : 0;
    };
    const auto dense = [&](double rows, double width) {
        sum.products += kernels_.linear(rows, hidden, matrices * width, parallel.pieces());
        sum.products += kernels_.linear(rows, width, hidden, parallel.pieces());
        sum.kernels += 2;
        activation(rows * width);
        sum.parameters.dense += (matrices + 1) * hidden * width;
        sum.parameters.add_other(model.bias ? matrices * width + hidden : 0);
    };
    if (!model.has_experts(layer)) {
        dense(sum.rows, per_rank(model.ffn, parallel.tensor));
        return;
    }
    const Experts& experts = *model.experts;
    if (experts.shared_width > 0)
        dense(sum.rows, per_rank(experts.shared_width, parallel.tensor));
    const double tokens = sum.rows / parallel.tensor;  // whose experts this device chooses
    const double copies = tokens * experts.active;
    const double received = copies * parallel.fullest_expert();  // all ranks wait for the rank with the most tokens
    const double own = per_rank(experts.count, parallel.expert);
    sum.products += kernels_.experts(own, received / own, hidden, matrices * experts.width);
    sum.products += kernels_.experts(own, received / own, experts.width, hidden);
    sum.products += kernels_.linear(tokens, hidden, experts.count);
    activation(received * experts.width);
    sum.parameters.experts += own * (matrices + 1) * hidden * experts.width;
    sum.parameters.dense += hidden * experts.count;
    // Copies are put in the order of their experts and back: each is read and written twice in every pass.
    sum.forward += kernels_.moved(2 * kValue * 2 * copies * hidden / kSorting);
    sum.backward += kernels_.moved(2 * kValue * 2 * copies * hidden / kSorting);
    sum.kernels += kRouting + 2 * own;  // a product for each expert
    sum.saved += (kValue + kernels_.input_bytes()) * received * hidden;
    const double sent = release.sends_once ? copies_to_domains(received) : received;
    const double messages =
        2 * collective_seconds(Collective::AllToAll, kValue * sent * hidden, {parallel.expert, 1}, job_.fabric);
    const double computing = sum.products.forward + sum.forward;
    sum.expose(&PassParts::experts, release.overlap.expert ? exposed(messages, computing) : messages,
               release.overlap.expert ? exposed(messages, 2 * computing) : messages);
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

TransformerLayerCost TransformerLayers::block(int layer, int sequences) const {
    const Parallel& parallel = job_.parallel;
    const ReleaseFacts release = parallel.program();
    Sum sum;
    sum.sequences = sequences;
    sum.rows = rows_of(sequences);
    sum.divided = sum.rows / (parallel.sequence ? parallel.tensor : 1);
    add_norms(sum);
    add_attention(sum, layer);
    const LinearSeconds of_attention = sum.products;
    add_mlp(sum, layer);
    freeze(sum, true);
    if (parallel.tensor > 1) {
        // Attention and a dense MLP each gather their input and scatter their output, or sum it.
        const double parts = job_.model.has_experts(layer) && job_.model.experts->shared_width == 0 ? 1 : 2;
        const double bytes = kValue * sum.rows * job_.model.hidden;
        const RankGroup group{parallel.tensor, 1};
        const double sum_all = collective_seconds(Collective::AllReduce, bytes, group, job_.fabric);
        const double gather = collective_seconds(Collective::AllGather, bytes, group, job_.fabric);
        const double scatter = collective_seconds(Collective::ReduceScatter, bytes, group, job_.fabric);
        const LinearSeconds& products = parts == 1 ? of_attention : sum.products;
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
    return finished(sum, true);
}

TransformerLayerCost TransformerLayers::embedding(int sequences) const {
    const Parallel& parallel = job_.parallel;
    Sum sum;
    sum.rows = rows_of(sequences);
    const double values = sum.rows * job_.model.hidden;
    sum.forward = kernels_.moved(4 * values);
    // The gradient of the table is written and added up for each micro-batch, whatever rows it has.
    const double table = gathered_vocabulary() / parallel.tensor * job_.model.hidden;
    sum.goes_back = !job_.lora;
    if (sum.goes_back)
        sum.backward =
            kernels_.moved(8 * values + (2 * kValue + 2 * static_cast<double>(job_.kept().gradient)) * table);
    if (parallel.tensor > 1) {
        const double seconds = collective_seconds(parallel.sequence ? Collective::ReduceScatter : Collective::AllReduce,
                                                  kValue * values, {parallel.tensor, 1}, job_.fabric);
        sum.expose(&PassParts::tensor, seconds, sum.goes_back ? seconds : 0);
    }
    sum.kernels = 3;
    const double positions = job_.model.position == PositionKind::Learned ? job_.model.positions : 0;
    sum.parameters.add_other(table + positions * job_.model.hidden);
    freeze(sum, false);
    return finished(sum, false);
}

// Frameworks pad the vocabulary to a multiple of 128 rows per rank.
double TransformerLayers::gathered_vocabulary() const {
    const double rows = 128.0 * job_.parallel.tensor;
    return std::ceil(job_.model.vocabulary / rows) * rows;
}

TransformerLayerCost TransformerLayers::head(int sequences) const {
    const Parallel& parallel = job_.parallel;
    const ReleaseFacts release = parallel.program();
    const double hidden = job_.model.hidden;
    Sum sum;
    sum.rows = rows_of(sequences);
    sum.divided = sum.rows / (parallel.sequence ? parallel.tensor : 1);
    const double columns = gathered_vocabulary() / parallel.tensor;
    sum.products = kernels_.head(sum.rows, hidden, columns);
    const double logits = sum.rows * columns * (release.splits_logits ? 1 : parallel.tensor);
    sum.forward = kernels_.moved(logits * release.loss.forward + 4 * sum.divided * hidden);
    sum.backward = kernels_.moved(logits * release.loss.backward + 6 * sum.divided * hidden);
    sum.kernels = 12;
    sum.saved = logits * release.loss.saved + 2 * kValue * sum.divided * hidden;
    sum.scratch = logits * release.loss.scratch;
    if (parallel.tensor > 1) {
        const double bytes = kValue * sum.rows * hidden;
        const RankGroup group{parallel.tensor, 1};
        sum.expose(&PassParts::tensor,
                   parallel.sequence ? collective_seconds(Collective::AllGather, bytes, group, job_.fabric) : 0,
                   collective_seconds(parallel.sequence ? Collective::ReduceScatter : Collective::AllReduce, bytes,
                                      group, job_.fabric));
        if (!release.splits_logits) {  // they are gathered, and their gradient is divided again
            sum.expose(&PassParts::tensor,
                       collective_seconds(Collective::AllGather, kValue * logits, group, job_.fabric), 0);
            sum.saved += 2 * kValue * logits;
            sum.scratch += 3 * kValue * logits;
        }
    }
    const bool shares = job_.model.tied && parallel.pipeline == 1;
    sum.parameters.add_other((job_.model.norm == NormKind::LayerNorm ? 2 : 1) * hidden +
                             (shares ? 0 : columns * hidden));
    freeze(sum, false);
    return finished(sum, false);
}

std::vector<TransformerLayerCost> TransformerLayers::all(int sequences) const {
    std::vector<TransformerLayerCost> costs{embedding(sequences)};
    std::map<std::pair<bool, bool>, TransformerLayerCost> blocks;  // equal blocks are computed once
    for (int layer = 0; layer < job_.model.layers; ++layer) {
        const std::pair kind{job_.model.has_experts(layer), job_.model.has_window(layer)};
        auto found = blocks.find(kind);
        if (found == blocks.end())
            found = blocks.emplace(kind, block(layer, sequences)).first;
        costs.push_back(found->second);
    }
    costs.push_back(head(sequences));
    return costs;
}

}  // namespace pw
