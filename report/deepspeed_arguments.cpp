// A JSON of DeepSpeed, ds_config (deepspeed/runtime/config.py, 0.18). Degrees, stages and what is recomputed are in the
// training script.
#include "job/plan.h"
#include "report/json.h"
#include "report/training_programs.h"
#include "schedules/orders/schedule.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <string>
#include <string_view>
#include <utility>

namespace pw {

namespace {

constexpr std::string_view kDeepSpeed = "DeepSpeed";

void check_degrees_of_deepspeed(const Job& job) {
    const Config& config = job.config;
    const Parallel& parallel = config.parallel.degrees;
    if (parallel.context > 1)
        config.fail_at(
            "parallel.context",
            fmt::format("{} passes no keys and values round; for long sequences it exchanges heads (Ulysses)",
                        kDeepSpeed),
            "write context: 1");
    if (!alternates_on_one_device(job) && !schedule_of(config).elsewhere.deepspeed)
        refuse_schedule(job, kDeepSpeed, [](const OtherPrograms& programs) { return programs.deepspeed; });
    if (parallel.zero > 1 && parallel.pipeline > 1)
        config.fail_at("parallel.zero", fmt::format("{} divides no gradients or weights of a pipeline", kDeepSpeed),
                       "write zero: 0 or 1, or parallel.pipeline: 1");
    if (parallel.zero < 3 && parallel.sharers() < parallel.replicas())
        config.fail_at("parallel.zero_group",
                       fmt::format("{} has groups of replicas with zero: 3 only (MiCS)", kDeepSpeed), "remove the key");
}

void add_zero(Json& json, const Config& config) {
    const Parallel& parallel = config.parallel.degrees;
    Json zero = {{"stage", parallel.zero}};
    if (parallel.zero > 0)
        zero["overlap_comm"] = parallel.program().overlap.data;
    if (parallel.sharers() < parallel.replicas())
        zero["mics_shard_size"] = parallel.sharers();
    json["zero_optimization"] = std::move(zero);
    if (parallel.zero > 0 && config.training.optimizer != OptimizerKind::AdamW)
        json["zero_allow_untested_optimizer"] = true;
}

void add_precision_keys(Json& json, const Config& config) {
    const Precision precision = config.training.precision;
    const Parallel& parallel = config.parallel.degrees;
    if (precision == Precision::Fp32)
        return;
    if (precision != Precision::Bf16 && precision != Precision::Fp16)
        config.fail_at("training.precision", fmt::format("{} has no key for {}", kDeepSpeed, name_of(precision)),
                       "write precision: bf16, fp16 or fp32");
    json[std::string(name_of(precision))] = {{"enabled", true}};
    if (precision == Precision::Fp16 || facts_of(parallel.release).gradient < kFloatBytes)
        return;
    if (parallel.zero == 0)
        config.fail_at("parallel.zero",
                       fmt::format("{} sums gradients of bf16 weights in fp32 with ZeRO only", kDeepSpeed),
                       parallel.pipeline > 1 ? "write zero: 1" : "write zero: 1, 2 or 3");
    json["data_types"] = {{"grad_accum_dtype", "fp32"}};
}

void add_optimizer_keys(Json& json, const Config& config) {
    const TrainingConfig& training = config.training;
    Json parameters = {{"lr", training.learning_rate}};
    if (training.optimizer == OptimizerKind::AdamW)
        parameters.update({{"betas", training.betas}, {"eps", training.epsilon}});
    else
        parameters["momentum"] = training.momentum;
    parameters["weight_decay"] = training.weight_decay;
    json["optimizer"] = {{"type", training.optimizer == OptimizerKind::AdamW ? "AdamW" : "SGD"},
                         {"params", std::move(parameters)}};
    if (training.clip_norm > 0)
        json["gradient_clipping"] = training.clip_norm;
}

Notices notes_on_script(const Job& job) {
    const Parallel& parallel = job.config.parallel.degrees;
    Notices notes{ranks_of(job.config)};
    const std::pair<std::string_view, int> degrees[] = {
        {"pipeline", parallel.pipeline}, {"tensor", parallel.tensor}, {"expert", parallel.expert}};
    for (const auto& [name, degree] : degrees)
        if (degree > 1)
            notes.push_back(fmt::format("the training script sets the degree of {} parallelism, {}", name, degree));
    if (parallel.sequence && parallel.tensor > 1)
        notes.emplace_back("the training script sets sequence parallelism (Megatron-DeepSpeed has it)");
    if (parallel.pipeline > 1)
        notes.push_back(fmt::format("the training script cuts the stages: {} blocks (PipelineModule)",
                                    fmt::join(blocks_by_stage(job), ", ")));
    if (parallel.recompute != RecomputeKind::None)
        notes.push_back(fmt::format("the training script recomputes: parallel.recompute is {}, for a share of {}",
                                    name_of(parallel.recompute), parallel.recomputed));
    return notes;
}

}  // namespace

TrainingArguments deepspeed_arguments(const Job& job) {
    const Config& config = job.config;
    check_degrees_of_deepspeed(job);
    Json json = {{"train_batch_size", global_batch(config)},
                 {"train_micro_batch_size_per_gpu", config.pipeline.micro_batch_size},
                 {"gradient_accumulation_steps", config.pipeline.micro_batches}};
    add_zero(json, config);
    add_precision_keys(json, config);
    add_optimizer_keys(json, config);
    return {json.dump(2) + "\n", notes_on_script(job)};
}

}  // namespace pw
