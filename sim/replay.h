// Why a prediction misses a run: a plan simulated with the times that its own tasks took, and the error of the step
// time in parts that add up to it. Definitions: docs/metrics.md.
#pragma once

#include "schedules/plan/lanes.h"
#include "schedules/plan/plan.h"
#include "schedules/trace/trace.h"
#include "sim/explanation.h"
#include "workloads/costs/costs.h"

#include <memory>
#include <optional>
#include <vector>

namespace pw {

struct Proof;  // schedules/passes/passes.h

// The parts by which a replay differs from the measured step. They are signed like errors, replayed less measured: time
// that passed between tasks is missing in a replay.
struct Mechanics {
    Ns begin = 0;      // tasks that wait for nothing began after the first of the step
    Ns hand_over = 0;  // from the last arrival, or end on another device, that a task waits for to its start
    Ns dispatch = 0;   // from the end of the device's task before it to its start
    Ns rules = 0;      // the rest: tasks began earlier than the simulator's rules allow
    Ns total() const { return begin + hand_over + dispatch + rules; }
    Mechanics operator-(const Mechanics& other) const {
        return {begin - other.begin, hand_over - other.hand_over, dispatch - other.dispatch, rules - other.rules};
    }
    bool operator==(const Mechanics&) const = default;
};

// The part of a step time's error that comes from the costs of an operation on a stage.
struct CostPart {
    Op op;
    int stage;                       // of a SEND, the one that sends
    Ns time = 0;                     // of the step: part of ErrorParts::costs
    Ns predicted = 0, measured = 0;  // mean times of such a task
    bool operator==(const CostPart&) const = default;
};

// predicted - measured = mechanics + jitter + costs + drift, in integer nanoseconds.
struct ErrorParts {
    Ns predicted = 0, measured = 0;  // step times
    Mechanics mechanics;             // the plan replayed with each task's own time, less the measured step
    Ns jitter = 0;                   // with the means of tasks of one kind (schedules/plan/durations.h), less that
    Ns costs = 0;                    // with the predicted times, less that
    std::optional<Ns> drift;         // between a profile and costs calibrated during the run; else it is part of costs
    std::vector<CostPart> by_task;   // parts of `costs`, the largest first
    bool operator==(const ErrorParts&) const = default;
};

// Replays the step of the trace that metrics_of() takes its numbers from, of an asynchronous plan the whole run.
// `proof` is the proof of the plan. Of `costs` only the lengths of micro-batches and shared dispatchers are read:
// `dispatch`, and the hosts of the cluster. Throws Error: Infeasible when the plan deadlocks in the mode; BadInput
// naming device, step and task when the events of a device are not its list.
Mechanics mechanics_of(const Plan& plan, std::shared_ptr<const Proof> proof, const TransferMode& mode,
                       const Trace& trace, const Costs& costs = {});

// Explains that replay as explain() does a prediction. Throws as mechanics_of() does.
Explanation explanation_of(const Plan& plan, std::shared_ptr<const Proof> proof, const TransferMode& mode,
                           const Trace& trace, const Costs& costs = {});

// `calibrated` is the plan simulated with costs that were measured during the run, or null. `predicted` need not come
// from a simulation: the mechanics are then those of both. Tasks of micro-batches of unequal length are of several
// kinds.
ErrorParts error_parts(const Plan& plan, std::shared_ptr<const Proof> proof, const TransferMode& mode,
                       const Trace& predicted, const Trace* calibrated, const Trace& measured, const Costs& costs = {});

}  // namespace pw
