// A layer graph with the costs of a transformer's layers gets the numbers of the transformer: one planner answers both.
#include "job/build.h"
#include "job/job.h"
#include "job/plan.h"
#include "search/clusters/cluster_search.h"
#include "search/plans/makespan.h"
#include "sim/metrics.h"
#include "sim/simulate.h"
#include "tests/support/config_text.h"
#include "workloads/costs/costs.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace pw {
namespace {

constexpr const char* kLink = "{bandwidth: 100 GB/s, latency: 7 us}";

Config transformer(const std::string& schedule, int stages, const std::string& split) {
    return load(fmt::format(
        R"(
workload: {{model: llama-3.2-1b, sequence_length: 4096}}
cluster: {{hosts: 1, devices_per_host: 4, device: h100-sxm-80, inside: {}}}
parallel: {{pipeline: 4}}
pipeline: {{schedule: {}, stages: {}, mini_batch: 8, micro_batch_size: 1{}}}
training: {{precision: bf16, optimizer: adamw}}
search: {{mini_batch: 8, tensor: [1], pipeline: [4], context: [1], chunks: [{}], schedules: [{}], zero: [0],
         recompute: [none], micro_batch_sizes: [1]}}
)",
        kLink, schedule, stages, split.empty() ? "" : ", split: " + split, stages / 4, schedule));
}

// Four devices without a model of their own.
Config layers(const std::string& schedule, int stages) {
    return load(fmt::format(
        R"(
workload: {{model: mlp}}
cluster: {{devices: 4, link: {}}}
pipeline: {{schedule: {}, stages: {}, micro_batches: 8, micro_batch_size: 1}}
search: {{mini_batch: 8, replicas: false}}
)",
        kLink, schedule, stages));
}

// The profile of a transformer's layers, with the update of each layer as a stage of its own.
Profile with_updates(const Config& config, const Model& model) {
    Profile profile = profile_of(config, model);
    std::vector<std::vector<std::string>> alone;
    for (const LayerProfile& layer : profile.layers)
        alone.push_back({layer.name});
    const StageSplit split = split_by_lists(model.layers, alone);
    pw::Shape shape;
    shape.devices = shape.stages = split.stages();
    shape.microbatches = 1;
    const Costs costs = complete_costs(costs_of(model, split, profile, 1), config, cluster_of(config, profile),
                                       model.layers, split, shape);
    for (std::size_t layer = 0; layer < profile.layers.size(); ++layer)
        profile.layers[layer].update.median = costs.stage[layer].update;
    return profile;
}

// Adds a layer after number `at` that takes no time and passes on what it reads.
void add_pass(Model& model, Profile& profile, int at) {
    LayerGraph graph;
    std::vector<LayerProfile> profiles;
    const auto add = [&](const Layer& layer, LayerProfile costs) {
        const auto count = static_cast<int>(num_vertices(graph));
        add_layer(graph, layer, count == 0 ? std::vector<int>{} : std::vector{count - 1});
        costs.name = layer.name;
        profiles.push_back(std::move(costs));
    };
    for (int layer = 0; layer < static_cast<int>(num_vertices(model.layers)); ++layer) {
        const LayerProfile& costs = profile.layers[static_cast<std::size_t>(layer)];
        add(model.layers[layer], costs);
        if (layer != at)
            continue;
        Layer pass = model.layers[layer];
        pass.name = "pass";
        add(pass, {.times = {{1, {}}}, .bytes = {{1, {.output = costs.bytes.at(1).output}}}});
    }
    model.layers = std::move(graph);
    profile.layers = std::move(profiles);
}

Metrics metrics_of_layers(const Config& config, const Model& model, const Profile& profile, const StageSplit& split) {
    const auto costs = [&](const pw::Shape& shape) {
        return complete_costs(costs_of(model, split, profile, 1), config, cluster_of(config, profile), model.layers,
                              split, shape);
    };
    const Plan plan = proven_plan(config, links_of(model.layers, split), 1, costs).plan;
    return metrics_of(simulate(plan, costs(plan.shape), config.transfer));
}

Metrics metrics_of_job(const Config& config) {
    Notices notices;
    const Job job = make_job(config, notices);
    return metrics_of(simulate(job.plan, job.costs, job.mode));
}

// Makes the split at the first layers of the stages of the transformer.
StageSplit split_as(const Config& config, const Model& model) {
    return make_split(config, model, profile_of(config, model));
}

constexpr const char* kSplits[] = {R"("Et*4|t*4|t*4|t*4L")", R"("E|t*5|t*6|t*5L")"};
constexpr const char* kSplitsOfTwo[] = {R"("Ett|tt|tt|tt|tt|tt|tt|ttL")", R"("Et*3|t*3|t|tt|t*3|tt|t|tL")"};

TEST(SameNumbers, OfPlans) {
    for (const auto& [schedule, stages] :
         {std::pair{"gpipe", 4}, {"1f1b", 4}, {"zb-h1", 4}, {"auto", 4}, {"interleaved", 8}, {"zb-v", 8}})
        for (const char* split : stages == 4 ? kSplits : kSplitsOfTwo) {
            SCOPED_TRACE(fmt::format("{} {}", schedule, split));
            const Config whole = transformer(schedule, stages, split);
            const Model model = build_model(whole);
            const Metrics of_job = metrics_of_job(whole);
            const Metrics of_layers =
                metrics_of_layers(layers(schedule, stages), model, with_updates(whole, model), split_as(whole, model));
            // The updates of layers are rounded one by one.
            EXPECT_NEAR(static_cast<double>(of_job.step_time), static_cast<double>(of_layers.step_time), 20);
        }
}

TEST(SameNumbers, OfAnEmptyStage) {
    for (const auto& [schedule, stages, split, before, lists] :
         {std::tuple{"1f1b", 4, R"("Et*8||t*4|t*4L")", 8, 1},
          {"interleaved", 8, R"("Et*3|t*3|t*3||t*3|t*3|t|L")", 9, 3},
          {"zb-v", 8, R"("Et*3|t*3|t*3||t*3|t*3|t|L")", 9, 3}}) {
        SCOPED_TRACE(fmt::format("{} {}", schedule, split));
        const Config whole = transformer(schedule, stages, split);
        Model model = build_model(whole);
        Profile profile = with_updates(whole, model);
        std::vector<std::vector<std::string>> names;
        for (const std::vector<int>& stage : split_as(whole, model).layers) {
            std::vector<std::string>& own = names.emplace_back();
            for (const int layer : stage)
                own.push_back(model.layers[layer].name);
        }
        ASSERT_TRUE(names[lists].empty());
        names[lists] = {"pass"};
        add_pass(model, profile, before);
        const Metrics of_layers =
            metrics_of_layers(layers(schedule, stages), model, profile, split_by_lists(model.layers, names));
        EXPECT_NEAR(static_cast<double>(metrics_of_job(whole).step_time), static_cast<double>(of_layers.step_time), 20);
    }
}

// Both searches prove their plans the fastest: of 969 splits into four stages.
TEST(SameNumbers, OfSearches) {
    for (const char* schedule : {"1f1b", "zb-h1"}) {
        SCOPED_TRACE(schedule);
        const Config whole = transformer(schedule, 4, "");
        const Model model = build_model(whole);
        const Profile profile = with_updates(whole, model);
        const SearchResult of_cluster = search_cluster(whole);
        const SearchResult of_layers =
            search_plans({layers(schedule, 4), model, [&](int) { return profile; }, whole.transfer});
        ASSERT_NE(of_layers.best(), nullptr);
        EXPECT_NEAR(static_cast<double>(of_cluster.best()->step_time), static_cast<double>(of_layers.best()->step_time),
                    20);
        EXPECT_EQ(of_layers.lower_bound, of_layers.best()->step_time);
        EXPECT_EQ(of_cluster.lower_bound, of_cluster.best()->step_time);
    }
}

}  // namespace
}  // namespace pw
