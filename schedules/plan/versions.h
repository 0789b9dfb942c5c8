// Which weight version every task uses, derived from the order and the policy alone. Version n of a stage contains the
// updates of all mini-batches < n.
#pragma once

#include "schedules/plan/plan.h"

#include <vector>

namespace pw {

struct VersionTable {
    // Versions by [stage][micro-batch]. R uses the version of F.
    std::vector<std::vector<int>> forward, backward;
    // held[stage]: the most versions that a device holds of the stage at once, including the newest.
    std::vector<int> held;
    // By stage, how many updates ahead F and R, and B and I, predict the weights from their version with its momentum.
    // With 0 they use the version itself.
    std::vector<int> forward_ahead, backward_ahead;
    // By stage, how many updates F is late compared with its B under Latest, as a mean over the micro-batches in the
    // steady state. Under other policies and with a flush it is 0.
    std::vector<double> delay;
    // By stage, how many updates B and I go back from their version with the average of the steps of weights (back_of).
    // Empty: none does.
    std::vector<double> back;

    // Whether tasks read weights that are predicted with the momentum of their version.
    bool predicts(int stage) const { return forward_ahead[stage] > 0 || backward_ahead[stage] > 0; }
    // Whether tasks read weights that are corrected with the average of the steps, which U updates.
    bool corrects(int stage) const { return !back.empty() && back[stage] > 0; }
};

VersionTable versions_of(const Plan& plan);

// Returns `table` for a plan that runs the same tasks in another order. The versions used are the same. The numbers
// held are counted again.
VersionTable versions_in_order_of(const Plan& plan, VersionTable table);

// Returns the version that a trace shows: the version that F, R, B, I or W reads, or that U makes. For other tasks
// returns -1. `plan` has the mini-batch of a U.
int version_of(const Task& task, const VersionTable& table, const Plan& plan);

// Returns how many updates ahead the weights of a task are predicted. Without prediction returns 0. W reads no weights.
int ahead_of(const Task& task, const VersionTable& table);

// Returns how many updates a task goes back from its version: VersionTable::back for B and I, but 0 in a mini-batch
// that begins after all updates before it.
double back_of(const Task& task, const VersionTable& table, const Plan& plan);

// Returns whether a task predicts or corrects the weights that it reads or, for U, averages their steps. It takes
// longer than other tasks of its operation then.
bool predicts(const Task& task, const VersionTable& table, const Plan& plan);

// Returns which of the stage's `held` weight buffers on `device` holds each version. An update overwrites a version
// that no later task reads. This may be the version that the update reads itself.
std::vector<int> weight_slots(const Plan& plan, const VersionTable& table, int stage, int device);

// Prints tables for people, with a row per stage and a column per micro-batch. The tables end where each column is the
// previous column, one version later.
std::string print(const Plan& plan, const VersionTable& table);

}  // namespace pw
