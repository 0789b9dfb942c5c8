// What a run derives from its ranks: whether they run the same plan, the cores of their devices, the tags of their
// messages.
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

// Throws Error (BadInput) if there are more ranks than devices.
void check_number(const Setup& setup, int devices, const Ranks& ranks);
// Throws as check_number() does, and if the ranks do not all run the same plan.
void check_ranks(const Job& job, Ranks& ranks);

// Returns the ranks of the run that this process belongs to: with `launched` the ranks of its launcher
// (join_ranks()), otherwise the process alone.
std::shared_ptr<Ranks> ranks_of_process(bool launched);

// Returns the cores of the rank's devices. Ranks of one host that may use the same cores divide them. All ranks
// call it together.
CorePlan cores_of_rank(const Setup& setup, int devices, Ranks& ranks);
// Returns on rank 0 the cores of all devices on its host, its own devices first. Other ranks get nothing. All ranks
// call it together.
CorePlan cores_of_first_host(const Setup& setup, int devices, Ranks& ranks);

// Returns the places of the rank's devices, which run on `cores`.
std::vector<DevicePlace> places_of(const RunPlan& plan, const CorePlan& cores);

// Returns a tag by node, equal at both ends of a transfer between ranks. Two messages between the same two ranks in
// one step have different tags. Throws Error (Infeasible) if the transport has too few.
std::vector<int> message_tags(const PlanGraph& graph, const RankMap& map, const Barriers& barriers, const Ranks& ranks);

// Returns by node, for RECVs, the position from which their device has the memory of the landing buffer, or 0 if
// the message has no bytes.
std::vector<int> landing_positions(const RunPlan& plan);

}  // namespace pw
