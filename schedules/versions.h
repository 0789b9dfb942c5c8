// Which weight version every task uses, derived from the order and the policy alone. Version n of a
// stage contains the updates of all mini-batches < n.
#pragma once

#include "schedules/plan.h"

#include <vector>

namespace pw {

struct VersionTable {
    // [stage][microbatch]; R uses what F used
    std::vector<std::vector<int>> forward, backward;
    // Most versions that a stage holds at once on one device, the newest included.
    std::vector<int> held;
};

VersionTable versions_of(const Plan& plan);

// `table` for a plan that runs the same tasks in another order: the same versions are used, the
// numbers held are counted anew.
VersionTable versions_in_order_of(const Plan& plan, VersionTable table);

// What a trace shows: the version that F, R, B, I or W reads, or that U makes; else -1. `plan` tells
// which mini-batch a U closes.
int version_of(const Task& task, const VersionTable& table, const Plan& plan);

// Which of the stage's `held` weight buffers on `device` holds each version: an update writes over a
// version that nobody will read again, the one it reads included.
std::vector<int> weight_slots(const Plan& plan, const VersionTable& table, int stage, int device);

// A table for people: one row per stage, one column per micro-batch.
std::string print(const VersionTable& table);

}  // namespace pw
