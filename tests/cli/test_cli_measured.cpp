// Traces, runs, comparisons and profiles on the command line.
#include "tests/support/cli_rig.h"
#include "tests/support/refusal.h"
#include "tests/support/result_keys.h"

#include <fmt/format.h>

namespace pw {

TEST_F(Cli, TracesAreComparedPlottedAndValidated) {
    run_well("simulate uniform.yaml --trace a.json");
    const Json same = run_well("compare a.json a.json --json --max-error 0.1%").json();
    EXPECT_EQ(same["step_time_error"], 0);
    EXPECT_EQ(same["peak_memory_error"], 0);
    EXPECT_EQ(same["task_time_error_median"], 0);
    expect_results(same["predicted"], 4);
    expect_results(same["measured"], 4);
    EXPECT_EQ(run_well("plot a.json a.json -o a.html").out, "a.html\n");
    EXPECT_TRUE(contains(read("a.html"), "predicted, gpipe: step "));
    run_well("plot a.json -o a.txt --step 0");
    EXPECT_TRUE(contains(error_of("plot a.json -o a.txt --step 7", 2), "has no step 7"));
    run_well("plot a.json -o all.html --step all");
    for (const char* step : {"some", "-1", "1.5"})
        EXPECT_TRUE(contains(error_of(fmt::format("plot a.json -o a.txt --step='{}'", step), 2),
                             "is not the number of a step, or all"));
    EXPECT_TRUE(contains(run_well("validate a.json").out, "ok: trace"));
    EXPECT_EQ(run_well("validate a.json --json").json()["kind"], "trace");
    error_of("plot a.json -o a.doc", 2);
}

TEST_F(Cli, ALargeErrorFailsTheCheckAfterTheReport) {
    run_well("simulate uniform.yaml --trace a.json");
    run_well("simulate uniform.yaml --set 'workload.forward=2 us' --trace b.json");
    const Said said = run("compare a.json b.json --json --max-error 5%");
    EXPECT_EQ(said.code, 4);
    EXPECT_NEAR(said.json()["step_time_error"].get<double>(), -0.25, 1e-12);
    EXPECT_TRUE(contains(said.err, "error: step time error -25.0 % exceeds --max-error 5.0 %")) << said.err;
    EXPECT_EQ(run("compare a.json b.json --max-error 30%").code, 0);
    EXPECT_TRUE(contains(error_of("compare a.json b.json --max-error 5", 2), "5%"));
    run_well("simulate uniform.yaml --set pipeline.schedule=1f1b --trace c.json");
    EXPECT_TRUE(contains(run_well("compare a.json c.json").err, "note: these are different plans"));
    EXPECT_TRUE(contains(error_of("compare a.json c.json --max-error 5%", 2), "different plans"));
}

TEST_F(Cli, AccuracyTablesAreSummed) {
    write("accuracy.json", R"({"points": [
        {"name": "a", "step_time_error": -0.04, "peak_memory_error": 0.01},
        {"name": "b", "step_time_error": 0.02, "peak_memory_error": -0.03},
        {"name": "c", "step_time_error": 0.01, "peak_memory_error": 0}]})");
    write("other.json", R"({"unrelated": 1})");
    const Json json = run_well("validate . --json").json();
    EXPECT_EQ(json["points"].size(), 3u);
    EXPECT_DOUBLE_EQ(json["step_time_error_median_abs"], 0.02);
    EXPECT_DOUBLE_EQ(json["step_time_error_p95_abs"], 0.04);
    EXPECT_NEAR(json["step_time_error_bias"].get<double>(), -0.01 / 3, 1e-12);
    EXPECT_DOUBLE_EQ(json["peak_memory_error_max_abs"], 0.03);
    EXPECT_TRUE(contains(run_well("validate .").out, "3 points"));
    write("accuracy.json", R"({"points": [{"step_time_error": 0.1}]})");
    EXPECT_TRUE(contains(error_of("validate .", 2), "point 0 has no number 'peak_memory_error'"));
}

TEST_F(Cli, RunsGiveTheNumbersOfTheReference) {
    const Json json = run_well("run mlp.yaml --json --trace run.json").json();
    expect_results(json, 2);
    EXPECT_EQ(json["losses"].size(), 3u);
    EXPECT_EQ(json["gradient_norms"].size(), 3u);
    EXPECT_EQ(json["weights_hash"].get<std::string>().size(), 16u);
    const Json reference = run_well("run mlp.yaml --json --reference").json();
    EXPECT_EQ(reference["losses"], json["losses"]);
    EXPECT_EQ(reference["weights_hash"], json["weights_hash"]);
    EXPECT_EQ(run_well("run mlp.yaml --json --steps 1").json()["losses"].size(), 1u);
    run_well("simulate mlp.yaml --trace simulated.json");
    EXPECT_EQ(run_well("compare simulated.json run.json --json").json()["plan_hash"], json["plan_hash"]);
    EXPECT_TRUE(contains(error_of("run uniform.yaml", 2), "no layers"));
}

TEST_F(Cli, CompareMeasuresItsProfile) {
    const Said said = run_well("compare mlp.yaml --json");
    EXPECT_TRUE(contains(said.err, "no cluster.profile: measuring one first"));
    const Json json = said.json();
    for (const char* key : {"step_time_error", "peak_memory_error", "task_time_error_median"})
        EXPECT_TRUE(json.contains(key)) << key;
    expect_results(json["predicted"], 2);
    expect_results(json["measured"], 2);
    EXPECT_EQ(json["measured"]["losses"].size(), 3u);
    for (const char* key : {"calibrated", "drift", "slices", "reference"})
        EXPECT_TRUE(json.contains(key)) << key;
    EXPECT_EQ(json["calibrated"]["step_time_error"], json["step_time_error"]);  // there is no other prediction
    EXPECT_GT(json["calibrated"]["tasks"].size(), 0u);
    EXPECT_FALSE(run_well("compare mlp.yaml --json --interleave 0").json().contains("calibrated"));
    EXPECT_EQ(run("compare mlp.yaml --max-error 0.000001%").code, 4);
}

TEST_F(Cli, CompareReportsAMissingLink) {
    const std::string link = "compare mlp.yaml --json --set 'cluster.link={bandwidth: 1 GB/s}'";
    const std::string note = "note: cluster.link is predicted, but devices hand over as this machine does";
    EXPECT_TRUE(contains(run_well(link).err, note));
    EXPECT_FALSE(contains(run_well(link + " --set run.transport=link").err, note));
}

TEST_F(Cli, ComparesSchedulesWithoutGnuplot) {
    const std::string path = std::getenv("PATH");
    setenv("PATH", file("nowhere").c_str(), 1);
    const Said said = run_well("compare mlp.yaml --schedules naive,pipedream -o study");
    setenv("PATH", path.c_str(), 1);
    EXPECT_TRUE(contains(said.err, "gnuplot not found")) << said.err;
    for (const char* kept : {"table.txt", "profile.yaml", "losses.html", "naive.html", "pipedream.html"})
        EXPECT_TRUE(std::filesystem::exists(file("study") / kept)) << kept;
    run_well("compare study/pipedream.predicted.json study/pipedream.measured.json --plot later.txt");
    EXPECT_EQ(run_well("validate study --json").json()["points"].size(), 2u);
}

TEST_F(Cli, ProfilesAreMeasuredAndUsed) {
    const Said said = run_well("profile mlp.yaml -o profile.yaml --sizes 1,2");
    EXPECT_TRUE(contains(said.out, "micro-batches of 1\n"));
    EXPECT_TRUE(contains(said.out, "micro-batches of 2\n"));
    const std::string with = " --set cluster.profile=profile.yaml";
    write("profile.yaml", of_a_quiet_machine(read("profile.yaml")));
    EXPECT_EQ(run_well("simulate mlp.yaml --json" + with).json()["costs"], "measured");
    EXPECT_EQ(run_well("simulate mlp.yaml" + with).err, "");
    const Said between = run_well("simulate mlp.yaml --json --set pipeline.micro_batch_size=3" + with);
    EXPECT_EQ(between.json()["interpolated"], true);
    EXPECT_TRUE(contains(between.err, "--sizes 3")) << between.err;
}

// Queries, keys and values are 3 x 32 wide, the MLP 2 x 40 and 40, the head 128 for 100 tokens: five linear layers.
TEST_F(Cli, ProductsAreMeasuredByShapeAndUsed) {
    write("config.json", R"({"model_type": "llama", "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2,
                             "intermediate_size": 40, "vocab_size": 100})");
    write("tiny.yaml", R"(
workload: {model: config.json, sequence_length: 16}
cluster: {devices: 2, device: h100-sxm-80, products: products.yaml}
parallel: {pipeline: 2}
)");
    const Said profiled = run_well("profile tiny.yaml --gemm --seconds 5 -o products.yaml");
    EXPECT_TRUE(contains(profiled.out, "[16, 32, 96] ")) << profiled.out;
    EXPECT_TRUE(contains(profiled.out, "[128, 16, 32] ")) << profiled.out;
    const Json validated = run_well("validate products.yaml --json").json();
    EXPECT_EQ(validated["tables"][0]["products"], 15);
    EXPECT_EQ(validated["tables"][0]["precision"], "fp32");
    EXPECT_TRUE(contains(run_well("simulate tiny.yaml").err, "15 of which cluster.products has"));
    EXPECT_TRUE(contains(error_of("simulate tiny.yaml --set training.precision=bf16", 2), "has products in fp32"));
    EXPECT_TRUE(contains(error_of("simulate products.yaml", 2), "is a table of products, not a config"));
    EXPECT_TRUE(contains(error_of("profile tiny.yaml -o profile.yaml", 2), "--gemm"));
    EXPECT_TRUE(contains(error_of("profile tiny.yaml --seconds 5 -o profile.yaml", 2), "--gemm"));
    EXPECT_TRUE(contains(error_of("compare tiny.yaml", 2), "nothing to run"));
    run_well("profile tiny.yaml --gemm --seconds 5 --set run.backend=reference -o slow.yaml");
}

TEST_F(Cli, ProductsThatTakeTooLongAreLeftOutAloud) {
    const Said profiled = run_well("profile mlp.yaml --gemm --seconds 0.5 -o products.yaml");
    EXPECT_TRUE(contains(profiled.err, "note: 4096 rows, 4096 inputs, 4096 outputs: left out")) << profiled.err;
    EXPECT_TRUE(contains(read("products.yaml"), "# 4096 rows, 4096 inputs, 4096 outputs: left out"));
    EXPECT_TRUE(contains(error_of("profile mlp.yaml --gemm --seconds 0.000001 -o none.yaml", 1), "allow more time"));
    EXPECT_FALSE(std::filesystem::exists(file("none.yaml")));
}

TEST_F(Cli, FullDisksAreFailures) {
    EXPECT_EQ(run("simulate uniform.yaml --trace /nowhere/trace.json").code, 1);
    const std::string full = "cd /tmp && '" PIPEWRIGHT_BINARY "' list schedules >/dev/full 2>/dev/null";
    EXPECT_EQ(WEXITSTATUS(std::system(full.c_str())), 1);
}

}  // namespace pw
