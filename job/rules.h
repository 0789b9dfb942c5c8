// What a configuration must keep to beyond what every plan needs, told at its keys.
#pragma once

#include "job/config/config.h"

namespace pw {

// Checks that workload.normalise has a mean and a std for every channel. Throws Error (BadInput).
void check_normalise(const Config& config, const Model& model);

// Checks that cluster.profile, where given, names a file. Throws Error (BadInput).
void check_profile_exists(const Config& config);

// Checks what `pipeline.rules: mindspore` asks for: every layer with parameters has a stage, stages ascend in execution
// order, there are as many micro-batches as stages or more, all of the same size, in fp32. Throws Error (BadInput) that
// says which rule is broken; does nothing without the key. `model` is null for a workload without layers.
void check_rules(const Config& config, const Model* model);

}  // namespace pw
