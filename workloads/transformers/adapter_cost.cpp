#include "workloads/transformers/adapter_cost.h"

#include "workloads/transformers/layer_sum.h"

#include <algorithm>

namespace pw {

// Adapters compute in bf16, as the head does. Tensor ranks divide both matrices of an adapter.
AdapterCost adapter_cost(const TransformerJob& job, const KernelTimes& kernels, double rows) {
    const Transformer& model = job.model;
    const double tensor = job.parallel.tensor, heads = model.heads / tensor;
    const double groups = std::max(1.0, model.key_value_heads / tensor), ffn = model.ffn / tensor;
    const double hidden = model.hidden, rank = job.lora->rank;
    const struct {
        LoraTarget target;
        double inputs, outputs;  // of a device
        bool divides_outputs;    // the tensor ranks divide the outputs of the matrix, else its inputs
    } matrices[] = {{LoraTarget::Qkv, hidden, (heads + 2 * groups) * model.head_width, true},
                    {LoraTarget::Proj, heads * model.head_width, hidden, false},
                    {LoraTarget::Fc1, hidden, (model.gated ? 2 : 1) * ffn, true},
                    {LoraTarget::Fc2, ffn, hidden, false}};
    AdapterCost cost;
    for (const auto& [target, inputs, outputs, divides_outputs] : matrices) {
        if (!job.lora->has(target))
            continue;
        cost.products += kernels.head(rows, inputs, rank);
        cost.products += kernels.head(rows, rank, outputs);
        cost.forward += kernels.moved(3 * kValue * rows * outputs);  // reads both outputs, writes their sum
        cost.backward += kernels.moved(3 * kValue * rows * inputs);
        cost.kernels += 3;
        cost.saved += kValue * rows * rank;
        cost.parameters += rank * (divides_outputs ? inputs / tensor + outputs : inputs + outputs / tensor);
    }
    return cost;
}

}  // namespace pw
