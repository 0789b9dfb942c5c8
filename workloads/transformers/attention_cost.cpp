// What attention adds to the costs of a layer.
#include "workloads/transformers/layer_sum.h"

#include <algorithm>

namespace pw {

void TransformerLayers::add_attention(Sum& sum, int window) const {
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

}  // namespace pw
