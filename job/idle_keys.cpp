#include "job/idle_keys.h"

#include "job/config/blocks.h"
#include "job/cost_source.h"
#include "job/job.h"
#include "job/plan.h"
#include "job/slices.h"
#include "schedules/orders/schedule.h"
#include "schedules/plan/sum_groups.h"
#include "workloads/data/data_sources.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <string>
#include <utility>

namespace pw {
namespace {

using Objective = SearchConfig::Objective;

enum class Read { Always, ByPlans, BySearches };

struct KeyRow {
    std::string_view key;
    Read read;
    // Returns why the key has no effect, or nothing if it has one. The plan is null for a search.
    std::string (*why_idle)(const Config& config, const Plan* plan);
};

std::string model_name(const Config& config) {
    return is_uniform(config) || find_model(config.workload.model) != nullptr
               ? fmt::format("model: {}", config.workload.model)
               : std::filesystem::path(config.workload.model).filename().string();
}

// Returns the built-in model of a config, or null if nothing reads data.
const BuiltInModel* model_with_data(const Config& config) {
    const BuiltInModel* model = find_model(config.workload.model);
    return model == nullptr || model->build == nullptr ? nullptr : model;
}

std::string no_data(const Config& config, const Plan*) {
    return model_with_data(config) == nullptr ? fmt::format("{} has times and reads no data", model_name(config)) : "";
}

std::string no_path(const Config& config, const Plan* plan) {
    if (model_with_data(config) == nullptr)
        return no_data(config, plan);
    const DataSource& source = data_source(config.workload.dataset);
    return source.open == nullptr ? fmt::format("dataset: {} has no files", source.name) : "";
}

std::string no_images(const Config& config, const Plan*) {
    const BuiltInModel* model = find_model(config.workload.model);
    return model == nullptr || !reads_images(*model) ? fmt::format("{} reads no images", model_name(config)) : "";
}

std::string no_classes(const Config& config, const Plan*) {
    const BuiltInModel* model = model_with_data(config);
    return model == nullptr || model->labels == Labels::PerToken ? fmt::format("{} has no classes", model_name(config))
                                                                 : "";
}

std::string no_rates(const Config& config, const Plan*) {
    switch (cost_source_of(config).source) {
        case CostSource::Uniform:
        case CostSource::File:
            return fmt::format("{} has its own times", model_name(config));
        case CostSource::Measured:
            return "times are those of cluster.profile";
        case CostSource::Shapes:
        case CostSource::Analytic:
            break;
    }
    return {};
}

std::string unread_option(const Config& config, std::string_view option) {
    std::vector<std::string_view> readers;
    for (const Schedule& schedule : schedules())
        if (schedule.option == option)
            readers.push_back(schedule.name);
    const std::string& name = config.pipeline.schedule;
    if (name.ends_with(".csv"))
        return "the plan is in a file";
    if (schedule_of(config).option == option)
        return "";
    const std::string_view last = readers.back();
    readers.pop_back();
    const std::string others = readers.empty() ? "" : fmt::format("{} and ", fmt::join(readers, ", "));
    return fmt::format("schedule {} does not read it ({}{} {})", name, others, last, readers.empty() ? "does" : "do");
}

std::string no_auto(const Config& config, const Plan*) { return unread_option(config, "activations"); }

std::string no_order_of_lengths(const Config& config, const Plan* plan) {
    return config.pipeline.micro_batch_lengths.empty() ? "all micro-batches are equal (pipeline.micro_batch_lengths)"
                                                       : no_auto(config, plan);
}

std::string no_recomputed_stages(const Config& config, const Plan*) {
    return config.pipeline.recompute.stages.empty() ? "no stage is recomputed (pipeline.recompute)" : "";
}

std::string no_recomputed_layers(const Config& config, const Plan* plan) {
    return is_uniform(config) ? fmt::format("{} has no layers", model_name(config))
                              : no_recomputed_stages(config, plan);
}

bool has(const Plan& plan, Op op) {
    return std::ranges::any_of(plan.order, [&](const std::vector<Task>& order) {
        return std::ranges::find(order, op, &Task::op) != order.end();
    });
}

std::string no_offloads(const Config& config, const Plan* plan) {
    return has(*plan, Op::Offload) ? ""
           : config.pipeline.offload.stages.empty()
               ? "no stage is offloaded (pipeline.offload)"
               : "no micro-batch waits long enough for its backward to leave its device";
}

std::string no_stores(const Config& config, const Plan* plan) {
    return has(*plan, Op::Store) ? ""
           : config.pipeline.offload.states.empty()
               ? "no optimizer states are offloaded (pipeline.offload_states)"
               : "no device runs enough tasks before an update for its states to leave it";
}

std::string no_copies(const Config& config, const Plan* plan) {
    return std::ranges::any_of(plan->order, has_copies) ? ""
           : config.pipeline.offload.states.empty()     ? no_offloads(config, plan)
                                                        : no_stores(config, plan);
}

std::string no_offload(const Config& config, const Plan* plan) {
    return config.pipeline.offload.stages.empty() ? "" : no_offloads(config, plan);
}

std::string no_offloaded_states(const Config& config, const Plan* plan) {
    return config.pipeline.offload.states.empty() ? "" : no_stores(config, plan);
}

std::string no_offloaded_layers(const Config& config, const Plan* plan) {
    return is_uniform(config) ? fmt::format("{} has no layers", model_name(config)) : no_offloads(config, plan);
}

std::string no_searched_recomputation(const Config& config, const Plan*) {
    const bool none = config.search.recompute == SearchConfig::Recompute::None;
    return none && !searches_cluster(config) ? "no stage is recomputed (search.recompute)" : "";
}

std::string no_searched_offload(const Config& config, const Plan*) {
    return config.search.offload == SearchConfig::Recompute::None ? "no stage is offloaded (search.offload)" : "";
}

std::string no_searched_slices(const Config& config, const Plan*) {
    if (config.search.objective != SearchConfig::Objective::Makespan)
        return "";  // by the key's limit
    std::vector<std::string> schedules = config.search.schedules;
    if (searches_all_schedules(config.search))
        return searches_cluster(config) ? "" : "all schedules of a layer graph have whole micro-batches";
    if (schedules.empty() && !searches_cluster(config))
        schedules = {config.pipeline.schedule};
    const bool cuts =
        std::ranges::any_of(schedules, [&](const auto& name) { return schedule_named(config, name).cuts_sequences(); });
    return cuts ? "" : "no schedule cuts sequences (search.schedules)";
}

std::string no_synchronous_steps(const Config& config, const Plan*) {
    return config.pipeline.options.synchronous_steps == 0 ? "" : unread_option(config, "synchronous_steps");
}

std::string no_slice_lengths(const Config& config, const Plan*) {
    if (std::string why = unread_option(config, "slices"); !why.empty())
        return why;
    if (!config.pipeline.slice_tokens.empty())
        return "pipeline.slices lists the tokens of each slice";
    if (slices_of(config, schedule_of(config)) == 1)
        return "micro-batches are whole (pipeline.slices)";
    return is_uniform(config) ? "a uniform workload has no attention" : "";
}

std::string no_experts(const Config& config, const Plan*) {
    return is_transformer(config) && !config.workload.transformer->experts
               ? fmt::format("{} has no experts", model_name(config))
               : "";
}

std::string no_expert_load(const Config& config, const Plan* plan) {
    if (std::string why = no_experts(config, plan); !why.empty())
        return why;
    return config.parallel.degrees.expert == 1 && plan != nullptr ? "every device has all experts" : "";
}

// Without expert parallelism, tokens leave their device only where tensor ranks gather them.
std::string no_dispatcher(const Config& config, const Plan* plan) {
    if (std::string why = no_experts(config, plan); !why.empty())
        return why;
    const Parallel& degrees = config.parallel.degrees;
    const auto gathers = [](const ReleaseFacts& facts) { return facts.dispatcher == ExpertDispatcher::Gathered; };
    const bool moves = degrees.expert_ranks() > 1 ||
                       (degrees.tensor > 1 && (gathers(degrees.program()) || gathers(facts_of(degrees.trained_by()))));
    return moves || plan == nullptr ? "" : "every device has all experts";
}

std::string no_delays(const Config& config, const Plan* plan) {
    if (config.training.anneal_steps.value_or(0) == 0)
        return {};
    return plan->weights == WeightPolicy::Latest && divides_rates(plan->prediction)
               ? ""
               : fmt::format("weights: {}{} divides no learning rate", name_of(plan->weights),
                             plan->prediction == Prediction::None
                                 ? ""
                                 : fmt::format(" with prediction: {}", name_of(plan->prediction)));
}

std::string no_correction(const Config&, const Plan* plan) {
    return plan->prediction == Prediction::PipeMare
               ? ""
               : fmt::format("prediction: {} averages no steps", name_of(plan->prediction));
}

std::string no_holders(const Config& config, const Plan* plan) {
    if (cost_source_of(config).has_groups && config.training.zero > 0)
        return "the replicas of a transformer divide what parallel.zero says";
    const std::vector<std::vector<int>>& placement = plan->shape.placement;
    const bool shared =
        std::any_of(placement.begin(), placement.end(), [](const auto& devices) { return devices.size() > 1; });
    return shared || config.training.zero == 0 ? "" : "no stage is on several devices";
}

std::string no_sums(const Config& config, const Plan* plan) {
    if (is_uniform(config))
        return fmt::format("sums of gradients take no time with {}", model_name(config));
    for (const std::vector<Task>& order : plan->order)
        for (const Task& task : order)
            if (task.op == Op::SumGradients)
                return {};
    return "no stage is on several devices, and no parameter is in several stages";
}

bool has_transfers(const Plan& plan) {
    return std::any_of(plan.order.begin(), plan.order.end(), [](const std::vector<Task>& order) {
        return std::any_of(order.begin(), order.end(), [](const Task& task) { return is_transfer(task.op); });
    });
}

std::string no_pairs(const Config&, const Plan* plan) {
    for (const std::vector<Task>& order : plan->order)
        if (std::any_of(order.begin(), order.end(), [](const Task& task) { return task.with_next; }))
            return {};
    return "no two tasks of the plan overlap";
}

std::string no_pairs_of_schedule(const Config& config, const Plan* plan) {
    if (config.pipeline.schedule.ends_with(".csv"))
        return "the plan is in a file";
    if (!schedule_of(config).takes_pairs)
        return fmt::format("schedule {} has no choice of pairs", config.pipeline.schedule);
    return config.pipeline.options.pairs ? no_pairs(config, plan) : "";
}

std::string no_transfers(const Config&, const Plan* plan) {
    return has_transfers(*plan) ? "" : "no message goes between devices";
}

// executed_mode() replaces the protocol where it cannot be eager.
std::string no_protocol(const Config& config, const Plan* plan) {
    Config eager = config;
    eager.transfer.protocol = TransferMode::Protocol::Eager;
    const bool is_forced = executed_mode(eager).protocol != TransferMode::Protocol::Eager;
    return is_forced ? "with deferred receives, devices that compute take a message only when they wait for it"
                     : no_transfers(config, plan);
}

std::string no_movers(const Config& config, const Plan* plan) {
    if (config.mover_share == 0 || has_transfers(*plan))
        return {};
    return no_sums(config, plan).empty() ? "" : no_transfers(config, plan);
}

std::string no_buckets(const Config& config, const Plan* plan) {
    if (config.sum_bucket == 0)
        return {};
    if (std::string why = no_sums(config, plan); !why.empty())
        return why;
    for (int stage = 0; stage < plan->shape.stages; ++stage)
        if (may_overlap_sum(plan->shape, stage))
            return {};
    return "stages sum all gradients at once if they share parameters, or if their devices hold other stages and serve "
           "unequally many micro-batches";
}

// What a kind of devices sets, the file may have itself.
std::string no_facts_of_kind(const Config& config, const Plan* plan) {
    const auto has = [&](std::string_view key) { return config.places.contains(fmt::format("cluster.{}", key)); };
    const bool has_rates = (has("compute") && has("memory_bandwidth")) || !no_rates(config, plan).empty();
    const bool has_links = has("link") || has("inside") || has("profile");
    if (cost_source_of(config).has_groups || !has_rates || !has_links || !has("memory"))
        return {};
    return "the file has the memory and the links of the devices, and rates or times";
}

std::string no_domains(const Config& config, const Plan*) {
    return cost_source_of(config).has_groups ? "" : fmt::format("{} is no transformer", model_name(config));
}

// `pipewright calibrate` writes all factors, and a factor of 1 says nothing.
std::string no_messages_inside(const Config& config, const Plan*) {
    if (config.calibration.inside == 1 || config.parallel.per_host > 1 || config.cluster.domain > 1)
        return {};
    return "every host has one device";
}

std::string no_messages_between(const Config& config, const Plan*) {
    const int together = std::max(config.parallel.per_host, config.cluster.domain);
    if (config.calibration.between == 1 || together < std::ssize(config.parallel.ranks->devices))
        return {};
    return "all devices are on one host or in one domain";
}

std::string no_separate_weights(const Config&, const Plan* plan) {
    for (const std::vector<Task>& order : plan->order)
        if (std::any_of(order.begin(), order.end(), [](const Task& task) { return task.op == Op::BackwardWeight; }))
            return {};
    return "the plan has no W: a full backward needs none of it";
}

std::string no_shared_dispatcher(const Config& config, const Plan*) {
    if (config.cluster.dispatcher == ClusterConfig::Dispatcher::PerDevice)
        return {};
    if (config.cluster.dispatch.value_or(0) == 0 && (config.cluster.dispatch || config.cluster.profile.empty()))
        return "to dispatch a task takes no time (cluster.dispatch)";
    std::set<std::string> hosts;
    for (const DeviceConfig& device : config.cluster.devices)
        if (!hosts.insert(device.host).second)
            return {};
    return "every host has one device";
}

std::string no_batch(const Config& config, const Plan*) {
    return config.search.objective == Objective::PipeDream || cost_source_of(config).source == CostSource::File
               ? ""
               : fmt::format("{} has times of every size", model_name(config));
}

std::string no_cuts(const Config& config, const Plan* plan) {
    if (cost_source_of(config).usual_split != nullptr)
        return "stages hold whole blocks";
    if (plan == nullptr && config.search.objective != Objective::Makespan)
        return fmt::format("objective {} cuts at any layer", name_of(config.search.objective));
    return is_uniform(config) ? fmt::format("{} has no layers", model_name(config)) : "";
}

constexpr KeyRow kKeys[] = {
    {"workload.image_size", Read::Always, no_images},
    {"workload.classes", Read::Always, no_classes},
    {"workload.dataset", Read::Always, no_data},
    {"workload.path", Read::Always, no_path},
    {"cluster.compute", Read::Always, no_rates},
    {"cluster.memory_bandwidth", Read::Always, no_rates},
    {"cluster.products", Read::Always, no_rates},
    {"cluster.device", Read::Always, no_facts_of_kind},
    {"cluster.domain", Read::Always, no_domains},
    {"cluster.dispatcher", Read::Always, no_shared_dispatcher},
    {"calibration.inside", Read::Always, no_messages_inside},
    {"calibration.between", Read::Always, no_messages_between},
    {"pipeline.cuts", Read::Always, no_cuts},
    {"parallel.expert_load", Read::Always, no_expert_load},
    {"parallel.expert_kernels", Read::Always, no_experts},
    {"parallel.expert_dispatcher", Read::Always, no_dispatcher},
    {"workload.activation_until_weight", Read::ByPlans, no_separate_weights},
    {"pipeline.aim", Read::ByPlans, no_auto},
    {"pipeline.effort", Read::ByPlans, no_auto},
    {"pipeline.micro_batch_order", Read::ByPlans, no_order_of_lengths},
    {"pipeline.current_plan", Read::ByPlans, no_auto},
    {"pipeline.pairs", Read::ByPlans, no_pairs_of_schedule},
    {"pipeline.pair_exposed", Read::ByPlans, no_pairs},
    {"workload.overlapped_forward_backward", Read::ByPlans, no_pairs},
    {"pipeline.recompute_layers", Read::ByPlans, no_recomputed_layers},
    {"pipeline.recompute_saved", Read::ByPlans, no_recomputed_stages},
    {"pipeline.recompute_ahead", Read::ByPlans, no_recomputed_stages},
    {"pipeline.offload", Read::ByPlans, no_offload},
    {"pipeline.offload_layers", Read::ByPlans, no_offloaded_layers},
    {"pipeline.offload_share", Read::ByPlans, no_offloads},
    {"pipeline.offload_ahead", Read::ByPlans, no_offloads},
    {"pipeline.offload_states", Read::ByPlans, no_offloaded_states},
    {"pipeline.offload_states_ahead", Read::ByPlans, no_stores},
    {"cluster.host_link", Read::ByPlans, no_copies},
    {"transfer.copies", Read::ByPlans, no_copies},
    {"pipeline.slice_lengths", Read::Always, no_slice_lengths},
    {"pipeline.synchronous_steps", Read::ByPlans, no_synchronous_steps},
    {"training.anneal_steps", Read::ByPlans, no_delays},
    {"training.correction_decay", Read::ByPlans, no_correction},
    {"training.zero", Read::ByPlans, no_holders},
    {"training.shard_optimizer", Read::ByPlans, no_holders},
    {"transfer.communicator", Read::ByPlans, no_transfers},
    {"transfer.receive", Read::ByPlans, no_transfers},
    {"transfer.protocol", Read::ByPlans, no_protocol},
    {"transfer.eager_limit", Read::ByPlans, no_protocol},
    {"transfer.exchange", Read::ByPlans, no_transfers},
    {"transfer.multiprocessors", Read::ByPlans, no_movers},
    {"transfer.sum_bucket", Read::ByPlans, no_buckets},
    {"transfer.sums", Read::ByPlans, no_sums},
    {"search.profile_batch", Read::Always, no_batch},
    {"search.recompute_layers", Read::BySearches, no_searched_recomputation},
    {"search.recompute_saved", Read::BySearches, no_searched_recomputation},
    {"search.recompute_ahead", Read::BySearches, no_searched_recomputation},
    {"search.offload_ahead", Read::BySearches, no_searched_offload},
    {"search.slices", Read::BySearches, no_searched_slices},
    {"search.slice_lengths", Read::BySearches, no_searched_slices},
};

// Adds the keys of a block that have no effect here, by their limits.
void add_unread(const ConfigBlock& block, const Config& config, std::string_view reader, std::vector<IdleKey>& idle) {
    for (const ConfigKey& key : block.keys)
        if (std::string path = fmt::format("{}.{}", block.name, key.name);
            is_idle(key.limit.elsewhere) && !key.is_for(config) && config.places.contains(path))
            idle.push_back({std::move(path), fmt::format("{} does not read it", reader)});
}

// Adds the options that the schedule does not read, unless they have a row.
void add_unread_options(const Config& config, std::vector<IdleKey>& idle) {
    std::set<std::string> options;
    for (const Schedule& schedule : schedules())
        options.emplace(schedule.option);
    for (const std::string& option : options) {
        std::string path = fmt::format("pipeline.{}", option);
        if (std::ranges::find(kKeys, path, &KeyRow::key) != std::end(kKeys) || !config.places.contains(path))
            continue;
        if (std::string why = unread_option(config, option); !why.empty())
            idle.push_back({std::move(path), std::move(why)});
    }
}

std::vector<IdleKey> idle_among(const Config& config, const Plan* plan, Read other) {
    std::vector<IdleKey> idle;
    for (const KeyRow& row : kKeys) {
        if ((row.read != Read::Always && row.read != other) || !config.places.contains(std::string(row.key)))
            continue;
        if (std::string why = row.why_idle(config, plan); !why.empty())
            idle.push_back({std::string(row.key), std::move(why)});
    }
    if (other == Read::ByPlans)
        add_unread_options(config, idle);
    add_unread(training_block(), config, fmt::format("optimizer {}", name_of(config.training.optimizer)), idle);
    return idle;
}

}  // namespace

std::vector<IdleKey> idle_keys(const Setup& setup, const Plan& plan) {
    return idle_among(config_of(setup), &plan, Read::ByPlans);
}

std::vector<IdleKey> idle_keys_of_search(const SearchSetup& setup) {
    Config config = config_of(setup);
    config.search = setup.search;
    std::vector<IdleKey> idle = idle_among(config, nullptr, Read::BySearches);
    add_unread(search_block(), config,
               searches_cluster(config) ? "a search for a transformer"
                                        : fmt::format("objective {}", name_of(config.search.objective)),
               idle);
    return idle;
}

std::string print(const IdleKey& key) { return fmt::format("{} has no effect: {}", key.key, key.why); }

}  // namespace pw
