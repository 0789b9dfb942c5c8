// Every command gives the samples, tokens and FLOPs per second of all replicas of a transformer on a cluster.
#include "tests/support/cli_rig.h"
#include "tests/support/refusal.h"

#include <cmath>

namespace pw {

namespace {

constexpr double kSamples = 16, kTokens = 2048;

// Four replicas of two stages: each has 4 of the 16 samples.
class NumbersOfClusters : public Cli {
protected:
    void SetUp() override {
        Cli::SetUp();
        write("cluster.yaml", R"(
workload: {model: llama-3.2-1b, sequence_length: 2048}
cluster: {hosts: 1, devices_per_host: 8, device: h100-sxm-80, inside: nvlink4}
parallel: {pipeline: 2}
pipeline: {mini_batch: 16, micro_batch_size: 1}
training: {precision: bf16, optimizer: adamw}
)");
        step_ = run_well("simulate cluster.yaml --json").json()["step_time_ns"].get<double>() * 1e-9;
    }

    // `json` is of a plan with the step of cluster.yaml.
    void expect_rates(const Json& json, const std::string& what) const {
        EXPECT_NEAR(json["step_time_ns"].get<double>() * 1e-9, step_, 1e-12) << what;
        EXPECT_NEAR(json["samples_per_second"].get<double>(), kSamples / step_, 1e-6) << what << json.dump(2);
        EXPECT_EQ(json["mini_batch"], kSamples) << what;
    }

    void expect_cluster(const Json& json, const std::string& what) const {
        expect_rates(json, what);
        EXPECT_NEAR(json["cluster"]["tokens_per_second"].get<double>(), kTokens * kSamples / step_, 1e-3) << what;
        EXPECT_EQ(json["cluster"]["replicas"], 4) << what;
    }

    double step_ = 0;
};

// The FLOPs of a matrix product and of its gradients are 6 per weight and token; the head's matrix is the table of
// tokens. Attention adds 6 x layers x width x sequence, since half of the scores are masked.
double training_flops(double tokens) {
    const double hidden = 2048, layers = 16, inner = 8192, keys = 8 * 64;
    const double weights = layers * (2 * hidden * hidden + 2 * hidden * keys + 3 * hidden * inner) + 128256 * hidden;
    return tokens * 6 * (weights + layers * hidden * tokens);
}

}  // namespace

TEST_F(NumbersOfClusters, AreThoseOfAllReplicasInEveryCommand) {
    expect_cluster(run_well("simulate cluster.yaml --json").json(), "simulate");
    expect_cluster(run_well("simulate cluster.yaml --schedules 1f1b --json").json()["points"][0], "--schedules");
    const std::string sweep = "simulate cluster.yaml --set 'sweep={parallel.pipeline: [2, 4]}' ";
    const Json swept = run_well(sweep + "--json").json();
    expect_cluster(swept["points"][0], "sweep");
    const Json compared = run_well("compare cluster.yaml cluster.yaml --json").json();
    for (const Json& plan : compared["plans"])
        expect_cluster(plan, "compare");
    const Json asked = run_well("simulate cluster.yaml --what-if parallel.zero=0 --json").json()["what_if"][0];
    expect_rates(asked, "--what-if");
    EXPECT_NEAR(asked["tokens_per_second"].get<double>(), kTokens * kSamples / step_, 1e-3);
    const Json found = run_well(
                           "search cluster.yaml --json --set search.schedules=[1f1b] --set search.tensor=[1] --set "
                           "search.pipeline=[2] --set search.context=[1] --set search.zero=[0] --set "
                           "search.recompute=[none] --set search.micro_batch_sizes=[1] --set search.chunks=[1] "
                           "--set search.unequal_blocks=false")
                           .json()["best"];
    expect_rates(found, "search");
    EXPECT_NEAR(found["tokens_per_second"].get<double>(), kTokens * kSamples / step_, 1e-3);
}

TEST_F(NumbersOfClusters, AreTheSameInTablesAndFiles) {
    const std::string rate = fmt::format("{:.4g}", kSamples / step_),
                      tokens = fmt::format("{:.0f}", std::stod(fmt::format("{:.5g}", kTokens * kSamples / step_)));
    expect_says(run_well("simulate cluster.yaml").out, {tokens + " tokens/s on 8 devices"});
    expect_says(run_well("simulate cluster.yaml --schedules 1f1b").out,
                {rate, tokens, "best: schedule 1f1b: " + tokens});
    expect_says(run_well("simulate cluster.yaml --what-if parallel.zero=0").out, {rate, tokens, "MFU"});
    expect_says(run_well("compare cluster.yaml cluster.yaml").out, {rate, tokens, "MFU"});
    const std::string csv = run_well("simulate cluster.yaml --set 'sweep={parallel.pipeline: [2]}' --csv -").out;
    expect_says(csv, {"samples_per_second", "mini_batch"});
    run_well("simulate cluster.yaml --trace trace.json");
    const Json facts = Json::parse(read("trace.json"))["otherData"];
    EXPECT_EQ(facts["mini_batch"], kSamples);
    EXPECT_EQ(facts["replicas"], 4);
    write("four.yaml", read("cluster.yaml"));
    const Json read_again =
        run_well("compare trace.json four.yaml --json --set parallel.pipeline=4 2>/dev/null").json()["plans"][0];
    expect_rates(read_again, "a trace");
}

TEST_F(NumbersOfClusters, OfARunCountAllReplicas) {
    const Json measured = run_well("run cluster.yaml --json --set run.backend=emulated --set training.steps=1").json();
    EXPECT_EQ(measured["mini_batch"], kSamples);
    EXPECT_NEAR(measured["samples_per_second"].get<double>() * measured["step_time_ns"].get<double>() * 1e-9, kSamples,
                1e-6);
}

// The shortest step is the best where all plans take the same samples.
TEST_F(NumbersOfClusters, NameTheFastestPlanAsTheBest) {
    const std::string sweep =
        "simulate cluster.yaml --set parallel.pipeline=1 --set 'sweep={parallel.tensor: [1, 2, 4, 8]}'";
    const Json json = run_well(sweep + " --json").json();
    Json fastest;
    for (const Json& point : json["points"])
        if (point["fits"] == true && (fastest.is_null() || point["step_time_ns"] < fastest["step_time_ns"]))
            fastest = point;
    EXPECT_EQ(json["best"]["set"], fastest["set"]);
    const Json both = run_well(
                          "simulate cluster.yaml --json --set 'sweep={parallel.tensor: [1, 2, 4], parallel.pipeline: "
                          "[1, 2]}'")
                          .json();
    for (const Json& point : both["points"])
        EXPECT_LE(point["cluster"]["tokens_per_second"], both["best"]["cluster"]["tokens_per_second"]);
    const Json lengths =
        run_well("simulate cluster.yaml --json --set 'sweep={workload.sequence_length: [1024, 4096]}'").json();
    for (const Json& point : lengths["points"])
        EXPECT_LE(point["cluster"]["tokens_per_second"], lengths["best"]["cluster"]["tokens_per_second"]);
}

// An asynchronous plan updates after every micro-batch: its tokens are those between two updates.
TEST_F(NumbersOfClusters, OfAnAsynchronousPlanAreThoseOfAnUpdate) {
    const Json json = run_well("simulate cluster.yaml --json --set pipeline.schedule=pipedream").json();
    EXPECT_NEAR(json["cluster"]["tokens_per_second"].get<double>(), kTokens * json["samples_per_second"].get<double>(),
                1e-3);
    EXPECT_LT(json["cluster"]["model_flops_utilisation"].get<double>(), 1);
}

TEST_F(NumbersOfClusters, OfForwardsCountForwardFlops) {
    constexpr double kPeak = 989.4e12;
    const auto utilisation = [&](const std::string& set, double flops) {
        const Json json = run_well("simulate cluster.yaml --json " + set).json();
        const double seconds = json["step_time_ns"].get<double>() * 1e-9;
        EXPECT_NEAR(json["cluster"]["model_flops_utilisation"].get<double>(), kSamples * flops / seconds / 8 / kPeak,
                    2e-3);
        return json["cluster"];
    };
    utilisation("", training_flops(kTokens));
    const Json forwards = utilisation("--set pipeline.schedule=forward-only", training_flops(kTokens) / 3);
    EXPECT_LT(forwards["model_flops_utilisation"].get<double>(), 1);
    EXPECT_EQ(forwards["seconds"], nullptr) << "the parts are those of training";
}

TEST_F(NumbersOfClusters, AreOfTheSameWorkForAFoundPlan) {
    const Json found = run_well("search cluster.yaml --json -o best.yaml --set search.tensor=[2]").json();
    expect_says(read("best.yaml"), {"  mini_batch: 16\n"});
    EXPECT_FALSE(contains(read("best.yaml"), "  micro_batches:"));
    const Json asked =
        run_well("simulate best.yaml --json --what-if parallel.tensor=8 --what-if parallel.tensor=1").json();
    EXPECT_EQ(asked["step_time_ns"], found["objective_ns"]);
    for (const Json& one : asked["what_if"])
        if (!one.contains("error"))
            EXPECT_EQ(one["mini_batch"], kSamples);
    // equal samples: the tokens per second follow from the step
    const Json& first = asked["what_if"][0];
    EXPECT_NEAR(first["tokens_per_second"].get<double>() / asked["cluster"]["tokens_per_second"].get<double>(),
                asked["step_time_ns"].get<double>() / first["step_time_ns"].get<double>(), 1e-9);
}

TEST_F(NumbersOfClusters, SayWhereAnswersAreOfOtherWork) {
    write("each.yaml", R"(
workload: {model: llama-3.2-1b, sequence_length: 2048}
cluster: {devices: 8, device: h100-sxm-80}
pipeline: {micro_batches: 2}
training: {precision: bf16, optimizer: adamw}
)");
    expect_says(run_well("simulate each.yaml --what-if parallel.tensor=8").out,
                {"parallel.tensor=8: a step takes 2 samples, now 16: compare tokens/s, not step times"});
    const Said both = run("simulate cluster.yaml --set pipeline.micro_batches=3");
    EXPECT_EQ(both.code, 2);
    expect_says(both.err,
                {"'pipeline.mini_batch' is 16: each of 4 replicas with micro-batches of 1 has 4 of them, not 3"});
}

TEST_F(NumbersOfClusters, SayWhatDoesNotFitAndWhatHelps) {
    const Said small = run_well(
        "simulate cluster.yaml --set 'cluster.memory=4 GB' --what-if 'cluster.memory=1 MB' --what-if "
        "'cluster.memory=80 GB'");
    expect_says(small.out, {"does not fit: device 0 needs ", " GB and has 4 GB", "help: raise parallel.tensor", "fits",
                            " over\n", "yes"});
    EXPECT_FALSE(contains(small.out, "GiB")) << "one unit on one screen";
    const Said none = run("simulate cluster.yaml --set 'cluster.memory=0 GB'");
    EXPECT_EQ(none.code, 2);
    expect_says(none.err, {"'cluster.memory'", "0"});
}

}  // namespace pw
