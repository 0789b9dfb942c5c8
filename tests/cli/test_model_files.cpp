// Models from files: the number of samples of their times, and the formats that are read.
#include "tests/support/cli_rig.h"
#include "tests/support/public_data.h"
#include "tests/support/refusal.h"

#include <fmt/format.h>

namespace pw {

namespace {

// Two stages: 13.0 + 26.2 ms and 13.4 + 27.0 ms. 16 micro-batches take 13.0 + 16 x 40.4 + 26.2 ms.
constexpr const char* kModelOfLayers = R"(
layers:
  - {name: embed, forward: 0.8 ms, backward: 1.6 ms, output: 8 MB, weights: 100 MB}
  - {name: block0, forward: 6.1 ms, backward: 12.3 ms, output: 8 MB, weights: 50 MB}
  - {name: block1, forward: 6.1 ms, backward: 12.3 ms, output: 8 MB, weights: 50 MB}
  - {name: block2, forward: 6.1 ms, backward: 12.3 ms, output: 8 MB, weights: 50 MB}
  - {name: block3, forward: 6.1 ms, backward: 12.3 ms, output: 8 MB, weights: 50 MB}
  - {name: head, forward: 1.2 ms, backward: 2.4 ms, output: 8 MB, weights: 100 MB}
)";
constexpr long kStep = 685'600'000;

class ModelFiles : public Cli {
protected:
    void SetUp() override {
        Cli::SetUp();
        write("layers.yaml", kModelOfLayers);
        write("cfg.yaml",
              "workload: {model: layers.yaml}\ncluster: {devices: 2}\n"
              "pipeline: {schedule: 1f1b, split: [block2], micro_batches: 16}\n");
    }
    Json simulated(const std::string& set) const { return run_well("simulate cfg.yaml --json" + set).json(); }
};

}  // namespace

TEST_F(ModelFiles, TimesWithoutSamplesAreThoseOfAMicroBatch) {
    for (const char* set :
         {"", " --set pipeline.micro_batch_size=4", " --set search.mini_batch=64", " --set search.profile_batch=1"}) {
        const Json json = simulated(set);
        EXPECT_EQ(json["step_time_ns"], kStep) << set;
        EXPECT_EQ(json["interpolated"], false) << set;
    }
    EXPECT_EQ(run_well("simulate cfg.yaml").err, "");
    const Said larger = run_well("simulate cfg.yaml --json --set pipeline.micro_batch_size=4");
    EXPECT_EQ(larger.err,
              "note: the times and sizes of layers are those of a micro-batch, whatever its size: "
              "pipeline.micro_batch_size 4 counts in samples/s only\n");
    EXPECT_NEAR(larger.json()["samples_per_second"].get<double>(), 64 / 0.6856, 1e-6);
}

TEST_F(ModelFiles, AFileWithItsSamplesIsScaled) {
    write("layers.yaml", std::string("samples: 4") + kModelOfLayers);
    EXPECT_EQ(simulated(" --set pipeline.micro_batch_size=4")["step_time_ns"], kStep);
    const Said half = run_well("simulate cfg.yaml --json --set pipeline.micro_batch_size=2");
    EXPECT_EQ(half.json()["step_time_ns"], kStep / 2);
    EXPECT_EQ(half.err, "note: layers has no times for micro-batches of 2: scaled from 4\n");
}

// 13.0 + m x 40.4 + 26.2 ms.
TEST_F(ModelFiles, ASweepOverMicroBatchesKeepsTheirTimes) {
    const Json points = simulated(" --set 'sweep={pipeline.micro_batches: [4, 8, 16]}'")["points"];
    ASSERT_EQ(points.size(), 3u);
    for (std::size_t i = 0; i < 3; ++i)
        EXPECT_EQ(points[i]["step_time_ns"], 39'200'000 + (4L << i) * 40'400'000);
}

TEST_F(ModelFiles, SeveralSizesNeedTheirSamples) {
    const std::string sweep = error_of("simulate cfg.yaml --set 'sweep={pipeline.micro_batch_size: [1, 2]}'", 2);
    expect_says(sweep, {"the same times for both", "samples: N", "search.profile_batch"});
    const std::string search =
        error_of("search cfg.yaml --set 'search={micro_batch_sizes: [1, 2], mini_batch: 16}'", 2);
    expect_says(search, {"layers.yaml' does not say how many samples", "1 and 2", "samples: N", "help: "});
    for (const char* set : {"--set 'search={micro_batch_sizes: [2], mini_batch: 32}'",
                            "--set 'search={micro_batch_sizes: [1, 2], mini_batch: 16, profile_batch: 1}'"})
        run_well(fmt::format("search cfg.yaml {}", set));
}

TEST_F(ModelFiles, SizesNextToTimesBySamplesNeedTheirOwn) {
    write("layers.yaml",
          "layers:\n  - {name: a, forward: {1: 1 ms, 2: 2 ms}, output: 1 kB}\n"
          "  - {name: b, forward: {1: 1 ms, 2: 2 ms}}\n");
    expect_says(error_of("simulate cfg.yaml --set pipeline.split=[b]", 2), {"layer 'a'", "samples: N"});
    write("layers.yaml",
          "layers:\n  - {name: a, forward: {1: 1 ms, 2: 2 ms}}\n"
          "  - {name: b, forward: {1: 1 ms, 2: 2 ms}}\n");
    const std::string search =
        "search cfg.yaml --set pipeline.split=auto --set 'search={micro_batch_sizes: [1, 2], "
        "mini_batch: 16, replicas: equal}'";
    EXPECT_EQ(run_well(search).err, "") << "all times are by samples";
}

TEST_F(ModelFiles, ASearchOfOneSizeKeepsTheTimes) {
    run_well("search cfg.yaml -o best.yaml --set 'search={micro_batch_sizes: [4], mini_batch: 64, stages: [2]}'");
    EXPECT_EQ(run_well("simulate best.yaml --json").json()["step_time_ns"], kStep);
    EXPECT_FALSE(contains(run_well("simulate best.yaml").err, "has no effect")) << read("best.yaml");
}

TEST_F(ModelFiles, AGraphOfPipeDreamNeedsItsBatch) {
    write("net.graph.txt",
          "node1 -- a -- forward_compute_time=4, backward_compute_time=8, activation_size=64, parameter_size=64\n"
          "node2 -- b -- forward_compute_time=4, backward_compute_time=8, activation_size=64, parameter_size=64\n"
          "\tnode1 -- node2\n");
    write("net.yaml",
          "workload: {model: net.graph.txt}\npipeline: {schedule: naive, split: [], micro_batches: 4, "
          "micro_batch_size: 16}\n");
    expect_says(error_of("simulate net.yaml", 2),
                {"net.yaml:1:19", "does not say how many samples", "search.profile_batch"});
    expect_says(
        error_of("search net.yaml --set 'search={schedules: [gpipe], micro_batch_sizes: [16], mini_batch: 64}'", 2),
        {"does not say how many samples"});
    const auto step = [&](const std::string& set) {
        return run_well("simulate net.yaml --json " + set).json()["step_time_ns"];
    };
    EXPECT_EQ(step("--set search.profile_batch=64"), 4 * 24'000'000 / 4);
    EXPECT_EQ(step("--set search.profile_batch=16"), 4 * 24'000'000);
    EXPECT_EQ(step("--set pipeline.micro_batches=1"), 24'000'000);
}

TEST_F(ModelFiles, ALayerGraphMayBeJsonOrATable) {
    write("layers.json", R"({"layers": [{"name": "a", "forward": "3 ms", "backward": "6 ms", "output": "1 MB"},
                                        {"name": "b", "forward": "1 ms", "backward": "2 ms", "weights": "2 MB"}]})");
    write("layers.csv", "name, forward (ms), backward [ms], output, weights (MB)\na, 3, 6, 1 MB,\nb,1,2000 us,,2\n");
    write("written.csv",
          "layer,forward_ms,backward_us,output_bytes,parameter_bytes\na,3,6000,1000000,0\nb,1,2000,0,2000000\n");
    for (const char* model : {"layers.json", "layers.csv", "written.csv"}) {
        const Json json = run_well(fmt::format("simulate cfg.yaml --json --set workload.model={} --set "
                                               "pipeline.split=[b] --set pipeline.micro_batches=2",
                                               model))
                              .json();
        EXPECT_EQ(json["step_time_ns"], 18'000'000) << model;  // F 3, F and B of the second 1 + 2, B 6 + 6
        EXPECT_EQ(json["devices"][1]["memory"]["weights"], 2'000'000) << model;
    }
    write("layers.csv", "name,forwards (ms)\na,3\n");
    expect_says(error_of("simulate cfg.yaml --set workload.model=layers.csv", 2),
                {"layers.csv:1:6", "'forwards' is no column", "did you mean 'forward'?"});
    write("layers.csv", "layer,name\na,b\n");
    expect_says(error_of("simulate cfg.yaml --set workload.model=layers.csv", 2), {"two columns are called 'name'"});
    write("layers.csv", "name,forward\na,3\n");
    expect_says(error_of("simulate cfg.yaml --set workload.model=layers.csv", 2), {"layers.csv:2:3", "without a unit"});
    write("layers.csv", "name,forward (ms)\na,3,4\n");
    expect_says(error_of("simulate cfg.yaml --set workload.model=layers.csv", 2),
                {"layers.csv:2:1", "has 3 cells, the first row 2"});
    write("other.json", R"({"nodes": []})");
    expect_says(error_of("simulate cfg.yaml --set workload.model=other.json", 2),
                {"only `search` takes the instance", "max-load or piper"});
}

// The same two layers, as programs and spreadsheets write them.
TEST_F(ModelFiles, TablesOfSpreadsheetsAreRead) {
    const char* const tables[] = {
        "name,forward (ms),backward (ms),weights (MB)\n\"a, \"\"first\"\"\",3,6,0\nb,\"1\",2,2\n",
        "\xEF\xBB\xBFName;Forward ms;Backward ms;Weights MB\r\na;3,0;6,00;\r\nb;1;2,0;2\r\n",
        "\xEF\xBB\xBFname\tforward (ms)\tbackward (ms)\tweights\na\t3\t6\t\nb\t1\t2\t2 MB\n",
        ",name,forward_ms,backward_ms,weights_mb\n0,a,3.0,6.0,0\n1,b,1.0,2.0,2\n",
        "Unnamed: 0,layer,fwd_ms,bwd_ms,params\n1,a,3,6,0 B\n2,b,1,2,2 MB\n",
    };
    for (const char* table : tables) {
        write("layers.csv", table);
        const Json json = run_well(
                              "simulate cfg.yaml --json --set workload.model=layers.csv --set pipeline.split=[b] "
                              "--set pipeline.micro_batches=2")
                              .json();
        EXPECT_EQ(json["step_time_ns"], 18'000'000) << table;
        EXPECT_EQ(json["devices"][1]["memory"]["weights"], 2'000'000) << table;
    }
    const auto refusal_of = [&](const char* table) {
        write("layers.csv", table);
        return error_of("simulate cfg.yaml --set workload.model=layers.csv", 2);
    };
    expect_says(refusal_of(",name,forward (ms)\nx,a,3\ny,b,1\n"),
                {"layers.csv:1:1", "a column of layers without a name"});
    expect_says(refusal_of("name,forward (ms)\n\"a,3\n"), {"layers.csv:2:1", "the quotes of the cell are not closed"});
    expect_says(refusal_of("name;forward (ms)\na;1.234,5\n"), {"layers.csv:2:3", "1.234,5 ms"});
    expect_says(refusal_of("name,forward ms,notes\na,3,x\n"), {"layers.csv:1:17", "'notes' is no column of layers"});
}

// A third of 0.3 + 30 + 30 + 0.9 ms is forward: one device takes twice the sum for two micro-batches.
TEST_F(ModelFiles, AProfileOfMetisIsAChainOfLayers) {
    constexpr const char* kProfile = R"({"model": {"parameters": {"parameters_per_layer_bytes": [640, 320, 320, 640]}},
        "execution_time": {"layer_compute_total_ms": [0.3, 30, 30, 0.9]}})";
    write("a_tp1_bs2.json", kProfile);
    write("metis.yaml",
          "workload: {model: a_tp1_bs2.json}\npipeline: {schedule: naive, split: [], micro_batches: 2, "
          "micro_batch_size: 2}\n");
    const Said whole = run_well("simulate metis.yaml --json");
    EXPECT_EQ(whole.json()["step_time_ns"], 122'400'000);
    EXPECT_EQ(whole.json()["devices"][0]["memory"]["weights"], 1920);
    expect_says(whole.err, {"one time for each layer", "a third"});
    EXPECT_EQ(run_well("simulate metis.yaml --json --set pipeline.micro_batch_size=1").json()["step_time_ns"],
              61'200'000)
        << "the name says that the times are for 2 samples";
    EXPECT_EQ(run_well("simulate metis.yaml --json --set pipeline.schedule=forward-only").json()["step_time_ns"],
              40'800'000);
    run_well("search metis.yaml --set cluster.devices=2 --set 'search={mini_batch: 8, micro_batch_sizes: [1, 2]}'");
    write("bad_bs1.json", R"({"model": {"parameters": {"parameters_per_layer_bytes": [1]}},
        "execution_time": {"layer_compute_total_ms": [1, 2]}})");
    expect_says(error_of("simulate metis.yaml --set workload.model=bad_bs1.json", 2),
                {"bad_bs1.json:1", "1 values, but there are 2 layers"});
}

// Times and sizes of three blocks, for one and for two samples. Sizes are for longer sequences.
constexpr const char* kGalvatronTimes = R"({"layernum[1]_bsz1_seq64": 3, "layernum[2]_bsz1_seq64": 5,
    "layertype_0_bsz1_seq64": 2, "layertype_other_bsz1_seq64": 1,
    "layertype_0_bsz2_seq64": 1.5, "layertype_other_bsz2_seq64": 0.5})";
constexpr const char* kGalvatronSizes = R"({"layertype_0_sp": {"128": {"parameter_size": 4,
        "tp_activation_per_bsz_dict": {"1": 6, "2": 3, "checkpoint": 1}}},
    "other_memory_pp_on_first_sp": {"128": {"model_states": {"1": 8}, "activation": {"1": 2}}},
    "other_memory_pp_on_last_sp": {"128": {"model_states": {"1": 16}, "activation": {"1": 4}}}})";

class GalvatronProfiles : public Cli {
protected:
    void SetUp() override {
        Cli::SetUp();
        write("computation_bf16.json", kGalvatronTimes);
        write("memory_bf16.json", kGalvatronSizes);
        write("own.yaml",
              "workload: {model: computation_bf16.json, blocks: 3}\ncluster: {devices: 1}\n"
              "pipeline: {schedule: 1f1b, micro_batches: 2}\ntraining: {optimizer: adamw}\n");
    }
};

// A step of one device is twice (m = 2) the forward of all layers and a backward of twice the forward.
TEST_F(GalvatronProfiles, AreChainsOfBlocksBetweenHalvesOfTheRest) {
    constexpr long kMs = 1'000'000, kMiB = 1 << 20;
    const Said said = run_well("simulate own.yaml --json");
    EXPECT_EQ(said.json()["step_time_ns"], 2 * 3 * (3 * 2 + 1) * kMs);
    expect_says(said.err,
                {"half of it", "sequences of 128 tokens: activations are scaled to 64", "messages count 0 bytes"});
    const Json memory = said.json()["devices"][0]["memory"];
    EXPECT_EQ(memory["weights"], (3 * 4 + 2 + 4) * kMiB);
    EXPECT_EQ(memory["activations"], (3 * 3 + 1 + 2) * kMiB);
    EXPECT_EQ(run_well("simulate own.yaml --json --set pipeline.micro_batch_size=2").json()["step_time_ns"],
              2 * 3 * (3 * 3 + 1) * kMs);
    // 64 x 256 values of 2 bytes take 1 ms. The second stage, with 4.5 + 9 ms for a micro-batch, works without a pause
    // between the first stage's first F and its last B.
    const std::string two =
        "simulate own.yaml --json --set cluster.devices=2 --set pipeline.split=[layers.1] --set "
        "'cluster.link.bandwidth=32.768 MB/s'";
    EXPECT_EQ(run_well(two).json()["step_time_ns"], (5 + 2 * 27 + 10) * kMs / 2);
    EXPECT_EQ(run_well(two + " --set workload.embedding=256").json()["step_time_ns"], (5 + 2 * 27 + 10 + 4) * kMs / 2);
}

// A block of Llama 3 8B: 4096 x (2 x 4096 + 2 x 1024) weights of attention, 3 x 4096 x 14336 of the MLP, and two norms.
TEST_F(GalvatronProfiles, TakeBlocksOfATransformerWithTheSameWeights) {
    constexpr double kParameters = 4096.0 * (2 * 4096 + 2 * 1024 + 3 * 14336 + 2);
    std::string sizes = kGalvatronSizes;
    const std::string_view size = "\"parameter_size\": 4";
    sizes.replace(sizes.find(size), size.size(),
                  fmt::format("\"parameter_size\": {:.2f}", 4 * kParameters / (1 << 20)));
    write("memory_bf16.json", sizes);
    const Said said = run_well("simulate own.yaml --json --set workload.blocks=");
    EXPECT_EQ(said.json()["step_time_ns"], 2 * 3 * (32 * 2 + 1) * 1'000'000L);
    expect_says(said.err, {"32 are taken", "llama-3-8b", "blocks: N"});
}

TEST_F(GalvatronProfiles, AreSearchedAndEmulated) {
    run_well("search own.yaml --set cluster.devices=2 --set 'search={mini_batch: 8, micro_batch_sizes: [1, 2]}'");
    run_well("compare own.yaml --set run.backend=emulated --set cluster.devices=2");
    expect_says(error_of("validate computation_bf16.json", 2), {"is a model, not a config", "workload: {model: "});
}

TEST_F(GalvatronProfiles, AreRefusedWithoutWhatTheyNeed) {
    const auto refused = [&](const std::string& set) { return error_of("simulate own.yaml --set " + set, 2); };
    expect_says(refused("workload.blocks="), {"does not say how many blocks", "workload: {blocks: 32}"});
    expect_says(refused("workload.memory_profile=none.json"), {"there is no '", "none.json", "memory_profile: FILE"});
    expect_says(refused("workload.sequence_length=32"), {"no times for sequences of 32", "sequence_length: 64"});
    expect_says(refused("workload.model=memory_bf16.json"), {"no times of a block", "memory_profile: FILE"});
    expect_says(refused("workload.heads=2"), {"'workload.heads' is not for model"});
    const auto with = [&](const char* file, std::string text, std::string_view part, std::string_view other) {
        write(file, text.replace(text.find(part), part.size(), other));
        return refused("training.seed=1");
    };
    expect_says(with("computation_bf16.json", kGalvatronTimes, "layertype_other_bsz2", "layertype_other_bsz3"),
                {"computation_bf16.json:3", "'layertype_other_bsz2_seq64' is missing"});
    expect_says(with("computation_bf16.json", kGalvatronTimes, "layertype_0_bsz2", "layertype_1_bsz2"),
                {"computation_bf16.json:3", "layers of several types", "layer graph"});
    expect_says(with("computation_bf16.json", kGalvatronTimes, ": 0.5", ": \"fast\""),
                {"computation_bf16.json:3", "no number"});
    expect_says(with("computation_bf16.json", kGalvatronTimes, "bsz2_seq64\": 1.5", "bsz2_seq32\": 1.5"),
                {"several lengths", "sequence_length: 32 | 64"});
    write("computation_bf16.json", kGalvatronTimes);
    expect_says(with("memory_bf16.json", kGalvatronSizes, "{\"1\": 6, ", "{"),
                {"memory_bf16.json:2", "tp_activation_per_bsz_dict.1' is missing"});
    expect_says(with("memory_bf16.json", kGalvatronSizes, "pp_on_first", "pp_off"),
                {"'other_memory_pp_on_first_sp' is missing"});
    expect_says(with("memory_bf16.json", kGalvatronSizes, "{\"128\": {\"parameter_size\": 4", "{\"x\": {\"x\": 4"),
                {"no sizes by length of sequences"});
}

// (m - 1) times the slowest stage plus the sum of the stages, at the measured times: 3.981, 4.142 and 4.448 s.
TEST_F(ModelFiles, TimesOfSeveralSizesAreUsedAsTheyAre) {
    PIPEWRIGHT_NEED_DATA(folder, "field/15-metis-profile");
    const auto simulated = [&](int size) {
        return run_well(
            fmt::format("simulate {}/simulate.yaml --json --set pipeline.micro_batches={} --set "
                        "pipeline.micro_batch_size={}",
                        folder, 64 / size, size));
    };
    for (const auto& [size, seconds] : {std::pair(1, 3.981), std::pair(2, 4.142), std::pair(4, 4.448)}) {
        const Said said = simulated(size);
        EXPECT_NEAR(said.json()["step_time_ns"].get<double>() / 1e9, seconds, 5e-4) << size;
        EXPECT_EQ(said.json()["interpolated"], false) << size;
        EXPECT_EQ(said.err, "") << size;
    }
    const Said between =
        run_well(fmt::format("simulate {}/simulate.yaml --json --set pipeline.micro_batch_size=3", folder));
    EXPECT_NEAR(between.json()["step_time_ns"].get<double>() / 1e9, 6.168, 5e-4);
    EXPECT_EQ(between.json()["interpolated"], true);
    EXPECT_EQ(between.err, "note: layers has no times for micro-batches of 3: interpolated from 2, 4\n");
    const Said beyond =
        run_well(fmt::format("simulate {}/simulate.yaml --json --set pipeline.micro_batch_size=8", folder));
    EXPECT_EQ(beyond.err, "note: layers has no times for micro-batches of 8: extrapolated from 2, 4\n");
    EXPECT_NEAR(
        run_well(fmt::format("simulate {}/as-it-is.yaml --json", folder)).json()["step_time_ns"].get<double>() / 1e9,
        3.981, 5e-4);
    run_well(fmt::format("search {}/as-it-is.yaml", folder));
}

}  // namespace pw
