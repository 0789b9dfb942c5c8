// Sweeps over the values of keys.
#include "report/sweep.h"
#include "tests/support/refusal.h"
#include "tests/support/temporary_folder.h"

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

TEST_F(Sweeps, AreDrawnAlongTheFirstNumbers) {
    const Sweep sweep = simulate_sweep(source(), axes_);
    Notices missing;
    const Chart chart = chart_of(sweep, missing);
    EXPECT_EQ(chart.x.label, "micro_batches");
    EXPECT_TRUE(chart.x.logarithmic);
    ASSERT_EQ(chart.curves.size(), 3u);  // one per schedule, and crosses where memory is too small
    EXPECT_EQ(chart.curves[0].values, (std::vector<double>{21'000, 33'000, 57'000}));
    EXPECT_EQ(chart.curves[2].x, (std::vector<double>{16}));
    ASSERT_EQ(missing.size(), 1u);
    EXPECT_TRUE(contains(missing.front(), "no line of schedule nope"));
    refusal([] { check_drawable({{"pipeline.schedule", {"gpipe"}}}, "sweep.svg"); });
}

}  // namespace pw
