#include "report/training_arguments.h"

#include "job/plan.h"
#include "report/training_programs.h"
#include "workloads/error.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

namespace pw {

namespace {

constexpr TrainingProgram kPrograms[] = {
    {Program::MegatronLm, "Megatron-LM", "arguments of pretrain_gpt.py, one per line", megatron_table},
    {Program::TorchTitan, "torchtitan", "a TOML of torchtitan 0.2", torchtitan_table},
    {Program::DeepSpeed, "DeepSpeed", "a JSON, ds_config", deepspeed_table},
};

constexpr bool programs_are_in_order() {
    for (std::size_t row = 0; row < std::size(kPrograms); ++row)
        if (kPrograms[row].program != static_cast<Program>(row))
            return false;
    return true;
}
static_assert(programs_are_in_order() && std::size(kPrograms) == std::size(kChoices<Program>),
              "every program has its row, in the order of the enum");

const TrainingProgram& row_of(Program program) { return kPrograms[static_cast<std::size_t>(program)]; }

// What no program has.
std::optional<Refusal> refused_by_all(std::string_view title, const Setup& setup) {
    if (!setup.workload.transformer)
        return Refusal{
            "workload.model",
            fmt::format("the arguments of {} describe a transformer, not model: {}", title, setup.workload.model),
            "name one of `pipewright list transformers`, or a config.json"};
    if (!setup.pipeline.micro_batch_lengths.empty())
        return Refusal{"pipeline.micro_batch_lengths",
                       fmt::format("{} has no argument for micro-batches of unequal length", title), "remove the key"};
    if (!setup.pipeline.recompute.stages.empty())
        return Refusal{"pipeline.recompute",
                       fmt::format("{} recomputes blocks of the transformer, not stages with both ends", title),
                       "remove the key, and write parallel.recompute: full"};
    if (!setup.pipeline.offload.stages.empty())
        return Refusal{"pipeline.offload", fmt::format("arguments for offload of {} are not in this version", title),
                       "remove the key"};
    if (!setup.pipeline.offload.states.empty())
        return Refusal{"pipeline.offload_states",
                       fmt::format("arguments for offload of {} are not in this version", title), "remove the key"};
    if (setup.workload.lora)
        return Refusal{"workload.lora", fmt::format("arguments for adapters of {} are not in this version", title),
                       "remove the key"};
    if (setup.workload.encoder)
        return Refusal{"workload.encoder", fmt::format("arguments for encoders of {} are not in this version", title),
                       "remove the key"};
    if (!setup.workload.frozen.empty() && setup.workload.transformer)
        return Refusal{"workload.frozen",
                       fmt::format("arguments for frozen layers of {} are not in this version", title),
                       "remove the key"};
    if (!setup.parallel.of_stages.empty())
        return Refusal{"parallel", fmt::format("{} has one degree for all stages, and the stages differ", title),
                       "write one degree for all stages"};
    return std::nullopt;
}

std::optional<Refusal> refused_by_table(const ProgramTable& table, const ExportedPlan& plan) {
    for (const ArgumentRow& row : table.rows)
        if (row.refusal != nullptr)
            if (std::optional<Refusal> refusal = row.refusal(plan))
                return refusal;
    return std::nullopt;
}

void check(const std::optional<Refusal>& refusal, const Setup& setup) {
    if (refusal)
        setup.fail_at(refusal->key, refusal->fact, refusal->help);
}

std::string note_on_ranks(const Setup& setup) {
    const int ranks = setup.parallel.degrees.devices(), each = setup.parallel.per_host;
    if (!setup.parallel.ranks->are_alike)
        return fmt::format(
            "start it with {} ranks, on the hosts in the order of this config: the first ranks have stage 0", ranks);
    return fmt::format("start it with {} ranks: torchrun --nnodes {} --nproc-per-node {}", ranks,
                       (ranks + each - 1) / each, std::min(ranks, each));
}

// Lists the arguments that the config does not determine.
std::string note_on_left_out(std::string_view title, const std::vector<const ArgumentRow*>& rows) {
    std::vector<std::string_view> names, keys;
    for (const ArgumentRow* row : rows) {
        names.push_back(row->name);
        if (keys.empty() || keys.back() != row->key)
            keys.push_back(row->key);
    }
    return fmt::format("left to {}, as the config does not say: {} ({})", title, fmt::join(names, ", "),
                       fmt::join(keys, ", "));
}

}  // namespace

std::span<const TrainingProgram> training_programs() { return kPrograms; }

std::optional<Refusal> refusal_of(Program program, const Setup& setup) {
    const TrainingProgram& row = row_of(program);
    if (std::optional<Refusal> refusal = refused_by_all(row.title, setup))
        return refusal;
    return refused_by_table(row.table(), ExportedPlan(setup));
}

std::vector<std::string> programs_that_run(const Setup& setup) {
    std::vector<std::string> names;
    for (const TrainingProgram& row : kPrograms)
        if (!refusal_of(row.program, setup))
            names.emplace_back(name_of(row.program));
    return names;
}

TrainingArguments training_arguments(std::string_view program, const Job& job) {
    const std::optional<Program> named = parse_choice<Program>(program);
    if (!named)
        fail("there are no arguments of '{}'", program);
    const TrainingProgram& row = row_of(*named);
    check(refused_by_all(row.title, job.setup), job.setup);
    const ExportedPlan plan(job.setup, &job);
    const ProgramTable table = row.table();
    check(refused_by_table(table, plan), job.setup);
    std::vector<Argument> arguments;
    std::vector<const ArgumentRow*> left_out;
    for (const ArgumentRow& argument : table.rows) {
        ArgumentText text = argument.value == nullptr ? std::nullopt : argument.value(plan);
        if (!text)
            continue;
        if (argument.key.empty() || job.setup.places.contains(std::string(argument.key)))
            arguments.push_back({argument.name, std::move(*text)});
        else
            left_out.push_back(&argument);
    }
    TrainingArguments result{table.print(arguments), {note_on_ranks(job.setup)}};
    if (!left_out.empty())
        result.notes.push_back(note_on_left_out(row.title, left_out));
    if (table.notes != nullptr)
        for (std::string& note : table.notes(plan))
            result.notes.push_back(std::move(note));
    return result;
}

namespace {

bool alternates_on_one_device(const ExportedPlan& plan) {
    if (plan.parallel.pipeline > 1 || plan.stages() > 1 || plan.schedule == nullptr || plan.schedule->needs_costs)
        return false;
    const Task* before = nullptr;
    const Plan made = make_plan(plan.setup, {}, 1);
    for (const Task& task : made.order.front()) {
        if (task.op == Op::Forward && before && before->op == Op::Forward)
            return false;
        before = &task;
    }
    return true;
}

const Schedule* schedule_of_plan(const Setup& setup) {
    return setup.pipeline.schedule.ends_with(".csv") ? nullptr : &schedule_of(setup);
}

}  // namespace

ExportedPlan::ExportedPlan(const Setup& exported, const Job* made)
    : setup(exported),
      job(made),
      training(exported.training),
      pipeline(exported.pipeline),
      parallel(exported.parallel.degrees),
      model(*exported.workload.transformer),
      release(parallel.program()),
      types(training.types.or_else(facts_of(training.optimizer).usual)),
      kept(kept_bytes(training.types, training.precision, training.optimizer, release.gradient)),
      schedule(schedule_of_plan(exported)),
      tokens(exported.workload.options.sequence_length),
      alternates(false) {
    alternates = alternates_on_one_device(*this);
}

std::vector<int> blocks_by_stage(const Job& job) {
    std::vector<int> blocks;
    for (const std::vector<int>& layers : job.split.layers)
        blocks.push_back(static_cast<int>(std::count_if(layers.begin(), layers.end(), [&](int layer) {
            return job.model->layers[static_cast<std::size_t>(layer)].part == LayerPart::Block;
        })));
    return blocks;
}

std::optional<Refusal> refused_optimizer_of(const ExportedPlan& plan, std::string_view program,
                                            std::string_view OptimizerNames::*name) {
    const OptimizerFacts& facts = facts_of(plan.training.optimizer);
    if (!(facts.names.*name).empty())
        return std::nullopt;
    std::vector<std::string_view> others;
    for (const OptimizerFacts& other : kOptimizers)
        if (!(other.names.*name).empty())
            others.push_back(name_of(other.kind));
    return Refusal{"training.optimizer", fmt::format("{} has no {}", program, name_of(facts.kind)),
                   fmt::format("write optimizer: {}", fmt::join(others, " or "))};
}

std::optional<Refusal> refused_types(const ExportedPlan& plan, std::string_view program, const ProgramTypes& has) {
    const NumberBytes& usual = bytes_of(plan.training.precision);
    std::optional<Refusal> refusal;
    const auto check = [&](std::string_view key, const auto& type, Bytes own, const auto& others) {
        if (refusal || !type || bytes_of(*type) == own || std::ranges::find(others, *type) != others.end())
            return;
        refusal = Refusal{fmt::format("training.{}", key),
                          fmt::format("{} has no argument for {}: {} in {}", program, key, name_of(*type),
                                      name_of(plan.training.precision)),
                          "remove the key"};
    };
    check("weight_type", plan.types.weights, usual.weight, has.weights);
    check("gradient_type", plan.types.gradients, kFloatBytes, has.gradients);
    check("master_type", plan.types.master, usual.master, has.master);
    check("momentum_type", plan.types.momentum, kFloatBytes, has.states);
    check("variance_type", plan.types.variance, kFloatBytes, has.states);
    return refusal;
}

Refusal refused_schedule(const ExportedPlan& plan, std::string_view program, bool (*has)(const OtherPrograms&)) {
    std::vector<std::string_view> names;
    for (const Schedule& schedule : schedules())
        if (has(schedule.elsewhere))
            names.push_back(schedule.name);
    return {"pipeline.schedule",
            fmt::format("{} has no schedule {} for {} stages on {} ranks", program, plan.pipeline.schedule,
                        plan.stages(), plan.parallel.pipeline),
            fmt::format("write schedule: {}", fmt::join(names, ", "))};
}

}  // namespace pw
