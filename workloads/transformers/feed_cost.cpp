// What an MLP or experts add to the costs of a layer.
#include "workloads/transformers/layer_sum.h"

#include <algorithm>
#include <cmath>

namespace pw {

namespace {

// Kernels that choose experts, count their tokens, sort them and bring them back, of Megatron-Core's layer of experts.
constexpr double kRouting = 40;
// The share of the bandwidth of plain kernels that sorting reaches: 0.5 of 0.67 on a B200
// (MooreThreads/SimuMax@4dcaae5, configs/system/b200_bf16_ceperm.json).
constexpr double kSorting = 0.5 / 0.67;

}  // namespace

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

void TransformerLayers::add_activation(Sum& sum, double values) const {
    const ReleaseFacts release = job_.parallel.program();
    const bool gated = job_.model.gated;
    const double forward = gated ? (release.fuses ? 6 : 10) : (release.fuses ? 4 : 8);
    const double backward = gated ? (release.fuses ? 10 : 16) : (release.fuses ? 6 : 12);
    const double kernels = release.fuses ? 1 : 3;
    sum.forward += kernels_.moved(forward * values);
    if (job_.parallel.recompute == RecomputeKind::Norms)
        sum.recomputed += kernels_.moved(forward * values) + kernels * kKernelEnds;
    sum.backward += kernels_.moved(backward * values);
    sum.kernels += kernels;
    sum.saved += kValue * values * (gated ? 2 : 1);
    if (!release.fuses && gated)
        sum.saved += kValue * values;
    sum.recomputed_saved += keeps_input_of(LoraTarget::Fc2) ? kernels_.input_bytes() * values : 0;
}

void TransformerLayers::add_dense(Sum& sum, double rows, double width) const {
    const Transformer& model = job_.model;
    const int pieces = job_.parallel.pieces();
    const double hidden = model.hidden, matrices = model.gated ? 2 : 1;
    sum.products += kernels_.linear(rows, hidden, matrices * width, pieces);
    sum.products += kernels_.linear(rows, width, hidden, pieces);
    sum.kernels += 2;
    add_activation(sum, rows * width);
    sum.parameters.dense += (matrices + 1) * hidden * width;
    sum.parameters.add_other(model.bias ? matrices * width + hidden : 0);
}

void TransformerLayers::add_mlp(Sum& sum) const {
    add_dense(sum, sum.rows, per_rank(job_.model.ffn, job_.parallel.tensor));
}

void TransformerLayers::add_experts(Sum& sum) const {
    const Transformer& model = job_.model;
    const Parallel& parallel = job_.parallel;
    const ReleaseFacts release = parallel.program();
    const double hidden = model.hidden, matrices = model.gated ? 2 : 1;
    const Experts& experts = *model.experts;
    if (experts.shared_width > 0)
        add_dense(sum, sum.rows, per_rank(experts.shared_width, parallel.tensor));
    const double tokens = sum.rows / parallel.tensor;  // whose experts this device chooses
    const double copies = tokens * experts.active;
    const double received = copies * parallel.fullest_expert();  // all ranks wait for the rank with the most tokens
    const double own = per_rank(experts.count, parallel.expert);
    sum.products += kernels_.experts(own, received / own, hidden, matrices * experts.width);
    sum.products += kernels_.experts(own, received / own, experts.width, hidden);
    sum.products += kernels_.linear(tokens, hidden, experts.count);
    add_activation(sum, received * experts.width);
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

}  // namespace pw
