#include "report/partition_search.h"

#include "job/build.h"
#include "job/job.h"
#include "report/table.h"
#include "schedules/memory/limits.h"
#include "search/pipedream/pipedream.h"
#include "search/piper/piper.h"
#include "search/placement/max_load.h"
#include "workloads/costs/profiled_model.h"
#include "workloads/error.h"
#include "workloads/lower_bound.h"
#include "workloads/models/frozen_layers.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <iterator>
#include <limits>
#include <utility>

namespace pw {

namespace {

// What a planner answers.
struct Solution {
    Partition partition;
    std::vector<std::string> layers = {};
    bool in_seconds = false;
};

bool is_given(const SearchSetup& setup, const std::string& key) { return setup.places.contains(key); }

std::string instance_of(const SearchSetup& setup) {
    if (model_file(setup.workload.model) != ModelFile::JsonFile)
        setup.fail_at("workload.model",
                      fmt::format("objective {} takes an instance *.json", name_of(setup.search.objective)),
                      setup.search.objective == SearchConfig::Objective::Piper
                          ? "name one in Piper's format, or search another objective"
                          : "name one in the format of dnn-partitioning, or search another objective");
    return setup.workload.model;
}

double smaller_memory(const SearchSetup& setup, double own) {
    const Bytes cap = setup.cluster.memory;
    return cap == kUnlimited ? own : std::min(own, static_cast<double>(cap));
}

int devices_of(const SearchSetup& setup, int own) {
    return is_given(setup, "cluster.devices") ? static_cast<int>(setup.cluster.devices.size()) : own;
}

Solution solve_max_load(const SearchSetup& setup, const SearchLimits& limits) {
    PlacementInstance instance = read_placement_instance(instance_of(setup));
    instance.memory = smaller_memory(setup, instance.memory);
    instance.accelerators = devices_of(setup, instance.accelerators);
    Solution solution{max_load_partition(instance, limits), {}};
    for (const PlacementNode& node : instance.nodes)
        solution.layers.push_back(node.name);
    return solution;
}

// Returns the bandwidth of the one link that other planners' objectives count with.
double bandwidth_of_the_link(const SearchSetup& setup) {
    for (const char* key : {"cluster.between", "cluster.links", "cluster.shared", "cluster.switches"})
        if (is_given(setup, key))
            setup.fail_at(
                key,
                fmt::format("objective {} counts with one link between all devices", name_of(setup.search.objective)),
                "write cluster.link in its place (for pipedream search.levels: a bandwidth per level)");
    return setup.cluster.link.bandwidth;
}

Solution solve_piper(const SearchSetup& setup, const SearchLimits& limits) {
    PiperInstance instance = read_piper_instance(instance_of(setup));
    instance.memory = smaller_memory(setup, instance.memory);
    instance.devices = devices_of(setup, instance.devices);
    if (is_given(setup, "pipeline.micro_batches"))
        instance.microbatches = setup.pipeline.micro_batches;
    if (const double bandwidth = bandwidth_of_the_link(setup); setup.cluster.link_given && std::isfinite(bandwidth))
        instance.bandwidth = bandwidth;
    const bool recompute =
        !is_given(setup, "search.recompute") || setup.search.recompute != SearchConfig::Recompute::None;
    const PiperChoices choices{setup.search.tensor_parallel, !setup.search.straight, recompute};
    Solution solution{piper_partition(instance, choices, limits), {}};
    for (const PiperLayer& layer : instance.layers)
        solution.layers.push_back(layer.name);
    return solution;
}

PipedreamOptions pipedream_options(const SearchSetup& setup) {
    PipedreamOptions options;
    for (const SearchConfig::Level& level : setup.search.levels)
        options.levels.push_back({level.devices, level.bandwidth});
    if (options.levels.empty())
        options.levels.push_back({static_cast<int>(setup.cluster.devices.size()), bandwidth_of_the_link(setup)});
    options.charge_transfers = setup.search.p2p == SearchConfig::P2p::Charged;
    options.straight = setup.search.straight;
    if (setup.search.memory_limit && setup.cluster.devices.front().memory != kUnlimited)
        options.memory = setup.cluster.devices.front().memory;
    return options;
}

Solution solve_pipedream(const SearchSetup& setup, const SearchLimits&) {
    if (is_instance(setup.workload.model))
        setup.fail_at("workload.model", "objective pipedream takes a model with layers, not an instance *.json",
                      "name a built-in model, a *.graph.txt or a layer graph *.yaml");
    Setup of_batch = setup;
    if (of_batch.workload.profile_batch == 0)
        of_batch.workload.profile_batch = setup.search.mini_batch;
    const std::int64_t batch = of_batch.workload.profile_batch;
    if (batch > std::numeric_limits<int>::max())
        setup.fail_at("search.profile_batch", fmt::format("{} samples of one profile are too many", batch),
                      "write the samples of one mini-batch as search.profile_batch, or a smaller search.mini_batch");
    const Model model = build_model(of_batch);
    if (has_frozen_layers(model.layers))
        setup.fail_at("search.objective", "objective pipedream trains all layers, and layers of this model are frozen",
                      "write objective: makespan");
    const Profile profile = profile_of(of_batch, model);
    check_precision(setup, profile);
    const auto samples = static_cast<int>(batch);
    Solution solution{plan_pipedream(pipedream_graph(model, profile, samples), pipedream_options(setup)), {}, true};
    for (std::size_t layer = 0; layer < num_vertices(model.layers); ++layer)
        solution.layers.push_back(model.layers[layer].name);
    return solution;
}

// Bandwidths may be so small that no time is counted that far.
void refuse_long(const SearchSetup& setup, const PartitionSearch& search) {
    double longest = search.partition.objective;
    for (const PlannedStage& stage : search.partition.stages)
        longest = std::max(longest, stage.time);
    if (search.in_seconds && !(longest * 1e9 <= static_cast<double>(kLongestPlan)))
        setup.fail_at(setup.search.levels.empty() ? "cluster.link.bandwidth" : "search.levels",
                      fmt::format("the best partition takes {:.4g} s per mini-batch, and times are counted up to {}",
                                  longest, print_time(kLongestPlan)),
                      "raise the bandwidth: bytes per second, such as 10 GB/s");
}

struct ObjectiveRow {
    SearchConfig::Objective objective;
    const char* time;  // what the time of a stage is for
    Solution (*solve)(const SearchSetup& setup, const SearchLimits& limits);
};
constexpr ObjectiveRow kObjectives[] = {
    {SearchConfig::Objective::MaxLoad, "load", solve_max_load},
    {SearchConfig::Objective::PipeDream, "time per mini-batch", solve_pipedream},
    {SearchConfig::Objective::Piper, "time per micro-batch", solve_piper},
};

std::string value_text(const PartitionSearch& search, double value) {
    return search.in_seconds ? print_time(std::llround(value * 1e9)) : fmt::format("{:.10g}", value);
}

double gap_of_partition(const Partition& partition) {
    check_lower_bound(partition.lower_bound, partition.objective, "the objective");
    return partition.objective > 0 ? (partition.objective - partition.lower_bound) / partition.objective : 0;
}

// "2 x 4": two groups of four devices.
std::string devices_text(const PlannedStage& stage) {
    const std::string devices = stage.on_cpu ? "CPU" : std::to_string(stage.replicas);
    return stage.tensor_degree > 1 ? fmt::format("{} x {}", devices, stage.tensor_degree) : devices;
}

const ObjectiveRow& objective_row(SearchConfig::Objective objective) {
    return *std::find_if(std::begin(kObjectives), std::end(kObjectives),
                         [&](const ObjectiveRow& row) { return row.objective == objective; });
}

}  // namespace

PartitionSearch search_partition(const SearchSetup& setup, const SearchLimits& limits) {
    const SearchConfig::Objective objective = setup.search.objective;
    if (objective == SearchConfig::Objective::Makespan)
        setup.fail_at("search.objective", "objective makespan is judged by the simulator, not by a planner's own costs",
                      "search the best plan, or write max-load, pipedream or piper");
    if (!setup.pipeline.micro_batch_lengths.empty())
        setup.fail_at("pipeline.micro_batch_lengths",
                      fmt::format("objective {} counts with micro-batches of equal length", name_of(objective)),
                      "search objective makespan, or remove the key");
    const auto start = std::chrono::steady_clock::now();
    Solution solution = objective_row(objective).solve(setup, limits);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    PartitionSearch search{objective, std::move(solution.partition), std::move(solution.layers), solution.in_seconds,
                           took.count()};
    refuse_long(setup, search);
    return search;
}

std::string to_text(const PartitionSearch& search) {
    Table table({"stage", "layers", "first layer", "devices", "time", "memory", "recomputed"});
    const Partition& partition = search.partition;
    for (std::size_t number = 0; number < partition.stages.size(); ++number) {
        const PlannedStage& stage = partition.stages[number];
        table.add({std::to_string(number), std::to_string(stage.layers.size()),
                   stage.layers.empty() ? "" : search.layers[static_cast<std::size_t>(stage.layers.front())],
                   devices_text(stage), value_text(search, stage.time), print_bytes(stage.memory),
                   std::to_string(stage.recomputed.size())});
    }
    const std::string proof =
        partition.lower_bound >= partition.objective
            ? "none is better"
            : fmt::format("none is better than {} (gap {})", value_text(search, partition.lower_bound),
                          print_percent(gap_of_partition(partition)));
    return fmt::format("{}\nobjective {}; {}\n", table.print(), value_text(search, partition.objective), proof);
}

void require_stages(const PartitionSearch& search) {
    if (!search.partition.stages.empty())
        return;
    const Shortage shortage = search.partition.shortage.value_or(Shortage{});
    fail_with(ExitCode::Infeasible,
              "no partition fits: stage {} needs {} ({} bytes) but has {} ({} bytes)\n  help: raise "
              "cluster.memory or cluster.devices",
              shortage.stage, print_bytes(shortage.needs), shortage.needs, print_bytes(shortage.has), shortage.has);
}

Json to_json(const PartitionSearch& search) {
    const Partition& partition = search.partition;
    Json json = {{"schema_version", 1}, {"objective_name", name_of(search.objective)}};
    if (partition.stages.empty()) {
        const Shortage shortage = partition.shortage.value_or(Shortage{});
        json["best"] = nullptr;
        json["infeasible"] = {{"stage", shortage.stage}, {"needs_bytes", shortage.needs}, {"has_bytes", shortage.has}};
    } else {
        const auto nanoseconds = [&](double value) {
            return search.in_seconds ? Json(std::llround(value * 1e9)) : Json(nullptr);
        };
        Json stages = Json::array();
        for (const PlannedStage& stage : partition.stages) {
            Json layers = Json::array(), recomputed = Json::array();
            for (const int layer : stage.layers)
                layers.push_back(search.layers[static_cast<std::size_t>(layer)]);
            for (const int layer : stage.recomputed)
                recomputed.push_back(search.layers[static_cast<std::size_t>(layer)]);
            stages.push_back({{"layers", std::move(layers)},
                              {"time", stage.time},
                              {"time_ns", nanoseconds(stage.time)},
                              {"memory_bytes", stage.memory},
                              {"replicas", stage.replicas},
                              {"tensor_degree", stage.tensor_degree},
                              {"recomputed", std::move(recomputed)},
                              {"on_cpu", stage.on_cpu}});
        }
        json["best"] = {{"stages", std::move(stages)}};
        json["objective"] = partition.objective;
        json["objective_ns"] = nanoseconds(partition.objective);
        json["lower_bound"] = partition.lower_bound;
        json["lower_bound_ns"] = nanoseconds(partition.lower_bound);
        json["gap"] = gap_of_partition(partition);
    }
    json["candidates"] = partition.candidates;
    json["seconds"] = search.seconds;
    return json;
}

Chart chart_of(const PartitionSearch& search) {
    const char* const time = objective_row(search.objective).time;
    const Partition& partition = search.partition;
    const double unit = search.in_seconds ? 1e9 : 1;
    Curve stages{time, {}, {}, Curve::Style::Bars};
    for (const PlannedStage& stage : partition.stages) {
        const std::string devices = devices_text(stage);
        stages.x.push_back(static_cast<double>(stages.x.size()));
        stages.values.push_back(unit * stage.time);
        stages.labels.push_back(devices == "1" ? "" : stage.on_cpu ? devices : devices + " devices");
    }
    const auto level = [&](const std::string& title, double value) {
        return Level{unit * value, fmt::format("{} {}", title, value_text(search, value))};
    };
    Chart chart{
        {stages},
        {"stage", Quantity::Number, false},
        {time, search.in_seconds ? Quantity::Time : Quantity::Number},
        fmt::format("{}: {} stage{}", name_of(search.objective), stages.x.size(), stages.x.size() == 1 ? "" : "s")};
    for (std::size_t stage = 0; stage < stages.x.size(); ++stage)
        chart.x.names.push_back(std::to_string(stage));
    chart.y.levels.push_back(level("objective", partition.objective));
    if (partition.lower_bound < partition.objective)
        chart.y.levels.push_back(level("none is better than", partition.lower_bound));
    return chart;
}

}  // namespace pw
