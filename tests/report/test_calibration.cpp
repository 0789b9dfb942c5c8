// Factors of a config from measured steps: of simulated plans whose factors are known, and of steps that cannot be.
#include "report/calibration.h"

#include "job/load.h"
#include "report/notes.h"
#include "report/report.h"
#include "tests/support/refusal.h"
#include "tests/support/temporary_folder.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

namespace pw {
namespace {

constexpr const char* kCluster = R"(
workload: {model: llama-3.2-1b, sequence_length: 2048}
cluster: {hosts: 2, devices_per_host: 4, device: h100-sxm-80, inside: nvlink4, between: hdr200}
parallel: {tensor: 2, pipeline: 2, zero: 1}
pipeline: {schedule: 1f1b, mini_batch: 64, micro_batch_size: 1}
training: {precision: bf16, optimizer: adamw}
)";
// Plans in which kernels, messages between hosts and launches have different parts of the step.
const std::vector<std::vector<std::string>> kPlans = {
    {},
    {"parallel.tensor=4", "parallel.pipeline=1"},
    {"parallel.tensor=1", "pipeline.micro_batch_size=4"},
    {"parallel.tensor=8", "parallel.pipeline=1"},
    {"parallel.tensor=1", "parallel.pipeline=1", "parallel.zero=3", "pipeline.micro_batch_size=4"},
    {"parallel.tensor=4", "pipeline.micro_batch_size=4"},
};

const ConfigSource kSource{"cluster.yaml", {}, kCluster};

std::vector<std::string> with_more(std::vector<std::string> set, const std::vector<std::string>& more) {
    set.insert(set.end(), more.begin(), more.end());
    return set;
}

Report report_under(const std::vector<std::string>& set) {
    Notices notices;
    return predicted_report(make_job(kSource.load_with(set), notices), false);
}

Ns step_with(const std::vector<std::string>& set) { return report_under(set).metrics.step_time; }

// Runs of the plans on a cluster that has these factors.
std::vector<MeasuredRun> runs_with(const std::vector<std::string>& factors, std::size_t count) {
    std::vector<MeasuredRun> runs;
    for (std::size_t plan = 0; plan < count; ++plan)
        runs.push_back({.name = fmt::format("plan {}", plan),
                        .set = kPlans[plan],
                        .step = step_with(with_more(kPlans[plan], factors))});
    return runs;
}

TEST(CalibratedCluster, FindsTheFactorsThatTheRunsHad) {
    const CalibrationResult found =
        fit_calibration(kSource, runs_with({"calibration.computing=1.2", "calibration.between=1.3"}, kPlans.size()));
    EXPECT_NEAR(found.calibration.computing, 1.2, 0.01);
    EXPECT_NEAR(found.calibration.between, 1.3, 0.02);
    EXPECT_NEAR(found.calibration.outside, 1, 0.02);
    EXPECT_EQ(found.calibration.inside, 1);
    EXPECT_EQ(found.calibration.runs, 6);
    EXPECT_EQ(found.verdicts[0], FactorVerdict::Set);
    EXPECT_EQ(found.verdicts[2], FactorVerdict::Set);
    for (const CalibratedRun& run : found.runs) {
        EXPECT_GT(std::abs(run.error_before()), 0.02) << run.name;
        EXPECT_LT(std::abs(run.error_after()), 0.01) << run.name;
    }
}

// A plan that no run had is predicted as well.
TEST(CalibratedCluster, PredictsOtherPlansOfTheCluster) {
    const std::vector<std::string> factors = {"calibration.computing=1.15", "calibration.between=1.2",
                                              "calibration.outside=1.25"};
    const Calibration found = fit_calibration(kSource, runs_with(factors, kPlans.size())).calibration;
    const std::vector<std::string> other = {"parallel.tensor=1", "parallel.pipeline=8", "parallel.zero=0"};
    const Ns measured = step_with(with_more(other, factors)), before = step_with(other);
    const Ns after = step_with(with_more(
        other,
        {fmt::format("calibration.computing={}", found.computing), fmt::format("calibration.inside={}", found.inside),
         fmt::format("calibration.between={}", found.between), fmt::format("calibration.outside={}", found.outside)}));
    EXPECT_NEAR(static_cast<double>(after), static_cast<double>(measured), 0.01 * static_cast<double>(measured));
    EXPECT_LT(before, measured * 9 / 10);
}

// A single run sets one factor, and moves its prediction towards what was measured, not beyond.
TEST(CalibratedCluster, OfOneRunSetsOneFactor) {
    const Ns predicted = step_with(kPlans[4]);
    const CalibrationResult found =
        fit_calibration(kSource, {{.name = "slow", .set = kPlans[4], .step = predicted * 6 / 5}});
    EXPECT_GT(found.calibration.computing, 1);
    EXPECT_EQ(found.calibration.inside, 1);
    EXPECT_EQ(found.calibration.between, 1);
    EXPECT_EQ(found.calibration.outside, 1);
    EXPECT_EQ(found.verdicts[2], FactorVerdict::TooFewSteps);
    EXPECT_EQ(found.runs[0].before, predicted);
    EXPECT_GT(found.runs[0].after, predicted);
    EXPECT_LE(found.runs[0].after, found.runs[0].measured);
}

// Without messages between devices, twice the time of kernels and of what is outside of them is twice the step.
TEST(CalibratedCluster, FactorsMultiplyTheirParts) {
    const std::vector<std::string> alone = {"cluster.hosts=1",     "cluster.devices_per_host=1",
                                            "cluster.between=",    "parallel.tensor=1",
                                            "parallel.pipeline=1", "pipeline.micro_batch_size=8"};
    const Report once = report_under(alone), twice = report_under(with_more(alone, {"calibration.computing=2"}));
    const PassParts &a = *once.cluster->parts, &b = *twice.cluster->parts;
    EXPECT_NEAR(b.products, 2 * a.products, 1e-6 * a.products);
    EXPECT_NEAR(b.attention, 2 * a.attention, 1e-6 * a.attention);
    const PassParts outside = *report_under(with_more(alone, {"calibration.outside=2"})).cluster->parts;
    EXPECT_NEAR(outside.other, 2 * a.other, 1e-3 * a.other);
    EXPECT_NEAR(outside.products, a.products, 1e-6 * a.products);
}

// The message between two stages on two hosts: twice the time with half the bandwidth and twice the latency.
TEST(CalibratedCluster, FactorsOfMessagesAreThoseOfTheirLinks) {
    const std::vector<std::string> plan = {"parallel.tensor=4", "parallel.pipeline=2", "parallel.zero=0"};
    EXPECT_EQ(step_with(with_more(plan, {"calibration.between=2"})),
              step_with(with_more(plan, {"cluster.between={bandwidth: 12.5 GB/s, latency: 28 us}"})));
    EXPECT_EQ(
        step_with(with_more(plan, {"calibration.between=2", "cluster.links=[{from: 0, to: 4, bandwidth: 4 GB/s}]"})),
        step_with(with_more(plan, {"cluster.between={bandwidth: 12.5 GB/s, latency: 28 us}",
                                   "cluster.links=[{from: 0, to: 4, bandwidth: 2 GB/s}]"})));
}

TEST(CalibratedCluster, IsNamedInNotesAndJson) {
    Notices notices;
    const Job job = make_job(
        kSource.load_with({"calibration.computing=1.08", "calibration.outside=1.3", "calibration.runs=3"}), notices);
    const Notices notes = notes_on_costs(job);
    EXPECT_NE(std::ranges::find(notes, "calibrated by 3 runs: computing 1.08, outside 1.3 times as long as predicted"),
              notes.end());
    EXPECT_EQ(to_json(predicted_report(job, false), job)["calibration"]["runs"], 3);
    EXPECT_FALSE(to_json(report_under({}), make_job(kSource.load_with({}), notices)).contains("calibration"));
}

TEST(CalibratedCluster, IsWrittenIntoTheTextOfTheConfig) {
    const TemporaryFolder folder;
    folder.write("cluster.yaml",
                 fmt::format("{}calibration: {{computing: 3, runs: 9}}\nsweep: {{parallel.zero: [0, 1]}}\n", kCluster));
    const ConfigSource source{(folder.path() / "cluster.yaml").string(), {"pipeline.mini_batch=32"}};
    CalibrationResult result;
    result.calibration = {.computing = 1.1, .between = 0.9, .runs = 2};
    const std::string text = calibrated_yaml(result, source, (folder.path() / "mine.yaml").string());
    folder.write("mine.yaml", text);
    const Config written = load_config((folder.path() / "mine.yaml").string(), {});
    EXPECT_EQ(written.calibration, result.calibration) << text;
    EXPECT_EQ(written.pipeline.mini_batch, source.load_with({}).pipeline.mini_batch);
    EXPECT_EQ(written.sweep.size(), 1u);
    EXPECT_FALSE(contains(text, "optimizer: sgd"));
}

TEST(MeasuredRuns, AreReadFromATextAndATable) {
    const MeasuredRun run = read_run("parallel.tensor=4,pipeline.split=[block.3, block.9]=53.7 s", "--run");
    EXPECT_EQ(run.set, (std::vector<std::string>{"parallel.tensor=4", "pipeline.split=[block.3, block.9]"}));
    EXPECT_EQ(run.step, Ns{53'700'000'000});
    EXPECT_EQ(read_run("other.yaml=150000 tokens/s", "--run").path, "other.yaml");
    EXPECT_EQ(read_run("other.yaml=150000 tokens/s", "--run").tokens_per_second, 150000);
    EXPECT_TRUE(read_run("12 ms", "--run").set.empty());
    const TemporaryFolder folder;
    folder.write("runs.csv", "parallel.tensor, parallel.zero, step\r\n4, , 1.5 s\r\n\r\n2, 0, 9 samples/s\r\n");
    const std::vector<MeasuredRun> runs = read_runs((folder.path() / "runs.csv").string());
    ASSERT_EQ(runs.size(), 2u);
    EXPECT_EQ(runs[0].set, std::vector<std::string>{"parallel.tensor=4"});
    EXPECT_EQ(runs[0].step, Ns{1'500'000'000});
    EXPECT_EQ(runs[1].name, "parallel.tensor=2,parallel.zero=0");
    EXPECT_EQ(runs[1].samples_per_second, 9);
}

// A rate and a time say the same of a plan: 64 sequences of 2048 tokens in a second.
TEST(MeasuredRuns, OfARateAreStepsOfTheMiniBatch) {
    for (const char* rate : {"1 s", "131072 tokens/s", "64 samples/s"}) {
        const CalibrationResult found = fit_calibration(kSource, {read_run(rate, "--run")});
        EXPECT_EQ(found.runs[0].measured, Ns{1'000'000'000}) << rate;
        EXPECT_EQ(found.runs[0].name, "cluster.yaml");
    }
}

TEST(MeasuredRuns, ThatCannotBeAreRefused) {
    const auto refused = [](const std::vector<MeasuredRun>& runs) {
        return refusal([&] { (void)fit_calibration(kSource, runs); });
    };
    expect_says(refused({}), {"no measured run is given", "--run"});
    expect_says(refused({read_run("parallel.tensr=4=1 s", "--run")}),
                {"unknown key 'tensr'", "did you mean 'tensor'?", "note: this is the plan of run 'parallel.tensr=4'"});
    expect_says(refused({read_run("workload.model=mlp=1 s", "--run")}), {"run 'workload.model=mlp'"});
    for (const char* text : {"parallel.tensor=4=12", "1 t", "0 s", "-3 s", "inf tokens/s", "x"})
        expect_says(refusal([&] { (void)read_run(text, "--run"); }), {"--run: '", "is no measured step", "53.7 s"});
    expect_says(refusal([] { (void)read_run("parallel.tensor=4,zero=1 s,b=2 s", "--run"); }), {"no override"});
    const TemporaryFolder folder;
    const auto table = [&](const std::string& text) {
        folder.write("runs.csv", text);
        return refusal([&] { (void)read_runs((folder.path() / "runs.csv").string()); });
    };
    expect_says(table("parallel.tensor,time\n4,1 s\n"), {"runs.csv:1", "'step'"});
    expect_says(table("parallel.tensor,step\n4\n"), {"runs.csv:2", "1 cells, but 2 columns"});
    expect_says(table("parallel.tensor,step\n4,1\n"), {"runs.csv:2", "'1' is no measured step"});
    expect_says(table("parallel.tensor,step\n"), {"has no runs"});
}

// Nor is a step ten times as long the cluster's.
TEST(MeasuredRuns, ThatNoFactorExplainsGetANote) {
    const CalibrationResult found = fit_calibration(kSource, {read_run("6 s", "--run")});
    ASSERT_EQ(found.notes.size(), 1u);
    expect_says(found.notes.front(), {"run 'cluster.yaml' is predicted -", "check its plan, its unit"});
    EXPECT_TRUE(fit_calibration(kSource, runs_with({}, 2)).notes.empty());
}

// What does not fit was measured all the same.
TEST(MeasuredRuns, ThatDoNotFitGetANote) {
    const CalibrationResult found = fit_calibration(kSource, {read_run("cluster.memory=4 GB=0.58 s", "--run")});
    ASSERT_EQ(found.notes.size(), 1u);
    expect_says(found.notes.front(), {"run 'cluster.memory=4 GB'", "does not fit", "its step counts all the same"});
}

}  // namespace
}  // namespace pw
