// What Megatron-LM recomputes: modules of all blocks, or some blocks (megatron/core/transformer/transformer_config.py).
#pragma once

#include "report/training_programs.h"

#include <optional>

namespace pw::megatron {

// Whether no layout is needed: modules of further tokens are then on the last stage.
bool has_equal_stages(const Job& job);
bool recomputes_blocks(const ExportedPlan& plan);
// Values of --recompute-granularity, -modules, -method and -num-layers. Modules: nothing for core_attn, which
// --recompute-activations is.
ArgumentText recompute_granularity(const ExportedPlan& plan);
ArgumentText recomputed_modules(const ExportedPlan& plan);
ArgumentText recompute_method(const ExportedPlan& plan);
ArgumentText recomputed_layers(const ExportedPlan& plan);
std::optional<Refusal> refused_recompute(const ExportedPlan& plan);
std::optional<Refusal> refused_blocks(const ExportedPlan& plan);

}  // namespace pw::megatron
