#include "job/plan.h"

#include "job/cost_source.h"
#include "job/plan_checks.h"
#include "job/settings.h"
#include "job/simulated_order.h"
#include "job/slices.h"
#include "schedules/csv/csv.h"
#include "schedules/memory/limits.h"
#include "schedules/orders/order_costs.h"
#include "schedules/passes/passes.h"
#include "schedules/plan/sum_groups.h"
#include "sim/early_recomputes.h"
#include "workloads/costs/micro_batch_sizes.h"
#include "workloads/error.h"
#include "workloads/models/frozen_layers.h"
#include "workloads/stages/ties.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace pw {

namespace {

bool is_file(const std::string& schedule) { return schedule.ends_with(".csv"); }

bool takes(const Schedule& schedule, WeightPolicy policy) {
    return std::find(schedule.policies.begin(), schedule.policies.end(), policy) != schedule.policies.end();
}

WeightPolicy policy_of(const Setup& setup, const Schedule& schedule) {
    const std::optional<WeightPolicy> asked = setup.pipeline.weights;
    std::string legal;
    for (const WeightPolicy policy : schedule.policies) {
        if (asked.value_or(policy) == policy)
            return policy;
        legal += (legal.empty() ? "" : " or ") + std::string(name_of(policy));
    }
    setup.fail_at("pipeline.weights",
                  fmt::format("schedule {} cannot use weight policy {}", schedule.name, name_of(*asked)),
                  fmt::format("leave pipeline.weights out, or set it to {}", legal));
}

[[noreturn]] void refuse_prediction(const Setup& setup, const std::string& fact) {
    std::string legal;
    for (const Schedule& schedule : schedules())
        if (takes(schedule, WeightPolicy::Latest))
            legal += (legal.empty() ? "" : " or ") + std::string(schedule.name);
    setup.fail_at("pipeline.prediction", fact,
                  fmt::format("leave pipeline.prediction out, or set pipeline.schedule: {} and pipeline.weights: {}",
                              legal, name_of(WeightPolicy::Latest)));
}

Prediction prediction_of(const Setup& setup, const Schedule& schedule, WeightPolicy policy) {
    const Prediction asked = setup.pipeline.prediction.value_or(schedule.prediction);
    if (asked == Prediction::None)
        return asked;
    if (policy != WeightPolicy::Latest)
        refuse_prediction(setup, fmt::format("schedule {} with weight policy {} predicts no weights", schedule.name,
                                             name_of(policy)));
    if (asked == Prediction::PipeMare) {
        if (setup.training.zero > 0)
            setup.fail_at(key_of_zero(setup),
                          fmt::format("{} corrects weights with an average of their steps, which replicas do not shard",
                                      name_of(asked)),
                          "remove the key, or write pipeline.prediction: none");
        return asked;
    }
    if (is_replicated(setup.pipeline))
        setup.fail_at("pipeline.prediction", fmt::format("{} is not defined for stages with replicas", name_of(asked)),
                      "leave pipeline.prediction or pipeline.replicas out");
    if (const OptimizerKind optimizer = setup.training.optimizer; !facts_of(optimizer).has_momentum)
        setup.fail_at(
            "pipeline.prediction",
            fmt::format("{} predicts weights from a momentum, and optimizer {} has none", name_of(asked),
                        name_of(optimizer)),
            fmt::format("leave pipeline.prediction out, or write training.optimizer: {}", name_of(OptimizerKind::Sgd)));
    return asked;
}

PlanOptions options_of(const Setup& setup, const Schedule& schedule) {
    PlanOptions options;
    options.schedule = setup.pipeline.options;
    options.weights = policy_of(setup, schedule);
    options.prediction = prediction_of(setup, schedule, *options.weights);
    options.recompute = setup.pipeline.recompute;
    options.transfers = setup.transfer;
    return options;
}

// A file has neither ties nor clipping: all its U, and the S of tied stages, move to where these require them.
void move_updates(Plan& plan) {
    for (std::vector<Task>& order : plan.order)
        std::erase_if(order, [&](const Task& task) {
            return task.op == Op::Update || (task.op == Op::SumGradients && is_tied(plan.shape, task.stage));
        });
    add_updates(plan);
}

// Proves a plan from a file under rendezvous, or else under the protocol of `mode`. With an eager limit, the sizes of
// messages are checked later.
ProvenPlan proven_file(CsvPlan csv, TransferMode mode) {
    TransferMode strictest = mode;
    strictest.protocol = TransferMode::Protocol::Rendezvous;
    strictest.eager_limit = 0;
    std::shared_ptr<const Proof> proof;
    std::string deadlock;
    try {
        proof = prove(csv, strictest);
    } catch (const Error& error) {
        if (error.code() != ExitCode::Infeasible)
            throw;
        if (mode == strictest)
            throw with_keys(error);
        deadlock = error.fact();
        mode.protocol = TransferMode::Protocol::Eager;
        proof = prove(csv, mode);
    }
    return {std::move(csv.plan), std::move(proof), std::move(deadlock)};
}

// Drops the backwards of stages that run forwards only. All remaining stages have backwards in the file.
void run_backwards_of(const Setup& setup, const StageLinks& links, Plan& plan) {
    for (const int stage : plan.shape.forwards_only)
        if (!std::ranges::binary_search(links.forwards_only, stage))
            setup.fail_at("pipeline.schedule",
                          fmt::format("'{}' has no backward of stage {}, and the stage or a stage before it is trained",
                                      plan.schedule, stage),
                          "add the backwards to the file, or freeze the layers (workload.frozen)");
    plan.shape.forwards_only = links.forwards_only;
    drop_backwards(plan);
}

ProvenPlan plan_of_file(const Setup& setup, const StageLinks& links, std::vector<std::string>* notices) {
    CsvPlan csv = read_csv(setup.pipeline.schedule, setup.transfer);
    if (notices != nullptr)
        notices->insert(notices->end(), csv.notices.begin(), csv.notices.end());
    const WeightPolicy weights = setup.pipeline.weights.value_or(WeightPolicy::Flush);
    if (weights != WeightPolicy::Flush)
        setup.fail_at("pipeline.weights",
                      fmt::format("a plan from a file is one flushed mini-batch and cannot use weight policy {}",
                                  name_of(weights)),
                      "leave pipeline.weights out");
    if (setup.pipeline.prediction.value_or(Prediction::None) != Prediction::None)
        refuse_prediction(setup, "a plan from a file predicts no weights");
    if (is_replicated(setup.pipeline))
        setup.fail_at("pipeline.replicas", "a plan from a file determines which devices hold a stage",
                      "leave pipeline.replicas out");
    const auto is_chained = [](const Edge& edge) { return edge.to == edge.from + 1; };
    if (links.edges && !std::all_of(links.edges->begin(), links.edges->end(), is_chained))
        setup.fail_at("pipeline.split", "a plan from a file sends to neighbours only, but this split skips stages",
                      "cut where one stage feeds only the next");
    if (setup.training.zero >= 2)
        setup.fail_at("training.zero", "a plan from a file may run the passes of a stage's devices at any times",
                      "choose a schedule by its name, or write zero: 1");
    if (links.edges && std::ssize(*links.edges) + 1 < csv.plan.shape.stages)
        setup.fail_at(
            "pipeline.split",
            "in a plan from a file every stage waits for the previous one, but in this split some read nothing from it",
            "cut where every stage feeds the next, or choose a schedule by its name");
    run_backwards_of(setup, links, csv.plan);
    add_recomputes(csv.plan, setup.pipeline.recompute);
    csv.plan.shape.ties = links.ties;
    csv.plan.shape.global_norm = clips_gradients(setup);
    if (!links.ties.empty() || clips_gradients(setup))
        move_updates(csv.plan);
    return proven_file(std::move(csv), executed_mode(setup));
}

}  // namespace

namespace {

const Schedule& own_or_named(const PipelineConfig& pipeline, std::string_view name) {
    const Schedule* const own = pipeline.own_schedule.get();
    return own != nullptr && own->name == name ? *own : schedule_named(name);
}

}  // namespace

const Schedule& schedule_named(const Setup& setup, std::string_view name) { return own_or_named(setup.pipeline, name); }

const Schedule& schedule_of(const Setup& setup) {
    try {
        return schedule_named(setup, setup.pipeline.schedule);
    } catch (const Error& error) {
        fail_at(setup, "pipeline.schedule", error, "see `pipewright list schedules`");
    }
}

int parts_of_ends(const Setup& setup) {
    return !is_file(setup.pipeline.schedule) && schedule_of(setup).placement.divides_ends()
               ? setup.pipeline.stages / schedule_of(setup).chunks
               : 1;
}

TransferMode executed_mode(const Setup& setup) {
    TransferMode mode = setup.transfer;
    if (cost_source_of(setup).has_kernels && !is_emulated(setup) && !mode.early_receive()) {
        mode.protocol = TransferMode::Protocol::Rendezvous;
        mode.eager_limit = 0;
    }
    return mode;
}

PlanDefaults defaults_of(const PipelineConfig& pipeline) {
    PlanDefaults defaults;
    if (is_file(pipeline.schedule)) {
        const Shape shape = read_csv(pipeline.schedule).plan.shape;
        defaults.stages = shape.stages;
        defaults.devices = shape.devices;
        defaults.micro_batches = shape.microbatches;
        return defaults;
    }
    try {
        defaults.chunks = own_or_named(pipeline, pipeline.schedule).chunks;
    } catch (const Error&) {  // making the plan reports the error at its key
    }
    return defaults;
}

StageLinks links_of(const LayerGraph& graph, const StageSplit& split) {
    StageLinks links{.edges = std::vector<Edge>{}, .ties = {}};
    for (int stage = 0; stage < split.stages(); ++stage) {
        const std::vector<int>& own = split.layers[stage];  // an empty stage passes tensors of the stage before it on
        if (own.empty() ? !links.forwards_only.empty() && links.forwards_only.back() == stage - 1
                        : std::ranges::none_of(own, [&](int layer) { return has_backward(graph[layer]); }))
            links.forwards_only.push_back(stage);
    }
    links.has_frozen = has_frozen_layers(graph);
    for (const Boundary& boundary : boundaries_of(graph, split))
        links.edges->push_back({boundary.from, boundary.to});
    for (const StageTie& tie : ties_of(graph, split))
        links.ties.push_back({tie.from, tie.to});
    return links;
}

namespace {

// Returns the shape of one pipeline with its placement as far as the config determines it; without stages if its keys
// contradict each other.
Shape placed_shape(const Setup& setup) {
    if (is_file(setup.pipeline.schedule))
        return read_csv(setup.pipeline.schedule).plan.shape;
    Shape shape;
    const int copies = setup.pipeline.copies;
    shape.devices = static_cast<int>(setup.cluster.devices.size()) / copies;
    shape.stages = setup.pipeline.stages;
    const Schedule& schedule = schedule_of(setup);
    const bool listed = copies == 1 && is_replicated(setup.pipeline);
    return listed || shape.devices == 0 || !place_stages(schedule, shape) ? Shape{} : shape;
}

}  // namespace

StageHolders holders_of_stages(const Setup& setup, const std::vector<double>& speeds_of_makes) {
    const Shape shape = placed_shape(setup);
    if (shape.stages == 0 || shape.stages != setup.pipeline.stages)
        return {};
    StageHolders stages;
    for (int stage = 0; stage < shape.stages; ++stage) {
        const std::vector<int> holders = shape.devices_of(stage);
        if (holders.size() != 1)
            return {};
        stages.device_of.push_back(holders.front());
    }
    const std::vector<DeviceConfig>& devices = setup.cluster.devices;
    stages.speed.assign(static_cast<std::size_t>(shape.devices), std::numeric_limits<double>::infinity());
    for (std::size_t device = 0; device < devices.size(); ++device) {
        double& speed = stages.speed[device * stages.speed.size() / devices.size()];
        const double of_make =
            speeds_of_makes.empty() ? 1 : speeds_of_makes[static_cast<std::size_t>(devices[device].make)];
        speed = std::min(speed, devices[device].speed * of_make);
    }
    return stages;
}

namespace {

// Returns the compute tasks of the plan in use, which has this shape.
std::vector<Tasks> current_tasks(const Setup& setup, const Shape& shape) {
    const std::string& path = setup.pipeline.current_plan;
    const auto refuse = [&](const std::string& fact) {
        setup.fail_at("pipeline.current_plan", fmt::format("{}: {}", path, fact),
                      "export the plan of this pipeline with pipewright plan, or remove the key");
    };
    const auto size = [](const Shape& of) {
        return fmt::format("{} devices, {} stages and {} micro-batches", of.devices, of.stages, of.microbatches);
    };
    const Plan plan = read_csv(path, setup.transfer).plan;
    if (size(plan.shape) != size(shape))
        refuse(fmt::format("the plan has {}, this pipeline {}", size(plan.shape), size(shape)));
    std::vector<Tasks> tasks = plan.order;
    for (int device = 0; device < shape.devices; ++device) {
        std::erase_if(tasks[device], [](const Task& task) { return task.op != Op::Forward && !is_backward(task.op); });
        for (const Task& task : tasks[device])
            if (const int server = shape.server_of(task.stage, task.microbatch); server != device)
                refuse(fmt::format("the plan runs stage {} of micro-batch {} on device {}, schedule {} on device {}",
                                   task.stage, task.microbatch, device, setup.pipeline.schedule, server));
        if (std::none_of(tasks[device].begin(), tasks[device].end(),
                         [](const Task& task) { return is_backward(task.op); }))
            refuse(fmt::format("the plan has no backwards on device {}", device));
    }
    return tasks;
}

std::vector<Bytes> memory_of(const Setup& setup) {
    std::vector<Bytes> memory;
    for (const DeviceConfig& device : setup.cluster.devices)
        memory.push_back(device.memory);
    return memory;
}

// Weights of several versions are versions of whole stages.
void check_frozen(const Setup& setup, const Schedule& schedule, const StageLinks& links) {
    if (links.has_frozen && schedule.asynchronous())
        setup.fail_at("pipeline.schedule",
                      fmt::format("schedule {} never flushes: it keeps versions of all weights of a stage, and layers "
                                  "of this model are frozen",
                                  schedule.name),
                      "choose a schedule that flushes, such as 1f1b");
}

Shape unplaced_shape(const Setup& setup, const Schedule& schedule, const StageLinks& links, int steps) {
    check_frozen(setup, schedule, links);
    Shape shape;
    shape.devices = static_cast<int>(setup.cluster.devices.size());
    shape.stages = setup.pipeline.stages;
    const int mini_batches = schedule.asynchronous() ? steps : 1;
    shape.slices = slices_of(setup, schedule);
    shape.microbatches = at_its_place(
        setup, [&] { return microbatches_of_plan(setup.pipeline.micro_batches, mini_batches, shape.slices); });
    shape.per_update = schedule.updates == Updates::PerMiniBatch ? setup.pipeline.micro_batches : 0;
    shape.edges = links.edges;
    shape.ties = links.ties;
    shape.forwards_only = links.forwards_only;
    shape.global_norm = clips_gradients(setup);
    shape.copies = setup.pipeline.copies;
    if (shape.copies == 1 && is_replicated(setup.pipeline))
        shape.placement = placement_of(setup.pipeline.replicas);
    check_stages(setup, schedule, shape);
    check_mini_batch(setup, schedule);
    check_even_share(setup, schedule, shape, steps);
    return shape;
}

// Calls `make`, and reports the errors of the schedule at the keys of the config.
template <class Make>
auto at_its_keys(const Setup& setup, const StageLinks& links, const Schedule& schedule, const Shape& shape, Make make) {
    try {
        return make();
    } catch (const Error& error) {
        if (error.code() != ExitCode::BadInput)
            throw with_keys(error);
        refuse_plan(setup, links, schedule, shape, error);
    }
}

Shape placed_shape(const Setup& setup, const Schedule& schedule, const StageLinks& links, const Shape& shape) {
    Shape where = at_its_keys(setup, links, schedule, shape, [&] { return placed(schedule, shape); });
    check_zero(setup, schedule, where);
    return where;
}

}  // namespace

Shape shape_of(const Setup& setup, const StageLinks& links, int steps) {
    const Schedule& schedule = schedule_of(setup);
    return placed_shape(setup, schedule, links, unplaced_shape(setup, schedule, links, steps));
}

Plan make_plan(const Setup& setup, const StageLinks& links, int steps) { return proven_plan(setup, links, steps).plan; }

namespace {

ProvenPlan plan_of_schedule(const Setup& setup, const StageLinks& links, int steps, const CostsOfShape& costs_of,
                            std::vector<std::string>* notices) {
    const Schedule& schedule = schedule_of(setup);
    const Shape shape = unplaced_shape(setup, schedule, links, steps);
    const Shape where = placed_shape(setup, schedule, links, shape);
    PlanOptions options = options_of(setup, schedule);
    std::optional<OrderCosts> costs;
    if (schedule.needs_costs && costs_of) {
        if (!setup.pipeline.current_plan.empty())
            options.current = current_tasks(setup, where);
        Costs all = costs_of(where);
        costs = order_costs(where, all, memory_of(setup), options.recompute);
        if (options.schedule.effort >= 1)
            costs->simulate = [&, all = std::move(all), mode = executed_mode(setup)](const std::vector<Tasks>& order) {
                try {
                    return simulated_order(with_order(schedule, where, order, options, &*costs), all, mode,
                                           memory_of(setup));
                } catch (const Error&) {  // it would wait forever in its lanes
                    return SimulatedOrder{{}, false};
                }
            };
    }
    return at_its_keys(setup, links, schedule, shape, [&] {
        ProvenPlan proven = ordered(schedule, where, options, costs ? &*costs : nullptr);
        const std::string other = same_orders_as(schedule, proven.plan.shape, options.schedule);
        if (notices != nullptr && !other.empty())
            notices->push_back(fmt::format("one stage per device: {} is {} here", schedule.name, other));
        return proven;
    });
}

// Proves the plan again with R in other places of the lists.
void move_recomputes(const Setup& setup, ProvenPlan& proven, const CostsOfShape& costs_of) {
    proven.plan =
        with_early_recomputes(proven.plan, costs_of(proven.plan.shape), executed_mode(setup), memory_of(setup));
    proven.proof = check(proven.plan, proven.proof->mode);
}

}  // namespace

ProvenPlan proven_plan(const Setup& setup, const StageLinks& links, int steps, const CostsOfShape& costs_of,
                       std::vector<std::string>* notices) {
    ProvenPlan proven = is_file(setup.pipeline.schedule) ? plan_of_file(setup, links, notices)
                                                         : plan_of_schedule(setup, links, steps, costs_of, notices);
    if (setup.pipeline.recompute.ahead == Recomputation::kByCosts && costs_of)
        move_recomputes(setup, proven, costs_of);
    if (const Offloading& offload = setup.pipeline.offload; !offload.is_empty()) {
        if (!offload.states.empty() && proven.plan.asynchronous)
            setup.fail_at(
                "pipeline.offload_states",
                fmt::format("schedule {} never flushes: stages are updated all the time", proven.plan.schedule),
                "remove the key, or choose a schedule that flushes, such as 1f1b");
        if (!offload.stages.empty() && proven.plan.shape.slices > 1)
            setup.fail_at("pipeline.offload",
                          "later slices read the keys and values of earlier slices, which offloaded stages do not keep",
                          "leave pipeline.offload out, or write slices: 1");
        add_offloads(proven.plan, offload);
        TransferMode mode = proven.proof->mode;
        mode.copies = TransferMode::Copies::InTurn;  // a plan whose copies run in turn does not hang both ways
        proven.proof = check(proven.plan, mode);
    }
    return proven;
}

}  // namespace pw
