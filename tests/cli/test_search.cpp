// The command `search`.
#include "tests/support/cli_rig.h"
#include "tests/support/recorded_configs.h"
#include "tests/support/refusal.h"
#include "workloads/units.h"

#include <fmt/format.h>

#include <set>

namespace pw {

namespace {

// Four layers that take 6, 3, 3 and 6 us, most of it backward.
constexpr const char* kLayers = R"(
samples: 1
layers:
  - {name: embedding, inputs: [], forward: 2 us, backward: 4 us, output: 1 kB, weights: 64 kB}
  - {name: first, forward: 1 us, backward: 2 us, output: 1 kB, weights: 1 kB}
  - {name: second, forward: 1 us, backward: 2 us, output: 1 kB, weights: 1 kB}
  - {name: head, forward: 2 us, backward: 4 us, output: 1 kB, weights: 64 kB}
)";

constexpr const char* kConfig = R"(
workload: {model: layers.yaml}
cluster: {devices: 2}
pipeline: {schedule: 1f1b, micro_batches: 4, micro_batch_size: 1}
run: {backend: emulated}
search: {profile_batch: 1, schedules: [gpipe, 1f1b], replicas: false}
)";

class Search : public Cli {
protected:
    void SetUp() override {
        Cli::SetUp();
        write("layers.yaml", kLayers);
        write("config.yaml", kConfig);
    }
};

}  // namespace

// Two equal stages of 9 us: (m + p - 1) times that is the optimum.
TEST_F(Search, FindsTheEvenSplitAndProvesIt) {
    const Json json = run_well("search config.yaml --json -o best.yaml").json();
    EXPECT_EQ(json["schema_version"], 1);
    EXPECT_EQ(json["objective_ns"], 45'000);
    EXPECT_DOUBLE_EQ(json["objective"].get<double>(), 45e-6);
    EXPECT_EQ(json["lower_bound_ns"], 45'000);
    EXPECT_EQ(json["gap"], 0.0);
    EXPECT_EQ(json["choices"], 4);  // two schedules on one and on two devices
    EXPECT_GT(json["candidates"], 0);
    const Json& stages = json["best"]["stages"];
    ASSERT_EQ(stages.size(), 2u);
    EXPECT_EQ(stages[0]["layers"], (Json{"embedding", "first"}));
    EXPECT_EQ(stages[1]["time_ns"], 9000);
    EXPECT_EQ(stages[0]["replicas"], 1);
    EXPECT_EQ(json["best"]["megatron_layout"], "Et|tL");
    EXPECT_EQ(json["best"]["pytorch_split_spec"], "{\"second\": SplitPoint.BEGINNING}");
}

TEST_F(Search, WritesAConfigThatIsSimulatedAndRun) {
    const Json found = run_well("search config.yaml --json -o best.yaml").json();
    const Json simulated = run_well("simulate best.yaml --json").json();
    EXPECT_EQ(simulated["step_time_ns"], found["objective_ns"]);
    EXPECT_EQ(simulated["devices"][0]["reserved_memory_bytes"], found["best"]["stages"][0]["memory_bytes"]);
    EXPECT_EQ(simulated["schedule"], found["best"]["schedule"]);
    run_well("run best.yaml --steps 2");
    // paths are relative to the written file
    std::filesystem::create_directory(file("deep"));
    run_well("search config.yaml -o deep/best.yaml");
    EXPECT_TRUE(contains(read("deep/best.yaml"), "../layers.yaml")) << read("deep/best.yaml");
    EXPECT_EQ(run_well("simulate deep/best.yaml --json").json()["step_time_ns"], found["objective_ns"]);
}

TEST_F(Search, AccountsForBucketsAndShardedOptimizers) {
    write("gpt.yaml",
          "workload: {model: gpt, blocks: 2, vocabulary: 512, embedding: 64, heads: 2, sequence_length: 64}\n"
          "cluster: {devices: 4, link: {bandwidth: 2 GB/s, latency: 2 us}}\n"
          "search: {mini_batch: 8, micro_batch_sizes: [1, 2], stages: [1, 2], replicas: true}\n");
    std::set<Ns> steps;
    std::set<Bytes> reserved;
    for (const char* keys :
         {"", " --set transfer.sum_bucket='64 KiB'", " --set training.shard_optimizer=true",
          " --set transfer.sum_bucket='64 KiB' --set training.shard_optimizer=true --set transfer.sums=two_level"}) {
        const Json found = run_well("search gpt.yaml --json -o best.yaml" + std::string(keys)).json();
        const Json simulated = run_well("simulate best.yaml --json").json();
        EXPECT_EQ(simulated["step_time_ns"], found["objective_ns"]) << keys;
        EXPECT_EQ(found["gap"], 0.0) << keys;
        EXPECT_EQ(simulated["devices"][0]["reserved_memory_bytes"], found["best"]["stages"][0]["memory_bytes"]) << keys;
        steps.insert(found["objective_ns"].get<Ns>());
        reserved.insert(found["best"]["reserved_memory_bytes"].get<Bytes>());
        const std::string said = run_well("search gpt.yaml -o best.yaml" + std::string(keys)).out;
        EXPECT_TRUE(contains(said, contains(keys, "two_level") ? "next: pipewright simulate best.yaml"
                                                               : "next: pipewright run best.yaml"))
            << said;
    }
    const std::string small = " --set transfer.sum_bucket=1B --set cluster.link.latency='0 us'";
    const Json notes = run_well("search gpt.yaml --json" + small).json()["notes"];
    ASSERT_EQ(notes.size(), 1u);
    EXPECT_TRUE(contains(notes[0], "a stage has at most 4096 buckets")) << notes;
    EXPECT_GT(steps.size(), 2u);
    EXPECT_GT(reserved.size(), 1u);
}

TEST_F(Search, CutsSequencesAsTheSearchSays) {
    write("gpt.yaml",
          "workload: {model: gpt, blocks: 2, vocabulary: 32, embedding: 32, heads: 2, sequence_length: 512}\n"
          "cluster: {devices: 2}\n"
          "search: {mini_batch: 2, stages: [2], schedules: [1f1b, seq1f1b], slices: [3, 4], slice_lengths: [even, "
          "time]}\n");
    const Json found = run_well("search gpt.yaml --json -o best.yaml").json();
    std::set<std::string> plans;
    for (const Json& plan : found["plans"])
        plans.insert(plan["plan"]);
    const std::string sizes = ", 2 stages on 2 devices, 2 micro-batches of 1";
    EXPECT_EQ(plans,
              (std::set<std::string>{"1f1b" + sizes, "seq1f1b" + sizes + ", 3 slices of equal time",
                                     "seq1f1b" + sizes + ", 4 slices", "seq1f1b" + sizes + ", 4 slices of equal time"}))
        << "512 tokens are no three equal slices";
    EXPECT_TRUE(contains(found["best"]["plan"].get<std::string>(), "4 slices"));
    EXPECT_EQ(run_well("simulate best.yaml --json").json()["step_time_ns"], found["objective_ns"]);
    run_well("run best.yaml --set run.backend=emulated --steps 2");
}

TEST_F(Search, PrintsTheBestPlanAndHowToRunIt) {
    const std::string out = run_well("search config.yaml -o best.yaml").out;
    EXPECT_TRUE(contains(out, "step 45.00 us; no plan of this search is faster\n")) << out;
    EXPECT_TRUE(contains(out, "next: pipewright run best.yaml\n")) << out;
    EXPECT_TRUE(contains(out, "4 of 4 choices tried, 4 fit, ")) << out;
    EXPECT_TRUE(contains(out, "Megatron layout: Et|tL\n")) << out;
    run_well("search config.yaml --plot plans.html");
    EXPECT_TRUE(contains(read("plans.html"), "reserved memory"));
}

TEST_F(Search, ThreadsDoNotChangeTheAnswer) {
    const std::string all = "search config.yaml --set search.schedules=all --set search.recompute=auto --json ";
    Json one = run_well(all + "--threads 1").json(), three = run_well(all + "--threads 3").json();
    one.erase("seconds");
    three.erase("seconds");
    EXPECT_EQ(one, three);
}

TEST_F(Search, MemoryDecides) {
    // The layers at the ends have 3 x 64 kB; both on one device need twice as much.
    const std::string cap = "search config.yaml --json --set cluster.memory=";
    EXPECT_EQ(run_well(cap + "'250 kB'").json()["best"]["devices"], 2);
    const Said said = run(cap + "'150 kB'");
    EXPECT_EQ(said.code, 3);
    EXPECT_TRUE(contains(said.err, "no plan fits")) << said.err;
    const Json json = Json::parse(said.out);
    EXPECT_TRUE(json["best"].is_null());
    EXPECT_TRUE(json["infeasible"]["proven"]);
    EXPECT_GT(json["infeasible"]["needs_bytes"], json["infeasible"]["has_bytes"]);
    EXPECT_EQ(json["infeasible"]["has_bytes"], 150'000);
}

TEST_F(Search, RecomputesIfNothingElseFits) {
    write("saved.yaml", R"(
samples: 1
layers:
  - {name: a, inputs: [], forward: 1 us, backward: 2 us, output: 1 kB, saved: 100 kB}
  - {name: b, forward: 1 us, backward: 2 us, output: 1 kB, saved: 100 kB}
)");
    const std::string search =
        "search config.yaml --json --set workload.model=saved.yaml --set cluster.memory='150 kB' "
        "--set search.schedules='[1f1b]' --set search.stages='[2]' --set search.recompute=";
    EXPECT_EQ(run(search + "none").code, 3);
    const Json json = run_well(search + "auto").json();
    EXPECT_EQ(json["best"]["stages"][0]["recompute"], true);
    EXPECT_EQ(json["best"]["stages"][1]["recompute"], false);
}

TEST_F(Search, DividesASlowStageAmongReplicas) {
    write("slow.yaml", R"(
samples: 1
layers:
  - {name: a, inputs: [], forward: 1 us, backward: 2 us, output: 1 kB}
  - {name: slow, forward: 2 us, backward: 4 us, output: 1 kB}
)");
    const std::string search =
        "search config.yaml --json -o best.yaml --set workload.model=slow.yaml "
        "--set cluster.devices=3 --set search.schedules='[gpipe]' --set search.stages='[2]' ";
    const Json plain = run_well(search).json();
    const Json shared = run_well(search + "--set search.replicas=true").json();
    EXPECT_LT(shared["objective_ns"], plain["objective_ns"]);
    EXPECT_EQ(shared["best"]["stages"][0]["replicas"], 1);
    EXPECT_EQ(shared["best"]["stages"][1]["replicas"], 2);
    EXPECT_EQ(run_well("simulate best.yaml --json").json()["step_time_ns"], shared["objective_ns"]);
}

// The layers take 18 us for a micro-batch: four on two devices 36 us, where two stages take 45 us. gpipe keeps two
// micro-batches on each device, 1f1b one.
TEST_F(Search, TriesDataParallelismUnlessItIsAskedNotTo) {
    write("free.yaml",
          "workload: {model: layers.yaml}\ncluster: {devices: 2}\npipeline: {micro_batches: 4}\nsearch: {schedules: "
          "[gpipe, 1f1b]}\n");
    const Json json = run_well("search free.yaml --json -o best.yaml").json();
    EXPECT_EQ(json["choices"], 6);  // on one device, on two stages, and on one stage with two holders
    EXPECT_EQ(json["objective_ns"], 36'000);
    EXPECT_EQ(json["gap"], 0.0);
    EXPECT_EQ(json["best"]["stages"][0]["replicas"], 2);
    EXPECT_EQ(json["plans"][0]["plan"], "data parallel on 2 devices, 4 micro-batches of 1, 1f1b");
    for (const Json& plan : json["plans"])
        EXPECT_GE(plan["gap"], 0.0);
    EXPECT_EQ(run_well("simulate best.yaml --json").json()["step_time_ns"], 36'000);
    const Said said = run_well("search free.yaml");
    EXPECT_TRUE(contains(said.out, "\ndata parallel on 2 devices, 4 micro-batches of 1, 1f1b  36.00 us")) << said.out;
    EXPECT_TRUE(contains(said.err, "replicas of stages are among the choices with search.replicas: true")) << said.err;
    EXPECT_EQ(run_well("search free.yaml --json --set search.replicas=false").json()["objective_ns"], 45'000);
}

// pipedream-2bw does not wait for a flush.
TEST_F(Search, MarksAsynchronousPlans) {
    const std::string both = "search config.yaml --set 'search.schedules=[1f1b, pipedream-2bw]'";
    const Json json = run_well(both + " --json").json();
    EXPECT_EQ(json["plans"][0]["asynchronous"], true);
    EXPECT_TRUE(contains(json["notes"].dump(), "the best plan is asynchronous: pipedream-2bw")) << json["notes"];
    EXPECT_TRUE(contains(run_well(both).out, " (asynchronous)  "));
}

// The search would take a minute. Without --foreground, timeout sends the signal twice, and the second one ends the
// program.
TEST_F(Search, EndsWithTheBestPlanSoFarAtASignal) {
    write("long.yaml",
          "workload: {model: resnet50, image_size: 64}\ncluster: {devices: 4}\nsearch: {schedules: all, recompute: "
          "auto, mini_batch: 32, micro_batch_sizes: [1, 2, 4, 8]}\n");
    write("script.sh", "timeout --foreground --preserve-status -s INT 2 '" + binary_ +
                           "' search long.yaml --time-limit 60 --threads 1 -o best.yaml >said.out 2>said.err\n");
    const int status = std::system(("cd '" + file("").string() + "' && sh script.sh").c_str());
    if (WEXITSTATUS(status) == 1) {  // a machine that finds no plan in two seconds
        EXPECT_TRUE(contains(read("said.err"), "stopped by a signal before any plan was tried")) << read("said.err");
        return;
    }
    EXPECT_EQ(status, 0) << read("said.err");
    EXPECT_TRUE(contains(read("said.out"), "; stopped by the caller\n")) << read("said.out");
    EXPECT_TRUE(contains(read("best.yaml"), "# Found by `pipewright search`"));
}

// Over the transport link senders keep copies, and lists wait for the previous send.
TEST_F(Search, JudgesByTheTransportThatWillRun) {
    write("linked.yaml", R"(
workload: {model: mlp}
cluster: {devices: 2, link: {bandwidth: 20 MB/s, latency: 20 us}}
run: {transport: link}
pipeline: {schedule: gpipe, micro_batches: 8, micro_batch_size: 4}
search: {stages: [2]}
)");
    const Json found = run_well("search linked.yaml --json -o best.yaml").json();
    const Json simulated = run_well("simulate best.yaml --json").json();
    EXPECT_EQ(simulated["step_time_ns"], found["objective_ns"]);
    for (const int stage : {0, 1})
        EXPECT_EQ(simulated["devices"][stage]["reserved_memory_bytes"], found["best"]["stages"][stage]["memory_bytes"]);
    const Json copied = simulated["devices"][0]["memory"]["communication"];
    EXPECT_GT(copied, 0);
    const std::string plain = "simulate best.yaml --json --set run.transport=threads";
    EXPECT_LT(run_well(plain).json()["devices"][0]["memory"]["communication"], copied);
}

// There are 35,960 ways to distribute 32 devices over 4 stages.
TEST_F(Search, DistributesManyDevices) {
    const std::string search =
        "search config.yaml --set cluster.devices=32 --set search.replicas=true --set search.stages='[4]' "
        "--set pipeline.micro_batches=64 --set search.schedules='[1f1b, interleaved]' ";
    const Json json = run_well(search + "--json").json();
    EXPECT_FALSE(json["every_choice"]);
    EXPECT_LT(json["choices"], 20);
    EXPECT_LE(json["lower_bound_ns"], json["objective_ns"]);
    EXPECT_EQ(json["tried"], json["plans"].size());
    EXPECT_EQ(json["notes"].size(), 1u);
    const Json& stages = json["best"]["stages"];
    EXPECT_GT(stages[0]["replicas"], stages[1]["replicas"]) << "it takes twice as long";
    const Said said = run_well(search);
    EXPECT_TRUE(contains(said.out, "way to share them out was tried")) << said.out;
    EXPECT_TRUE(contains(said.err, "search.replicas: not with interleaved")) << said.err;
}

TEST_F(Search, LimitsHoldFromTheStart) {
    const std::string late = error_of("search config.yaml --time-limit 0.000001", 1);
    EXPECT_TRUE(contains(late, "before any plan was tried") && contains(late, "raise --time-limit")) << late;
    EXPECT_TRUE(contains(error_of("search config.yaml --memory-limit lots", 2), "is not a size"));
#ifndef PIPEWRIGHT_SANITIZED
    write("gpt.yaml", "workload: {model: gpt, blocks: 40}\ncluster: {devices: 4}\n");
    const std::string full = error_of("search gpt.yaml --memory-limit '4 MB'", 1);
    EXPECT_TRUE(contains(full, "out of memory") && contains(full, "raise --memory-limit")) << full;
#endif
}

TEST_F(Search, WritesNoMoreThanTheConfigNeeds) {
    run_well("search config.yaml -o best.yaml --set cluster.memory='1 GB'");
    const std::string best = read("best.yaml");
    EXPECT_TRUE(contains(best, "cluster:\n  devices: 2\n  memory: 1 GB\n")) << best;
    EXPECT_FALSE(contains(best, "training:")) << best;
    EXPECT_TRUE(contains(best, "backend: emulated")) << best;
}

// Terms of other frameworks are printed only if those can read them.
TEST_F(Search, NamesLayoutsThatFrameworksCanRead) {
    const auto out_of = [this](const std::string& model) {
        write("model.yaml", "workload: " + model + "\ncluster: {devices: 2}\nsearch: {stages: [2]}\n");
        return run_well("search model.yaml").out;
    };
    const std::string mlp = out_of("{model: mlp}");
    EXPECT_FALSE(contains(mlp, "Megatron")) << mlp;
    const std::string whole = out_of("{model: gpt, blocks: 2, vocabulary: 16}");
    EXPECT_TRUE(contains(whole, "Megatron layout: E")) << whole;
    const std::string cut = out_of("{model: gpt, blocks: 1, vocabulary: 16}");
    EXPECT_FALSE(contains(cut, "Megatron")) << cut;
}

TEST_F(Search, SuggestsARunOnlyIfTheCostsAreOfThisMachine) {
    write("mlp.yaml", "workload: {model: mlp}\ncluster: {devices: 2}\n");
    EXPECT_TRUE(contains(run_well("search mlp.yaml -o b.yaml").out, "next: pipewright run b.yaml\n"));
    const Said other = run_well("search mlp.yaml -o b.yaml --set cluster.compute='14 TFLOP/s'");
    EXPECT_TRUE(contains(other.out, "next: pipewright simulate b.yaml\n")) << other.out;
}

TEST_F(Search, OtherPlannersObjectives) {
    const Json json = run_well("search config.yaml --json --set search.objective=pipedream").json();
    EXPECT_EQ(json["objective_name"], "pipedream");
    EXPECT_EQ(json["objective_ns"], 9000);  // links are free
    EXPECT_EQ(json["gap"], 0.0);
    EXPECT_TRUE(contains(error_of("search config.yaml --set search.objective=piper", 2), "takes an instance *.json"));
    EXPECT_TRUE(contains(error_of("search config.yaml -o b.yaml --set search.objective=pipedream", 2), "no schedule"));
    const std::string hosts =
        " --set search.objective=pipedream --set 'cluster={hosts: 2, devices_per_host: 1, inside: nvlink3, between: "
        "roce100}'";
    EXPECT_TRUE(contains(error_of("search config.yaml" + hosts, 2), "counts with one link between all devices"));
    EXPECT_TRUE(run_well("search config.yaml --json --set 'search.levels=[{devices: 2, bandwidth: 1 GB/s}]'" + hosts)
                    .json()["objective_ns"]
                    .is_number());
}

// The picture has the numbers of the table.
TEST_F(Search, DrawsEveryObjective) {
    for (const char* name : {"instances.yaml", "placed.json", "piper.json"})
        write(name, recorded_files().at(name));
    run_well("search config.yaml --plot a.json");
    EXPECT_EQ(Json::parse(read("a.json"))["x"], "reserved memory");
    for (const std::string problem : {"config.yaml --set search.objective=pipedream",
                                      "instances.yaml --set workload.model=placed.json --set search.objective=max-load",
                                      "instances.yaml --set workload.model=piper.json --set search.objective=piper"}) {
        const Json found = run_well("search " + problem + " --json --plot a.json").json();
        const Json drawn = Json::parse(read("a.json"));
        const double unit = found["objective_ns"].is_null() ? 1 : 1e9;
        std::vector<double> times;
        for (const Json& stage : found["best"]["stages"])
            times.push_back(unit * stage["time"].get<double>());
        EXPECT_EQ(drawn["curves"][0]["values"].get<std::vector<double>>(), times) << problem;
        EXPECT_EQ(drawn["y_levels"][0]["at"], unit * found["objective"].get<double>()) << problem;
        run_well("search " + problem + " --plot a.html");
        EXPECT_TRUE(contains(read("a.html"), "\"bars\"") && contains(read("a.html"), "\"objective ")) << problem;
    }
}

TEST_F(Search, RefusesSettingsThatLeaveNothingToTry) {
    const std::string uniform = error_of("search uniform.yaml", 2);
    EXPECT_TRUE(contains(uniform, "layer graph") && contains(uniform, "simulate CONFIG --schedules all")) << uniform;
    EXPECT_TRUE(contains(error_of("search config.yaml --set search.schedules='[2f2b]'", 2), "no schedule '2f2b'"));
    EXPECT_TRUE(contains(error_of("search config.yaml --set search.micro_batch_sizes='[3]'", 2), "divides"));
    EXPECT_TRUE(contains(error_of("search config.yaml --set search.stages='[9]'", 2), "9 stages for 4 layers"));
}

}  // namespace pw
