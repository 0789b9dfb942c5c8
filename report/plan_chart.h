// The chart of the plans of a search: memory against step time.
#pragma once

#include "viz/plot.h"
#include "workloads/units.h"

#include <string>
#include <vector>

namespace pw {

// A plan that a search found.
struct PlanDot {
    Bytes memory;
    Ns step_time;
    bool fits;
    std::string name;                // all of it
    std::vector<std::string> parts;  // of its name, short; those that differ name it in the chart
};
// Returns the chart of the plans, of which the first is the best. Its axes are those of the plans that fit: others are
// counted, with their direction. `limit`: the memory that all devices have, or kUnlimited.
Chart chart_of(const std::vector<PlanDot>& plans, Bytes limit);

}  // namespace pw
