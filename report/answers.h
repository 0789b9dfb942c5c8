// What else `simulate` tells of one plan: chance, stragglers, other values of the config, and why it takes so long.
#pragma once

#include "cli/command.h"
#include "report/report.h"
#include "job/job.h"

#include <nlohmann/json.hpp>

#include <string>
#include <vector>

namespace pw {

struct AnswerArguments {
    int samples = 0;
    std::string jitter = "lognormal:0.05";
    std::uint64_t seed = 0;
    bool stragglers = false;
    std::vector<std::string> what_if;  // each is KEY=VALUE
    bool explain = false;
    std::string slack;  // a file

    bool any() const { return samples > 0 || stragglers || !what_if.empty() || explain || !slack.empty(); }
};
void add_answers(CLI::App& command, AnswerArguments& arguments);

struct Answers {
    std::string text;   // for people: one table after the other
    Json json;          // an object with one key per answer
    std::string slack;  // CSV: a row per task
};
// `config` are the arguments that the job was made of, `report` is its prediction.
Answers answers_of(const AnswerArguments& arguments, const ConfigArguments& config, const Job& job,
                   const Report& report);

}  // namespace pw
