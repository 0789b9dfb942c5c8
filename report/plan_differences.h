// Two plans next to each other: predictions of two configs, or traces that need not share a plan.
#pragma once

#include "report/json.h"
#include "report/report.h"
#include "viz/plot.h"

#include <optional>
#include <string>
#include <vector>

namespace pw {

struct NamedReport {
    std::string name;  // in tables: the name of a file
    Report report;
};

struct ConfigDifference {
    std::string key;            // "pipeline.schedule"
    std::string first, second;  // values in YAML (empty where a config lacks the key)
};

struct PlanDifferences {
    NamedReport first, second;
    std::vector<ConfigDifference> config = {};  // of the effective configs (none if a trace has no config)
    // Whether both steps can be told apart (workloads/transformers/error_bands.h). Absent unless both are predictions
    // of a transformer in training, with the same model, cluster, batch and precision.
    std::optional<bool> are_told_apart = {};
    std::string reason = {};  // why they are not compared as prediction and measurement of a plan (or empty)
};

// Compares the effective configs of both sides. A trace of another program has no config.
PlanDifferences differences_of(NamedReport first, NamedReport second);

// Returns why two traces are of different plans. Empty if both are of the same plan. Another program's trace is of the
// plan of `predicted` if its tasks are.
std::string different_plans(const Report& predicted, const Report& measured);

Json to_json(const PlanDifferences& differences);
// Returns tables: keys of the config that differ, the numbers of both steps, and the parts of the step, which are means
// over the devices and add up to the makespan.
std::string to_text(const PlanDifferences& differences);
// Draws both plans on one time axis.
void plot_differences(const PlanDifferences& differences, const std::string& file, const View& view = {});

}  // namespace pw
