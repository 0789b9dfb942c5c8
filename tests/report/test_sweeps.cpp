// Sweeps over the values of keys.
#include "report/sweep.h"
#include "tests/support/refusal.h"
#include "tests/support/temporary_folder.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <string>
#include <vector>

namespace pw {

namespace {

class Sweeps : public testing::Test {
protected:
    ConfigSource source() const {
        return {folder_.write("cfg.yaml", R"(
workload: {model: uniform, stages: 4, forward: 1 us, backward_input: 1 us, backward_weight: 1 us, activation: 1 MB}
cluster: {devices: 4, memory: 9 MB}
pipeline: {schedule: gpipe, micro_batches: 8}
)"),
                {}};
    }

    TemporaryFolder folder_;
    const std::vector<SweepAxis> axes_ = {{"pipeline.micro_batches", {"4", "8", "16"}},
                                          {"pipeline.schedule", {"gpipe", "nope"}}};
};

}  // namespace

TEST_F(Sweeps, HaveAPointForEveryCombination) {
    const Sweep sweep = simulate_sweep(source(), axes_);
    ASSERT_EQ(sweep.points.size(), 6u);
    for (int i = 0; i < 3; ++i) {
        const int microbatches = 4 << i;
        const SweepPoint &simulated = sweep.points[2 * i], &refused = sweep.points[2 * i + 1];
        EXPECT_EQ(simulated.texts, (std::vector<std::string>{std::to_string(microbatches), "gpipe"}));
        ASSERT_TRUE(simulated.report);
        EXPECT_EQ(simulated.report->metrics.step_time, (microbatches + 4 - 1) * 3'000);
        EXPECT_EQ(fits(*simulated.report), microbatches <= 8);  // a MB of each in flight
        ASSERT_TRUE(refused.error);
        EXPECT_EQ(refused.error->code(), ExitCode::BadInput);
    }
}

TEST_F(Sweeps, KnowTheBestPointThatFits) {
    const Sweep sweep = simulate_sweep(source(), axes_);
    ASSERT_TRUE(sweep.best);
    EXPECT_EQ(setting_of(sweep, *sweep.best), "micro_batches 8, schedule gpipe");
    EXPECT_FALSE(sweep.best_asynchronous);
    const Json json = to_json(sweep);
    EXPECT_EQ(json["points"].size(), 6u);
    EXPECT_EQ(json["best"]["set"]["pipeline.micro_batches"], 8);
    EXPECT_EQ(json["best"]["step_time_ns"], 11 * 3'000);
    EXPECT_TRUE(json["best_asynchronous"].is_null());
    EXPECT_TRUE(json["points"][1].contains("error"));
}

TEST_F(Sweeps, OfAsynchronousPlansAloneHaveTheBestOfThem) {
    const Sweep sweep = simulate_sweep(source(), {{"pipeline.schedule", {"pipedream"}}});
    EXPECT_EQ(sweep.best, 0u);
    EXPECT_EQ(sweep.best_asynchronous, 0u);
}

TEST_F(Sweeps, StopWithThePointsSoFar) {
    int asked = 0;
    std::vector<std::string> states;
    const Hooks hooks{[&](const std::string& state) { states.push_back(state); }, [&] { return ++asked > 3; }};
    EXPECT_EQ(simulate_sweep(source(), axes_, hooks).points.size(), 3u);
    EXPECT_EQ(states, (std::vector<std::string>{"point 1 of 6", "point 2 of 6", "point 3 of 6"}));
    const Hooks at_once{{}, [] { return true; }};
    refusal([&] { simulate_sweep(source(), axes_, at_once); }, ExitCode::RunFailed);
}

TEST_F(Sweeps, RefuseWhatIsNone) {
    EXPECT_TRUE(contains(refusal([&] { simulate_sweep(source(), {{"pipeline.schedule", {}}}); }), "has no values"));
    EXPECT_TRUE(contains(refusal([&] {
                             simulate_sweep(source(), {{"pipeline.schedule", {"nope"}}});
                         }),
                         "points can be simulated; this is the first"));
    const std::vector<std::string> many(101, "4");
    EXPECT_TRUE(
        contains(refusal([&] {
                     simulate_sweep(source(), {{"pipeline.micro_batches", many}, {"run.threads_per_device", many}});
                 }),
                 "more than 10000 points"));
}

// gpipe and 1f1b take m + p - 1 slots of 3 us.
TEST_F(Sweeps, AreDrawnAlongTheFirstNumbers) {
    const Sweep sweep = simulate_sweep(source(), axes_);
    Notices missing;
    const Chart chart = chart_of(sweep, missing);
    EXPECT_EQ(chart.x.label, "micro_batches");
    EXPECT_TRUE(chart.x.logarithmic);
    EXPECT_EQ(chart.y.label, "samples/s");
    ASSERT_EQ(chart.curves.size(), 4u);  // one per schedule, crosses where memory is too small, a ring around the best
    EXPECT_EQ(chart.curves[0].title, "gpipe");
    EXPECT_NEAR(chart.curves[0].values[1], 8e6 / 33, 1);
    EXPECT_EQ(chart.curves[2].x, (std::vector<double>{16}));
    EXPECT_EQ(chart.curves[3].x, (std::vector<double>{8}));
    EXPECT_EQ(chart.curves[3].labels, (std::vector<std::string>{"best: gpipe"}));
    ASSERT_EQ(chart.remarks.size(), 1u);
    EXPECT_TRUE(chart.remarks[0].starts_with("best: micro_batches 8, schedule gpipe: 242424 samples/s"))
        << chart.remarks[0];
    ASSERT_EQ(missing.size(), 1u);
    EXPECT_TRUE(contains(missing.front(), "no line of nope"));
}

TEST_F(Sweeps, AreDrawnAsAsked) {
    const Sweep sweep = simulate_sweep(source(), axes_);
    Notices missing;
    const Chart steps = chart_of(sweep, missing, {.y = "step-time"});
    EXPECT_EQ(steps.curves[0].values, (std::vector<double>{21'000, 33'000, 57'000}));
    const Chart memory = chart_of(sweep, missing, {.x = "peak-memory", .y = "bubble"});
    EXPECT_EQ(memory.curves[0].x, (std::vector<double>{4e6, 8e6}));
    EXPECT_NEAR(memory.curves[0].values[0], 100.0 * 3 / 7, 1e-9);
    EXPECT_EQ(memory.x.quantity, Quantity::DecimalSize);  // the limit is written so
    const Chart map = chart_of(sweep, missing, {.x = "schedule", .y = "micro_batches", .z = "step-time"});
    EXPECT_EQ(map.x.names, (std::vector<std::string>{"gpipe", "nope"}));
    EXPECT_EQ(map.y.names.size(), 3u);
    EXPECT_EQ(map.curves[0].shades, (std::vector<double>{21'000, 33'000, 57'000}));
    for (const auto& [view, words] : std::vector<std::pair<SweepView, std::string>>{
             {{.x = "devices"}, "pipeline.micro_batches"},
             {{.y = "loss"}, "samples/s"},
             {{.x = "schedule", .y = "schedule"}, "another key"},
             {{.z = "bubble"}, "map of two keys"},
             {{.x = "schedule", .y = "micro_batches", .z = "schedule"}, "no number"}})
        EXPECT_TRUE(contains(refusal([&, &asked = view] { check_drawable(axes_, asked); }), words));
    EXPECT_TRUE(contains(refusal([&] { chart_of(sweep, missing, {.y = "tokens/s"}); }), "no tokens/s"));
    EXPECT_TRUE(contains(refusal([&] { check_drawable({axes_[1]}, {.y = "schedule"}); }), "only key"));
}

TEST_F(Sweeps, OfUniformStagesSayThatModelsDiffer) {
    const ConfigSource four{"uniform.yaml", {}, "{workload: {model: uniform}, cluster: {devices: 4}}"};
    const auto notes_of = [&](std::vector<std::string> schedules) {
        return fmt::format("{}",
                           fmt::join(simulate_sweep(four, {{"pipeline.schedule", std::move(schedules)}}).notes, "\n"));
    };
    EXPECT_TRUE(contains(notes_of({"1f1b", "zb-v", "gpipe"}), "4 with 1f1b, gpipe; 8 with zb-v")) << notes_of({"zb-v"});
    EXPECT_FALSE(contains(notes_of({"1f1b", "gpipe"}), "compare bubbles"));
}

// From the best to the worst; asynchronous plans are marked, and the best is not one of them.
TEST_F(Sweeps, OverNamesAreBars) {
    const Sweep sweep =
        simulate_sweep(source(), {{"pipeline.schedule", {"naive", "1f1b", "pipedream-2bw", "gpipe", "zb-h1"}}});
    Notices missing;
    const Chart chart = chart_of(sweep, missing);
    ASSERT_EQ(chart.curves.size(), 3u);
    EXPECT_EQ(chart.curves[1].title, "best");
    EXPECT_EQ(chart.curves[2].title, "asynchronous: trains differently");
    ASSERT_EQ(chart.x.names.size(), 5u);
    EXPECT_EQ(chart.x.names[0], "pipedream-2bw (asynchronous)");
    EXPECT_EQ(chart.x.names[1], "zb-h1");
    EXPECT_EQ(chart.x.names[4], "naive");
    EXPECT_EQ(chart.curves[1].x, (std::vector<double>{1}));
    EXPECT_EQ(chart.remarks.size(), 2u);
}

TEST_F(Sweeps, OfManyLinesAreMaps) {
    std::vector<std::string> latencies;
    for (int i = 1; i <= 13; ++i)
        latencies.push_back(std::to_string(i) + " us");
    const std::vector<SweepAxis> axes = {{"pipeline.micro_batches", {"8", "2"}}, {"cluster.link.latency", latencies}};
    Notices missing;
    const Chart chart = chart_of(simulate_sweep(source(), axes), missing);
    EXPECT_EQ(chart.curves[0].style, Curve::Style::Cells);
    EXPECT_EQ(chart.x.names, (std::vector<std::string>{"2", "8"}));
    EXPECT_EQ(chart.y.names.size(), 13u);
    EXPECT_EQ(chart.y.names[0], "1 us");
    EXPECT_EQ(chart.curves[0].shades.size(), 26u);
    const std::vector<SweepAxis> fewer = {axes[0], {axes[1].key, {latencies.begin(), latencies.begin() + 12}}};
    EXPECT_EQ(chart_of(simulate_sweep(source(), fewer), missing).curves[0].style, Curve::Style::LineWithPoints);
}

}  // namespace pw
