// The schedules. Each is a file with its order and its row. schedules.cpp lists the rows. A schedule writes compute
// tasks only. Passes add updates and transfers, and a check proves the plan.
#pragma once

#include "schedules/orders/placement.h"
#include "schedules/plan/lanes.h"
#include "schedules/plan/plan.h"
#include "schedules/plan/recomputation.h"
#include "workloads/text/choice.h"

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace pw {

struct ScheduleOptions {
    // The order of the backwards after all forwards. Own is the schedule's default.
    enum class Drain { Own, Fifo, Lifo } drain = Drain::Own;
    int group = 0;        // interleaved: micro-batches per group by Megatron's rule, or 0: PyTorch's rule
    bool pairs = false;   // interleaved: forwards run in pairs with backwards
    int activations = 0;  // auto: the most micro-batches whose activations a device holds, or 0: by its memory
    // auto: what it shortens, the step of all devices, or the longest time from a device's own start to its own end
    enum class Aim { Step, Span } aim = Aim::Step;
    double effort = 1;  // auto: how many orders it tries, in multiples of its usual number
    // auto: whether micro-batches of unequal length run in their order, or in any
    enum class MicroBatches { Given, Any } micro_batches = MicroBatches::Given;
    // chimera with more micro-batches than devices.
    enum class Concatenation { Direct, ForwardDoubling } concatenation = Concatenation::Direct;
    int synchronous_steps = 0;  // pipemare: mini-batches at the beginning that are flushed
};

template <>
inline constexpr Choice<ScheduleOptions::Drain> kChoices<ScheduleOptions::Drain>[] = {
    {"fifo", ScheduleOptions::Drain::Fifo}, {"lifo", ScheduleOptions::Drain::Lifo}};

template <>
inline constexpr Choice<ScheduleOptions::Aim> kChoices<ScheduleOptions::Aim>[] = {{"step", ScheduleOptions::Aim::Step},
                                                                                  {"span", ScheduleOptions::Aim::Span}};

template <>
inline constexpr Choice<ScheduleOptions::MicroBatches> kChoices<ScheduleOptions::MicroBatches>[] = {
    {"given", ScheduleOptions::MicroBatches::Given}, {"any", ScheduleOptions::MicroBatches::Any}};

template <>
inline constexpr Choice<ScheduleOptions::Concatenation> kChoices<ScheduleOptions::Concatenation>[] = {
    {"direct", ScheduleOptions::Concatenation::Direct},
    {"forward-doubling", ScheduleOptions::Concatenation::ForwardDoubling}};

enum class Updates {
    PerStep,        // synchronous: the plan is one mini-batch, flushed
    PerMicroBatch,  // asynchronous: every micro-batch, or an even_share() of them, is a mini-batch
    PerMiniBatch,   // asynchronous: every shape.per_update micro-batches are a mini-batch
};

struct OrderCosts;  // schedules/orders/order_costs.h
struct Schedule;

// What a schedule orders, with its options.
struct Request {
    const Shape& shape;  // placed
    ScheduleOptions options = {};
    const OrderCosts* costs = nullptr;  // for rows with needs_costs
    const Schedule* schedule =
        nullptr;  // the row, for orders that read more of it: a row may be a part of its schedule
};

// Which training programs run a schedule: its name in torch.distributed.pipelining (empty: it has none), and whether
// Megatron-LM and DeepSpeed have it.
struct OtherPrograms {
    std::string_view pytorch = {};
    bool megatron = false, deepspeed = false;
};

struct Schedule {
    std::string_view name;
    std::string_view aliases = {};  // names that other tools use, separated by blanks
    std::string_view summary = {};
    std::string_view origin = "-";
    Placement placement = kLinear;
    int chunks = 1;  // stages per device unless the config says otherwise
    Updates updates = Updates::PerStep;
    std::span<const WeightPolicy> policies = kFlushed;  // the first is the default
    Prediction prediction = Prediction::None;           // the default
    // Formulas for people. p is the number of devices, d a device, m the number of micro-batches, v of stages per
    // device, N the group, k of slices. F, B, I and W are the times of forwards, backwards, backwards for inputs and
    // backwards for weights of all stages of a device. `bubble` is the idle time of a device in a step with equal
    // stages, `in_flight` the most micro-batches whose activations device d holds.
    std::string_view bubble = {}, in_flight = {};
    // Returns the compute tasks of every device, in order. Throws Error (BadInput) with the rule and, after "help:",
    // the nearest legal values if the schedule is not defined for the shape.
    std::vector<Tasks> (*orders)(const Request& request) = nullptr;
    int (*missing_gradients)(const Shape& shape, int stage) = nullptr;  // Plan::missing_gradients
    std::string_view one_stage = {};  // looped: the schedule that it equals with one stage on each device
    bool trains = true;               // has backwards, or else forwards only
    std::string_view option = {};     // the key of `pipeline` that only some schedules read
    bool takes_pairs = false;         // reads ScheduleOptions::pairs
    int slices = 0;            // of each micro-batch unless the config says otherwise, 0: whole micro-batches only
    bool needs_costs = false;  // orders by times or bytes, so that costs are computed first
    bool usual = false;        // programs that train on clusters have it, and searches for them try it
    OtherPrograms elsewhere = {};
    // With divided ends: the bytes that T moves for each logit to correct what S has computed before the sum over all
    // devices (sail-sg/VocabularyParallelism@6191c3b, megatron/core/tensor_parallel/vocab_output.py).
    double corrected = 0;

    bool cuts_sequences() const { return slices > 0; }  // orders slices of micro-batches (Shape::slices)
    bool asynchronous() const { return updates != Updates::PerStep; }
    // Each stage may have its own number of holders: a device has one stage, and the holders sum their gradients before
    // each update. Shape::copies gives all stages equally many, with any schedule.
    bool takes_replicas() const { return placement.replicas; }

    static constexpr WeightPolicy kFlushed[] = {WeightPolicy::Flush};
};

// Returns the rows of schedules for any stages.
std::span<const Schedule> schedules();
// Returns the rows of schedules that divide the first and the last layer among all devices (Placement::divides_ends()).
std::span<const Schedule> vocabulary_schedules();
// Returns the names of the schedules that train.
std::vector<std::string> training_schedules();
// Finds a schedule of either table by name or alias. Case, '-' and '_' do not matter. Throws Error (BadInput) with the
// nearest name and a list of all names.
const Schedule& schedule_named(std::string_view name);
// Returns the number of stages nearest to the shape's that the schedule can place on its devices: the shape's own if
// they fit. Each copy of a pipeline has all stages.
int legal_stages(const Schedule& schedule, const Shape& shape);

// Fills in the placement of stages. Returns false if the schedule cannot place that number.
bool place_stages(const Schedule& schedule, Shape& shape);

struct PlanOptions {
    ScheduleOptions schedule;
    std::optional<WeightPolicy> weights;  // absent: the schedule's default
    Prediction prediction = Prediction::None;
    Recomputation recompute;
    TransferMode transfers;  // the plan is proven in these lanes, under rendezvous
    // auto: the compute tasks of every device, in order, of a plan in use, which is kept unless the order found is
    // shorter
    std::vector<Tasks> current = {};
};

// Returns the fewest micro-batches that every stage divides evenly among its holders. Schedules that update as often as
// possible use it as mini-batch, so that all stages have processed the same samples at every update.
int even_share(const Shape& shape);

struct Proof;  // schedules/passes/passes.h
struct ProvenPlan {
    Plan plan;
    std::shared_ptr<const Proof> proof;
    // for a plan from a file that would deadlock under rendezvous: the error with the cycle
    std::string deadlock = {};
};

// A plan is made in three steps: placed() places its shape, its costs are computed if the schedule needs them, and
// ordered() orders its tasks. proven_plan() and make_plan() do all of it, without costs.

// Fills in the placement unless the shape has one (placement_of(replicas), a device per stage). Of Shape::copies r,
// device d of the k-th is device d * r + k of the shape. For schedules that never flush, the copies are replicas of
// every stage and no longer count as copies. Throws Error (BadInput) with the rule and, after "help:", the nearest
// legal values if the schedule is not defined for the shape.
Shape placed(const Schedule& schedule, Shape shape);
// Orders the tasks of a placed shape: the schedule's tasks, then U if the schedule has none, then transfers, then R,
// then the check. Throws as placed() does, and if the schedule needs costs and has none.
ProvenPlan ordered(const Schedule& schedule, Shape shape, const PlanOptions& options = {},
                   const OrderCosts* costs = nullptr);
// The same with these compute tasks of every device, in order, instead of the schedule's.
ProvenPlan with_order(const Schedule& schedule, Shape shape, std::vector<Tasks> order, const PlanOptions& options = {},
                      const OrderCosts* costs = nullptr);

ProvenPlan proven_plan(const Schedule& schedule, Shape shape, const PlanOptions& options = {});
Plan make_plan(const Schedule& schedule, Shape shape, const PlanOptions& options = {});

// Returns the name (and drain) of the schedule with exactly the same orders, if a looped schedule has one stage on each
// device. Otherwise returns an empty name.
std::string same_orders_as(const Schedule& schedule, const Shape& shape, const ScheduleOptions& options);

}  // namespace pw
