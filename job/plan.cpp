#include "job/plan.h"

#include "job/cost_source.h"
#include "job/settings.h"
#include "schedules/csv/csv.h"
#include "schedules/memory/limits.h"
#include "schedules/orders/order_costs.h"
#include "schedules/passes/passes.h"
#include "schedules/plan/sum_groups.h"
#include "workloads/costs/micro_batch_sizes.h"
#include "workloads/error.h"
#include "workloads/stages/ties.h"

#include <algorithm>
#include <initializer_list>
#include <limits>
#include <numeric>
#include <utility>

namespace pw {

namespace {

bool is_file(const std::string& schedule) { return schedule.ends_with(".csv"); }

bool takes(const Schedule& schedule, WeightPolicy policy) {
    return std::find(schedule.policies.begin(), schedule.policies.end(), policy) != schedule.policies.end();
}

WeightPolicy policy_of(const Config& config, const Schedule& schedule) {
    const std::optional<WeightPolicy> asked = config.pipeline.weights;
    std::string legal;
    for (const WeightPolicy policy : schedule.policies) {
        if (asked.value_or(policy) == policy)
            return policy;
        legal += (legal.empty() ? "" : " or ") + std::string(name_of(policy));
    }
    config.fail_at("pipeline.weights",
                   fmt::format("schedule {} cannot use weight policy {}", schedule.name, name_of(*asked)),
                   fmt::format("leave pipeline.weights out, or set it to {}", legal));
}

[[noreturn]] void refuse_prediction(const Config& config, const std::string& fact) {
    std::string legal;
    for (const Schedule& schedule : schedules())
        if (takes(schedule, WeightPolicy::Latest))
            legal += (legal.empty() ? "" : " or ") + std::string(schedule.name);
    config.fail_at("pipeline.prediction", fact,
                   fmt::format("leave pipeline.prediction out, or set pipeline.schedule: {} and pipeline.weights: {}",
                               legal, name_of(WeightPolicy::Latest)));
}

Prediction prediction_of(const Config& config, const Schedule& schedule, WeightPolicy policy) {
    const Prediction asked = config.pipeline.prediction;
    if (asked == Prediction::None)
        return asked;
    if (policy != WeightPolicy::Latest)
        refuse_prediction(config, fmt::format("schedule {} with weight policy {} predicts no weights", schedule.name,
                                              name_of(policy)));
    if (is_replicated(config.pipeline))
        config.fail_at("pipeline.prediction", fmt::format("{} is not defined for stages with replicas", name_of(asked)),
                       "leave pipeline.prediction or pipeline.replicas out");
    if (const OptimizerKind optimizer = config.training.optimizer; !facts_of(optimizer).has_momentum)
        config.fail_at(
            "pipeline.prediction",
            fmt::format("{} predicts weights from a momentum, and optimizer {} has none", name_of(asked),
                        name_of(optimizer)),
            fmt::format("leave pipeline.prediction out, or write training.optimizer: {}", name_of(OptimizerKind::Sgd)));
    return asked;
}

PlanOptions options_of(const Config& config, const Schedule& schedule) {
    PlanOptions options;
    options.schedule.drain = config.pipeline.drain;
    options.schedule.group = config.pipeline.group;
    options.weights = policy_of(config, schedule);
    options.prediction = prediction_of(config, schedule, *options.weights);
    options.recompute = config.pipeline.recompute;
    options.transfers = config.transfer;
    return options;
}

// Returns the last of these keys that --set changed, which is the likely mistake; else the first.
std::string overriding(const Config& config, std::initializer_list<std::string> keys) {
    const auto set_of = [&](const std::string& key) {
        const auto found = config.places.find(key);
        return found == config.places.end() ? 0 : found->second.set;
    };
    std::string last = *keys.begin();
    for (const std::string& key : keys)
        if (set_of(key) > set_of(last))
            last = key;
    return config.places.contains(last) ? last : "pipeline.schedule";
}

// "set workload.stages to 8": all keys that give the number of stages must agree.
std::string help_for_count(const Config& config, int stages) {
    constexpr const char* kLists[] = {
        "workload.forward", "workload.backward_input", "workload.backward_weight",         "workload.activation",
        "workload.output",  "workload.weights",        "workload.activation_until_weight", "pipeline.replicas"};
    std::vector<std::string> numbers, lists;
    for (const char* key : {"workload.stages", "pipeline.stages"})
        if (config.places.contains(key))
            numbers.emplace_back(key);
    for (const char* key : kLists)
        if (config.places.contains(fmt::format("{}[0]", key)))
            lists.emplace_back(key);
    const bool cut = !config.pipeline.cuts.empty() || !config.pipeline.lists.empty();
    if (numbers.empty() && lists.empty() && !cut)
        numbers.emplace_back("pipeline.stages");
    std::vector<std::string> parts;
    if (!numbers.empty())
        parts.push_back(fmt::format("set {} to {}", fmt::join(numbers, " and "), stages));
    if (!lists.empty())
        parts.push_back(fmt::format("list {} values in {}", stages, fmt::join(lists, " and ")));
    if (cut)
        parts.push_back(fmt::format("make {} stages in pipeline.split", stages));
    return fmt::format("{}", fmt::join(parts, " and "));
}

// Returns the number of devices of a pipeline nearest to the shape's that the schedule can fill with these stages; 0 if
// there is none.
int devices_for(const Schedule& schedule, const Shape& shape) {
    const int own = shape.devices / shape.copies;
    for (int distance = 0; distance < std::max(own, shape.stages); ++distance)
        for (const int devices : {own - distance, own + distance}) {
            Shape other = shape;
            other.devices = devices * shape.copies;
            if (devices > 0 && devices <= shape.stages && legal_stages(schedule, other) == shape.stages)
                return devices;
        }
    return 0;
}

// Returns how the schedule uses all devices for these stages with replicas; empty if it does not.
std::string help_for_replicas(const Schedule& schedule, const Shape& shape) {
    const int each = (shape.devices + shape.stages - 1) / shape.stages;
    if (shape.copies > 1 || shape.devices <= shape.stages || schedule.asynchronous() || each > shape.microbatches)
        return "";
    if (!schedule.takes_replicas()) {
        Shape pipelines = shape;
        pipelines.copies = shape.devices * schedule.chunks / shape.stages;
        return pipelines.copies * shape.stages == shape.devices * schedule.chunks &&
                       legal_stages(schedule, pipelines) == shape.stages
                   ? fmt::format(", or train replicas of the pipeline: pipeline.replicas: {}", pipelines.copies)
                   : "";
    }
    if (shape.stages > 16)
        return "";
    std::vector<int> replicas(static_cast<std::size_t>(shape.stages), shape.devices / shape.stages);
    for (int stage = 0; stage < shape.devices % shape.stages; ++stage)
        ++replicas[static_cast<std::size_t>(stage)];
    return fmt::format(", or share each stage among devices: pipeline.replicas: [{}]", fmt::join(replicas, ", "));
}

// Returns the help for a schedule that cannot place the stages: more or fewer stages, other devices, or replicas if
// devices are left over.
std::string help_for_stages(const Config& config, const Schedule& schedule, const Shape& shape) {
    std::string text = help_for_count(config, std::max(legal_stages(schedule, shape), shape.devices / shape.copies));
    const bool counted = config.places.contains("cluster.devices") && !config.places.contains("cluster.devices[0]");
    if (const int devices = devices_for(schedule, shape); counted && devices > 0)
        text += fmt::format(", or cluster.devices to {}", devices * shape.copies);
    text += help_for_replicas(schedule, shape);
    return cost_source_of(config).has_layers ? text : text + " (the times in 'workload' are those of a stage)";
}

// A split whose number of stages does not fit the devices is a mistake unless pipeline.stages confirms it. With
// replicas the number of devices follows from them.
void check_stages(const Config& config, const Schedule& schedule, const Shape& shape) {
    if (!shape.placement.empty())
        return;
    const int devices = shape.devices / shape.copies;
    const std::string of_each = shape.copies > 1 ? fmt::format(" of each of {} replicas", shape.copies) : "";
    const int expected = devices * schedule.chunks;
    if (config.places.contains("cluster.devices") && !config.places.contains("pipeline.stages") &&
        config.places.contains("pipeline.split") && shape.stages != expected)
        config.fail_at(
            "pipeline.split", fmt::format("the split makes {} stages for {} devices{}", shape.stages, devices, of_each),
            fmt::format("schedule {} takes {} per device: split into {}, or set pipeline.stages: {} if "
                        "a device may hold another number",
                        schedule.name, schedule.chunks == 1 ? "one stage" : "two stages", expected, shape.stages));
    if (devices > shape.stages)
        config.fail_at(
            overriding(config, {"cluster.devices", "pipeline.schedule", "pipeline.stages", "workload.stages"}),
            fmt::format("{} devices{} for {} stages", devices, of_each, shape.stages),
            help_for_stages(config, schedule, shape));
}

void check_mini_batch(const Config& config, const Schedule& schedule) {
    const MicroBatchSizes sizes = sizes_of(config.pipeline);
    if (schedule.updates == Updates::PerMicroBatch && !sizes.is_even())
        config.fail_at("pipeline.mini_batch",
                       fmt::format("schedule {} updates after every micro-batch, but the last would have {} samples "
                                   "instead of {}",
                                   schedule.name, sizes.last(), sizes.full),
                       fmt::format("write mini_batch: {}, leave it out, or choose a schedule that updates once per "
                                   "mini-batch, such as 1f1b or pipedream-2bw",
                                   std::int64_t{sizes.per_mini_batch} * sizes.full));
}

bool clips_gradients(const Config& config) { return config.training.clip_norm > 0; }

// A file has neither ties nor clipping: all its U, and the S of tied stages, move to where these require them.
void move_updates(Plan& plan) {
    for (std::vector<Task>& order : plan.order)
        std::erase_if(order, [&](const Task& task) {
            return task.op == Op::Update || (task.op == Op::SumGradients && is_tied(plan.shape, task.stage));
        });
    add_updates(plan);
}

// If the replicas divide a mini-batch evenly, each of them has micro-batches, and the mini-batch ends with a step.
void check_even_share(const Config& config, const Schedule& schedule, const Shape& shape, int steps) {
    const int share = even_share(shape);
    if (schedule.updates != Updates::PerMicroBatch || shape.microbatches % share == 0)
        return;
    const int each = share / std::gcd(share, steps);  // so that all steps together are whole mini-batches
    const std::int64_t legal = (std::int64_t{config.pipeline.micro_batches} + each - 1) / each * each;
    config.fail_at(
        "pipeline.micro_batches",
        fmt::format("{} steps of {} micro-batches are no whole number of updates: the replicas update every {}, the "
                    "fewest that each stage divides evenly",
                    steps, config.pipeline.micro_batches, share),
        fmt::format("set pipeline.micro_batches to {}, or choose other replicas", legal));
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

ProvenPlan plan_of_file(const Config& config, const StageLinks& links, std::vector<std::string>* notices) {
    CsvPlan csv = read_csv(config.pipeline.schedule, config.transfer);
    if (notices != nullptr)
        notices->insert(notices->end(), csv.notices.begin(), csv.notices.end());
    const WeightPolicy weights = config.pipeline.weights.value_or(WeightPolicy::Flush);
    if (weights != WeightPolicy::Flush)
        config.fail_at("pipeline.weights",
                       fmt::format("a plan from a file is one flushed mini-batch and cannot use weight policy {}",
                                   name_of(weights)),
                       "leave pipeline.weights out");
    if (config.pipeline.prediction != Prediction::None)
        refuse_prediction(config, "a plan from a file predicts no weights");
    if (is_replicated(config.pipeline))
        config.fail_at("pipeline.replicas", "a plan from a file determines which devices hold a stage",
                       "leave pipeline.replicas out");
    const auto is_chained = [](const Edge& edge) { return edge.to == edge.from + 1; };
    if (links.edges && !std::all_of(links.edges->begin(), links.edges->end(), is_chained))
        config.fail_at("pipeline.split", "a plan from a file sends to neighbours only, but this split skips stages",
                       "cut where one stage feeds only the next");
    if (links.edges && std::ssize(*links.edges) + 1 < csv.plan.shape.stages)
        config.fail_at(
            "pipeline.split",
            "in a plan from a file every stage waits for the previous one, but in this split some read nothing from it",
            "cut where every stage feeds the next, or choose a schedule by its name");
    add_recomputes(csv.plan, config.pipeline.recompute);
    csv.plan.shape.ties = links.ties;
    csv.plan.shape.global_norm = clips_gradients(config);
    if (!links.ties.empty() || clips_gradients(config))
        move_updates(csv.plan);
    return proven_file(std::move(csv), executed_mode(config));
}

// Throws the error of a schedule about a plan at the key that caused it, with a help for this config.
[[noreturn]] void refuse_plan(const Config& config, const StageLinks& links, const Schedule& schedule,
                              const Shape& shape, const Error& error) {
    const std::string& fact = error.fact();
    const std::vector<Setting>& settings = error.settings();
    if (config.pipeline.copies == 1 && is_replicated(config.pipeline) && !schedule.takes_replicas())
        config.fail_at("pipeline.replicas", fact,
                       "write one number, which makes replicas of the whole pipeline, leave pipeline.replicas out, or "
                       "choose one of these schedules");
    if (schedule.asynchronous() && !links.ties.empty())
        config.fail_at("pipeline.split", fact, "keep both layers in one stage, or choose a schedule that flushes");
    if (schedule.asynchronous() && clips_gradients(config))
        config.fail_at("training.clip_norm", fact, "leave training.clip_norm out, or choose a schedule that flushes");
    if (shape.placement.empty() && legal_stages(schedule, shape) != shape.stages)
        config.fail_at(
            overriding(config, {"pipeline.schedule", "cluster.devices", "pipeline.stages", "workload.stages"}), fact,
            help_for_stages(config, schedule, shape));
    const bool counts = std::find(settings.begin(), settings.end(), Setting::MicroBatches) != settings.end();
    const std::string also = counts && config.places.contains("pipeline.mini_batch")
                                 ? "; pipeline.mini_batch also sets their number: change both, or remove it"
                                 : "";
    const std::string key = settings.empty() ? "pipeline.schedule" : key_of(settings.front());
    config.fail_at(
        overriding(config, {key, "pipeline.schedule", "cluster.devices"}), fact,
        error.help().empty() ? "choose another schedule: `pipewright list schedules`" : help_with_keys(error) + also);
}

}  // namespace

const Schedule& schedule_named(const Config& config, std::string_view name) {
    const Schedule* const own = config.pipeline.own_schedule;
    return own != nullptr && own->name == name ? *own : schedule_named(name);
}

const Schedule& schedule_of(const Config& config) {
    try {
        return schedule_named(config, config.pipeline.schedule);
    } catch (const Error& error) {
        fail_at(config, "pipeline.schedule", error, "see `pipewright list schedules`");
    }
}

TransferMode executed_mode(const Config& config) {
    TransferMode mode = config.transfer;
    if (cost_source_of(config).has_kernels && !is_emulated(config) && !mode.early_receive()) {
        mode.protocol = TransferMode::Protocol::Rendezvous;
        mode.eager_limit = 0;
    }
    return mode;
}

PlanDefaults defaults_of(const std::string& schedule) {
    PlanDefaults defaults;
    if (is_file(schedule)) {
        const Shape shape = read_csv(schedule).plan.shape;
        defaults.stages = shape.stages;
        defaults.devices = shape.devices;
        defaults.micro_batches = shape.microbatches;
        return defaults;
    }
    try {
        defaults.chunks = schedule_named(schedule).chunks;
    } catch (const Error&) {  // making the plan reports the error at its key
    }
    return defaults;
}

StageLinks links_of(const LayerGraph& graph, const StageSplit& split) {
    StageLinks links{.edges = std::vector<Edge>{}, .ties = {}};
    for (const Boundary& boundary : boundaries_of(graph, split))
        links.edges->push_back({boundary.from, boundary.to});
    for (const StageTie& tie : ties_of(graph, split))
        links.ties.push_back({tie.from, tie.to});
    return links;
}

namespace {

// Returns the shape of one pipeline with its placement as far as the config determines it; without stages if its keys
// contradict each other.
Shape placed_shape(const Config& config) {
    if (is_file(config.pipeline.schedule))
        return read_csv(config.pipeline.schedule).plan.shape;
    Shape shape;
    const int copies = config.pipeline.copies;
    shape.devices = static_cast<int>(config.cluster.devices.size()) / copies;
    shape.stages = config.pipeline.stages;
    const Schedule& schedule = schedule_of(config);
    const bool listed = copies == 1 && is_replicated(config.pipeline);
    return listed || shape.devices == 0 || !place_stages(schedule, shape) ? Shape{} : shape;
}

}  // namespace

StageHolders holders_of_several(const Config& config) {
    const Shape shape = placed_shape(config);
    if (shape.stages != config.pipeline.stages || shape.stages <= shape.devices)
        return {};
    StageHolders several;
    for (int stage = 0; stage < shape.stages; ++stage) {
        const std::vector<int> holders = shape.devices_of(stage);
        if (holders.size() != 1)
            return {};
        several.device_of.push_back(holders.front());
    }
    const std::vector<DeviceConfig>& devices = config.cluster.devices;
    several.speed.assign(static_cast<std::size_t>(shape.devices), std::numeric_limits<double>::infinity());
    for (std::size_t device = 0; device < devices.size(); ++device) {
        double& speed = several.speed[device * several.speed.size() / devices.size()];
        speed = std::min(speed, devices[device].speed);
    }
    return several;
}

namespace {

std::vector<Bytes> memory_of(const Config& config) {
    std::vector<Bytes> memory;
    for (const DeviceConfig& device : config.cluster.devices)
        memory.push_back(device.memory);
    return memory;
}

// Returns the shape of a config, not placed yet.
Shape shape_of(const Config& config, const Schedule& schedule, const StageLinks& links, int steps) {
    Shape shape;
    shape.devices = static_cast<int>(config.cluster.devices.size());
    shape.stages = config.pipeline.stages;
    const int mini_batches = schedule.asynchronous() ? steps : 1;
    shape.microbatches =
        at_its_place(config, [&] { return microbatches_of_plan(config.pipeline.micro_batches, mini_batches); });
    shape.per_update = schedule.updates == Updates::PerMiniBatch ? config.pipeline.micro_batches : 0;
    shape.edges = links.edges;
    shape.ties = links.ties;
    shape.global_norm = clips_gradients(config);
    shape.copies = config.pipeline.copies;
    if (shape.copies == 1 && is_replicated(config.pipeline))
        shape.placement = placement_of(config.pipeline.replicas);
    check_stages(config, schedule, shape);
    check_mini_batch(config, schedule);
    check_even_share(config, schedule, shape, steps);
    return shape;
}

}  // namespace

Plan make_plan(const Config& config, const StageLinks& links, int steps) {
    return proven_plan(config, links, steps).plan;
}

ProvenPlan proven_plan(const Config& config, const StageLinks& links, int steps, const CostsOfShape& costs_of,
                       std::vector<std::string>* notices) {
    if (is_file(config.pipeline.schedule))
        return plan_of_file(config, links, notices);
    const Schedule& schedule = schedule_of(config);
    const Shape shape = shape_of(config, schedule, links, steps);
    const PlanOptions options = options_of(config, schedule);
    const auto at_its_key = [&](const auto& make) {
        try {
            return make();
        } catch (const Error& error) {
            if (error.code() != ExitCode::BadInput)
                throw with_keys(error);
            refuse_plan(config, links, schedule, shape, error);
        }
    };
    Shape where = at_its_key([&] { return placed(schedule, shape); });
    std::optional<OrderCosts> costs;
    if (schedule.needs_costs && costs_of)
        costs = order_costs(where, costs_of(where), memory_of(config));
    return at_its_key([&] {
        ProvenPlan proven = ordered(schedule, std::move(where), options, costs ? &*costs : nullptr);
        const std::string other = same_orders_as(schedule, proven.plan.shape, options.schedule);
        if (notices != nullptr && !other.empty())
            notices->push_back(fmt::format("one stage per device: {} is {} here", schedule.name, other));
        return proven;
    });
}

}  // namespace pw
