// Where the numbers of a prediction come from, and what is proven of a plan, in lines for people.
#pragma once

#include "job/job.h"

#include <string>
#include <vector>

namespace pw {

// Returns a line for each part of the costs, with its values and the key that gives them, or a note on defaults:
// passes, messages, memory, precision and optimizer. `given` is the setup that has the keys. The job's setup may be
// made from `given`.
std::vector<std::string> origins_of_costs(const Job& job, const Setup& given);
std::vector<std::string> origins_of_costs(const Job& job);

// Returns what is proven of the plan: how many tasks it has, and in which transfer mode they complete.
std::string proof_text(const Job& job);

}  // namespace pw
