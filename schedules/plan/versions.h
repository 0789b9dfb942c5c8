// Which weight version every task uses, derived from the order and the policy alone. Version n of a
// stage contains the updates of all mini-batches < n.
#pragma once

#include "schedules/plan/plan.h"

#include <vector>

namespace pw {

struct VersionTable {
    // Versions are by [stage][microbatch]; R, recomputation, uses what F, forward, used.
    std::vector<std::vector<int>> forward, backward;
    // held[stage] is the most versions that the stage holds at once on one device, the newest included.
    std::vector<int> held;
    // These say by stage how many updates later the weights are that F and R, and B, backward, and I, backward for
    // inputs, predict from their version with its momentum. With 0 they use the version itself.
    std::vector<int> forward_ahead, backward_ahead;

    bool predicts(int stage) const { return forward_ahead[stage] > 0 || backward_ahead[stage] > 0; }
};

VersionTable versions_of(const Plan& plan);

// Returns `table` for a plan that runs the same tasks in another order: the same versions are used, the numbers held
// are counted anew.
VersionTable versions_in_order_of(const Plan& plan, VersionTable table);

// Returns the version that a trace shows: the one that F, R, B, I or W, backward for weights, reads, or that U, the
// update, makes; else -1. `plan` tells which mini-batch a U closes.
int version_of(const Task& task, const VersionTable& table, const Plan& plan);

// Returns the distance of the prediction that a task uses, 0 where there is none. W reads no weights.
int ahead_of(const Task& task, const VersionTable& table);

// Returns which of the stage's `held` weight buffers on `device` holds each version: an update writes over a version
// that nobody will read again, the one it reads included.
std::vector<int> weight_slots(const Plan& plan, const VersionTable& table, int stage, int device);

// Prints tables for people: they have a row per stage, a column per micro-batch, up to where each column is the one
// before, one version later.
std::string print(const Plan& plan, const VersionTable& table);

}  // namespace pw
