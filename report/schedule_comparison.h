// A config with several schedules, each simulated and run with the same profile.
#pragma once

#include "report/comparison.h"
#include "report/config_source.h"
#include "report/table.h"
#include "viz/plot.h"
#include "workloads/error.h"

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace pw {

struct ScheduleRun {
    std::string schedule;
    Comparison comparison;
};

// A schedule that the config cannot have: not defined for its stages and devices, or its plan does not fit.
struct ScheduleLeftOut {
    std::string schedule;
    Error error;
};

struct ScheduleComparison {
    std::string title;                           // model, micro-batches, backend and machine
    std::vector<ScheduleRun> runs;               // in the order of the schedules
    std::vector<ScheduleLeftOut> left_out = {};  // in the same order
    // Losses over the training samples. Schedules that sum in the same order have the same losses to the last bit: a
    // single curve. No curve without training.
    std::vector<Curve> losses;
};

struct ScheduleHooks : Hooks {
    std::optional<int> turns = {};        // as for turns_for()
    std::function<void()> measures = {};  // called before the profile is measured
    // Called before each run, with what the user should know of the job.
    std::function<void(const Job& job, int turns, const Notices& notes, const Notices& warnings)> begins = {};
    // Called after each run, with all that is known so far: a later schedule that fails takes nothing along.
    std::function<void(const ScheduleComparison& so_far)> ended = {};
};

// Compares each schedule's prediction with its run. The profile is the config's, or is measured once. All ranks call
// this together, in with_all_ranks() (exec/all_ranks.h). Only on rank 0 there are runs, and `ended` is called. Once
// should_stop says so, the current run ends after its step and is the last run. A schedule that does not suit the
// config, or whose plan does not fit, is left out. Throws Error before the first run where a name is not a schedule's,
// the first schedule's error where all are left out, and as compare_run() does.
ScheduleComparison compare_schedules(const ConfigSource& source, const std::vector<std::string>& schedules,
                                     const ScheduleHooks& hooks = {});

Json to_json(const ScheduleComparison& comparison);  // a table of accuracy, as read_accuracy() reads it
Table table_of(const ScheduleComparison& comparison);
// Returns a line for each schedule that is left out, with the reason.
std::string left_out_text(const ScheduleComparison& comparison);
std::string to_text(const ScheduleComparison& comparison);  // the title, the table and what is left out

}  // namespace pw
