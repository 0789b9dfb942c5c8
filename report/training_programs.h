// What the writers of arguments for training programs share.
#pragma once

#include "report/training_arguments.h"
#include "schedules/orders/schedule.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace pw {

TrainingArguments megatron_arguments(const Job& job);    // a command-line argument of pretrain_gpt.py per line
TrainingArguments torchtitan_arguments(const Job& job);  // a TOML of torchtitan 0.2
TrainingArguments deepspeed_arguments(const Job& job);   // a JSON, ds_config

// Samples of a step on all replicas.
std::int64_t global_batch(const Config& config);

// Returns how many blocks of the transformer each stage has.
std::vector<int> blocks_by_stage(const Job& job);

// Returns whether the plan has one device that runs every forward right before its backward. All programs do so without
// a pipeline, whatever the schedule is called.
bool alternates_on_one_device(const Job& job);

// Throws Error (BadInput) at pipeline.schedule, with the schedules that the program has.
[[noreturn]] void refuse_schedule(const Job& job, std::string_view program, bool (*has)(const OtherPrograms&));

// The start of a note: with how many ranks the program runs, and on how many hosts.
std::string ranks_of(const Config& config);

}  // namespace pw
