// What Mamba-2 adds to the costs of a layer.
#include "workloads/transformers/layer_sum.h"

#include <algorithm>

namespace pw {

// A product makes the inputs of heads and gates, what groups share, and a step for each head. Then come convolution,
// scan and gated norm, and a product with the outputs of all heads (arXiv 2405.21060, figure 6). Tensor ranks divide
// heads and groups (section 8.1), with at least a group each. Convolution, scan and norm are of no
// BlockModule.
void TransformerLayers::add_mamba(Sum& sum) const {
    const int tensor = job_.parallel.tensor, pieces = job_.parallel.pieces();
    const double hidden = job_.model.hidden, rows = sum.rows;
    Mamba own = *job_.model.mamba;
    own.heads /= tensor;
    own.groups = std::max(1, own.groups / tensor);
    const auto inner = static_cast<double>(own.inner()), shared = static_cast<double>(own.shared());
    const double made = 2 * inner + 2 * shared + own.heads, convolved = inner + 2 * shared;
    const LinearSeconds first = kernels_.linear(rows, hidden, made, pieces);
    const LinearSeconds second = kernels_.linear(rows, inner, hidden, pieces);
    sum.products += first;
    sum.products += second;
    const PassSeconds scan = kernels_.scan(rows, own);
    sum.forward += scan.forward;
    sum.backward += scan.backward;
    sum.kernels += 9;  // two products, the convolution, five kernels of the scan, the norm
    const ModuleSet made_by = sum.next_product({});
    sum.save(kValue * rows * made, made_by);
    sum.repeat(first.forward + kKernelEnds, made_by);
    sum.output = sum.next_product({});
    sum.repeat(second.forward + kKernelEnds, sum.output);
    sum.save((kValue + kernels_.input_bytes()) * rows * inner, {});  // outputs of the scan and of the norm
    sum.scratch = std::max(sum.scratch, kFloat * rows / own.chunk * inner * own.state);  // states, computed again
    sum.parameters.dense += hidden * (made + inner);
    // Kernels and biases of the convolution, the norm, and for each head its decay, its skip and the bias of its step.
    sum.parameters.add_other(convolved * (own.kernel + 1) + inner + 3 * own.heads);
}

}  // namespace pw
