// The tables of the training programs: an argument is a row, with its value and with what the program refuses.
#pragma once

#include "report/training_arguments.h"
#include "schedules/orders/schedule.h"

#include <fmt/format.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace pw {

// A plan as the rows read it. All but the layers of its stages follows from the setup, so that a search asks before it
// makes the plan.
struct ExportedPlan {
    explicit ExportedPlan(const Setup& setup, const Job* made = nullptr);

    const Setup& setup;
    const Job* job;  // null: the plan is not made
    const TrainingConfig& training;
    const PipelineConfig& pipeline;
    const Parallel& parallel;
    const Transformer& model;
    ReleaseFacts release;
    KeptTypes types;  // the config's, else the optimizer's
    KeptBytes kept;
    const Schedule* schedule;  // null: the plan is a file
    int tokens;                // of a sequence
    // A single device that runs every forward right before its backward. All programs do so without a pipeline,
    // whatever the schedule is called.
    bool alternates;

    int stages() const { return pipeline.stages; }
    int chunks() const { return pipeline.stages / parallel.pipeline; }  // stages of a device
    std::int64_t global_batch() const { return pipeline.mini_batch; }
};

using ArgumentText = std::optional<std::string>;

struct ArgumentRow {
    std::string_view name;  // in the program (empty: the row only refuses)
    // Returns nothing if the plan does not need the argument. Null: the row only refuses.
    ArgumentText (*value)(const ExportedPlan& plan) = nullptr;
    // Returns nothing if the program can express the plan.
    std::optional<Refusal> (*refusal)(const ExportedPlan& plan) = nullptr;
    // The key of the setup that has the value. Without the key the argument is left to the program.
    std::string_view key = {};
};

struct Argument {
    std::string_view name;
    std::string value;
};

struct ProgramTable {
    std::span<const ArgumentRow> rows;
    std::string (*print)(const std::vector<Argument>& arguments);
    Notices (*notes)(const ExportedPlan& plan);  // null: none
};
ProgramTable megatron_table();    // a command-line argument of pretrain_gpt.py per line
ProgramTable torchtitan_table();  // a TOML of torchtitan 0.2 (names are section.key)
ProgramTable deepspeed_table();   // a JSON, ds_config (names are JSON pointers)

template <class Value>
ArgumentText written(const Value& value) {
    return fmt::format("{}", value);
}
template <class Value>
ArgumentText written_if(bool has, const Value& value) {
    return has ? written(value) : std::nullopt;
}

// Returns how many blocks of the transformer each stage has.
std::vector<int> blocks_by_stage(const Job& job);

// Returns the refusal at pipeline.schedule, with the schedules that the program has.
Refusal refused_schedule(const ExportedPlan& plan, std::string_view program, bool (*has)(const OtherPrograms&));
// Returns the refusal at training.optimizer if the program has no name for it.
std::optional<Refusal> refused_optimizer_of(const ExportedPlan& plan, std::string_view program,
                                            std::string_view OptimizerNames::*name);

// The types of weights, gradients and states that a program takes, in addition to the precision's type and fp32.
struct ProgramTypes {
    std::span<const NumberType> weights = {}, gradients = {}, states = {};
    std::span<const MasterType> master = {};
};
// Returns the refusal at the first key whose type the program does not have.
std::optional<Refusal> refused_types(const ExportedPlan& plan, std::string_view program, const ProgramTypes& has);

}  // namespace pw
