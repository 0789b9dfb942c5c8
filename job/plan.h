// What a config and a split ask of the schedules.
#pragma once

#include "job/config/read.h"
#include "schedules/orders/schedule.h"
#include "workloads/costs/costs.h"

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace pw {

// These links say how the stages of a split hang together.
struct StageLinks {
    std::optional<std::vector<Edge>> edges;  // its boundaries; when absent, the chain
    std::vector<Edge> ties;                  // stages that share parameters
    auto operator<=>(const StageLinks&) const = default;
};
StageLinks links_of(const LayerGraph& graph, const StageSplit& split);

// Returns the row of this name: the config's own (PipelineConfig::own_schedule), or that of the table. Throws as
// schedule_named() without a config does.
const Schedule& schedule_named(const Config& config, std::string_view name);
// Returns the row of the schedule that a config names. Throws Error (BadInput) at its key.
const Schedule& schedule_of(const Config& config);

// Returns the device of each stage where some device holds several stages, and each stage has one device; else nothing.
// It is nothing too where the plan cannot be made: making it says why.
std::vector<int> devices_of_several(const Config& config);

// Returns the costs of a plan of this shape, which is placed.
using CostsOfShape = std::function<Costs(const Shape&)>;

// Makes the plan that a config asks for: places its shape, works out its costs where the schedule orders tasks by them,
// and orders the tasks. Asynchronous schedules get one plan over steps x micro_batches. A schedule that is a file
// (*.csv) is read and proven instead; `notices` receives what its reader has to say, and which other schedule this one
// is. Without `costs_of` only schedules that need none can be planned.
ProvenPlan proven_plan(const Config& config, const StageLinks& links, int steps, const CostsOfShape& costs_of = {},
                       std::vector<std::string>* notices = nullptr);
Plan make_plan(const Config& config, const StageLinks& links, int steps);  // the same plan

// Returns how the backend of a config moves transfers: as the config says, but devices that compute have nowhere to
// hold a message, so that with deferred receives it leaves when its RECV is posted.
TransferMode executed_mode(const Config& config);

// Returns what a schedule decides where the config is silent. A plan in a file is opened.
PlanDefaults defaults_of(const std::string& schedule);

}  // namespace pw
