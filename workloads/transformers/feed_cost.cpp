// What an MLP or experts add to the costs of a layer.
#include "workloads/transformers/layer_sum.h"

#include <algorithm>

namespace pw {

namespace {

// Kernels that choose experts, count their tokens, sort them and bring them back, of Megatron-Core's layer of experts.
constexpr double kRouting = 40;
// The share of the bandwidth of plain kernels that sorting reaches: 0.5 of 0.67 on a B200
// (MooreThreads/SimuMax@4dcaae5, configs/system/b200_bf16_ceperm.json).
constexpr double kSorting = 0.5 / 0.67;
constexpr ModuleSet kExperts = set_of(BlockModule::Experts, BlockModule::Operators);

}  // namespace

// Returns how many of `parts` equal parts of the experts have some of a token's experts, if all choices of different
// experts are equally likely.
double TransformerLayers::parts_with_experts(int parts) const {
    const Experts& experts = *job_.model.experts;
    const double elsewhere = experts.count - per_rank(experts.count, parts);
    double has_none = 1;
    for (int chosen = 0; chosen < experts.active; ++chosen)
        has_none *= std::max(0.0, elsewhere - chosen) / (experts.count - chosen);
    return parts * (1 - has_none);
}

// Returns what a rank sends with DeepEP, whose tokens have `bytes` together. A token leaves its domain once for each
// other domain with some of its experts. There, a rank with the sender's place passes the token on to the ranks with
// its experts (deepseek-ai/DeepEP, csrc/kernels/internode.cu). All ranks of expert_tensor get the token.
SentBytes TransformerLayers::sent_once(double bytes) const {
    const Parallel& parallel = job_.parallel;
    const int ranks = parallel.expert_ranks();
    const int in_domain = job_.fabric.between ? RankGroup{ranks, 1}.in_domain(job_.fabric) : ranks;
    const int domains = (ranks + in_domain - 1) / in_domain, parts = std::min(domains, parallel.expert);
    // No rank gets a token twice, however uneven the loads are.
    const auto reached = [&](int parts_of_experts, double each) {
        const double even = parts_with_experts(parts_of_experts);
        return each * std::min<double>(even * parallel.fullest_expert(), parts_of_experts);
    };
    const double to_ranks = reached(parallel.expert, parallel.expert_tensor);
    const double to_domains = reached(parts, per_rank(domains, parts));
    return {.inside = bytes * to_ranks * (in_domain - 1) / in_domain,
            .outside = bytes * to_domains * (domains - 1) / domains};
}

// Returns the seconds of the messages that bring a rank's tokens to their experts and back. A backward has the same
// messages in reverse.
double TransformerLayers::expert_messages(double tokens) const {
    const Parallel& parallel = job_.parallel;
    const ExpertDispatcher dispatcher = parallel.program().dispatcher;
    const double token = kValue * job_.model.experts->routed_width(job_.model.hidden);
    if (dispatcher == ExpertDispatcher::DeepEp)
        return parallel.expert_ranks() == 1 ? 0 : 2 * exchange_seconds(sent_once(token * tokens), job_.fabric);
    const double received = token * tokens * job_.model.experts->active * parallel.fullest_expert();
    const double gathered = received * parallel.expert_tensor;
    const RankGroup experts{parallel.expert, parallel.expert_tensor}, parts{parallel.expert_tensor, 1};
    if (dispatcher == ExpertDispatcher::Gathered)  // the tensor ranks have gathered the tokens
        return 2 * collective_seconds(Collective::AllToAll, gathered, experts, job_.fabric);
    return 2 * collective_seconds(Collective::AllToAll, received, experts, job_.fabric) +
           collective_seconds(Collective::AllGather, gathered, parts, job_.fabric) +
           collective_seconds(Collective::ReduceScatter, gathered, parts, job_.fabric);
}

// `modules` make the activation of these values, which are in `tensors` tensors.
void TransformerLayers::add_activation(Sum& sum, double values, ModuleSet modules, double tensors) const {
    const bool fuses = job_.parallel.program().fuses, gated = job_.model.gated;
    const double forward = gated ? (fuses ? 6 : 10) : (fuses ? 4 : 8);
    const double backward = gated ? (fuses ? 10 : 16) : (fuses ? 6 : 12);
    const double kernels = tensors * (fuses ? 1 : 3);
    sum.forward += kernels_.moved(forward * values);
    sum.repeat(kernels_.moved(forward * values) + kernels * kKernelEnds, modules);
    sum.backward += kernels_.moved(backward * values);
    sum.kernels += kernels;
    sum.save(!fuses && gated ? kValue * values : 0, modules);
    sum.save(keeps_input_of(sum, LoraTarget::Fc2) ? kernels_.input_bytes() * values : 0, modules);
}

// `modules` make all of a dense MLP, or of shared experts.
void TransformerLayers::add_dense(Sum& sum, double width, ModuleSet modules) const {
    const Transformer& model = job_.model;
    const int matrices = model.gated ? 2 : 1, pieces = job_.parallel.pieces();
    const double hidden = model.hidden, rows = sum.rows;
    const LinearSeconds first = kernels_.linear(rows, hidden, matrices * width, pieces);
    const LinearSeconds second = kernels_.linear(rows, width, hidden, pieces);
    sum.products += first;
    sum.products += second;
    sum.kernels += 2;
    for (int matrix = 0; matrix < matrices; ++matrix) {
        const ModuleSet made_by = sum.next_product(modules);
        sum.save(kValue * rows * width, made_by);
        sum.repeat((first.forward + kKernelEnds) / matrices, made_by);
    }
    add_activation(sum, rows * width, joined(modules, set_of(BlockModule::Activation, BlockModule::Operators)));
    sum.output = sum.next_product({});
    // The next block keeps the sum of the residual stream and this output, unless the output has a norm.
    const bool is_unread = !model.post_norms, is_last = is_unread && has(modules, BlockModule::Mlp);
    sum.unread = is_last ? second.forward + kKernelEnds : 0;
    if (!is_last || job_.parallel.program().repeats_last)
        sum.repeat(second.forward + kKernelEnds, joined(modules, sum.output));
    // Without a compiler, torchtitan saves the output though no backward reads the output.
    const bool is_saved = is_unread && sum.output == ModuleSet{};
    if (has(sum.recompute, BlockModule::Operators) && is_saved && !job_.parallel.program().fuses)
        sum.save(kValue * rows * hidden, {});
    sum.parameters.dense += (matrices + 1) * hidden * width;
    sum.parameters.add_other(model.bias ? matrices * width + hidden : 0);
}

void TransformerLayers::add_mlp(Sum& sum) const {
    add_dense(sum, per_rank(job_.model.ffn, job_.parallel.tensor), kDenseMlp);
}

// Adds the products into the width of routed experts before the messages of `tokens`, and out of it after them. Each
// tensor rank has all of both matrices and multiplies its own tokens (NVIDIA/Megatron-LM@d98e8a6,
// megatron/core/transformer/moe/moe_layer.py, parallel_mode "duplicated").
void TransformerLayers::add_latent_products(Sum& sum, double tokens) const {
    const Transformer& model = job_.model;
    const double hidden = model.hidden, latent = model.experts->latent;
    const LinearSeconds into = kernels_.linear(tokens, hidden, latent), out = kernels_.linear(tokens, latent, hidden);
    const ModuleSet layer = set_of(BlockModule::Experts);
    sum.products += into;
    sum.products += out;
    sum.kernels += 2;
    sum.repeat(into.forward + kKernelEnds, sum.next_product(layer));
    sum.save(keeps_input_of(sum, LoraTarget::Fc2) ? kernels_.input_bytes() * tokens * latent : 0, kExperts);
    sum.output = sum.next_product({});
    sum.repeat(out.forward + kKernelEnds, joined(layer, sum.output));
    sum.parameters.dense += 2 * hidden * latent;
    sum.parameters.add_other(model.bias ? latent + hidden : 0);
}

void TransformerLayers::add_experts(Sum& sum) const {
    const Transformer& model = job_.model;
    const Parallel& parallel = job_.parallel;
    const ReleaseFacts release = parallel.program();
    const Experts& experts = *model.experts;
    if (experts.shared_width > 0)
        add_dense(sum, per_rank(experts.shared_width, parallel.tensor), kSharedExperts);
    sum.output = kOperators;  // copies of a token are added up
    const double hidden = model.hidden, routed_width = experts.routed_width(model.hidden);
    const double matrices = model.gated ? 2 : 1;
    const double tokens = sum.rows / parallel.tensor;                        // whose experts this device chooses
    const double copies = tokens * experts.active * parallel.expert_tensor;  // whose experts this device has a part of
    const double received = copies * parallel.fullest_expert();  // all ranks wait for the rank with the most tokens
    const double own = per_rank(experts.count, parallel.expert);
    const double width = per_rank(experts.width, parallel.expert_tensor);
    const double forward_before = sum.forward, backward_before = sum.backward, kernels_before = sum.kernels;
    LinearSeconds products = kernels_.experts(own, received / own, routed_width, matrices * width);
    products += kernels_.experts(own, received / own, width, routed_width);
    const LinearSeconds routed = products;
    products += kernels_.linear(tokens, hidden, experts.count);
    sum.products += products;
    sum.save(kValue * received * width * matrices, kExperts);
    // Experts that run one after the other have activations of their own.
    const double times = release.experts == ExpertKernels::Grouped ? 1 : own;
    add_activation(sum, received * width, joined(kExperts, set_of(BlockModule::ExpertActivation)), times);
    const double activation = sum.forward - forward_before, activation_back = sum.backward - backward_before;
    sum.parameters.experts += own * (matrices + 1) * routed_width * width;
    sum.parameters.dense += hidden * experts.count;
    // Copies are put in the order of their experts and back: each is read and written twice in every pass.
    const double sorting = kernels_.moved(2 * kValue * 2 * copies * routed_width / kSorting);
    sum.routed_kernels = sum.kernels - kernels_before + 2 * own;  // a product for each expert
    const double kernels = kRouting + 2 * own;
    sum.forward += sorting;
    sum.backward += sorting;
    sum.kernels += kernels;
    sum.repeat(products.forward + sorting + kernels * kKernelEnds, kExperts);
    // What messages bring is saved by torchtitan, too.
    const double inputs = keeps_input_of(sum, LoraTarget::Fc1) ? kernels_.input_bytes() : 0;
    sum.save((kValue + inputs) * received * routed_width, set_of(BlockModule::Experts));
    if (experts.latent > 0)
        add_latent_products(sum, tokens);
    const double messages = expert_messages(tokens);
    const double computing = sum.products.forward + sum.forward;
    const double in_forward = release.overlap.expert ? exposed(messages, computing) : messages;
    sum.repeat(in_forward, set_of(BlockModule::Experts));
    sum.expose(&PassParts::experts, in_forward, release.overlap.expert ? exposed(messages, 2 * computing) : messages);
    if (release.overlap.expert)
        return;
    sum.expert_forward = {messages, routed.forward + activation};
    sum.expert_backward = {messages, routed.input + routed.weight + activation_back};
}

}  // namespace pw
