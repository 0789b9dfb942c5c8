// What a configuration must keep to beyond what every plan needs, told at its keys.
#pragma once

#include "job/config.h"

namespace pw {

// A mean and a std of workload.normalise for every channel. Throws Error (BadInput).
void check_normalise(const Config& config, const Model& model);

// cluster.profile, where given, names a file. Throws Error (BadInput).
void check_profile_exists(const Config& config);

// pipeline.rules: mindspore. Every layer with parameters has a stage, stages ascend in execution order, there
// are as many micro-batches as stages or more, all of the same size, in fp32. Throws Error (BadInput) that says
// which rule is broken; does nothing without the key. `model`: null for a workload without layers.
void check_rules(const Config& config, const Model* model);

}  // namespace pw
