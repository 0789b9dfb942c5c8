// The costs and memory by which a schedule orders tasks, if its row needs costs: the durations of tasks and messages
// and the bytes that the simulator counts, in tables by class of micro-batches, and the space there is.
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

// The times of a step: of all devices together, and the longest time of a device from its own start to its own end.
struct StepTimes {
    Ns step = std::numeric_limits<Ns>::max(), span = std::numeric_limits<Ns>::max();
    auto operator<=>(const StepTimes&) const = default;
};

// What the simulator says of an order.
struct SimulatedOrder {
    StepTimes times;
    bool fits = true;                 // the memory of the devices
    std::vector<Bytes> missing = {};  // by device: memory that it lacks, or empty if not known
};

struct OrderCosts {
    struct Holder {
        int stage, device;
        auto operator<=>(const Holder&) const = default;
    };
    // The times of a micro-batch on a holder of a stage, as duration_of() says.
    struct Times {
        Ns forward = 0, backward = 0, backward_input = 0, backward_weight = 0;
        // The additional time of every B or W except the holder's first.
        Ns added_to_backward = 0, added_to_weight = 0;
        Ns recompute = 0;  // of R right before each B or I
        auto operator<=>(const Times&) const = default;
    };
    struct Message {
        Ns occupied = 0, latency = 0;  // occupied: the time in which the next message waits
        Bytes bytes = 0;
        Ns time() const { return occupied + latency; }
        auto operator<=>(const Message&) const = default;
    };
    // What a micro-batch holds on a stage, as activations_of() and landing_of() say: after F, and after I until W. Also
    // the most that each pass needs in addition to what is held before it, for F in addition to `after_forward`. B and
    // I include R.
    struct Held {
        Bytes after_forward = 0, after_input = 0;
        Bytes by_forward = 0, by_input = 0, by_backward = 0;
        auto operator<=>(const Held&) const = default;
    };

    // By micro-batch of a step: its class. Micro-batches of the same class have the same costs. Empty: all have class
    // 0.
    std::vector<int> classes = {};
    std::map<Holder, std::vector<Times>> times = {};  // by class
    std::map<Holder, Ns> updates = {};                // U of the stage
    // By class: a message between two holders, activations along an edge, gradients against it. Stages of the same
    // device send each other nothing.
    std::map<std::pair<Holder, Holder>, std::vector<Message>> messages = {};
    std::vector<std::vector<Held>> held = {};  // by stage and class
    // By device: what it holds in any order, and all that it has.
    std::vector<Bytes> always_held = {}, memory = {};
    std::vector<int> recomputed = {};  // stages, ascending: their F saves nothing until R
    // Simulates a step with these compute tasks, by all rules, many of which the costs above leave out. Absent: the
    // costs alone decide.
    std::function<SimulatedOrder(const std::vector<Tasks>& order)> simulate = {};

    std::size_t class_of(int microbatch) const {
        return classes.empty()
                   ? 0
                   : static_cast<std::size_t>(classes[static_cast<std::size_t>(microbatch) % classes.size()]);
    }
};

// Computes the costs of a placed shape. `memory` is each device's memory. R counts for all micro-batches of a stage,
// also for those that Recomputation::saved spares.
OrderCosts order_costs(const Shape& shape, const Costs& costs, std::vector<Bytes> memory,
                       const Recomputation& recomputation = {});
// Shortens the times of passes for bounds on orders with pairs. Mean: two passes together take no longer than as a
// pair, so the sum of a device's passes is a bound. Least: each takes no longer than its part of a pair, so every path
// is a bound.
enum class PairPart { Mean, Least };
void hide_in_pairs(OrderCosts& order, const Costs& costs, PairPart part);
// Returns the times of tasks and messages. The result refers to the costs.
KnownTimes known_times(const OrderCosts& costs);
// Returns the costs of one pipeline of Shape::copies, by its own devices. Each device and message has the longest times
// and the least memory of the copies, so that all copies have the same order. The result has no simulation.
OrderCosts costs_of_copies(const OrderCosts& all, int copies);

}  // namespace pw
