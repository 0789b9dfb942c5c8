// A JSON of DeepSpeed, ds_config (deepspeed/runtime/config.py, 0.18). Degrees, stages and what is recomputed are in the
// training script.
#include "report/json.h"
#include "report/training_programs.h"
#include "schedules/orders/schedule.h"
#include "workloads/text/files.h"
#include "workloads/text/json_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <string>
#include <string_view>
#include <utility>

namespace pw {

namespace deepspeed {

namespace {

constexpr std::string_view kDeepSpeed = "DeepSpeed";

std::optional<Refusal> refused_context(const ExportedPlan& plan) {
    if (plan.parallel.context == 1)
        return std::nullopt;
    return Refusal{
        "parallel.context",
        fmt::format("{} passes no keys and values round; for long sequences it exchanges heads (Ulysses)", kDeepSpeed),
        "write context: 1"};
}

std::optional<Refusal> refused_pipeline(const ExportedPlan& plan) {
    if (plan.alternates || (plan.schedule != nullptr && plan.schedule->elsewhere.deepspeed))
        return std::nullopt;
    return refused_schedule(plan, kDeepSpeed, [](const OtherPrograms& programs) { return programs.deepspeed; });
}

std::optional<Refusal> refused_zero(const ExportedPlan& plan) {
    const Parallel& parallel = plan.parallel;
    if (parallel.zero > 1 && parallel.pipeline > 1)
        return Refusal{"parallel.zero", fmt::format("{} divides no gradients or weights of a pipeline", kDeepSpeed),
                       "write zero: 0 or 1, or parallel.pipeline: 1"};
    if (parallel.zero < 3 && parallel.sharers() < parallel.replicas())
        return Refusal{"parallel.zero_group",
                       fmt::format("{} has groups of replicas with zero: 3 only (MiCS)", kDeepSpeed), "remove the key"};
    return std::nullopt;
}

// Experts have the tensor parallelism of the model or none (deepspeed/moe/layer.py, enable_expert_tensor_parallelism).
std::optional<Refusal> refused_experts(const ExportedPlan& plan) {
    const Parallel& parallel = plan.parallel;
    if (parallel.expert_tensor != 1 && parallel.expert_tensor != parallel.tensor)
        return Refusal{"parallel.expert_tensor",
                       fmt::format("{} divides the width of an expert among all {} ranks of tensor parallelism or none",
                                   kDeepSpeed, parallel.tensor),
                       parallel.tensor == 1 ? "remove the key" : fmt::format("write 1 or {}", parallel.tensor)};
    if (plan.parallel.expert_dispatcher.value_or(ExpertDispatcher::AllToAll) == ExpertDispatcher::AllToAll)
        return std::nullopt;
    return Refusal{"parallel.expert_dispatcher", fmt::format("{} sends a copy for each expert of a token", kDeepSpeed),
                   "write expert_dispatcher: alltoall, or remove the key"};
}

bool is_half(Precision precision) { return precision == Precision::Bf16 || precision == Precision::Fp16; }

std::optional<Refusal> refused_precision(const ExportedPlan& plan) {
    const Precision precision = plan.training.precision;
    if (precision == Precision::Fp32 || is_half(precision))
        return std::nullopt;
    return Refusal{"training.precision", fmt::format("{} has no key for {}", kDeepSpeed, name_of(precision)),
                   "write precision: bf16, fp16 or fp32"};
}

// Whether gradients of bf16 weights are summed in fp32.
bool sums_in_fp32(const ExportedPlan& plan) {
    const Bytes sum = plan.types.gradients ? plan.kept.gradient : facts_of(plan.parallel.trained_by()).gradient;
    return plan.training.precision == Precision::Bf16 && sum >= kFloatBytes;
}

std::optional<Refusal> refused_sums(const ExportedPlan& plan) {
    static constexpr NumberType kHalf[] = {NumberType::Bf16, NumberType::Fp16};
    const bool is_bf16 = plan.training.precision == Precision::Bf16,
               is_fp16 = plan.training.precision == Precision::Fp16;
    const std::span<const NumberType> sums = is_bf16   ? std::span(kHalf).first(1)
                                             : is_fp16 ? std::span(kHalf).last(1)
                                                       : std::span<const NumberType>{};
    if (const std::optional<Refusal> refusal = refused_types(plan, kDeepSpeed, {.gradients = sums}))
        return refusal;
    if (!sums_in_fp32(plan) || plan.parallel.zero > 0)
        return std::nullopt;
    return Refusal{"parallel.zero", fmt::format("{} sums gradients of bf16 weights in fp32 with ZeRO only", kDeepSpeed),
                   plan.parallel.pipeline > 1 ? "write zero: 1" : "write zero: 1, 2 or 3"};
}

ArgumentText in_quotes(std::string_view text) { return fmt::format("\"{}\"", text); }
const OptimizerFacts& optimizer_of(const ExportedPlan& plan) { return facts_of(plan.training.optimizer); }

std::optional<Refusal> refused_optimizer(const ExportedPlan& plan) {
    return refused_optimizer_of(plan, kDeepSpeed, &OptimizerNames::deepspeed);
}

// In the order of the text. A name is the JSON pointer of its value.
constexpr ArgumentRow kRows[] = {
    {"/train_batch_size", [](const ExportedPlan& plan) { return written(plan.global_batch()); }, refused_context},
    {"/train_micro_batch_size_per_gpu",
     [](const ExportedPlan& plan) { return written(plan.pipeline.micro_batch_size); }, refused_experts},
    {"/gradient_accumulation_steps", [](const ExportedPlan& plan) { return written(plan.pipeline.micro_batches); },
     refused_pipeline},
    {"/zero_optimization/stage", [](const ExportedPlan& plan) { return written(plan.parallel.zero); }, refused_zero},
    {"/zero_optimization/overlap_comm",
     [](const ExportedPlan& plan) { return written_if(plan.parallel.zero > 0, plan.release.overlap.data); }},
    {"/zero_optimization/mics_shard_size",
     [](const ExportedPlan& plan) {
         return written_if(plan.parallel.sharers() < plan.parallel.replicas(), plan.parallel.sharers());
     }},
    {"/zero_allow_untested_optimizer",
     [](const ExportedPlan& plan) {
         return written_if(plan.parallel.zero > 0 && !optimizer_of(plan).has_averages, true);
     }},
    {"/bf16/enabled",
     [](const ExportedPlan& plan) { return written_if(plan.training.precision == Precision::Bf16, true); },
     refused_precision},
    {"/fp16/enabled",
     [](const ExportedPlan& plan) { return written_if(plan.training.precision == Precision::Fp16, true); }},
    {"/data_types/grad_accum_dtype",
     [](const ExportedPlan& plan) { return sums_in_fp32(plan) ? in_quotes("fp32") : std::nullopt; }, refused_sums},
    {"/optimizer/type", [](const ExportedPlan& plan) { return in_quotes(optimizer_of(plan).names.deepspeed); },
     refused_optimizer},
    {"/optimizer/params/lr", [](const ExportedPlan& plan) { return written(plan.training.learning_rate); }, nullptr,
     "training.learning_rate"},
    {"/optimizer/params/betas",
     [](const ExportedPlan& plan) {
         return written_if(optimizer_of(plan).has_averages, fmt::format("[{}]", fmt::join(plan.training.betas, ", ")));
     },
     nullptr, "training.betas"},
    {"/optimizer/params/eps",
     [](const ExportedPlan& plan) { return written_if(optimizer_of(plan).has_averages, plan.training.epsilon); },
     nullptr, "training.epsilon"},
    {"/optimizer/params/momentum",
     [](const ExportedPlan& plan) { return written_if(optimizer_of(plan).has_momentum, plan.training.momentum); },
     nullptr, "training.momentum"},
    {"/optimizer/params/weight_decay", [](const ExportedPlan& plan) { return written(plan.training.weight_decay); },
     nullptr, "training.weight_decay"},
    {"/gradient_clipping", [](const ExportedPlan& plan) { return written(plan.training.clip_norm); }, nullptr,
     "training.clip_norm"},
};

std::string json_of_arguments(const std::vector<Argument>& arguments) {
    Json json = Json::object();
    for (const Argument& argument : arguments)
        json[Json::json_pointer(std::string(argument.name))] = parse_json<Json>(argument.value, argument.name);
    return json.dump(2) + "\n";
}

Notices notes_on_script(const ExportedPlan& plan) {
    const Parallel& parallel = plan.parallel;
    Notices notes;
    const std::pair<std::string_view, int> degrees[] = {{"pipeline", parallel.pipeline},
                                                        {"tensor", parallel.tensor},
                                                        {"expert", parallel.expert},
                                                        {"expert tensor", parallel.expert_tensor}};
    for (const auto& [name, degree] : degrees)
        if (degree > 1)
            notes.push_back(fmt::format("the training script sets the degree of {} parallelism, {}", name, degree));
    if (parallel.sequence && parallel.tensor > 1)
        notes.emplace_back("the training script sets sequence parallelism (Megatron-DeepSpeed has it)");
    if (parallel.pipeline > 1)
        notes.push_back(fmt::format("the training script cuts the stages: {} blocks (PipelineModule)",
                                    fmt::join(blocks_by_stage(*plan.job), ", ")));
    if (parallel.recompute != ModuleSet{})
        notes.push_back(fmt::format("the training script recomputes: parallel.recompute is {}, {}: {}",
                                    print_modules(parallel.recompute), facts_of(parallel.recomputed.rule).name,
                                    parallel.recomputed.number));
    if (parallel.sharers() < parallel.replicas())
        notes.emplace_back("groups of replicas (MiCS) need DeepSpeed 0.18: 0.19 has removed them");
    return notes;
}

}  // namespace

}  // namespace deepspeed

ProgramTable deepspeed_table() { return {deepspeed::kRows, deepspeed::json_of_arguments, deepspeed::notes_on_script}; }

}  // namespace pw
