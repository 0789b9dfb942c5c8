// Measures matrix products by shape: the passes of linear layers without a bias, one layer after the other.
#pragma once

#include "job/setup/setup.h"
#include "workloads/costs/costs.h"
#include "workloads/costs/products.h"

#include <functional>
#include <string>
#include <vector>

namespace pw {

struct MeasuredProducts {
    ProductTable table;
    std::vector<Measured> times;       // of the table's rows
    std::vector<std::string> remarks;  // which layers have fewer rows or are left out, and why
    double cpu_share = 1;              // of the cores, on backends that compute on them
};

// Measures products on one device of `run.backend`, in `training.precision`. If none are wanted, measures layers whose
// rows, inputs and outputs are 256, 1024 and 4096 (on GPUs 1024, 4096 and 16384). Each has a warm-up and 8 to 32 calls,
// of which the median counts. A layer that would take longer than its share of the time has half of its rows, a quarter
// and so on. Throws Error as measure_profile() does.
MeasuredProducts measure_products(const Setup& setup, const std::vector<Product>& wanted, Ns time,
                                  const std::function<void(int done, int all)>& progress);

}  // namespace pw
