// What public users asked, made small: the right values are theirs, a formula's or a count's by hand.
#include "tests/support/cli_rig.h"
#include "tests/support/public_data.h"
#include "tests/support/refusal.h"

#include <fmt/format.h>

namespace pw {
namespace {

using PublicQuestions = Cli;

std::string quoted(const std::string& path) { return fmt::format("'{}'", path); }

// Of 1 GB per micro-batch, 0.6 GB stay until W: zb-h1 holds p - d until I and d more parts until W, with recomputation
// one whole and d parts.
TEST_F(PublicQuestions, MemoryRisesFromStageToStageWithRecomputation) {
    PIPEWRIGHT_NEED_DATA(config, "field/03-zbh1-recompute/config.yaml");
    const double kept[] = {4.0e9, 3.6e9, 3.2e9, 2.8e9}, recomputed[] = {1.0e9, 1.6e9, 2.2e9, 2.8e9};
    const Json without = run_well("simulate --json " + quoted(config)).json();
    const Json with = run_well("simulate --json --set pipeline.recompute=all " + quoted(config)).json();
    for (std::size_t device = 0; device < 4; ++device) {
        EXPECT_EQ(without["devices"][device]["memory"]["activations"], kept[device]);
        EXPECT_EQ(with["devices"][device]["memory"]["activations"], recomputed[device]);
    }
    EXPECT_EQ(without["step_time_ns"], 510'000'000);
    EXPECT_EQ(with["step_time_ns"], 670'000'000);
}

TEST_F(PublicQuestions, AGroupBelowTheDevicesIsACircleAndMoreThanTheMicroBatchesSaysSo) {
    PIPEWRIGHT_NEED_DATA(plan, "field/05-group-below-devices/group2.csv");
    PIPEWRIGHT_NEED_DATA(config, "field/05-group-below-devices/six-devices.yaml");
    const Said said = run("validate " + quoted(plan));
    EXPECT_EQ(said.code, 3);
    expect_says(said.err, {"in all lanes, under all protocols", "group2.csv:4, cell 8: 3B0",
                           "group2.csv:1, cell 10: 4B0", "group2.csv:1, cell 8: 4F3", "group2.csv:4, cell 9: 3F3"});
    expect_says(error_of("simulate " + quoted(config), 2),
                {"a group of 6 micro-batches for 3 micro-batches on 6 devices", "leave pipeline.group out"});
}

TEST_F(PublicQuestions, MessagesBelowTheEagerLimitPass) {
    PIPEWRIGHT_NEED_DATA(config, "field/06-eager-messages/config.yaml");
    EXPECT_NEAR(run_well("simulate --json " + quoted(config)).json()["step_time_ns"].get<double>(), 124.2e6, 0.1e6);
    expect_says(error_of("simulate --set workload.output='64 MiB' " + quoted(config), 3), {"deadlocks"});
}

// Eight stages, 32 micro-batches, F = B = 1: fill and drain take (32 + 7) 2 steps for both.
TEST_F(PublicQuestions, OneFOneBIsNoFasterThanGPipe) {
    PIPEWRIGHT_NEED_DATA(config, "field/20-gpipe-against-1f1b/config.yaml");
    for (const auto& [schedule, held] : {std::pair("gpipe", 32), std::pair("1f1b", 8)}) {
        const Json json =
            run_well(fmt::format("simulate --json --set pipeline.schedule={} {}", schedule, quoted(config))).json();
        EXPECT_EQ(json["step_time_ns"], 78'000) << schedule;
        EXPECT_NEAR(json["bubble_rate"].get<double>(), 14.0 / 78, 1e-12) << schedule;
        EXPECT_EQ(json["devices"][0]["peak_in_flight"], held) << schedule;
    }
}

}  // namespace
}  // namespace pw
