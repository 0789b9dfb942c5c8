// Makes the plan of a setup and a split.
#pragma once

#include "job/setup/plan_defaults.h"
#include "job/setup/setup.h"
#include "schedules/orders/schedule.h"
#include "workloads/costs/costs.h"
#include "workloads/stages/device_balance.h"

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace pw {

// How the stages of a split are connected.
struct StageLinks {
    std::optional<std::vector<Edge>> edges;  // the boundaries of the split; absent: the chain
    std::vector<Edge> ties;                  // stages that share parameters
    std::vector<int> forwards_only = {};     // stages without a layer that has a backward pass, ascending
    bool has_frozen = false;                 // some layer is not trained
    auto operator<=>(const StageLinks&) const = default;
};
StageLinks links_of(const LayerGraph& graph, const StageSplit& split);

// Returns the schedule with this name: PipelineConfig::own_schedule, or a row of the table. Throws as schedule_named()
// without a setup does.
const Schedule& schedule_named(const Setup& setup, std::string_view name);
// Returns the row of the schedule that a setup names. Throws Error (BadInput) at its key.
const Schedule& schedule_of(const Setup& setup);

// Returns into how many parts the first and the last layer of a pipeline are divided: a part for each of its devices,
// or 1.
int parts_of_ends(const Setup& setup);

// Returns the holders of the stages of a pipeline if each stage has one device, else nothing. With replicas of the
// pipeline, the slowest device counts. Also returns nothing if the plan cannot be made: the function that makes the
// plan reports why.
StageHolders holders_of_stages(const Setup& setup, const std::vector<double>& speeds_of_makes = {});

// Returns the costs of a plan of this placed shape.
using CostsOfShape = std::function<Costs(const Shape&)>;

// Makes the plan of a setup: places its shape, computes its costs if the schedule orders tasks by them, and orders the
// tasks. Asynchronous schedules get one plan of steps x micro_batches. A schedule that is a file (*.csv) is read and
// proven instead. `notices` receives the notices of its reader, and the name of a schedule with equal orders. Without
// `costs_of` only schedules that need no costs can be planned.
ProvenPlan proven_plan(const Setup& setup, const StageLinks& links, int steps, const CostsOfShape& costs_of = {},
                       std::vector<std::string>* notices = nullptr);
Plan make_plan(const Setup& setup, const StageLinks& links, int steps);  // only the plan

// Returns the placed shape of a setup's plan, whose schedule is no file. Throws as proven_plan() does.
Shape shape_of(const Setup& setup, const StageLinks& links, int steps);

// Returns how the backend of a setup moves transfers: by the setup's mode, except that devices that compute have no
// buffer for a message without its receive. So with deferred receives a message leaves when its RECV is posted.
TransferMode executed_mode(const Setup& setup);

// Returns the defaults that follow from the schedule of a pipeline. Opens a plan in a file.
PlanDefaults defaults_of(const PipelineConfig& pipeline);

}  // namespace pw
