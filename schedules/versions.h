// Which weight version every task uses, derived from the order and the policy alone. Version n of a
// stage contains the updates of all mini-batches < n.
#pragma once

#include "schedules/plan.h"

#include <vector>

namespace pw {

struct VersionTable {
    // [stage][microbatch]
    std::vector<std::vector<int>> forward, backward;
    // Most versions that a stage holds at once on one device, the newest included.
    std::vector<int> held;
};

VersionTable versions_of(const Plan& plan);

// A table for people: one row per stage, one column per micro-batch.
std::string print(const VersionTable& table);

}  // namespace pw
