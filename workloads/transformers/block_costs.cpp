// The blocks of a transformer: norms, residual sums and messages around a mixer and an MLP or experts.
#include "workloads/transformers/layer_sum.h"

#include <utility>

namespace pw {

namespace {

constexpr ModuleSet kNorms = set_of(BlockModule::Norms, BlockModule::Operators);

// Whether both parts of a layer are added to the residual stream in one sum.
bool adds_at_once(const Transformer& model, const LayerForm& form) { return model.parallel && form.parts() == 2; }

}  // namespace

void TransformerLayers::add_norms(Sum& sum, const LayerForm& form) const {
    const ReleaseFacts release = job_.parallel.program();
    const Transformer& model = job_.model;
    const bool fused = release.fuses_norms || model.norm != NormKind::RmsNorm;  // PyTorch has a kernel of LayerNorm
    const double hidden = model.hidden, values = sum.divided * hidden, kernels = fused ? 1 : 6;
    const int parts = form.parts(), after = model.post_norms ? parts : 0, norms = parts + after;
    // Each norm reads and writes the residual stream. If not fused, norms are in fp32 with separate kernels.
    sum.forward += kernels_.moved(norms * values * (fused ? 4 : 30));
    sum.backward += kernels_.moved(norms * values * (fused ? 6 : 50));
    // Norms before the parts are a module, norms after the parts are not.
    for (const auto& [count, modules] : {std::pair(parts, kNorms), std::pair(after, kOperators)}) {
        sum.repeat(kernels_.moved(count * values * (fused ? 4 : 30)) + count * kernels * kKernelEnds, modules);
        sum.save(fused ? 0 : count * (kFloat + kValue) * values, modules);  // copies in fp32, and before the weights
    }
    // A residual sum for each part, and the sums of their gradients. Parallel parts are added in one kernel.
    const bool at_once = adds_at_once(model, form);
    const double forward = at_once ? (release.dropout ? 10 : 8) : parts * (release.dropout ? 7 : 6);
    const double backward = at_once ? (release.dropout ? 18 : 8) : parts * (release.dropout ? 11 : 6);
    const double sums = kernels_.moved(values * forward);
    sum.forward += sums;
    sum.repeat(at_once ? 0 : sums * (parts - 1) / parts, kOperators);  // the output of the block is saved
    sum.backward += kernels_.moved(values * backward);
    sum.kernels += norms * kernels + (at_once ? 1 : parts);
    if (form.mixer != Mixer::None)  // outputs of the norms
        sum.save(keeps_input_of(sum, LoraTarget::Qkv) ? kValue * values : 0, kNorms);
    if (form.feed != Feed::None)
        sum.save(keeps_input_of(sum, LoraTarget::Fc1) ? kValue * values : 0, kNorms);
    sum.save(release.dropout ? values * parts : 0, {});  // masks
    sum.parameters.add_other((model.norm == NormKind::LayerNorm ? 2 : 1) * norms * hidden);
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

// Adds the messages of tensor ranks: `parts` times they gather the input of `products` and scatter the output, or sum
// it.
void TransformerLayers::add_tensor_messages(Sum& sum, double parts, const LinearSeconds& products) const {
    const Parallel& parallel = job_.parallel;
    const ReleaseFacts release = parallel.program();
    const double bytes = kValue * sum.rows * job_.model.hidden, before = sum.exposed_forward;
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
    if (parallel.sequence)
        sum.repeat((sum.exposed_forward - before) * gather / (gather + scatter), kOperators);
}

void TransformerLayers::add_parts(Sum& sum, const LayerForm& form) const {
    const Transformer& model = job_.model;
    const bool at_once = adds_at_once(model, form);
    add_norms(sum, form);
    // Saves the output of a part for the norm after it, and the residual stream before the next part. torchtitan saves
    // what messages bring.
    const auto save_output = [&](bool has_next) {
        const double stream = kValue * sum.divided * model.hidden;
        const ModuleSet output = job_.parallel.tensor > 1 ? ModuleSet{} : sum.output;
        sum.save(model.post_norms ? stream : 0, output);
        sum.save(has_next ? stream : 0, model.post_norms ? kOperators : output);
    };
    if (const AddPart add = adder_of(form.mixer)) {
        (this->*add)(sum);
        save_output(form.feed != Feed::None && !at_once);
    }
    const LinearSeconds of_mixer = sum.products;
    if (const AddPart add = adder_of(form.feed)) {
        (this->*add)(sum);
        save_output(false);
    }
    freeze(sum);
    // Parts that all tensor ranks compute together. Routed experts have messages of their own. torchtitan gathers their
    // tokens, too, once for shared and routed experts.
    const bool gathers = job_.parallel.program().dispatcher == ExpertDispatcher::Gathered;
    const bool has_dense =
        form.feed == Feed::Mlp || (form.feed == Feed::Experts && (gathers || model.experts->shared_width > 0));
    const int parts = (form.mixer != Mixer::None ? 1 : 0) + (has_dense ? 1 : 0);
    if (job_.parallel.tensor == 1 || parts == 0)
        return;
    const double before = sum.exposed_forward;
    add_tensor_messages(sum, at_once ? 1 : parts, has_dense ? sum.products : of_mixer);
    if (has_dense && !at_once)
        sum.repeat((sum.exposed_forward - before) / parts, form.feed == Feed::Mlp ? kDenseMlp : kSharedExperts);
}

TransformerLayerCost TransformerLayers::block(const LayerForm& form, int sequences, double share,
                                              const Passes& passes) const {
    Sum sum = sum_of(sequences, passes, share);
    add_parts(sum, form);
    return finished(sum);
}

}  // namespace pw
