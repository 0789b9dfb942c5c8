#include "report/training_arguments.h"

#include "report/training_programs.h"
#include "workloads/error.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <vector>

namespace pw {

namespace {

constexpr TrainingProgram kPrograms[] = {
    {"megatron-lm", "arguments of pretrain_gpt.py, one per line", megatron_arguments},
    {"torchtitan", "a TOML of torchtitan 0.2", torchtitan_arguments},
    {"deepspeed", "a JSON, ds_config", deepspeed_arguments},
};

// Refuses what no program has.
void check_plan(const Config& config, std::string_view program) {
    if (!is_transformer(config))
        config.fail_at(
            "workload.model",
            fmt::format("the arguments of {} describe a transformer, not model: {}", program, config.workload.model),
            "name one of `pipewright list transformers`, or a config.json");
    if (!config.pipeline.micro_batch_lengths.empty())
        config.fail_at("pipeline.micro_batch_lengths",
                       fmt::format("{} has no argument for micro-batches of unequal length", program),
                       "remove the key");
    if (!config.pipeline.recompute.stages.empty())
        config.fail_at("pipeline.recompute",
                       fmt::format("{} recomputes blocks of the transformer, not stages with both ends", program),
                       "remove the key, and write parallel.recompute: full");
}

}  // namespace

std::span<const TrainingProgram> training_programs() { return kPrograms; }

TrainingArguments training_arguments(std::string_view program, const Job& job) {
    const auto found = std::find_if(std::begin(kPrograms), std::end(kPrograms),
                                    [&](const TrainingProgram& row) { return row.name == program; });
    if (found == std::end(kPrograms))
        fail("there are no arguments of '{}'", program);
    check_plan(job.config, found->name);
    return found->arguments(job);
}

std::int64_t global_batch(const Config& config) { return config.pipeline.mini_batch * config.parallel.degrees.data; }

std::vector<int> blocks_by_stage(const Job& job) {
    std::vector<int> blocks;
    for (const std::vector<int>& layers : job.split.layers)
        blocks.push_back(static_cast<int>(std::count_if(layers.begin(), layers.end(), [&](int layer) {
            return job.model->layers[static_cast<std::size_t>(layer)].part == LayerPart::Block;
        })));
    return blocks;
}

bool alternates_on_one_device(const Job& job) {
    if (job.plan.shape.devices > 1 || job.plan.shape.stages > 1)
        return false;
    const Task* before = nullptr;
    for (const Task& task : job.plan.order.front()) {
        if (task.op == Op::Forward && before && before->op == Op::Forward)
            return false;
        before = &task;
    }
    return true;
}

void refuse_schedule(const Job& job, std::string_view program, bool (*has)(const OtherPrograms&)) {
    std::vector<std::string_view> names;
    for (const Schedule& schedule : schedules())
        if (has(schedule.elsewhere))
            names.push_back(schedule.name);
    const Shape& shape = job.plan.shape;
    job.config.fail_at("pipeline.schedule",
                       fmt::format("{} has no schedule {} for {} stages on {} ranks", program,
                                   job.config.pipeline.schedule, shape.stages, shape.devices),
                       fmt::format("write schedule: {}", fmt::join(names, ", ")));
}

std::string ranks_of(const Config& config) {
    const int ranks = config.parallel.degrees.devices(), each = config.parallel.per_host;
    return fmt::format("start it with {} ranks: torchrun --nnodes {} --nproc-per-node {}", ranks,
                       (ranks + each - 1) / each, std::min(ranks, each));
}

}  // namespace pw
