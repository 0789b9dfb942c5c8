// The schedules. Each is a file with its order and its row; schedules.cpp collects the rows. A schedule writes compute
// tasks only; passes add updates and transfers, and one check proves the plan.
#pragma once

#include "schedules/orders/placement.h"
#include "schedules/plan/lanes.h"
#include "schedules/plan/plan.h"
#include "workloads/text/choice.h"

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace pw {

struct ScheduleOptions {
    // The drain is the order of the backwards after all forwards; Own is as the schedule has it.
    enum class Drain { Own, Fifo, Lifo } drain = Drain::Own;
    int group = 0;  // interleaved: micro-batches per group, Megatron's rule; 0: PyTorch's rule
};

template <>
inline constexpr Choice<ScheduleOptions::Drain> kChoices<ScheduleOptions::Drain>[] = {
    {"fifo", ScheduleOptions::Drain::Fifo}, {"lifo", ScheduleOptions::Drain::Lifo}};

enum class Updates {
    PerStep,        // synchronous: the plan is one mini-batch, flushed
    PerMicroBatch,  // asynchronous: every micro-batch is a mini-batch, or an even_share of them
    PerMiniBatch,   // asynchronous: every shape.per_update micro-batches are
};

using Tasks = std::vector<Task>;

struct OrderCosts;  // schedules/orders/order_costs.h

// What a schedule orders, and by what.
struct Request {
    const Shape& shape;  // placed
    ScheduleOptions options = {};
    const OrderCosts* costs = nullptr;  // for rows with needs_costs
};

struct Schedule {
    std::string_view name;
    std::string_view aliases = {};  // names that other tools use, separated by blanks
    std::string_view summary = {};
    std::string_view origin = "-";
    Placement placement = kLinear;
    int chunks = 1;  // stages per device unless the config says otherwise
    Updates updates = Updates::PerStep;
    std::span<const WeightPolicy> policies = kFlushed;  // the first is the schedule's own
    // These formulas are for people: p devices, d a device, m micro-batches, v stages per device, N the group; F, B, I,
    // W are the times of forwards, backwards, backwards for inputs and backwards for weights of all stages of a device.
    // `bubble` is the idle time of a device in a step with equal stages, `in_flight` the micro-batches of activations
    // that device d holds at most.
    std::string_view bubble = {}, in_flight = {};
    // Returns the compute tasks of every device, in order. Throws Error (BadInput) with the rule and, after "help:",
    // the nearest legal values when the schedule is not defined for the shape.
    std::vector<Tasks> (*orders)(const Request& request) = nullptr;
    std::string_view one_stage = {};  // looped: the schedule that it comes to with one stage on each device
    bool trains = true;               // whether it has backwards; else it has forwards only
    std::string_view option = {};     // the key of pipeline that it reads besides those that all schedules do
    bool needs_costs = false;         // whether it orders by times or bytes, so that costs come before orders

    bool asynchronous() const { return updates != Updates::PerStep; }
    // Stages may have several holders: a device has one stage, and the holders sum their gradients before each update.
    bool takes_replicas() const { return placement.replicas; }

    static constexpr WeightPolicy kFlushed[] = {WeightPolicy::Flush};
};

std::span<const Schedule> schedules();
// Finds a schedule by name or alias; case, '-' and '_' do not matter. Throws Error (BadInput) with the nearest name and
// all of them.
const Schedule& schedule_named(std::string_view name);
// Returns the number of stages nearest to the shape's that the schedule can place on its devices: its own when they
// fit.
int legal_stages(const Schedule& schedule, const Shape& shape);

// Fills the placement of stages. Returns false where the schedule cannot place that number.
bool place_stages(const Schedule& schedule, Shape& shape);

struct PlanOptions {
    ScheduleOptions schedule;
    std::optional<WeightPolicy> weights;  // the schedule's own when absent
    Prediction prediction = Prediction::None;
    std::vector<int> recompute;  // stages whose F saves nothing: R, recomputation, does, right before B or I
    TransferMode transfers;      // the plan is proven in these lanes, under rendezvous
};

// Returns the fewest micro-batches that every stage shares out evenly among its holders: they are a mini-batch of
// schedules that update as often as they can, so that all stages have seen the same samples at every update.
int even_share(const Shape& shape);

struct Proof;  // schedules/passes/passes.h
struct ProvenPlan {
    Plan plan;
    std::shared_ptr<const Proof> proof;
    std::string deadlock = {};  // the error that names the circle, of a plan from a file that rendezvous would stop
};

// A plan is made in three steps: its shape is placed, its costs are worked out where the schedule needs them, and its
// tasks are ordered. The first two functions below are these steps, the others all of them, without costs.

// Fills the placement, unless the shape brings one (placement_of(replicas), one stage per device). Throws Error
// (BadInput) with the rule and, after "help:", the nearest legal values when the schedule is not defined for the
// shape.
Shape placed(const Schedule& schedule, Shape shape);
// Orders the tasks of a placed shape: those of the schedule, then U, the update, where the schedule wrote none, then
// transfers, then R, then the check. Throws as placed() does, and where the schedule needs costs and there are none.
ProvenPlan ordered(const Schedule& schedule, Shape shape, const PlanOptions& options = {},
                   const OrderCosts* costs = nullptr);

ProvenPlan proven_plan(const Schedule& schedule, Shape shape, const PlanOptions& options = {});
Plan make_plan(const Schedule& schedule, Shape shape, const PlanOptions& options = {});

// Returns the name (and drain) of the schedule whose orders are the very same, task by task, where one stage on each
// device leaves nothing of a looped one; empty elsewhere.
std::string same_orders_as(const Schedule& schedule, const Shape& shape, const ScheduleOptions& options);

}  // namespace pw
