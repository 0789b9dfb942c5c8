// The command `search` for transformers on a cluster.
#include "tests/support/cli_rig.h"
#include "tests/support/refusal.h"

#include <algorithm>

namespace pw {

namespace {

class SearchOfClusters : public Cli {
protected:
    void SetUp() override {
        Cli::SetUp();
        write("cluster.yaml", R"(
workload: {model: llama-3.2-1b, sequence_length: 4096}
cluster: {hosts: 2, devices_per_host: 4, device: h100-sxm-80, memory: 24 GB, between: {link: ndr400, adapters: 4}}
training: {precision: bf16, optimizer: adamw}
search: {mini_batch: 16, micro_batch_sizes: [1, 2], stages: [4]}
)");
    }
};

}  // namespace

TEST_F(SearchOfClusters, WritesAConfigWithTheSamePrediction) {
    const Json found = run_well("search cluster.yaml --json -o best.yaml --plot plans.svg").json();
    const Json simulated = run_well("simulate best.yaml --json").json();
    EXPECT_EQ(simulated["step_time_ns"], found["objective_ns"]) << read("best.yaml");
    EXPECT_EQ(simulated["fits"], true);
    EXPECT_EQ(simulated["cluster"]["tokens_per_second"], found["best"]["tokens_per_second"]);
    EXPECT_EQ(simulated["cluster"]["replicas"], found["best"]["data"]);
    std::int64_t most = 0;
    for (const Json& device : simulated["devices"])
        most = std::max(most, device["reserved_memory_bytes"].get<std::int64_t>());
    EXPECT_EQ(found["best"]["reserved_memory_bytes"], most);
    EXPECT_LT(found["gap"], 0.1);
    const Json equal = run_well("search cluster.yaml --json --set search.unequal_blocks=false").json();
    EXPECT_EQ(equal["gap"], 0.0);
    EXPECT_LE(found["objective_ns"], equal["objective_ns"]);
    EXPECT_TRUE(contains(read("plans.svg"), "<svg"));
}

TEST_F(SearchOfClusters, PrintsARowForEachCombinationOfDegrees) {
    const Said outcome = run_well("search cluster.yaml --top 3");
    expect_says(outcome.out, {"plan ", "tokens/s", "memory of 24 GB", "\n3 ", "best: ", "on 8 devices",
                              "no plan of this search is faster"});
    EXPECT_FALSE(contains(outcome.out, "\n4 "));
    EXPECT_TRUE(contains(outcome.err, "search.stages has no effect: a search for a transformer does not read it"));
}

// The band is for a program without a name, then for a named program, then for a config that three runs calibrated.
TEST_F(SearchOfClusters, SayHowSureTheyAre) {
    const Json found = run_well("search cluster.yaml --json -o best.yaml").json()["best"];
    EXPECT_EQ(found["lead"]["share"], 0.8);
    EXPECT_EQ(found["band"]["program_is_named"], false);
    for (const auto& [set, is_named, runs] : {std::tuple("", Json(false), 0),
                                              {" --set parallel.release=nemo-2025", Json(true), 0},
                                              {" --set calibration.runs=3", Json(nullptr), 3}}) {
        const std::string command = std::string("simulate best.yaml") + set;
        const Json simulated = run_well(command + " --json").json();
        const Json band = simulated["cluster"]["band"];
        EXPECT_EQ(band["program_is_named"], is_named);
        EXPECT_EQ(band["least_calibrating_runs"], runs);
        EXPECT_LT(band["shortest_step_ns"], simulated["step_time_ns"]);
        EXPECT_GT(band["longest_step_ns"], simulated["step_time_ns"]);
        EXPECT_TRUE(contains(run_well(command).out, "\n80 % band: "));
        if (runs == 0 && is_named == false)
            EXPECT_EQ(band, found["band"]);
    }
    expect_says(run_well("search cluster.yaml").out, {"80 % band: ", "plan 1 (80 % band of a difference"});
}

TEST_F(SearchOfClusters, TwoOfTheirPlansAreToldApartOrNot) {
    run_well("search cluster.yaml -o best.yaml");
    const Json near = run_well("compare best.yaml best.yaml --json").json();
    EXPECT_EQ(near["told_apart"], false);
    EXPECT_TRUE(contains(run_well("compare best.yaml best.yaml").out, "these plans cannot be told apart"));
    run_well("search cluster.yaml --set workload.sequence_length=2048 -o short.yaml");
    EXPECT_EQ(run_well("compare best.yaml short.yaml --json").json()["told_apart"], nullptr);
}

TEST_F(SearchOfClusters, EndsWithTheExport) {
    const Said said = run_well("search cluster.yaml --set search.program=megatron-lm -o best.yaml");
    expect_says(said.out, {"runs on", "next: pipewright simulate best.yaml --arguments megatron-lm\n"});
    EXPECT_TRUE(run_well("simulate best.yaml --arguments megatron-lm").out.starts_with("--tensor-model-parallel-size"));
    const Said titan = run_well(
        "search cluster.yaml --set search.program=torchtitan --set workload.model=llama-3-8b"
        " --set cluster.memory='80 GB' -o titan.yaml");
    expect_says(titan.out, {"next: pipewright simulate titan.yaml --arguments torchtitan\n"});
    expect_says(titan.err, {"write parallel.release: torchtitan, torchtitan-compiled"});
    EXPECT_TRUE(run_well("simulate titan.yaml --arguments torchtitan").out.starts_with("[model]"));
    const Said norms = run_well("search cluster.yaml --set search.recompute=[norms] -o norms.yaml");
    expect_says(norms.out, {"next: pipewright simulate norms.yaml"});
}

TEST_F(SearchOfClusters, WritesARowOfTheTable) {
    const Json first = run_well("search cluster.yaml --json -o best.yaml").json();
    run_well("search cluster.yaml -o third.yaml --row 3");
    const std::int64_t third = run_well("simulate third.yaml --json").json()["step_time_ns"];
    EXPECT_GT(third, first["objective_ns"].get<std::int64_t>());
    expect_says(error_of("search cluster.yaml -o third.yaml --row 9 --top 3", 2),
                {"--row is 9, but the table has 3 rows", "raise --top"});
    EXPECT_FALSE(run("search cluster.yaml --row 2").code == 0);  // nothing is written
}

TEST_F(SearchOfClusters, NamesThePlanThatNeedsLeast) {
    const Said outcome = run("search cluster.yaml --set cluster.memory='1 GB'");
    EXPECT_EQ(outcome.code, 3);
    expect_says(outcome.err, {"no plan fits: ", "needs least", "have 1 GB (1000000000 bytes)", "help: add devices"});
}

TEST_F(SearchOfClusters, PointsAtTheKeyThatLeavesNothing) {
    const Said outcome = run("search cluster.yaml --set search.tensor=[3]");
    EXPECT_EQ(outcome.code, 2);
    expect_says(outcome.err, {"search.tensor=[3]", "divides the 32 heads", "help: write divisors of the heads"});
    const Said batch = run("search cluster.yaml --set pipeline.mini_batch=12");
    EXPECT_EQ(batch.code, 2);
    expect_says(batch.err, {"'pipeline.mini_batch' is 12", "write search.mini_batch instead"});
}

TEST_F(SearchOfClusters, EndsWithTheTime) {
    const Said outcome = run("search cluster.yaml --time-limit 0.0001");
    EXPECT_EQ(outcome.code, 1);
    expect_says(outcome.err, {"ended before any plan was tried", "help: raise --time-limit"});
}

}  // namespace pw
