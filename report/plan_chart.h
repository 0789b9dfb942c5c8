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
    std::string name;                // the whole name
    std::vector<std::string> parts;  // of its name, short (only parts that differ between plans are shown)
};
// Returns a line with the fastest plans that need less memory than the fastest of all: at most the next three and the
// plan for the least memory. Empty if there are none. `limit`: the memory that all devices have, or kUnlimited.
std::string less_memory_text(const std::vector<PlanDot>& plans, Bytes limit);
// Returns the chart of the plans, of which the first is the best. Its axes cover the plans that fit. Plans outside of
// the axes are counted, with their direction.
Chart chart_of(const std::vector<PlanDot>& plans, Bytes limit);

}  // namespace pw
