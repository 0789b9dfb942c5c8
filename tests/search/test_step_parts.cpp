// What the steps of two plans of a transformer consist of, against hand calculations.
#include "job/job.h"
#include "report/plan_search.h"
#include "report/report.h"
#include "search/step_parts.h"
#include "tests/support/config_text.h"
#include "tests/support/refusal.h"
#include "tests/support/thoroughness.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <cmath>
#include <numeric>
#include <string>
#include <vector>

namespace pw {
namespace {

struct Predicted {
    Job job;
    Report report;
    const StepParts& parts() const { return *report.cluster->step; }
};

Predicted predicted(const std::string& text, const std::vector<std::string>& set = {}) {
    Notices notices;
    Predicted made{make_job(load(text, set), notices), {}};
    made.report = predicted_report(made.job, false);
    return made;
}

Ns sum_of(const StepParts& parts) { return std::accumulate(parts.times.begin(), parts.times.end(), Ns{0}); }

// Two hosts of one device, and a program that overlaps nothing.
constexpr const char* kTwoReplicas = R"(
workload: {model: llama-3.2-1b, sequence_length: 4096}
cluster: {hosts: 2, devices_per_host: 1, device: h100-sxm-80, between: ndr400}
parallel: {release: megatron-2021}
pipeline: {mini_batch: 8, micro_batch_size: 1}
training: {precision: bf16, optimizer: adamw}
)";

// ZeRO-1 replaces the all-reduce of gradients by a reduce-scatter and a gather of weights, and halves the states that
// the update touches. Nothing else differs.
TEST(StepParts, SayWhatZeroOneChanges) {
    const Predicted without = predicted(kTwoReplicas), with = predicted(kTwoReplicas, {"parallel.zero=1"});
    // Each layer has queries, keys and values, output, three matrices of the MLP and two norms; besides, the table and
    // a norm.
    const double layer = 2048.0 * 2048 + 2 * 2048.0 * 512 + 2048.0 * 2048 + 3 * 2048.0 * 8192 + 2 * 2048;
    const double all = 16 * layer + 128'256.0 * 2048 + 2048;
    // A collective takes 22 us, a hop 14 us; an adapter of 50 GB/s reaches 0.96 of it. Half of the bytes leave
    // a device.
    const auto halves = [](double times, double hops, double bytes) {
        return 22e-6 + hops * 14e-6 + times * bytes / 2 / (0.96 * 50e9);
    };
    const double all_reduce = halves(2, 2, 4 * all), scatter = halves(1, 1, 4 * all), gather = halves(1, 1, 2 * all);
    // Gradients are read and set to zero, and read for their norm; 12 bytes of states are read and written, and the
    // weights are written: at 0.88 of 3.35 TB/s.
    const double rate = 0.88 * 3.35e12;
    const double update = (4 + 4 + 24 + 2) * all + 4 * all, half_update = (4 + 4 + 24 + 2) * all / 2 + 4 * all;
    const auto change = [&](StepPart part) { return static_cast<double>(with.parts()[part] - without.parts()[part]); };
    EXPECT_NEAR(change(StepPart::Sums), (scatter - all_reduce) * 1e9, 3);
    EXPECT_NEAR(change(StepPart::Gathers), gather * 1e9, 3);
    EXPECT_NEAR(change(StepPart::Update), (half_update - update) / rate * 1e9, 3);
    for (const StepPartFacts& facts : kStepParts) {
        const bool changes =
            facts.part == StepPart::Sums || facts.part == StepPart::Gathers || facts.part == StepPart::Update;
        EXPECT_TRUE(changes || change(facts.part) == 0) << facts.name;
    }
    EXPECT_NEAR(static_cast<double>(with.report.metrics.step_time - without.report.metrics.step_time),
                (scatter - all_reduce + gather + (half_update - update) / rate) * 1e9, 3);
    EXPECT_NEAR(static_cast<double>(without.parts()[StepPart::Sums]), all_reduce * 1e9, 3);
}

// 1f1b on two ranks, the second of which is slower: it has the head. The second one works without a break from the
// first message on, and the first one ends after its last gradient has arrived.
TEST(StepParts, HaveTheIdleTimeOfTheRankThatEndsLast) {
    const Predicted made = predicted(R"(
workload: {model: llama-3.2-1b, sequence_length: 4096}
cluster: {hosts: 1, devices_per_host: 2, device: h100-sxm-80}
parallel: {pipeline: 2}
pipeline: {schedule: 1f1b, mini_batch: 6, micro_batch_size: 1}
training: {precision: bf16, optimizer: adamw}
)");
    const StageCost &first = made.job.costs.stage[0], &second = made.job.costs.stage[1];
    ASSERT_LT(first.forward + first.backward, second.forward + second.backward);
    // 4096 tokens of 2048 values in bf16 over NVLink of 450 GB/s with 3.4 us.
    const double message = 4096.0 * 2048 * 2 / 450e9 * 1e9 + 3400;
    const auto time = [](Ns ns) { return static_cast<double>(ns); };
    const double of_second = 6 * time(second.forward + second.backward);
    const double step = time(first.forward) + message + of_second + message + time(first.backward + first.update);
    EXPECT_NEAR(time(made.report.metrics.step_time), step, 5);
    EXPECT_EQ(made.parts().rank, 0);
    const double idle = step - 6 * time(first.forward + first.backward) - time(first.update);
    EXPECT_NEAR(time(made.parts()[StepPart::Bubble] + made.parts()[StepPart::Stages]), idle, 5);
    // It waits for the message of each gradient but those that arrive while it computes; of the last one at least.
    EXPECT_GE(time(made.parts()[StepPart::Stages]), message - 2);
    EXPECT_EQ(sum_of(made.parts()), made.report.metrics.step_time);
}

// Passes take 3.68 % of their time for what no kernel and no message accounts for; nothing else may be in it.
void expect_parts(const StepParts& parts, Ns step_time, const std::string& name) {
    EXPECT_EQ(sum_of(parts), step_time) << name;
    Ns passes = 0;
    for (const StepPartFacts& facts : kStepParts) {
        EXPECT_GE(parts[facts.part], 0) << name << ": " << facts.name;
        passes += facts.of_pass != nullptr ? parts[facts.part] : 0;
    }
    EXPECT_NEAR(static_cast<double>(parts[StepPart::Other]) / static_cast<double>(passes), 0.0368, 1e-5) << name;
}

// DeepSeek-V3 as its report trains it (arXiv 2412.19437, sections 3.2 and 4.2): 16 stages, experts on 64 ranks, NVLink
// and an adapter of 400 Gbit/s for each GPU. Its messages take about as long as its computing, and DualPipe hides them.
constexpr const char* kDualPipe = R"(
workload: {model: deepseek-v3, sequence_length: 4096}
cluster: {hosts: 256, devices_per_host: 8, device: h100-sxm-80, memory: inf, between: {link: ndr400, adapters: 8}}
parallel: {pipeline: 16, expert: 64, zero: 1}
pipeline: {schedule: dualpipe, mini_batch: 15360, micro_batch_size: 1}
training: {precision: bf16, optimizer: adamw}
)";

TEST(StepParts, CountMessagesThatPairsHide) {
    const Predicted hidden = predicted(kDualPipe), sequential = predicted(kDualPipe, {"pipeline.pair_exposed=1"});
    expect_parts(hidden.parts(), hidden.report.metrics.step_time, "hidden");
    // The first rank has 2 (60 - 16 + 1) + 7 pairs for 120 micro-batches. If a pair hides all messages of its passes,
    // 12.6 % of their time remains, by which they slow computing down.
    const auto messages = [](const Predicted& made) { return static_cast<double>(made.parts()[StepPart::Experts]); };
    EXPECT_GT(messages(sequential), 0.15 * static_cast<double>(sequential.report.metrics.step_time));
    EXPECT_GT(messages(hidden), (1 - 97.0 / 120 * (1 - 0.126)) * messages(sequential));
    EXPECT_LT(messages(hidden), 0.5 * messages(sequential));
    EXPECT_LT(hidden.report.metrics.step_time, sequential.report.metrics.step_time);
    EXPECT_FALSE(overlaps_pairs(sequential.job.costs));
    expect_says(load(kDualPipe, {"pipeline.pair_exposed=1"}).yaml, {"pair_exposed: 1"});
    // A constant of the file replaces the times of pairs.
    EXPECT_FALSE(predicted(kDualPipe, {"pipeline.pair_exposed=0.5"}).job.costs.stage[3].pair.has_value());
}

// Two stages on each of 16 devices: the last rank has most pairs, 2 x 120 less 25 forwards of its warm-up.
TEST(StepParts, CountMessagesThatInterleavedPairsHide) {
    const std::vector<std::string> interleaved = {"pipeline.schedule=interleaved", "pipeline.stages=32",
                                                  "pipeline.group=24"};
    std::vector<std::string> pairs = interleaved;
    pairs.push_back("pipeline.pairs=true");
    const Predicted sequential = predicted(kDualPipe, interleaved), hidden = predicted(kDualPipe, pairs);
    expect_parts(hidden.parts(), hidden.report.metrics.step_time, "hidden");
    const auto messages = [](const Predicted& made) { return static_cast<double>(made.parts()[StepPart::Experts]); };
    EXPECT_LT(hidden.report.metrics.step_time, sequential.report.metrics.step_time);
    EXPECT_LT(messages(hidden), messages(sequential));
    EXPECT_GT(messages(hidden), (1 - 215.0 / 240 * (1 - 0.126)) * messages(sequential));
}

constexpr const char* kSmallCluster = R"(
workload: {model: llama-3.2-1b, sequence_length: 4096}
cluster: {hosts: 2, devices_per_host: 4, device: h100-sxm-80, between: {link: ndr400, adapters: 4}}
training: {precision: bf16, optimizer: adamw}
search: {mini_batch: 16, micro_batch_sizes: [1, 2]}
)";
constexpr const char* kExperts = R"(
workload: {model: deepseek-v2-lite, sequence_length: 4096}
cluster: {hosts: 2, devices_per_host: 8, device: h100-sxm-80, between: {link: ndr400, adapters: 8}}
training: {precision: bf16, optimizer: adamw}
search: {mini_batch: 32, micro_batch_sizes: [1], chunks: [1, 2], expert: [1, 8]}
)";

TEST(StepParts, AddUpToTheStepOfEveryPlan) {
    int plans = 0;
    OneIn some(2);
    for (const char* text : {kSmallCluster, kExperts})
        for (const char* release : {"nemo-2025", "megatron-2021", "torchtitan", "scaling-2023"}) {
            const bool is_usual = release == std::string("nemo-2025");
            if (!is_usual && !some.picks())
                continue;
            const Config config = load(text, {fmt::format("parallel.release={}", release),
                                              is_usual ? "search.schedules=all" : "search.schedules=[1f1b, zb-h1]"});
            for (const FoundPlan& plan : search_cluster(config).plans) {
                expect_parts(plan.parts, plan.step_time, fmt::format("{}: {}", release, print(plan.choice)));
                ++plans;
            }
        }
    EXPECT_GT(plans, 200);
}

TEST(StepParts, AreThoseOfThePlanAlone) {
    const PlanSearch plans = search_best_plan(load(kSmallCluster));
    const Json json = to_json(plans);
    const Predicted alone = predicted(best_config_yaml(plans, "best.yaml"));
    const Json cluster = to_json(alone.report)["cluster"];
    EXPECT_EQ(cluster["parts_ns"], json["best"]["parts_ns"]);
    EXPECT_EQ(cluster["parts_rank"], json["best"]["parts_rank"]);
    Ns sum = 0;
    for (const auto& [name, time] : json["plans"][1]["parts_ns"].items())
        sum += time.get<Ns>();
    EXPECT_EQ(sum, json["plans"][1]["step_time_ns"]);
    EXPECT_EQ(json["plans"][0]["parts_ns"].size(), std::size(kStepParts));
}

TEST(StepParts, CompareTheBestPlanWithTheSecond) {
    const PlanSearch plans = search_best_plan(load(kSmallCluster));
    expect_says(to_text(plans, 3),
                {"\npart of the step ", "  plan 1 ", "  plan 2  difference\n", "\nproducts ", "\nstep "});
}

// No kernel and no message accounts for the same share of all passes, whole or cut: all slices are counted, each once.
TEST(StepParts, AreOfAllSlices) {
    constexpr const char* kPipeline = R"(
workload: {model: llama-3.2-1b, sequence_length: 8192}
cluster: {hosts: 1, devices_per_host: 4, device: h100-sxm-80}
parallel: {tensor: 2, pipeline: 2}
pipeline: {schedule: 1f1b, micro_batches: 6}
training: {precision: bf16, optimizer: adamw}
)";
    const auto unaccounted = [&](const std::vector<std::string>& set) {
        const Predicted made = predicted(kPipeline, set);
        const StepParts& parts = made.parts();
        const auto busy = static_cast<double>(made.report.metrics.devices[static_cast<std::size_t>(parts.rank)].busy);
        return static_cast<double>(parts[StepPart::Other]) / busy;
    };
    const double whole = unaccounted({});
    EXPECT_GT(whole, 0);
    for (const char* slices : {"2", "8, slice_lengths: time"})
        EXPECT_NEAR(unaccounted({fmt::format("pipeline={{schedule: seq1f1b, micro_batches: 6, slices: {}}}", slices)}),
                    whole, 1e-5);
}

}  // namespace
}  // namespace pw
