// What the adapters of a block cost (LoRA, arXiv 2106.09685).
#pragma once

#include "workloads/transformers/kernel_times.h"

namespace pw {

struct AdapterCost {
    LinearSeconds products;
    double forward = 0, backward = 0;  // seconds of kernels that add outputs, and gradients of inputs
    double kernels = 0;                // of a forward
    double saved = 0;                  // bytes from the forward to the backward
    double parameters = 0;             // that a device has
};

// Returns the cost of all adapters of a block for `rows` tokens. The job has adapters.
AdapterCost adapter_cost(const TransformerJob& job, const KernelTimes& kernels, double rows);

}  // namespace pw
