// A plan of a transformer as the arguments of the programs that train transformers.
#pragma once

#include "job/job.h"

#include <span>
#include <string>
#include <string_view>

namespace pw {

struct TrainingArguments {
    std::string text;  // as the program reads it
    Notices notes;     // what the program takes elsewhere: the number of ranks, degrees that its script sets
};

struct TrainingProgram {
    std::string_view name;
    std::string_view text;  // what its text is
    TrainingArguments (*arguments)(const Job& job);
};
std::span<const TrainingProgram> training_programs();

// Returns the arguments with which the named program trains by the plan. Throws Error (BadInput) at the key whose value
// the program cannot express, and where the job trains no transformer.
TrainingArguments training_arguments(std::string_view program, const Job& job);

}  // namespace pw
