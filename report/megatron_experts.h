// How Megatron-LM divides experts and sends tokens to them (megatron/core/transformer/moe/token_dispatcher.py).
#pragma once

#include "report/training_programs.h"

#include <optional>
#include <string_view>

namespace pw::megatron {

bool overlaps_experts(const ExportedPlan& plan);
// Whether the dispatcher is DeepEP.
bool sends_once(const ExportedPlan& plan);
// Returns the value of --moe-token-dispatcher-type. Without expert parallelism, allgather sends what `gathered` does.
std::string_view dispatcher_of(const ExportedPlan& plan);
std::optional<Refusal> refused_expert_overlap(const ExportedPlan& plan);
std::optional<Refusal> refused_dispatcher(const ExportedPlan& plan);
std::optional<Refusal> refused_expert_tensor(const ExportedPlan& plan);

}  // namespace pw::megatron
