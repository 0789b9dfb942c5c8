// What searches find.
#include "report/layouts.h"
#include "report/partition_search.h"
#include "report/plan_search.h"
#include "tests/support/config_text.h"
#include "tests/support/refusal.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <string>
#include <utility>

namespace pw {

namespace {

constexpr const char* kMlp = R"(
workload: {model: mlp}
cluster: {devices: 2}
pipeline: {schedule: gpipe, micro_batches: 4, micro_batch_size: 4}
search: {schedules: [gpipe, 1f1b]}
)";

}  // namespace

TEST(PlanSearches, OwnWhatTheyReferTo) {
    const PlanSearch search = search_best_plan(load(kMlp));  // the config is gone
    ASSERT_TRUE(search.best);
    const Json json = to_json(search);
    EXPECT_EQ(json["objective_name"], "makespan");
    EXPECT_EQ(json["objective_ns"], search.result.best()->step_time);
    EXPECT_EQ(json["best"]["schedule"], search.best->plan.schedule);
    EXPECT_EQ(json["best"]["stages"].size(), search.best->split.layers.size());
    for (const char* key : {"objective", "lower_bound_ns", "gap", "candidates", "seconds", "plans", "notes"})
        EXPECT_TRUE(json.contains(key)) << key;
    for (const char* key : {"layers", "time_ns", "memory_bytes", "replicas"})
        EXPECT_TRUE(json["best"]["stages"][0].contains(key)) << key;
    EXPECT_TRUE(contains(to_text(search, 10), "best: "));
    EXPECT_EQ(load(best_config_yaml(search, "best.yaml")).pipeline.schedule, search.best->plan.schedule);
    EXPECT_FALSE(chart_of(search).curves.empty());
}

TEST(PlanSearches, AreStoppedByTheirCaller) {
    const PlanSearch search = search_best_plan(load(kMlp), {}, {{}, [] { return true; }});
    EXPECT_EQ(search.result.stop, SearchStop::Caller);
    EXPECT_EQ(to_json(search)["stopped_by"], "caller");
}

TEST(PlanSearches, SayWhyNothingFits) {
    Config config = load(kMlp, {"cluster.memory=1 kB"});
    const PlanSearch search = search_best_plan(std::move(config));
    EXPECT_FALSE(search.best);
    const Json json = to_json(search);
    EXPECT_TRUE(json["best"].is_null());
    EXPECT_EQ(json["infeasible"]["has_bytes"], 1000);
}

TEST(PlanSearches, NeedLayers) {
    EXPECT_TRUE(contains(refusal([] {
                             search_best_plan(
                                 load("workload: {model: uniform, stages: 2, forward: 1 us, "
                                      "backward_input: 1 us, backward_weight: 1 us}\n"));
                         }),
                         "nothing to split and search"));
}

TEST(PartitionSearches, HaveTheirOwnObjective) {
    const PartitionSearch search = search_partition(load(kMlp, {"search.objective=pipedream"}));
    EXPECT_TRUE(search.in_seconds);
    const Json json = to_json(search);
    EXPECT_EQ(json["objective_name"], "pipedream");
    EXPECT_EQ(json["best"]["stages"].size(), search.partition.stages.size());
    EXPECT_TRUE(contains(to_text(search), "objective "));
    EXPECT_EQ(chart_of(search).y.label, "time per mini-batch");
    EXPECT_TRUE(contains(refusal([] { search_partition(load(kMlp)); }), "makespan"));
}

TEST(Layouts, AreThoseOfDecoders) {
    for (const auto& [model, block] : {std::pair{"gpt", "h.1"}, {"llama", "model.layers.1"}}) {
        const Config config = load(fmt::format(R"(
workload: {{model: {}, blocks: 2, vocabulary: 512, embedding: 64, heads: 2, sequence_length: 64}}
cluster: {{devices: 2}}
pipeline: {{schedule: 1f1b, split: [{}]}}
)",
                                               model, block));
        Notices notices;
        const Job job = make_job(config, notices);
        EXPECT_EQ(megatron_layout(config.workload, job.model->layers, job.split), "Et|tL") << model;
    }
}

}  // namespace pw
