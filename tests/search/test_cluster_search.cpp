// The search for plans of a transformer on a cluster, against a loop over every config of a small space.
#include "job/job.h"
#include "report/plan_search.h"
#include "report/report.h"
#include "report/training_arguments.h"
#include "search/clusters/choice_list.h"
#include "search/clusters/cluster_bounds.h"
#include "search/clusters/cluster_search.h"
#include "search/plans/choice_list.h"
#include "tests/search/cluster_spaces.h"
#include "tests/search/small_cluster.h"
#include "tests/support/config_text.h"
#include "tests/support/refusal.h"
#include "tests/support/thoroughness.h"
#include "workloads/error.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <limits>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace pw {
namespace {

constexpr const char* kWithExperts = R"(
workload: {model: deepseek-v2-lite, sequence_length: 4096}
cluster: {hosts: 2, devices_per_host: 8, device: h100-sxm-80, memory: 60 GB, between: {link: ndr400, adapters: 8}}
training: {precision: bf16, optimizer: adamw}
search: {mini_batch: 32, micro_batch_sizes: [1], chunks: [1], zero: [0, 1], recompute: [none], pipeline: [1, 2, 4],
         expert: [1, 4, 8], expert_tensor: [1, 2], unequal_blocks: false}
)";

// Layers of Mamba-2, of attention and of MLPs differ in times and sizes, and a module predicts a further token.
constexpr const char* kHybrid = R"(
workload: {model: nemotron-h-8b, mtp_layers: 1, sequence_length: 4096}
cluster: {hosts: 2, devices_per_host: 4, device: h100-sxm-80, memory: 32 GB, between: {link: ndr400, adapters: 4}}
training: {precision: bf16, optimizer: adamw}
search: {mini_batch: 16, micro_batch_sizes: [1, 2], chunks: [1], schedules: [1f1b, gpipe, zb-h1],
         zero: [0, 1, 3], recompute: [none], pipeline: [1, 2, 4], unequal_blocks: false}
)";

Space small_space() {
    return {kSmall,
            8,
            16,
            {1, 2, 4},
            {1, 2, 4, 8},
            {1, 2, 4},
            {1},
            {1, 2},
            {0, 1, 3},
            {"none", "norms", "full"},
            {{"1f1b", 1}, {"zb-h1", 1}, {"interleaved", 2}, {"interleaved", 4}}};
}

Space space_with_experts() {
    return {kWithExperts, 16,  32,     {1, 2, 4, 8}, {1, 2, 4},     {1, 2, 4},
            {1, 4, 8},    {1}, {0, 1}, {"none"},     {{"1f1b", 1}}, {1, 2}};
}

Space space_of_hybrid() {
    return {kHybrid,
            8,
            16,
            {1, 2, 4},
            {1, 2, 4},
            {1},
            {1},
            {1, 2},
            {0, 1, 3},
            {"none"},
            {{"1f1b", 1}, {"gpipe", 1}, {"zb-h1", 1}}};
}

TEST(ClusterSearch, FindsTheBestOfEveryConfig) {
    OneIn some(2);
    for (const char* memory : {"12 GB", "24 GB"}) {
        if (!some.picks())
            continue;
        SCOPED_TRACE(memory);
        Space space = small_space();
        space.base.replace(space.base.find("24 GB"), 5, memory);
        expect_the_same(space);
    }
}

TEST(ClusterSearch, FindsTheBestOfEveryConfigWithExperts) { expect_the_same(space_with_experts()); }

TEST(ClusterSearch, FindsTheBestOfEveryConfigWithPairs) {
    Space space = space_with_experts();
    space.base.replace(space.base.find("chunks: [1]"), 11, "context: [1], chunks: [1, 2]");
    space.base.replace(space.base.find("pipeline: [1, 2, 4]"), 19, "pipeline: [2, 4]");
    space.schedules.push_back({"interleaved", 2});
    space.context = {1};
    space.pipeline = {2, 4};
    space.pipeline_keys = "pairs: true";
    expect_the_same(space);
}

TEST(ClusterSearch, FindsTheBestOfEveryConfigOfAHybrid) { expect_the_same(space_of_hybrid()); }

// Every division of 52 layers among two stages, against what the search bounds and finds.
TEST(ClusterSearch, BoundsEveryDivisionOfAHybrid) {
    for (const char* memory : {"inf", "28 GB"}) {
        const std::vector<std::string> set = {"search.tensor=[4]",
                                              "search.pipeline=[2]",
                                              "search.zero=[1]",
                                              "search.schedules=[1f1b]",
                                              "search.unequal_blocks=true",
                                              "search.micro_batch_sizes=[1]",
                                              fmt::format("cluster.memory={}", memory)};
        const SearchResult result = search_cluster(load(kHybrid, set));
        Ns best = std::numeric_limits<Ns>::max();
        int fitting = 0;
        for (int first = 0; first <= 52; ++first) {
            Notices notices;
            const std::vector<std::string> plan = {
                "parallel={tensor: 4, pipeline: 2, zero: 1}", fmt::format("cluster.memory={}", memory),
                fmt::format("pipeline={{schedule: 1f1b, mini_batch: 16, split: [{}, {}]}}", first, 52 - first)};
            const Report report = predicted_report(make_job(load(kHybrid, plan), notices), false);
            if (!fits(report))
                continue;
            ++fitting;
            best = std::min(best, report.metrics.step_time);
        }
        EXPECT_GT(fitting, 0);
        ASSERT_NE(result.best(), nullptr) << memory;
        EXPECT_LE(result.lower_bound, best) << memory;
        EXPECT_EQ(result.best()->step_time, best) << memory;
    }
}

TEST(ClusterSearch, FindsTheBestOfEveryConfigWithRecomputedModules) {
    const auto with = [](Space space, const std::vector<std::string>& recompute) {
        space.recompute = recompute;
        const std::string none = "recompute: [none]";
        space.base.replace(space.base.find(none), none.size(),
                           fmt::format("recompute: [{}]", fmt::join(recompute, ", ")));
        return space;
    };
    expect_the_same(with(space_with_experts(), {"layernorm+moe_act", "moe"}));
    expect_the_same(with(space_of_hybrid(), {"operators", "core_attn+mlp"}));
}

// Few enough choices are ordered by costs that all are tried which might be faster.
TEST(ClusterSearch, FindsTheBestOfSchedulesByCosts) {
    const Config config =
        load(kSmall, {"search.tensor=[1, 2]", "search.pipeline=[2, 4]", "search.context=[1]", "search.zero=[1]",
                      "search.recompute=[none]", "search.chunks=[1, 2]", "search.schedules=[1f1b, auto, auto-v]"});
    const SearchResult result = search_cluster(config);
    Ns best = std::numeric_limits<Ns>::max();
    int by_costs = 0;
    for (const PlanChoice& choice : cluster_choices(config)) {
        Notices notices;
        const Report report = predicted_report(make_job(setup_of(config, choice), notices), false);
        by_costs += choice.schedule == "1f1b" ? 0 : 1;
        if (!fits(report))
            continue;
        EXPECT_LE(result.lower_bound, report.metrics.step_time) << print(choice);
        best = std::min(best, report.metrics.step_time);
    }
    EXPECT_GT(by_costs, 10);
    EXPECT_EQ(result.untried, 0);
    ASSERT_NE(result.best(), nullptr);
    EXPECT_EQ(result.best()->step_time, best);
    EXPECT_EQ(result.lower_bound, best);
    EXPECT_NE(result.best()->choice.schedule, "1f1b");
}

TEST(ClusterSearch, BalancesBlocksOfOrdersByCosts) {
    const std::vector<std::string> set = {"search.tensor=[2]",      "search.pipeline=[4]",     "search.context=[1]",
                                          "search.zero=[1]",        "search.recompute=[none]", "search.chunks=[1]",
                                          "search.schedules=[auto]"};
    const Config equal = load(kSmall, set);
    Config config = equal;
    config.search.unequal_blocks = true;
    const SearchResult result = search_cluster(config);
    ASSERT_NE(result.best(), nullptr);
    EXPECT_FALSE(result.best()->choice.blocks.empty());
    EXPECT_LT(result.best()->step_time, search_cluster(equal).best()->step_time);
    Notices notices;
    const Report report = predicted_report(make_job(setup_of(config, result.best()->choice), notices), false);
    EXPECT_EQ(report.metrics.step_time, result.best()->step_time);
    EXPECT_LE(result.lower_bound, report.metrics.step_time);
}

// The bounds of every choice, against its simulated plan.
TEST(ClusterSearch, BoundsEveryPlan) {
    int bounded = 0, sliced = 0;
    std::map<std::string, OneIn> some;  // of each schedule's choices
    for (const char* schedules : {"all", "[1f1b, interleaved, gpipe, naive]"}) {
        const Config config =
            load(kSmall, {fmt::format("search.schedules={}", schedules), "search.zero=[1, 3]",
                          "search.recompute=[none]", "search.micro_batch_sizes=[1, 4]", "pipeline.effort=0.1"});
        for (const PlanChoice& choice : cluster_choices(config)) {
            if (!some.try_emplace(choice.schedule, 5).first->second.picks())
                continue;
            Notices notices;
            Job job;
            try {
                job = make_job(setup_of(config, choice), notices);
            } catch (const Error&) {  // the schedule refuses the number of micro-batches
                continue;
            }
            Shape shape;
            shape.devices = choice.degrees.pipeline;
            shape.stages = choice.stages;
            shape.slices = choice.slices;
            shape.microbatches = job.setup.pipeline.micro_batches * choice.slices;
            sliced += choice.slices > 1 ? 1 : 0;
            const auto facts = order_facts(schedule_named(choice.schedule), shape, {});
            ASSERT_TRUE(facts) << print(choice);
            const Report report = predicted_report(job, false);
            EXPECT_LE(least_step_time(*facts, job.costs), report.metrics.step_time) << print(choice);
            const std::vector<Bytes> memory = least_memory(*facts, job.costs);
            ASSERT_EQ(memory.size(), report.metrics.devices.size());
            for (std::size_t device = 0; device < memory.size(); ++device)
                EXPECT_LE(memory[device], report.metrics.devices[device].needed_memory()) << print(choice);
            ++bounded;
        }
    }
    EXPECT_GT(bounded, 40);
    EXPECT_GT(sliced, 10);
}

TEST(ClusterSearch, DoesNotDependOnThreads) {
    const Config config = load(kSmall);
    const SearchResult one = search_cluster(config, {.threads = 1}), four = search_cluster(config, {.threads = 4});
    ASSERT_EQ(one.plans.size(), four.plans.size());
    for (std::size_t place = 0; place < one.plans.size(); ++place)
        EXPECT_EQ(one.plans[place].choice, four.plans[place].choice) << place;
    EXPECT_EQ(std::tuple(one.choices, one.too_large, one.too_slow, one.fitting),
              std::tuple(four.choices, four.too_large, four.too_slow, four.fitting));
}

TEST(ClusterSearch, IsStoppedByItsCaller) {
    int asked = 0;
    const SearchResult none = search_cluster(load(kSmall), {.should_stop = [] { return true; }});
    EXPECT_EQ(none.stop, SearchStop::Caller);
    EXPECT_TRUE(none.plans.empty());
    EXPECT_EQ(none.lower_bound, 0);
    // The caller stops it once plans are being simulated.
    bool plans = false;
    const SearchResult some =
        search_cluster(load(kSmall), {.exact = 1000, .should_stop = [&] { return plans && ++asked > 1; }},
                       [&](const std::string& state) { plans |= state.starts_with("plans"); });
    EXPECT_EQ(some.stop, SearchStop::Caller);
    ASSERT_NE(some.best(), nullptr);
    EXPECT_LE(some.lower_bound, some.best()->step_time);
}

TEST(ClusterSearch, WritesAConfigWithTheSamePrediction) {
    const PlanSearch plans = search_best_plan(load(kSmall));
    ASSERT_TRUE(plans.best);
    const FoundPlan& best = *plans.result.best();
    Notices notices;
    const Report report = predicted_report(make_job(load(best_config_yaml(plans, "best.yaml")), notices), false);
    EXPECT_EQ(report.metrics.step_time, best.step_time);
    EXPECT_EQ(largest_reserved(report), best.most_reserved());
    ASSERT_TRUE(report.cluster);
    EXPECT_EQ(report.cluster->devices, 8);
    const Json json = to_json(plans);
    EXPECT_EQ(json["best"]["tokens_per_second"], report.cluster->tokens_per_second);
    EXPECT_EQ(json["best"]["tensor"].get<int>() * json["best"]["pipeline"].get<int>() *
                  json["best"]["context"].get<int>() * json["best"]["data"].get<int>(),
              8);
    std::size_t layers = 0;
    Bytes most = 0;
    for (const Json& stage : json["best"]["stages"]) {
        layers += stage["layers"].size();
        most = std::max(most, stage["memory_bytes"].get<Bytes>());
        EXPECT_GT(stage["time_ns"].get<Ns>(), 0);
        EXPECT_EQ(stage["replicas"], json["best"]["data"]);
    }
    EXPECT_EQ(json["best"]["stages"].size(), static_cast<std::size_t>(best.choice.stages));
    EXPECT_EQ(layers, num_vertices(plans.best->model->layers));
    EXPECT_EQ(most, best.most_reserved());
    EXPECT_EQ(json["plans"].size(), plans.result.plans.size());
    EXPECT_TRUE(json["vendor"].is_null());
    EXPECT_FALSE(chart_of(plans).curves.empty());
}

// Against every plan of the space that the program runs.
TEST(ClusterSearch, TriesOnlyPlansThatTheProgramRuns) {
    for (const auto& [name, program] : kChoices<Program>) {
        const Config config =
            load(kSmall, {"search.program=" + std::string(name), "search.tensor=[1, 2]", "search.context=[1, 2]",
                          "search.pipeline=[1, 2, 4]", "search.micro_batch_sizes=[1]", "search.zero=[0, 1, 3]",
                          "workload.model=llama-3-8b", "cluster.memory=60 GB"});
        const PlanSearch plans = search_best_plan(config);
        ASSERT_NE(plans.result.best(), nullptr) << name;
        EXPECT_GT(plans.result.refused, 0) << name;
        for (const FoundPlan& plan : plans.result.plans)
            EXPECT_FALSE(refusal_of(program, setup_of(config, plan.choice))) << name << print(plan.choice);
        Ns least = std::numeric_limits<Ns>::max();
        for (const PlanChoice& choice : cluster_choices(config)) {
            const pw::Setup of_choice = setup_of(config, choice);
            if (refusal_of(program, of_choice))
                continue;
            Notices notices;
            const Report report = predicted_report(make_job(of_choice, notices), false);
            if (largest_reserved(report) <= 60'000'000'000)
                least = std::min(least, report.metrics.step_time);
        }
        EXPECT_EQ(plans.result.best()->step_time, least) << name;
        EXPECT_EQ(plans.result.lower_bound, least) << name;
        Notices notices;
        const Job best = make_job(load(best_config_yaml(plans, "best.yaml")), notices);
        EXPECT_FALSE(training_arguments(name, best).text.empty());
        EXPECT_TRUE(contains(to_text(plans, 3), "runs on"));
    }
}

TEST(ClusterSearch, SaysWhatTheProgramRefusesWhereItRunsNoPlan) {
    const PlanSearch plans = search_best_plan(load(kSmall, {"search.program=megatron-lm", "search.recompute=[norms]"}));
    EXPECT_FALSE(plans.best);
    expect_says(refusal([&] { require_plan(plans); }, ExitCode::Infeasible),
                {"megatron-lm runs no plan of the search", "no activations of a dense MLP"});
}

TEST(ClusterSearch, WritesTheConfigOfEveryRow) {
    const PlanSearch plans = search_best_plan(load(kSmall));
    ASSERT_GE(rows_of(plans, 3), 3u);
    EXPECT_EQ(best_config_yaml(plans, "best.yaml"), best_config_yaml(plans, "best.yaml", 1));
    for (std::size_t row = 1; row <= 3; ++row) {
        Notices notices;
        const Job job = make_job(load(best_config_yaml(plans, "best.yaml", row)), notices);
        EXPECT_EQ(predicted_report(job, false).metrics.step_time, best_by_degrees(plans.result, 3)[row - 1]->step_time);
    }
    EXPECT_TRUE(contains(best_config_yaml(plans, "best.yaml", 3), "row 3 of the search's table"));
}

// Whether the file has cluster.compute decides how products are computed.
TEST(ClusterSearch, KeepsTheRatesOfTheFile) {
    const Config config = load(kSmall, {"cluster.compute=500 TFLOP/s", "search.tensor=[1]", "search.zero=[1]"});
    const PlanSearch plans = search_best_plan(config);
    ASSERT_TRUE(plans.best);
    Notices notices;
    const Config best = load(best_config_yaml(plans, "best.yaml"));
    EXPECT_EQ(predicted_report(make_job(best, notices), false).metrics.step_time, plans.result.best()->step_time);
    EXPECT_GT(plans.result.best()->step_time, search_cluster(load(kSmall)).best()->step_time);
}

// Devices of a kind have less memory for a program than is sold; the config of the best plan has neither number.
TEST(ClusterSearch, WritesAConfigWithTheSameMemory) {
    std::string text = kSmall;
    text.erase(text.find(", memory: 24 GB"), std::string(", memory: 24 GB").size());
    const Config config = load(text, {"search.tensor=[1]", "search.pipeline=[2]"});
    const PlanSearch plans = search_best_plan(config);
    const Config best = load(best_config_yaml(plans, "best.yaml"));
    EXPECT_LT(best.cluster.devices.front().memory, best.cluster.kind->memory);
    EXPECT_EQ(best.cluster.devices.front().memory, config.cluster.devices.front().memory);
}

// 16 sequences of 4096 tokens in a step; a day has 86400 s.
TEST(ClusterSearch, CountsDaysAndMoney) {
    const PlanSearch plans = search_best_plan(load(kSmall, {"search.tokens=1e12", "search.price=2.5"}));
    const double step = static_cast<double>(plans.result.best()->step_time) * 1e-9;
    const double seconds = 1e12 / (16 * 4096 / step);
    const Json json = to_json(plans);
    EXPECT_NEAR(json["best"]["training_seconds"].get<double>(), seconds, seconds * 1e-9);
    EXPECT_NEAR(json["best"]["training_price"].get<double>(), seconds / 3600 * 8 * 2.5, seconds * 1e-6);
    EXPECT_TRUE(contains(to_text(plans, 3), fmt::format("1e+12 tokens take {:.1f} days and cost", seconds / 86400)));
}

TEST(ClusterSearch, ShowsTheVendorsPlan) {
    // Of llama-3.1-8b on 8 to 128 H100: context 2, zero 1, micro-batches of 1.
    const PlanSearch plans = search_best_plan(load(R"(
workload: {model: llama-3-8b, sequence_length: 8192}
cluster: {hosts: 2, devices_per_host: 8, device: h100-sxm-80, between: {link: ndr400, adapters: 8}}
training: {precision: bf16, optimizer: adamw}
search: {mini_batch: 32, tensor: [1, 2], context: [1], micro_batch_sizes: [1]}
)"));
    ASSERT_TRUE(plans.result.vendor);
    const PlanChoice& vendor = plans.result.vendor->choice;
    EXPECT_EQ(vendor.degrees.context, 2);
    EXPECT_EQ(vendor.degrees.data, 8);
    EXPECT_EQ(vendor.degrees.zero, 1);
    EXPECT_TRUE(contains(to_text(plans, 3), "\nvendor  "));
    EXPECT_TRUE(contains(to_json(plans)["vendor"]["source"].get<std::string>(), "README_8b.md"));
    for (const FoundPlan& plan : plans.result.plans)
        EXPECT_EQ(plan.choice.degrees.context, 1) << "the search does not list the vendor's degree";
}

TEST(ClusterSearch, SaysWhatThePlanThatNeedsLeastNeeds) {
    const PlanSearch plans = search_best_plan(load(kSmall, {"cluster.memory=1 GB"}));
    EXPECT_FALSE(plans.best);
    const Json json = to_json(plans);
    EXPECT_TRUE(json["best"].is_null());
    EXPECT_EQ(json["infeasible"]["has_bytes"], 1'000'000'000);
    EXPECT_GT(json["infeasible"]["needs_bytes"].get<Bytes>(), 1'000'000'000);
    EXPECT_TRUE(json["infeasible"]["proven"].get<bool>());
    Bytes least = std::numeric_limits<Bytes>::max();
    Space space = small_space();
    space.base.replace(space.base.find("24 GB"), 5, "1 GB");
    for (const Tried& plan : every_plan(space))
        least = std::min(least, plan.reserved);
    EXPECT_EQ(json["infeasible"]["needs_bytes"].get<Bytes>(), least);
}

TEST(Recipes, AreForModelsDevicesAndClustersOfThisBuild) {
    for (const Recipe& recipe : recipes()) {
        const std::string text = fmt::format(R"(
workload: {{model: {}, sequence_length: 4096}}
cluster: {{hosts: {}, devices_per_host: 8, device: {}, between: {{link: ndr400, adapters: 8}}}}
training: {{precision: bf16}}
search: {{mini_batch: 49152}}
)",
                                             recipe.model.name, recipe.devices.front() / 8, recipe.device);
        const Config config = load(text);
        EXPECT_TRUE(choice_of(recipe, config)) << text;
        EXPECT_FALSE(recipe.source.empty());
        EXPECT_EQ(nearest_recipe(recipe.model, recipe.device, recipe.precisions.front(), recipe.devices.front())->model,
                  nearest_recipe(recipe.model, recipe.device, recipe.precisions.back(), recipe.devices.back())->model);
    }
    const Transformer& gpt3 = *find_transformer("gpt3-175b");
    const auto chunks = [&](int devices) {
        return nearest_recipe(gpt3, "h100-sxm-80", Precision::Fp8, devices)->chunks;
    };
    EXPECT_EQ(chunks(128), 6);
    EXPECT_EQ(chunks(700), 12);
    EXPECT_EQ(chunks(10000), 12);
    EXPECT_EQ(nearest_recipe(gpt3, "a100-sxm-80", Precision::Bf16, 128), nullptr);
    // llama-3-70b has the shapes of llama-3.1-70b; of its recipes only that one is in bf16.
    EXPECT_EQ(nearest_recipe(*find_transformer("llama-3-70b"), "h100-sxm-80", Precision::Bf16, 64)->model.name,
              "llama-3.1-70b");
}

}  // namespace
}  // namespace pw
