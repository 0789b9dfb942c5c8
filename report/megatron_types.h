// The types of Megatron-LM's precision-aware optimizer: Adam in the distributed optimizer, master weights in fp32 or
// fp16, gradients in fp32 or bf16, averages also in fp8 (megatron/core/optimizer/optimizer_config.py).
#pragma once

#include "report/training_programs.h"

#include <optional>

namespace pw::megatron {

// Returns whether the optimizer reads and writes other types than fp32.
bool knows_types(const ExportedPlan& plan);
// Returns the refusal at the key of a type that Megatron-LM does not have in this plan.
std::optional<Refusal> refused_types_of_states(const ExportedPlan& plan);
// Returns the argument of a state's type, nothing if it is fp32.
ArgumentText type_of_state(const ExportedPlan& plan, const std::optional<NumberType>& type);

}  // namespace pw::megatron
