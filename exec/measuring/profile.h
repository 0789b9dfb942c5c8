// Measures profiles: the times of a model's layers on a backend.
#pragma once

#include "job/setup/setup.h"
#include "workloads/costs/costs.h"
#include "workloads/models/models.h"

#include <functional>
#include <string>
#include <vector>

namespace pw {

// Measures every layer and pass of the model, the optimizer, the data and the transfers on the backend of `setup`,
// at the given micro-batch sizes.
Profile measure_profile(const Setup& setup, const Model& model, const std::vector<int>& samples,
                        const std::function<void(int done, int all)>& progress);

std::string today();  // "2026-11-26", in UTC

// The part of the other ranks in a profile that rank 0 measures: they send and receive the measured messages.
void help_to_measure(const Setup& setup);

}  // namespace pw
