#include "report/megatron_experts.h"

#include "report/megatron_recompute.h"

#include <fmt/format.h>

namespace pw::megatron {

namespace {

// Whether the plan has the combined 1F1B of megatron/core/pipeline_parallel/combined_1f1b.py.
bool has_pairs(const ExportedPlan& plan) {
    return plan.pipeline.options.pairs && plan.schedule != nullptr && plan.schedule->takes_pairs;
}

}  // namespace

bool overlaps_experts(const ExportedPlan& plan) {
    return (plan.release.overlap.expert || has_pairs(plan)) && plan.parallel.expert > 1;
}

std::optional<Refusal> refused_expert_overlap(const ExportedPlan& plan) {
    if (plan.release.overlap.expert && plan.parallel.expert == 1 && plan.parallel.expert_tensor > 1)
        return Refusal{"parallel.overlap", "Megatron-LM overlaps messages of experts only with expert parallelism",
                       "write parallel.expert above 1, or remove expert"};
    if (has_pairs(plan) && plan.parallel.expert == 1)
        return Refusal{"pipeline.pairs", "Megatron-LM runs pairs of passes only with expert parallelism",
                       "write parallel.expert above 1, or remove the key"};
    if (!overlaps_experts(plan))
        return std::nullopt;
    if (recomputes_blocks(plan))
        return Refusal{"parallel.recompute",
                       "Megatron-LM recomputes no blocks while messages of experts overlap passes",
                       "write recompute: none or selective, or remove pipeline.pairs and expert of parallel.overlap"};
    if (plan.parallel.pipeline > 1 && plan.chunks() == 1)
        return Refusal{"parallel.overlap", "Megatron-LM overlaps messages of experts in interleaved pipelines only",
                       "write schedule: interleaved, or remove expert"};
    return std::nullopt;
}

bool sends_once(const ExportedPlan& plan) {
    return plan.release.dispatcher == ExpertDispatcher::DeepEp && plan.parallel.expert_ranks() > 1;
}

std::string_view dispatcher_of(const ExportedPlan& plan) {
    const bool gathers = plan.release.dispatcher == ExpertDispatcher::Gathered && plan.parallel.expert == 1 &&
                         plan.parallel.expert_tensor > 1;
    return sends_once(plan) ? "flex" : gathers ? "allgather" : "alltoall";
}

std::optional<Refusal> refused_dispatcher(const ExportedPlan& plan) {
    if (plan.parallel.expert_dispatcher != ExpertDispatcher::Gathered || plan.parallel.expert == 1)
        return std::nullopt;
    return Refusal{"parallel.expert_dispatcher", "Megatron-LM gathers no tokens before it sends a copy to each expert",
                   "write expert_dispatcher: alltoall or deepep"};
}

std::optional<Refusal> refused_expert_tensor(const ExportedPlan& plan) {
    if (plan.parallel.expert_tensor == 1 || !plan.model.bias)
        return std::nullopt;
    return Refusal{"parallel.expert_tensor",
                   fmt::format("Megatron-LM divides no experts with biases, which {} has", plan.model.name),
                   "remove the key"};
}

}  // namespace pw::megatron
