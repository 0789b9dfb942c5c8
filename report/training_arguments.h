// A plan of a transformer as the arguments of the programs that train transformers. The same checks decide whether a
// program runs a plan: for exports, for searches, and for the column of a search's table.
#pragma once

#include "job/job.h"
#include "workloads/transformers/framework.h"

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace pw {

struct TrainingArguments {
    std::string text;  // as the program reads it
    Notices notes;     // what the program takes elsewhere: the number of ranks, degrees that its script sets
};

struct ProgramTable;  // report/training_programs.h

struct TrainingProgram {
    Program program;
    std::string_view title;  // for people
    std::string_view text;   // what the text is
    ProgramTable (*table)();
};
std::span<const TrainingProgram> training_programs();  // in the order of the enum

// Why a program cannot run a plan: the key whose value the program cannot express, and what to write instead.
struct Refusal {
    std::string key, fact, help;
};
// Returns the refusal of a plan with this setup, whose pipeline has a schedule and degrees. Nothing if the program runs
// the plan. The layers of stages are not judged: only a job has them.
std::optional<Refusal> refusal_of(Program program, const Setup& setup);
// Returns the names of the programs that refuse nothing.
std::vector<std::string> programs_that_run(const Setup& setup);

// Returns the arguments with which the named program trains by the plan. Arguments for keys that the setup does not
// have are left out, and a note lists them. Throws Error (BadInput) at the key whose value the program cannot express,
// and where the job trains no transformer.
TrainingArguments training_arguments(std::string_view program, const Job& job);

}  // namespace pw
