// The costs and memory by which a schedule orders tasks, if its row needs costs: the times of tasks and messages, and
// the space there is.
#pragma once

#include "schedules/plan/known_times.h"
#include "schedules/plan/plan.h"
#include "schedules/plan/recomputation.h"
#include "workloads/costs/costs.h"

#include <functional>
#include <limits>
#include <map>
#include <utility>
#include <vector>

namespace pw {

// The times of a step: of all devices together, and the longest of one device from its own start to its own end.
struct StepTimes {
    Ns step = std::numeric_limits<Ns>::max(), span = std::numeric_limits<Ns>::max();
    auto operator<=>(const StepTimes&) const = default;
};

// What the simulator says of an order.
struct SimulatedOrder {
    StepTimes times;
    bool fits = true;                 // the memory of the devices
    std::vector<Bytes> missing = {};  // by device: memory that it lacks; empty if not known
};

struct OrderCosts {
    struct Holder {
        int stage, device;
        auto operator<=>(const Holder&) const = default;
    };
    struct Times {
        Ns forward = 0, backward = 0, backward_input = 0, backward_weight = 0;
        Ns accumulate = 0;  // additional time of every B or W except the holder's first
        Ns update = 0;      // of the stage, after its last B or W
        Ns recompute = 0;   // of R right before each B or I
    };
    // The times of a full micro-batch on each holder of a stage, with the device's speed and the dispatch.
    std::map<Holder, Times> times;
    // The time of a message from one holder to another, including its latency: activations along an edge, gradients
    // against it. Stages of one device send each other nothing.
    std::map<std::pair<Holder, Holder>, Ns> messages;
    std::map<std::pair<Holder, Holder>, Ns> occupations;  // the part of it in which the next message waits
    std::vector<MicroBatchLength> lengths;                // by micro-batch; if empty, all are full
    std::vector<StageBytes> bytes;                        // by stage
    std::vector<Bytes> memory;                            // by device
    std::vector<int> recomputed = {};                     // stages, ascending: their F saves nothing until R
    std::vector<EdgeBytes> edges = {};                    // what stages receive
    // Simulates a step with these compute tasks, by all rules, many of which the costs above leave out. Absent: the
    // costs alone decide.
    std::function<SimulatedOrder(const std::vector<Tasks>& order)> simulate = {};
};

// Computes the costs of a placed shape. `memory` is that of each device. R counts for all micro-batches of a stage,
// also for those that Recomputation::saved spares.
OrderCosts order_costs(const Shape& shape, const Costs& costs, std::vector<Bytes> memory,
                       const Recomputation& recomputation = {});
// Returns the times of tasks with full micro-batches; it refers to the costs.
KnownTimes known_times(const OrderCosts& costs);
// Returns those of one pipeline of Shape::copies, by its own devices: of each device and message the longest times of
// the copies, and the least memory, so that all copies have one order; without a simulation.
OrderCosts costs_of_copies(const OrderCosts& all, int copies);

}  // namespace pw
