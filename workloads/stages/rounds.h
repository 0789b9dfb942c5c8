// Cuts a chain into rounds of looped stages (balance_devices).
#pragma once

#include "workloads/stages/balance_problem.h"

#include <vector>

namespace pw {

// Returns the first layer of every stage, and the number of layers: the sum of the squares of the longest stages of all
// rounds is the least.
std::vector<int> cuts_of_rounds(const BalanceProblem& problem);

}  // namespace pw
