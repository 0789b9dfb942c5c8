// How sure it is that the best plan of a search for a cluster is the best: plans whose steps cannot be told from its
// step, and what its lead rests on.
#pragma once

#include "report/json.h"
#include "report/plan_search.h"

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace pw {

// The first plans of the table, the best first, are numbered from 0.
struct PlanLead {
    std::vector<const FoundPlan*> rows;
    std::vector<std::size_t> alike = {};  // rows whose steps cannot be told from the step of the best
    std::size_t simplest = 0;             // of the best and these: the fewest degrees above the least, then the fastest
    double memory = 0;                    // of the fullest device of the best plan, as a share of the device's memory
    std::optional<std::size_t> roomier = {};  // the fastest row with room, if the best plan has none
};

// The best plan has no room if it leaves less than this share of a device's memory.
inline constexpr double kRoom = 0.03;

// Returns the lead among the rows of a table with at most `most` plans. There must be a plan.
PlanLead lead_of(const PlanSearch& search, std::size_t most);
// Returns a line on what cannot be told apart, and a line for each thing that the lead rests on.
std::string to_text(const PlanSearch& search, const PlanLead& lead);
Json to_json(const PlanSearch& search, const PlanLead& lead);

// Returns the steps of the best plans, one of each degrees, if no message travelled while passes compute. Of at most
// kUnhiddenPlans plans. Empty if the search is not for a cluster.
std::vector<Ns> unhidden_steps(const PlanSearch& search);
inline constexpr std::size_t kUnhiddenPlans = 4;

}  // namespace pw
