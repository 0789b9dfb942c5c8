// What a run derives from its ranks: that they run the same plan, which share a host, the tags of their messages.
#pragma once

#include "exec/engine/device.h"
#include "exec/engine/pin.h"
#include "exec/execute.h"
#include "exec/ranks/ranks.h"
#include "schedules/plan/plan_graph.h"

#include <memory>
#include <string>
#include <vector>

namespace pw {

// Throws Error (BadInput) when there are more of them than devices.
void check_number(const Config& config, int devices, const Ranks& ranks);
// Throws the same, and when the ranks do not all run the same plan.
void check_ranks(const Job& job, Ranks& ranks);

// Returns the ranks that the process is one of: with `launched` those of its launcher (join_ranks), else itself alone.
std::shared_ptr<Ranks> ranks_of_process(bool launched);

// Returns the cores of the rank's devices. Ranks of one host that may use the same cores share them out; they call it
// together.
CorePlan cores_of_rank(const Config& config, int devices, Ranks& ranks);
// Returns on rank 0 the cores of all devices on its host, its own first; on the others nothing. All ranks call it
// together.
CorePlan cores_of_first_host(const Config& config, int devices, Ranks& ranks);

// Returns the places of the rank's devices, which compute on `cores`.
std::vector<DevicePlace> places_of(const RunPlan& plan, const CorePlan& cores);

// Returns a tag by node, equal at both ends of a transfer between ranks; two messages between two ranks in one step
// have different ones. Throws Error (Infeasible) when the transport has too few.
std::vector<int> message_tags(const PlanGraph& graph, const RankMap& map, const Barriers& barriers, const Ranks& ranks);

// Returns by node, of RECVs, the position from which their device has the memory that the message lands in; 0 where it
// has no bytes.
std::vector<int> landing_positions(const RunPlan& plan);

}  // namespace pw
