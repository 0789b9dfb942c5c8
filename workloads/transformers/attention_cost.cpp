// What attention adds to the costs of a layer.
#include "workloads/transformers/layer_sum.h"

#include <algorithm>

namespace pw {

namespace {

constexpr ModuleSet kUpProjection = set_of(BlockModule::UpProjection);
constexpr ModuleSet kCoreAttention = set_of(BlockModule::CoreAttention);

}  // namespace

// Adds the products before attention. Returns the widths of attention.
TransformerLayers::AttentionShape TransformerLayers::add_attention_inputs(Sum& sum) const {
    const Transformer& model = job_.model;
    const double hidden = model.hidden, rows = sum.rows;
    const int tensor = job_.parallel.tensor;
    AttentionShape shape{per_rank(model.heads, tensor), static_cast<double>(model.head_width),
                         static_cast<double>(model.head_width)};
    // Adds what attention reads of a product's output: this many values per token.
    const auto make = [&](double forward, double values, ModuleSet modules) {
        const ModuleSet made_by = sum.next_product(modules);
        sum.save(kValue * rows * values, made_by);
        sum.repeat(forward + kKernelEnds, made_by);
    };
    if (!model.latent) {
        const double groups = std::max(1.0, per_rank(model.key_value_heads, tensor));
        shape.keys_and_values = 2 * groups * shape.key_width;
        const double queries = shape.heads * shape.key_width, made = queries + shape.keys_and_values;
        const LinearSeconds product = kernels_.linear(rows, hidden, made, job_.parallel.pieces());
        sum.products += product;
        for (const double values : {queries, shape.keys_and_values / 2, shape.keys_and_values / 2})
            make(product.forward * values / made, values, {});
        sum.parameters.dense += hidden * made;
        sum.parameters.add_other(model.bias || model.attention_bias ? made : 0);
        return shape;
    }
    const LatentAttention& latent = *model.latent;
    shape.key_width = latent.plain_width + latent.rotary_width;
    shape.value_width = latent.value_width;
    shape.keys_and_values = shape.heads * (shape.key_width + shape.value_width);
    const double queries = shape.heads * shape.key_width;
    const auto multiply = [&](double inputs, double outputs, double values, ModuleSet modules) {
        const LinearSeconds product = kernels_.linear(rows, inputs, outputs);
        sum.products += product;
        sum.parameters.dense += inputs * outputs;
        make(product.forward, values, modules);
    };
    const double rank = latent.query_rank > 0 ? latent.query_rank : hidden;
    if (latent.query_rank > 0)
        multiply(hidden, rank, rank, {});
    multiply(rank, queries, queries, kUpProjection);
    const double compressed = latent.key_value_rank + latent.rotary_width;
    multiply(hidden, compressed, compressed, {});
    multiply(latent.key_value_rank, shape.heads * (latent.plain_width + shape.value_width), shape.keys_and_values,
             kUpProjection);
    return shape;
}

void TransformerLayers::add_attention(Sum& sum, int window) const {
    const Transformer& model = job_.model;
    const Parallel& parallel = job_.parallel;
    const double hidden = model.hidden, rows = sum.rows;
    const int tensor = parallel.tensor;
    const auto [heads, key_width, value_width, keys_and_values] = add_attention_inputs(sum);
    const double out = heads * value_width;
    const LinearSeconds product = kernels_.linear(rows, out, hidden, parallel.pieces());
    sum.products += product;
    sum.parameters.dense += out * hidden;
    sum.parameters.add_other(model.bias ? hidden : 0);
    sum.output = sum.next_product({});
    sum.repeat(product.forward + kKernelEnds, sum.output);

    const PassSeconds core = kernels_.attention(range_, sum.sequences, heads, key_width, value_width, window);
    sum.forward += core.forward;
    sum.backward += core.backward;
    sum.attention += core.forward + (sum.passes.goes_back ? core.backward : 0);
    sum.kernels += 4;
    // A slice appends its keys and values to a copy of the earlier ones, and its backward adds up all gradients of keys
    // and values that later slices left (Ascend/MindSpeed and thunlp/Seq1F1B, kv_sp_flash_func).
    const double prefix = kValue * rows * range_.end / range_.count() * keys_and_values;
    sum.forward += range_.begin > 0 ? kernels_.moved(2 * prefix) : 0;
    sum.backward += range_.end < job_.tokens ? kernels_.moved(3 * prefix) : 0;
    sum.save(kValue * rows * out, {});
    sum.keys_and_values += kValue * rows * keys_and_values;
    if (kernels_.input_bytes() < kValue &&
        keeps_input_of(sum, LoraTarget::Proj))  // attention keeps its output, the next product has a copy of its own
        sum.save(kernels_.input_bytes() * rows * out, {});
    const bool unfused = parallel.program().attention == AttentionKernels::Unfused;
    const double queries = sum.sequences * heads * range_.count() / parallel.context, scores = queries * range_.end;
    const double kept = unfused ? scores * (parallel.program().dropout ? 5 : 2) : kFloat * queries;
    if (unfused)
        sum.kernels += 6;
    sum.save(kept, kCoreAttention);
    sum.repeat(core.forward, kCoreAttention);
    if (model.position == PositionKind::Rotary) {
        const double rotated = rows * (heads * key_width + keys_and_values / 2);
        const double bytes = (parallel.program().fuses ? 4 : 16) * rotated;
        const double kernels = parallel.program().fuses ? 2 : 8;
        sum.forward += kernels_.moved(bytes);
        sum.repeat(kernels_.moved(bytes) + kernels * kKernelEnds, joined(kUpProjection, kOperators));
        sum.backward += kernels_.moved(bytes);
        sum.kernels += kernels;
    }
    if (parallel.context > 1) {  // keys and values of the next part arrive while attention computes
        const double bytes = kValue * rows * keys_and_values * (range_.end / range_.count()) * (parallel.context - 1);
        const double seconds = message_seconds(bytes, tensor, job_.fabric);
        const double in_forward = exposed(seconds, core.forward);
        sum.repeat(in_forward, kCoreAttention);
        sum.expose(&PassParts::context, in_forward, exposed(2 * seconds, core.backward));
    }
}

}  // namespace pw
