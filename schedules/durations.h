// How long every task of a plan takes by its costs: what the simulator counts and the emulated
// device sleeps.
#pragma once

#include "schedules/versions.h"
#include "workloads/costs/costs.h"
#include "workloads/stages/ties.h"

#include <vector>

namespace pw {

// Returns the durations by node, with the device's speed and the dispatch included; they are 0 for transfers. All
// gradients of a mini-batch but a stage's first are added to what is there, which takes StageCost::accumulate more.
// Predicting weights comes before the task that reads them: it goes through memory three times where an update goes
// five times.
std::vector<Ns> durations_of(const Plan& plan, const PlanGraph& graph, const Costs& costs,
                             const VersionTable& versions);
// Returns the same while all other devices compute; it is empty when the costs do not know it.
std::vector<Ns> busy_durations_of(const Plan& plan, const PlanGraph& graph, const Costs& costs,
                                  const VersionTable& versions);

// Fills in what S, the sum of gradients, costs on every stage of the shape: its holders sum in a ring over
// `costs.sums`, and then, all over, the devices that share a parameter do.
void add_gradient_sums(Costs& costs, const Shape& shape, const std::vector<StageTie>& ties = {});

// Returns the time for which a transfer occupies its link: bytes / bandwidth.
Ns occupation_of(const Task& transfer, const Shape& shape, const Costs& costs);

}  // namespace pw
