// Inputs of public users, reduced (the folder `field` of the public data). Each README has the right value and its
// source: the user's own measurement, a formula, or a count by other code.
#include "tests/support/public_inputs.h"
#include "tests/support/refusal.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace pw {
namespace {

class PublicInputs : public PublicFolder {};

#define NEED_FIELD(name) PIPEWRIGHT_NEED_FOLDER("field/" name)

TEST_F(PublicInputs, TraceWithoutUpdates) {
    NEED_FIELD("01-foreign-trace");
    const Json replay = run_well("compare trace.json --replay --json").json();
    EXPECT_EQ(replay.at("step_time_ns"), 90'000);
    EXPECT_EQ(replay.at("replayed_ns"), 90'000);
    run_well("plot trace.json -o trace.svg");
}

TEST_F(PublicInputs, LoopedSplitOfEightyLayers) {
    NEED_FIELD("02-vpp-uneven-layers");
    EXPECT_LE(ms_of_step("config.yaml"), 615);
    EXPECT_LE(run_well("search config.yaml --json").json().at("objective_ns").get<double>() / 1e6, 602);
}

TEST_F(PublicInputs, MemoryOfZeroBubbleWithRecomputation) {
    NEED_FIELD("03-zbh1-recompute");
    const auto held = [&](const std::string& set) {
        const Json json = run_well("simulate config.yaml --json " + set).json();
        std::vector<double> gigabytes;
        for (const Json& device : json.at("devices"))
            gigabytes.push_back(device.at("memory").at("activations").get<double>() / 1e9);
        return std::pair(json.at("step_time_ns").get<double>() / 1e6, gigabytes);
    };
    const auto [plain, kept] = held("");
    EXPECT_EQ(plain, 510);
    const auto [recomputed, less] = held("--set pipeline.recompute=all");
    EXPECT_EQ(recomputed, 670);
    const std::vector<double> right_kept{4.0, 3.6, 3.2, 2.8}, right_less{1.0, 1.6, 2.2, 2.8};
    for (std::size_t device = 0; device < 4; ++device) {
        EXPECT_NEAR(kept[device], right_kept[device], 1e-9);
        EXPECT_NEAR(less[device], right_less[device], 1e-9);
    }
}

TEST_F(PublicInputs, GroupsBelowTheNumberOfDevices) {
    NEED_FIELD("05-group-below-devices");
    const Said circle = run("validate group2.csv");
    EXPECT_EQ(circle.code, 3);
    expect_says(circle.err, {"in all lanes, under all protocols", "group2.csv:4, cell 8: 3B0",
                             "group2.csv:1, cell 10: 4B0", "group2.csv:1, cell 8: 4F3", "group2.csv:4, cell 9: 3F3"});
    EXPECT_FALSE(contains(circle.err, "validate")) << circle.err;
    expect_says(error_of("simulate six-devices.yaml", 2),
                {"a group of 6 micro-batches for 3 micro-batches on 6 devices", "leave the group out"});
    EXPECT_EQ(ms_of_step("six-devices.yaml --set pipeline.group="), 42);
}

TEST_F(PublicInputs, MessagesBelowTheEagerLimit) {
    NEED_FIELD("06-eager-messages");
    EXPECT_NEAR(ms_of_step("config.yaml --set transfer.communicator=edge"), 124.2, 0.05);
    const Said eager = run("simulate config.yaml");
    EXPECT_EQ(eager.code, 0) << eager.err;
    EXPECT_TRUE(contains(eager.err, "rendezvous")) << eager.err;
    EXPECT_EQ(run("simulate config.yaml --set transfer.protocol=eager --set transfer.eager_limit=").code, 0);
    EXPECT_EQ(run("simulate config.yaml --set 'workload.output=64 MiB'").code, 3);
}

TEST_F(PublicInputs, OneDispatcherOfAllDevices) {
    NEED_FIELD("07-one-dispatcher");
    const std::string shared = "config.yaml --set 'cluster.dispatcher=per host' --set 'cluster.dispatch=20 ms'";
    const auto rate = [&](const std::string& more) {
        return run_well("simulate --json " + shared + more).json().at("samples_per_second").get<double>();
    };
    EXPECT_NEAR(rate(" --set pipeline.micro_batches=16") / rate(""), 1, 0.04);  // U takes calls, too
    EXPECT_GE(ms_of_step(shared), 2 * 8 * 8 * 20);  // a call for each F and B of 8 micro-batches on 8 stages
}

TEST_F(PublicInputs, AStageWithoutParameters) {
    NEED_FIELD("09-stage-without-parameters");
    for (const std::string more : {"", "--reference", "--set training.shard_optimizer=false"}) {
        const Json json = run_well("run config.yaml --json " + more).json();
        EXPECT_EQ(json.at("weights_hash"), "c15c3d860606c31f") << more;
        const std::vector<double> right{2.2803090387, 2.3398333860, 2.2506926410};
        for (std::size_t k = 0; k < right.size(); ++k)
            EXPECT_NEAR(json.at("losses").at(k).get<double>(), right[k], 1e-9) << more;
    }
}

TEST_F(PublicInputs, OneTensorWithManyReaders) {
    NEED_FIELD("11-one-tensor-many-readers");
    EXPECT_NEAR(ms_of_step("config.yaml"), 26.60, 0.001);
    EXPECT_NEAR(ms_of_step("config.yaml --set pipeline.schedule=1f1b --set pipeline.micro_batches=8 "
                           "--set 'cluster.link.bandwidth=1 GB/s'"),
                157, 0.001);
}

TEST_F(PublicInputs, RankTableOfOneServer) {
    NEED_FIELD("12-rank-table");
    const double hop = 10e6 / 30e9 * 1e3 + 0.005;
    EXPECT_NEAR(ms_of_step("config.yaml"), 45 + (14 + 12) * hop, 0.001);
}

TEST_F(PublicInputs, MegatronLayoutOfFortyTwoLayers) {
    NEED_FIELD("14-megatron-layout");
    const std::string layout = run_well("search config.yaml --json").json().at("best").at("megatron_layout");
    EXPECT_TRUE(layout.starts_with("E")) << layout;
    EXPECT_TRUE(layout.ends_with("ttL")) << layout;
    // Written out, without "t*3": 42 t, one E and one L.
    const auto count = [&](char letter) {
        int all = 0;
        for (std::size_t at = 0; at < layout.size(); ++at)
            if (layout[at] == letter)
                all += at + 1 < layout.size() && layout[at + 1] == '*' ? std::atoi(layout.c_str() + at + 2) : 1;
        return all;
    };
    EXPECT_EQ(count('t'), 42) << layout;
    EXPECT_EQ(count('E'), 1) << layout;
    EXPECT_EQ(count('L'), 1) << layout;
}

TEST_F(PublicInputs, LayerTimesForSeveralSizes) {
    NEED_FIELD("15-metis-profile");
    const auto step = [&](int size, const std::string& note) {
        const Said said =
            run(fmt::format("simulate simulate.yaml --json --set pipeline.micro_batches={} --set "
                            "pipeline.micro_batch_size={}",
                            64 / size, size));
        EXPECT_EQ(contains(said.err, note), size == 3) << said.err;
        EXPECT_EQ(said.json().at("interpolated"), size == 3);
        return said.json().at("step_time_ns").get<double>() / 1e9;
    };
    EXPECT_NEAR(step(1, "scaled"), 3.981, 5e-4);
    EXPECT_NEAR(step(2, "scaled"), 4.142, 5e-4);
    EXPECT_NEAR(step(4, "scaled"), 4.448, 5e-4);
    EXPECT_EQ(run("simulate as-it-is.yaml").code, 0);
}

TEST_F(PublicInputs, FilesOfTorchProfiler) {
    NEED_FIELD("16-torch-profiler");
    const Json replay = run_well("compare rank0.json rank1.json --replay --json").json();
    EXPECT_EQ(replay.at("step_time_ns"), 152'000'000);
    EXPECT_EQ(replay.at("replayed_ns"), 150'000'000);
}

TEST_F(PublicInputs, MicroBatchesOfUnequalLength) {
    NEED_FIELD("18-unequal-micro-batches");
    EXPECT_EQ(ms_of_step("equal.yaml"), 132);
    EXPECT_NEAR(ms_of_step("equal.yaml --set pipeline.micro_batch_lengths=lengths.csv"), 199.5, 1e-3);
    const auto sorted = [&](const std::string& list) {
        return ms_of_step("equal.yaml --set 'pipeline.micro_batch_lengths=[" + list + "]'");
    };
    EXPECT_NEAR(sorted("2, 1.75, 1.5, 1, 0.875, 0.5, 0.25, 0.125"), 151, 1e-3);
    EXPECT_NEAR(sorted("0.125, 0.25, 0.5, 0.875, 1, 1.5, 1.75, 2"), 148.5, 1e-3);
    const std::string chosen = "--set pipeline.schedule=auto --set pipeline.micro_batch_order=any";
    EXPECT_LE(ms_of_step("equal.yaml --set pipeline.micro_batch_lengths=lengths.csv " + chosen), 138);
}

TEST_F(PublicInputs, CountedStepsOfTwoSchedules) {
    NEED_FIELD("20-gpipe-against-1f1b");
    for (const auto& [schedule, held] : {std::pair{"gpipe", 32}, std::pair{"1f1b", 8}}) {
        const Json json =
            run_well(fmt::format("simulate config.yaml --json --set pipeline.schedule={}", schedule)).json();
        EXPECT_EQ(json.at("step_time_ns"), 78'000) << schedule;
        EXPECT_NEAR(json.at("bubble_rate").get<double>(), 0.179, 5e-4) << schedule;
        EXPECT_EQ(json.at("devices").at(0).at("peak_in_flight"), held) << schedule;
    }
}

// The published layout of 80 blocks takes 9.294 s and does not fit; [2] * 38 + [3, 1] takes 9.360 s.
TEST_F(PublicInputs, SearchDividesBlocksUnequally) {
    NEED_FIELD("22-search-uneven-layers");
    const Json json = run_well("search search.yaml --json").json();
    EXPECT_LE(json.at("objective_ns"), 9'360'500'000);
    EXPECT_TRUE(json.at("best").at("fits"));
    EXPECT_LE(json.at("lower_bound_ns"), 9'294'000'000);
    EXPECT_LE(json.at("gap"), 0.1);
    EXPECT_NEAR(run_well("search search.yaml --json --set search.unequal_blocks=false").json().at("objective_ns"),
                9.98e9, 1e7);
}

// The README's 9.01 s are without messages and updates. Devices 2 and 3 need 40.7 and 48.8 GB and have 32 GB.
TEST_F(PublicInputs, UnlikeDevicesOfATransformer) {
    NEED_FIELD("23-mixed-gpus");
    const Said plan = run("simulate config.yaml");
    EXPECT_EQ(plan.code, 0);
    expect_says(plan.out, {"does not fit: device 2 needs 40.71 GB and has 32 GB",
                           "does not fit: device 3 needs 48.79 GB and has 32 GB"});
    const Json free = run_well("simulate config.yaml --json --set cluster.inside={} --set cluster.between={}").json();
    EXPECT_NEAR(free.at("span_ns").get<double>() / 1e6, 9012.5, 0.2);
    EXPECT_NEAR(ms_of_step("equal.yaml"), 3741, 1);
}

// The README's 28.54 s are with a copy of a token for each of its experts. The default, DeepEP, sends fewer copies.
TEST_F(PublicInputs, LayoutsOfMegatron) {
    NEED_FIELD("25-layout-string");
    const std::string copies = " --set parallel.expert_dispatcher=alltoall";
    EXPECT_NEAR(ms_of_step("config.yaml" + copies), 28'540, 5);
    EXPECT_NEAR(ms_of_step("by-hand.yaml" + copies), 28'540, 5);
    EXPECT_EQ(ms_of_step("config.yaml"), ms_of_step("by-hand.yaml"));
    EXPECT_LT(ms_of_step("config.yaml"), 28'540);
    EXPECT_NEAR(ms_of_step("empty-stage.yaml"), 755.4, 0.1);
}

// The time of 1F1B's step, where a backward takes twice the forward of its stage and messages take no time.
double step_of_1f1b(const std::vector<double>& forward, int micro_batches) {
    const int stages = static_cast<int>(forward.size());
    std::vector<std::vector<double>> forwards(forward.size()), backwards(forward.size());  // ends, by stage
    std::vector<double> now(forward.size());
    const auto has_run = [&](int s, std::size_t count, const auto& ends) { return ends.at(s).size() >= count; };
    while (backwards[0].size() < static_cast<std::size_t>(micro_batches))
        for (int s = 0; s < stages; ++s) {
            const std::size_t f = forwards[s].size(), b = backwards[s].size();
            const bool is_forward = f < static_cast<std::size_t>(micro_batches) && f < b + stages - s;
            if (is_forward && (s == 0 || has_run(s - 1, f + 1, forwards))) {
                now[s] = std::max(now[s], s == 0 ? 0 : forwards[s - 1][f]) + forward[s];
                forwards[s].push_back(now[s]);
            } else if (!is_forward && f > b && (s == stages - 1 || has_run(s + 1, b + 1, backwards))) {
                now[s] = std::max(now[s], s == stages - 1 ? 0 : backwards[s + 1][b]) + 2 * forward[s];
                backwards[s].push_back(now[s]);
            }
        }
    return backwards[0].back();
}

// The forward of a block takes 3.757 ms, of embedding and head together 9.631 ms. by-hand.yaml has all of the latter in
// the head.
TEST_F(PublicInputs, ProfilesOfGalvatronAreModels) {
    NEED_FIELD("33-galvatron-profile");
    const double block = 3.757, rest = 9.631;
    const Said said = run("simulate config.yaml --json");
    const double ends = 7 * block + rest / 2;
    EXPECT_NEAR(said.json().at("step_time_ns").get<double>() / 1e6, step_of_1f1b({ends, 9 * block, 9 * block, ends}, 8),
                1e-3);
    EXPECT_NEAR(ms_of_step("by-hand.yaml"), step_of_1f1b({8 * block, 9 * block, 9 * block, 6 * block + rest}, 8), 1e-3);
    expect_says(said.err, {"32 are taken", "llama-3-8b", "scaled to 4096", "half"});
    for (const std::string same : {"--set cluster.devices=1", "--set cluster.devices=1 --set pipeline.micro_batches=3"})
        EXPECT_NEAR(ms_of_step("config.yaml " + same), ms_of_step("by-hand.yaml " + same), 1e-3) << same;
    EXPECT_NEAR(ms_of_step("config.yaml --set cluster.devices=1 --set pipeline.micro_batch_size=2"),
                8 * 3 * 2 * (32 * 4.339 + 3.756), 1e-3);
    run_well("search config.yaml");
    expect_says(error_of("simulate config.yaml --set workload.model=memory_profiling_bf16_own.json", 2),
                {"no times of a block", "memory_profile: FILE"});
    expect_says(error_of("validate computation_profiling_bf16_own.json", 2), {"is a model", "workload: {model:"});
}

// Without offload device 0 holds four micro-batches of 4 GB. A copy takes 80 ms over 50 GB/s, and 400 ms over 10 GB/s:
// 16 micro-batches go out and back.
TEST_F(PublicInputs, ActivationsInTheMemoryOfTheHost) {
    NEED_FIELD("34-activation-offload");
    EXPECT_FALSE(run_well("simulate config.yaml --json").json().at("fits").get<bool>());
    const std::string offload = "config.yaml --set pipeline.offload=all --set 'cluster.host_link={bandwidth: 50 GB/s}'";
    EXPECT_TRUE(run_well("simulate " + offload + " --json").json().at("fits").get<bool>());
    EXPECT_NEAR(ms_of_step(offload), 5700, 0.001);
    EXPECT_GE(ms_of_step(offload + " --set 'cluster.host_link.bandwidth=10 GB/s'"), 16 * 800);
}

TEST_F(PublicInputs, WeightsAreNotFrozen) {
    NEED_FIELD("35-frozen-weights");
    expect_says(error_of("simulate config.yaml --set pipeline.frozen=[0]", 2), {"unknown key 'frozen'"});
}

TEST_F(PublicInputs, RatesOfATransformerHaveAnEffect) {
    NEED_FIELD("49-note-on-compute");
    EXPECT_FALSE(contains(run("simulate config.yaml").err, "has no effect"));
    EXPECT_NEAR(ms_of_step("config.yaml"), 2621, 1);
    EXPECT_NEAR(ms_of_step("config.yaml --set cluster.compute= --set cluster.memory_bandwidth="), 750.2, 0.1);
}

// Two ranks send their halves of 4096 x 4096 numbers of two bytes to one rank, whose NVLink of 450 GB/s with 3.4 us is
// the narrower end: 74,565 and 3,400 ns for each message. The first and the last one are on the critical path.
TEST_F(PublicInputs, DegreesOfTensorParallelismByStage) {
    NEED_FIELD("51-tensor-degree-per-stage");
    const Json json = run_well("simulate config.yaml --json --explain").json();
    EXPECT_EQ(json.at("cluster").at("devices"), 3);
    const Json& links = json.at("explanation").at("critical_links");
    ASSERT_EQ(links.size(), 2u);
    for (const Json& link : links)
        EXPECT_NEAR(link.at("time_ns").get<double>(), 4096.0 * 4096 * 2 / 450 + 3400, 1);
    EXPECT_TRUE(contains(run("simulate config.yaml").out, "device 1 needs 84.76 GB and has 80.38 GB"));
    expect_says(error_of("simulate config.yaml --arguments megatron-lm", 2), {"one degree for all stages"});
}

}  // namespace
}  // namespace pw
