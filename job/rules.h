// Rules for setups, in addition to the rules for every plan. Errors name the keys of the setup.
#pragma once

#include "job/setup/setup.h"

namespace pw {

// Checks that workload.normalise has a mean and a std for every channel. Throws Error (BadInput).
void check_normalise(const Setup& setup, const Model& model);

// Checks that cluster.profile, if given, names a file. Throws Error (BadInput).
void check_profile_exists(const Setup& setup);

// Checks the rules of `pipeline.rules: mindspore`: every layer with parameters has a stage, stages ascend in execution
// order, there are at least as many micro-batches as stages, all of the same size, in fp32. Throws Error (BadInput)
// with the rule that is broken. Does nothing without the key. `model` is null for a workload without layers.
void check_rules(const Setup& setup, const Model* model);

}  // namespace pw
