// Plans by memory and step time: what less memory costs, and the chart of a search.
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
    std::vector<std::string> parts;  // of its name, short; those that differ from other plans' name it here
};
// Returns a line with the fastest of the plans for less memory than the fastest needs, at most the next three and the
// one for the least; empty if there are none. `limit`: the memory that all devices have, or kUnlimited.
std::string less_memory_text(const std::vector<PlanDot>& plans, Bytes limit);
// Returns the chart of the plans, of which the first is the best. Its axes are those of the plans that fit: others are
// counted, with their direction.
Chart chart_of(const std::vector<PlanDot>& plans, Bytes limit);

}  // namespace pw
