// Predictions and measurements of one plan.
#include "report/accuracy.h"
#include "report/comparison.h"
#include "report/measure.h"
#include "report/schedule_comparison.h"
#include "tests/support/refusal.h"
#include "tests/support/temporary_folder.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <string>
#include <vector>

namespace pw {

namespace {

class Comparisons : public testing::Test {
protected:
    Job job(const std::vector<std::string>& set = {}) const {
        Notices notices;
        return make_job(source_.load_with(set), notices);
    }

    TemporaryFolder folder_;
    const ConfigSource source_{folder_.write("cfg.yaml", R"(
workload: {model: uniform, stages: 2, forward: 1 ms, backward_input: 1 ms, backward_weight: 1 ms, activation: 1 MB}
cluster: {devices: 2}
pipeline: {schedule: gpipe, micro_batches: 2}
training: {steps: 3}
run: {backend: emulated}
)"),
                               {}};
};

// The report of a run in which all takes `factor` times as long.
Report slower(const Report& predicted, int factor) {
    Trace trace = predicted.trace;
    trace.label = "measured";
    for (TraceEvent& event : trace.events) {
        event.start *= factor;
        event.end *= factor;
    }
    return report_of(trace);
}

}  // namespace

TEST_F(Comparisons, OfTracesHaveSignedErrors) {
    const Report predicted = predicted_report(job());
    const Comparison comparison = compare_traces(predicted, slower(predicted, 2));
    EXPECT_DOUBLE_EQ(comparison.errors.step_time, -0.5);
    EXPECT_DOUBLE_EQ(comparison.errors.task_time.at(Op::Forward), -0.5);
    EXPECT_DOUBLE_EQ(comparison.errors.peak_memory, 0);
    EXPECT_FALSE(comparison.result);
    ASSERT_TRUE(comparison.parts);
    EXPECT_EQ(comparison.parts->predicted - comparison.parts->measured, -9'000'000);
    const Json json = to_json(comparison);
    EXPECT_EQ(json["step_time_error"], -0.5);
    EXPECT_EQ(json["predicted"]["step_time_ns"], 9'000'000);
    EXPECT_EQ(json["measured"]["step_time_ns"], 18'000'000);
    EXPECT_TRUE(json["resident_memory_error"].is_number());  // NaN, which becomes null in a text
    EXPECT_EQ(Json::parse(json.dump())["resident_memory_error"], nullptr);
    EXPECT_FALSE(json.contains("calibrated"));
    EXPECT_TRUE(contains(to_text(comparison), "-50.0 %"));
    EXPECT_EQ(calibration_text(comparison), "");
}

TEST_F(Comparisons, OfOtherTracesAreRefused) {
    const Report predicted = predicted_report(job());
    EXPECT_TRUE(
        contains(refusal([&] { compare_traces(predicted, predicted_report(job({"pipeline.micro_batches=4"}))); }),
                 "different plans"));
    EXPECT_TRUE(contains(refusal([&] { compare_traces(slower(predicted, 2), predicted); }), "swapped"));
}

TEST_F(Comparisons, ReplayAMeasuredTrace) {
    const ReplayedTrace replay = replayed(slower(predicted_report(job()), 2));
    EXPECT_EQ(replay.step_time, 18'000'000);
    EXPECT_EQ(replay.mechanics.total(), 0);
    EXPECT_EQ(to_json(replay)["replayed_ns"], 18'000'000);
}

TEST_F(Comparisons, RunTheJob) {
    std::vector<std::string> states;
    const Comparison comparison =
        compare_run(job(), 0, {[&](const std::string& state) { states.push_back(state); }, {}});
    ASSERT_TRUE(comparison.result);
    EXPECT_EQ(comparison.measured.trace.label, "measured");
    EXPECT_EQ(comparison.measured.trace.plan_hash, comparison.predicted.trace.plan_hash);
    EXPECT_FALSE(states.empty());
    EXPECT_EQ(to_json(comparison)["measured"]["weights_hash"], comparison.result->weights_hash);
}

TEST_F(Comparisons, EndWithTheStepAfterWhichTheyAreStopped) {
    const Comparison comparison = compare_run(job(), 0, {{}, [] { return true; }});
    ASSERT_TRUE(comparison.result);
    EXPECT_EQ(comparison.result->stopped_after, 1);
}

TEST_F(Comparisons, OfSchedulesAreATableOfAccuracy) {
    std::vector<std::string> calls;
    ScheduleHooks hooks;
    hooks.measures = [&] { calls.emplace_back("measures"); };
    hooks.begins = [&](const Job& job, int turns, const Notices&, const Notices&) {
        calls.push_back("begins " + job.plan.schedule + " in " + std::to_string(turns) + " turns");
    };
    hooks.ended = [&](const ScheduleComparison& so_far) { calls.push_back("ended " + so_far.runs.back().schedule); };
    const ScheduleComparison all = compare_schedules(source_, {"gpipe", "1f1b"}, hooks);
    EXPECT_EQ(calls, (std::vector<std::string>{"begins gpipe in 0 turns", "ended gpipe", "begins 1f1b in 0 turns",
                                               "ended 1f1b"}));
    ASSERT_EQ(all.runs.size(), 2u);
    EXPECT_TRUE(all.losses.empty());  // emulated devices learn nothing
    EXPECT_TRUE(all.title.starts_with("uniform, 2 micro-batches of 1, emulated backend, ")) << all.title;

    const TemporaryFolder results;
    results.write("accuracy.json", to_json(all).dump());
    const Accuracy accuracy = read_accuracy(results.path().string());
    ASSERT_EQ(accuracy.points.size(), 2u);
    EXPECT_EQ(accuracy.points[1]["name"], "1f1b");
    EXPECT_EQ(to_json(accuracy)["points"].size(), 2u);
}

TEST_F(Comparisons, OfSchedulesFindAMistakeBeforeTheFirstRun) {
    ScheduleHooks hooks;
    hooks.begins = [](const Job&, int, const Notices&, const Notices&) { ADD_FAILURE() << "a run has begun"; };
    refusal([&] { compare_schedules(source_, {"gpipe", "nope"}, hooks); });
}

TEST_F(Comparisons, OfOneScheduleNeedNoProfileOfEmulatedDevices) {
    EXPECT_FALSE(needs_profile(source_.load_with({})));
    const MeasuredJob made = measured_job(source_.load_with({}));
    EXPECT_EQ(made.job.source, CostSource::Uniform);
    EXPECT_TRUE(made.warnings.empty());
}

}  // namespace pw
