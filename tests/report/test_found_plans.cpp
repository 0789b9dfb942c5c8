// What searches find.
#include "job/job.h"
#include "report/layouts.h"
#include "report/partition_search.h"
#include "report/plan_search.h"
#include "report/predict.h"
#include "report/report.h"
#include "tests/support/config_text.h"
#include "tests/support/refusal.h"
#include "tests/support/temporary_folder.h"
#include "workloads/interruption.h"
#include "workloads/models/blocks.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <limits>
#include <string>
#include <utility>
#include <vector>

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

// Orders by costs, proofs, simulations and packings of memory end when they are asked to.
TEST(PlanSearches, CanBeEndedFromInside) {
    struct Ended {};
    for (const auto& [schedule, least] : {std::pair{"auto", 20}, {"1f1b", 5}}) {
        const Config config = load(kMlp, {std::string("pipeline.schedule=") + schedule});
        int points = 0;
        const auto predict_until = [&](int last) {
            points = 0;
            const Interruption interruption([&] {
                if (++points == last)
                    throw Ended{};
            });
            Notices notices;
            predict(make_job(config, notices));
        };
        predict_until(0);
        const int all = points;
        EXPECT_GT(all, least) << schedule;
        for (const int last : {1, all / 2, all})
            EXPECT_THROW(predict_until(last), Ended) << schedule << last;
    }
}

// Each kind of plan is in one row, and names have no empty or repeated parts.
TEST(PlanSearches, ShowTheBestPlanOfEachKind) {
    const PlanSearch search =
        search_best_plan(load(kMlp, {"search.schedules=[gpipe, 1f1b, zb-h1]", "search.micro_batch_sizes=[1, 2, 4]"}));
    const std::string text = to_text(search, 100), table = text.substr(0, text.find("choices tried"));
    const auto count = [](const std::string& in, const std::string& part) {
        int times = 0;
        for (std::size_t at = in.find(part); at != std::string::npos; at = in.find(part, at + 1))
            ++times;
        return times;
    };
    EXPECT_EQ(count(table, "data parallel on 2 devices"), 1) << text;
    for (const char* schedule : {"gpipe", "1f1b", "zb-h1"})
        EXPECT_EQ(count(table, std::string(schedule) + ", 2 stages on 2 devices"), 1) << text;
    EXPECT_EQ(count(table, "\n"), 5) << text;  // the head, and a row for each
    for (const char* bad : {", )", "1 stages", "(, ", "naive, naive"})
        EXPECT_EQ(count(text, bad), 0) << text;
    const Chart chart = chart_of(search);
    for (const Curve& curve : chart.curves)
        for (const std::string& label : curve.labels) {
            EXPECT_FALSE(label.ends_with(", ") || label.ends_with(",")) << label;
            EXPECT_EQ(count(label, "1 stages"), 0) << label;
        }
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

// Six plans in a memory of 10 GB. The fourth is dominated, the fifth too slow to be shown, the last too large.
TEST(PlanCharts, ShowThePlansThatFit) {
    constexpr Bytes kGb = 1'000'000'000;
    const auto dot = [&](Bytes memory, Ns step, const char* schedule, const char* stages) {
        return PlanDot{memory, step, memory <= 10 * kGb, std::string(schedule) + ", " + stages, {schedule, stages}};
    };
    const std::vector<PlanDot> plans = {
        dot(9 * kGb, 1'000'000'000, "zb-v", "8 stages"),  dot(6 * kGb, 1'500'000'000, "1f1b", "8 stages"),
        dot(4 * kGb, 2'000'000'000, "gpipe", "8 stages"), dot(7 * kGb, 2'100'000'000, "zb-h1", "8 stages"),
        dot(5 * kGb, 9'000'000'000, "naive", "4 stages"), dot(70 * kGb, 900'000'000, "zb-h2", "8 stages")};
    const Chart chart = chart_of(plans, 10 * kGb);
    ASSERT_EQ(chart.curves.size(), 4u);
    const Curve &others = chart.curves[0], &misfits = chart.curves[1], &front = chart.curves[2],
                &ring = chart.curves[3];
    EXPECT_EQ(others.names, (std::vector<std::string>{"zb-h1, 8 stages", "naive, 4 stages"}));
    EXPECT_EQ(misfits.names, (std::vector<std::string>{"zb-h2, 8 stages"}));
    EXPECT_EQ(front.labels, (std::vector<std::string>{"gpipe", "1f1b", ""}));  // the best has the label of its ring
    EXPECT_EQ(ring.labels, (std::vector<std::string>{"best: zb-v, 1.000 s"}));
    EXPECT_EQ(front.facts[0], (std::vector<std::string>{"2.000 s", "4 GB", "yes"}));
    ASSERT_EQ(chart.x.levels.size(), 1u);
    EXPECT_EQ(chart.x.levels[0].name, "memory 10 GB");
    EXPECT_LT(*chart.x.most, 12e9);
    EXPECT_EQ(chart.x.quantity, Quantity::DecimalSize);
    ASSERT_EQ(chart.remarks.size(), 2u);
    EXPECT_EQ(chart.remarks[1],
              "not shown: \u2192 1 plan with more memory, up to 70 GB   \u2191 1 plan slower, up to 9.000 s");
    EXPECT_EQ(less_memory_text(plans, 10 * kGb), "less memory: 1.500 s with 6 GB (1f1b); 2.000 s with 4 GB (gpipe)\n");
    EXPECT_EQ(less_memory_text({plans.front(), plans.back()}, 10 * kGb), "");
    const Chart none = chart_of({plans.back()}, 10 * kGb);
    EXPECT_EQ(none.curves.size(), 1u);
    EXPECT_FALSE(none.x.most);
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

namespace {

SplitSpec spec_of(const std::string& model, const std::string& cuts) {
    const Config config = load(fmt::format("{{workload: {{model: {}}}, pipeline: {{split: [{}]}}}}", model, cuts));
    Notices notices;
    const Job job = make_job(config, notices);
    return pytorch_split_spec(config.workload, job.model->layers, job.split);
}

}  // namespace

// Names of GPT2LMHeadModel and LlamaForCausalLM in Hugging Face and of torchvision's ResNet
TEST(SplitSpecs, HaveTheNamesOfModulesInPyTorch) {
    const SplitSpec gpt = spec_of("gpt", "h.1, h.3, lm_head");
    EXPECT_EQ(gpt.text, R"({"transformer.h.1": SplitPoint.BEGINNING, "transformer.h.3": SplitPoint.BEGINNING, )"
                        R"("lm_head": SplitPoint.BEGINNING})");
    EXPECT_TRUE(gpt.inside.empty());
    EXPECT_EQ(spec_of("llama", "model.layers.2").text, R"({"model.layers.2": SplitPoint.BEGINNING})");
    EXPECT_EQ(spec_of("resnet50", "layer3.0").text, R"({"layer3.0": SplitPoint.BEGINNING})");
    const SplitSpec inside = spec_of("gpt", "h.1.mlp.c_proj");
    EXPECT_EQ(inside.text, R"({"transformer.h.1.mlp.c_proj": SplitPoint.BEGINNING})");
    EXPECT_EQ(inside.inside, std::vector<std::string>{"h.1.mlp.c_proj"});
}

TEST(SplitSpecs, NameLayersThatAreNoModules) {
    const SplitSpec gpt = spec_of("gpt", "h.1.attn.core, h.2");
    EXPECT_EQ(gpt.text, "");
    EXPECT_EQ(gpt.no_modules, std::vector<std::string>{"h.1.attn.core"});
    EXPECT_EQ(spec_of("resnet50", "layer3.0.add").no_modules, std::vector<std::string>{"layer3.0.add"});
}

// As layer_graph of pipewright.torch names them: h.0 and h.0.2 are sums of the block, between its modules.
TEST(SplitSpecs, KnowTheOperationsBetweenModules) {
    const TemporaryFolder folder;
    const std::string layers = folder.write(
        "layers.yaml",
        "{samples: 1, layers: [{name: transformer.h.0.ln, forward: 1 ms, backward: 2 ms}, {name: transformer.h.0, "
        "forward: 1 ms, backward: 2 ms}, {name: transformer.h.0.mlp, forward: 1 ms, backward: 2 ms}, {name: "
        "transformer.h.0.2, forward: 1 ms, backward: 2 ms}, {name: transformer.h.1.ln, forward: 1 ms, backward: 2 "
        "ms}]}");
    EXPECT_EQ(spec_of(layers, "transformer.h.1.ln").text, R"({"transformer.h.1": SplitPoint.BEGINNING})");
    EXPECT_EQ(spec_of(layers, "transformer.h.0.mlp").text, R"({"transformer.h.0.mlp": SplitPoint.BEGINNING})");
    EXPECT_EQ(spec_of(layers, "transformer.h.0.2").no_modules, std::vector<std::string>{"transformer.h.0.2"});
    const Config config = load("{workload: {model: " + layers +
                               "}, pipeline: {split: {stages: [[transformer.h.0.ln], [transformer.h.0, "
                               "transformer.h.0.mlp, transformer.h.0.2, transformer.h.1.ln]]}}}");
    Notices notices;
    const Job job = make_job(config, notices);
    EXPECT_EQ(pytorch_split_spec(config.workload, job.model->layers, job.split).no_modules,
              std::vector<std::string>{"transformer.h.0"});
}

namespace {

constexpr const char* kGpt = R"(
workload: {model: gpt, blocks: 6, vocabulary: 64, embedding: 32, heads: 2, sequence_length: 32}
cluster: {devices: 2, link: {bandwidth: 1 GB/s, latency: 1 us}}
search: {schedules: [1f1b], mini_batch: 8, micro_batch_sizes: [2], stages: [2]}
)";

}  // namespace

// The least step over all splits between blocks; the answer also has the price of whole blocks.
TEST(PlanSearches, CutBetweenBlocksIfAsked) {
    const PlanSearch layers = search_best_plan(load(kGpt));
    const PlanSearch blocks = search_best_plan(load(kGpt, {"pipeline.cuts=blocks"}));
    const LayerGraph& graph = blocks.problem.model.layers;
    Ns least = std::numeric_limits<Ns>::max();
    for (const int start : starts_of_blocks(graph))
        if (start > 0) {
            Notices notices;
            const Job job = make_job(load(kGpt, {"pipeline.split=[" + graph[static_cast<std::size_t>(start)].name + "]",
                                                 "pipeline.micro_batch_size=2", "pipeline.micro_batches=4"}),
                                     notices);
            least = std::min(least, predicted_report(job, false).metrics.step_time);
        }
    EXPECT_EQ(blocks.result.best()->step_time, least);
    EXPECT_EQ(blocks.result.lower_bound, least);  // proven among whole blocks
    ASSERT_TRUE(blocks.other_cuts);
    EXPECT_EQ(blocks.other_cuts->step_time, layers.result.best()->step_time);
    EXPECT_TRUE(contains(to_text(blocks, 3), "the same choice cut at any layers takes "));
    EXPECT_TRUE(contains(best_config_yaml(blocks, "best.yaml"), "cuts: blocks"));
    if (layers.result.best()->step_time < least) {
        ASSERT_TRUE(layers.other_cuts);
        EXPECT_EQ(layers.other_cuts->step_time, least);
        EXPECT_TRUE(contains(to_text(layers, 3), "the same choice cut between blocks takes "));
    }
}

}  // namespace pw
