// Lower bounds on the step and the memory of a plan on a cluster, from its costs and the order of its tasks, before the
// plan is made.
#pragma once

#include "schedules/orders/schedule.h"
#include "schedules/plan/lanes.h"
#include "schedules/plan/offloading.h"
#include "schedules/plan/shape_index.h"
#include "workloads/costs/costs.h"

#include <memory>
#include <span>
#include <vector>

namespace pw {

// What the lists of a schedule say, whatever the costs.
struct OrderFacts {
    Shape shape;  // placed
    BackwardForm form = BackwardForm::Whole;
    bool pairs = false;  // whether some tasks overlap
    // The activations that a device holds at once, when they are most, and the copies of a step: for each stage, a row
    // for each slice of a micro-batch.
    struct Held {
        int stage, slice = 0;
        int until_input = 0, until_weight = 0;  // micro-batches whose I, or W, is to come
        int away = 0;                           // how many of these are on the host, at most
        int copied = 0;                         // micro-batches that leave and come back in a step, at least
    };
    std::vector<std::vector<Held>> held;  // by device
    TransferMode::Copies copies = TransferMode::Copies::InTurn;
};

// What a plan copies to and from the hosts.
struct OrderCopies {
    Offloading offloading = {};
    TransferMode::Copies lanes = TransferMode::Copies::InTurn;
};

// Returns the facts of a schedule for `shape`, which is not placed. Null if the schedule refuses the shape. If the
// schedule orders tasks by their costs, the facts hold for any order. Throws Error if there is not the memory to make
// and simulate its plan (schedules/memory/limits.h).
std::unique_ptr<const OrderFacts> order_facts(const Schedule& schedule, Shape shape, const ScheduleOptions& options,
                                              const OrderCopies& copies = {});

// Returns a lower bound on the step time: on each device all its passes, after the forwards that its first pass waits
// for, and before the backwards that wait for its last pass, or its updates. Copies of a device to and from its host
// run one after another, between the first F and the last backward of what leaves.
Ns least_step_time(const OrderFacts& facts, const Costs& costs);

// Returns by device a lower bound on the memory that a run reserves.
std::vector<Bytes> least_memory(const OrderFacts& facts, const Costs& costs);

// The times of a stage's tasks on its device, where a plan has backwards of this form, for a slice of a micro-batch.
struct StageTimes {
    Ns forward = 0, backward = 0;  // backward: up to the gradients of its inputs
    Ns weight = 0, update = 0;
    Ns pass() const { return forward + backward + weight; }
};
StageTimes stage_times(BackwardForm form, int stage, int device, const Costs& costs, int slice = 0);
// Returns the shortest of these times on the devices that have the stage, for the first slice.
StageTimes least_times(BackwardForm form, int stage, std::span<const int> devices, const Costs& costs);

// Returns the bytes of the activations of a stage that are on the device, of slices of this length.
Bytes saved_of(const OrderFacts::Held& held, const StageBytes& bytes, double length = 1);

// Returns the bytes that a stage holds all the time: weights, statistics, gradients and states.
Bytes persistent_of(const StageBytes& bytes, const KeptBytes& kept);

// Returns the number of micro-batches that the device serves on the stage. With slices, returns the number of slices.
int served_by(const Shape& shape, const ShapeIndex& index, int device, int stage);

}  // namespace pw
