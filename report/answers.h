// Questions about a plan beyond its prediction: chance, stragglers, changed values of the config, and the causes of its
// step time.
#pragma once

#include "job/idle_keys.h"
#include "report/config_source.h"
#include "report/hooks.h"
#include "report/json.h"
#include "report/report.h"
#include "sim/explanation.h"
#include "workloads/error.h"

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace pw {

struct Questions {
    int samples = 0;                        // draws in which tasks take longer or shorter
    std::string jitter = "lognormal:0.05";  // or "profile": the spreads of the job's profile
    std::uint64_t seed = 0;
    bool stragglers = false;           // the step time with each device 10 % slower in turn
    std::vector<std::string> what_if;  // KEY=VALUE: the step time with each, and if there are several, with all
    bool explain = false, slack = false;

    bool any() const { return samples > 0 || stragglers || !what_if.empty() || explain || slack; }
};

struct StepTimeDraws {
    int draws = 0;
    std::string jitter;
    std::uint64_t seed = 0;
    double mean = 0;                                    // ns
    std::vector<std::pair<std::string, Ns>> quantiles;  // min, p05, p50, p95, p99, max
    std::vector<double> slowest;                        // by device: the share of draws in which it was the busiest
};

struct Straggler {
    int device = 0;
    double slower = 0;  // the device, by this part
    Ns step_time = 0;
    double change = 0;  // of the step time, as a part of it
};

struct WhatIf {
    std::vector<std::string> set;
    std::optional<Report> report = {};  // without events
    double change = 0;                  // of the step time, as a part of it
    std::vector<IdleKey> idle = {};     // keys of `set` that have no effect
    std::optional<Error> error = {};    // why there is no report
};

// What was not asked is empty.
struct Answers {
    std::vector<std::string> devices;     // their names
    Ns step_time = 0;                     // of the prediction that the answers compare with
    std::int64_t samples = 0;             // of its step
    bool of_cluster = false;              // whether the plan is of a transformer on a cluster
    std::optional<StepParts> parts = {};  // of its step
    std::optional<StepTimeDraws> draws = {};
    std::vector<Straggler> stragglers = {};
    std::vector<WhatIf> what_if = {};
    std::optional<Explanation> explanation = {};
    std::string slack = {};  // CSV: a row per task, by how much later the task could end
};

// `source` is the config of the job, `report` its prediction. A stopped call returns the answers so far. Throws Error
// (BadInput) for a jitter or a setting that cannot be read, and for draws and explanations where devices slow each
// other down. Throws for a mistake in `what_if` if it has one entry. With several entries, the entry's answer has the
// error.
Answers answers_to(const Questions& questions, const ConfigSource& source, const Job& job, const Report& report,
                   const Hooks& hooks = {});

Json to_json(const Explanation& explanation);
std::string to_text(const Explanation& explanation, const std::vector<std::string>& devices);  // tables
// Returns the first of these tables: the critical path and idle time by device, with a head.
std::vector<std::vector<std::string>> rows_of(const Explanation& explanation, const std::vector<std::string>& devices);

Json to_json(const Answers& answers);         // an object with a key per answer (null if not asked)
std::string to_text(const Answers& answers);  // a table per answer, each after an empty line

}  // namespace pw
