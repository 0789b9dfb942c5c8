#include "report/megatron_types.h"

namespace pw::megatron {

namespace {

bool has_low_states(const ExportedPlan& plan) {
    const auto is_low = [](const auto& type) { return type && bytes_of(*type) < kFloatBytes; };
    return is_low(plan.types.momentum) || is_low(plan.types.variance) ||
           (plan.kept.master > 0 && plan.kept.master < kFloatBytes);
}

}  // namespace

bool knows_types(const ExportedPlan& plan) {
    return has_low_states(plan) || (plan.parallel.zero == 1 && plan.types.gradients == NumberType::Bf16);
}

std::optional<Refusal> refused_types_of_states(const ExportedPlan& plan) {
    static constexpr NumberType kStates[] = {NumberType::Bf16, NumberType::Fp16, NumberType::Fp8};
    static constexpr NumberType kWeights[] = {NumberType::Fp8}, kGradients[] = {NumberType::Bf16};
    static constexpr MasterType kMaster[] = {MasterType::Fp16};
    const Precision precision = plan.training.precision;
    const bool is_fp8 = precision == Precision::Fp8 || precision == Precision::Mxfp8;
    const bool is_bf16 = precision != Precision::Fp32 && precision != Precision::Fp16;
    ProgramTypes has{.states = kStates};
    if (is_fp8)
        has.weights = kWeights;
    if (is_bf16)
        has.gradients = kGradients;
    if (precision != Precision::Fp32)
        has.master = kMaster;
    if (const std::optional<Refusal> refusal = refused_types(plan, "Megatron-LM", has))
        return refusal;
    if (!has_low_states(plan) || (plan.parallel.zero == 1 && plan.training.optimizer == OptimizerKind::AdamW))
        return std::nullopt;
    return Refusal{plan.parallel.zero == 1 ? "training.optimizer" : "parallel.zero",
                   fmt::format("{} keeps states in less than fp32 only of {} that the distributed optimizer divides",
                               "Megatron-LM", name_of(OptimizerKind::AdamW)),
                   "write optimizer: adamw and parallel.zero: 1"};
}

ArgumentText type_of_state(const ExportedPlan& plan, const std::optional<NumberType>& type) {
    return written_if(has_low_states(plan) && type && bytes_of(*type) < kFloatBytes,
                      name_of(type.value_or(NumberType::Fp32)));
}

}  // namespace pw::megatron
