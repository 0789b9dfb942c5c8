// Runs with GPUs on ranks give the weights of one process, bit for bit, under every installed MPI, with the
// stand-in of CUDA and NCCL, whose communicators connect processes.
#include "schedules/orders/schedule.h"
#include "tests/support/mpi_rig.h"
#include "tests/support/thoroughness.h"

#include <chrono>
#include <map>
#include <set>
#include <tuple>

namespace pw {

namespace {

class CudaUnderMpi : public MpiRig {
protected:
    void SetUp() override {
        MpiRig::SetUp();
        binary_ = GetParam().binary;
        see_gpus(4);
        unsetenv("CUDA_VISIBLE_DEVICES");
        setenv("HOST_CUDA_SLOW", "7", 1);
        write("four.yaml", R"(
workload: {model: mlp, hidden: [32, 32, 32, 32, 32, 32, 32]}
cluster: {devices: 4}
pipeline: {schedule: 1f1b, micro_batches: 8, micro_batch_size: 2}
training: {steps: 3}
run: {backend: cuda, timeout: 60 s}
)");
        write("gpt.yaml", R"(
workload: {model: gpt, sequence_length: 8, vocabulary: 32, embedding: 16, blocks: 4, heads: 2}
cluster: {devices: 4}
pipeline: {schedule: 1f1b, micro_batches: 4, micro_batch_size: 2}
training: {steps: 3}
run: {backend: cuda, timeout: 60 s}
)");
        write("unet.yaml", R"(
workload: {model: unet, image_size: 16, classes: 4, base_channels: 4, levels: 2}
cluster: {devices: 4}
pipeline: {schedule: gpipe, split: even, stages: 2, replicas: [2, 2], micro_batches: 4, micro_batch_size: 1}
training: {steps: 2}
run: {backend: cuda, timeout: 60 s}
)");
    }
    void TearDown() override {
        unsetenv("HOST_CUDA_DEVICES");
        unsetenv("HOST_CUDA_SLOW");
        unsetenv("CUDA_VISIBLE_DEVICES");
        MpiRig::TearDown();
    }
    static void see_gpus(int count) { setenv("HOST_CUDA_DEVICES", std::to_string(count).c_str(), 1); }
};

class CudaUnderEveryMpi : public CudaUnderMpi {};

INSTANTIATE_TEST_SUITE_P(Ranks, CudaUnderMpi, testing::ValuesIn(usual_mpis()), name_of_mpi);
INSTANTIATE_TEST_SUITE_P(Ranks, CudaUnderEveryMpi, testing::ValuesIn(kMpis), name_of_mpi);

TEST_P(CudaUnderMpi, EverySchedule) {
    OneIn some(3);
    for (const Schedule& schedule : schedules())
        if (schedule.trains && !schedule.cuts_sequences() && some.picks())
            expect_same(fmt::format("four.yaml --set pipeline.schedule={} --set pipeline.stages={} --set "
                                    "pipeline.prediction=none",
                                    schedule.name, 4 * schedule.chunks),
                        {2, 4});
    expect_same("four.yaml --set cluster.devices=2", {2});
}

// Messages within a rank share lanes with messages to other ranks.
TEST_P(CudaUnderMpi, EveryLaneMode) {
    for (const bool one : {false, true})
        for (const bool deferred : {false, true})
            for (const bool interleaved : {false, true})
                if (soaks() || (one != deferred) == interleaved)  // covers all pairs of the three settings
                    expect_same(fmt::format("four.yaml --set pipeline.schedule={} --set 'transfer={{communicator: {}, "
                                            "receive: {}}}' --set training.steps=2",
                                            interleaved ? "interleaved" : "1f1b", one ? "one" : "direction",
                                            deferred ? "deferred" : "early"),
                                {2, 3});
    expect_same("four.yaml --set transfer.exchange=blocking", {2});
    expect_same("four.yaml --set transfer.receive=deferred", {4});
}

TEST_P(CudaUnderMpi, GradientsAreSummedAndClippedOverRanks) {
    expect_same("four.yaml --set pipeline.stages=2 --set pipeline.replicas=[2,2] --set training.clip_norm=0.1",
                {2, 3, 4});
    expect_same("four.yaml --set pipeline.stages=2 --set pipeline.replicas=[1,3]", {2, 3});
    expect_same("four.yaml --set pipeline.stages=1 --set pipeline.replicas=[4]", {4});
    expect_same("four.yaml --set training.clip_norm=0.1 --set pipeline.schedule=zb-h1", {4});
}

TEST_P(CudaUnderMpi, SharedTables) {
    expect_same("gpt.yaml", {2, 4});
    expect_same("gpt.yaml --set pipeline.stages=2 --set pipeline.replicas=[2,2] --set training.clip_norm=0.5", {2, 4});
}

TEST_P(CudaUnderMpi, StatisticsOfBatchNorm) {
    expect_same("unet.yaml", {2, 4});
    expect_same("unet.yaml --set training.batch_norm=deferred --set training.precision=bf16", {4});
}

// Two devices of a rank have shares of one GPU, those of the other rank have shares of another one.
TEST_P(CudaUnderMpi, RanksDivideTheGpusOfTheirHost) {
    see_gpus(2);
    expect_same("four.yaml --set pipeline.stages=2 --set pipeline.replicas=[2,2]", {2});
    const Said said = on_ranks(2, "run four.yaml");
    for (const char* seat :
         {"rank 0: device 1: host stand-in, GPU 0, 64 of 132", "rank 1: device 2: host stand-in, GPU 1, 64 of"})
        EXPECT_NE(said.err.find(seat), std::string::npos) << said.err;
    const Json json = on_ranks(2, "run four.yaml --json").json();
    ASSERT_EQ(json["gpus"].size(), 2u);
    for (const int rank : {0, 1}) {
        const Json& gpu = json["gpus"][rank];
        EXPECT_EQ(gpu["rank"], rank);
        EXPECT_EQ(gpu["gpu"], rank);
        EXPECT_EQ(gpu["devices"], Json({2 * rank, 2 * rank + 1}));
        std::int64_t reserved = 0;
        for (const int device : {2 * rank, 2 * rank + 1})
            reserved += json["devices"][device]["reserved_memory_bytes"].get<std::int64_t>();
        EXPECT_GE(gpu["grown_bytes"], reserved);
        EXPECT_GT(gpu["used_bytes"], gpu["grown_bytes"]);
    }
}

// NCCL's sum is the same on all ranks, and a sum of two has only one order.
TEST_P(CudaUnderEveryMpi, NcclAddsUpOverRanks) {
    expect_same(
        "four.yaml --set cluster.devices=2 --set pipeline.stages=1 --set pipeline.replicas=[2] --set "
        "run.deterministic=false",
        {2});
    const Said said = on_ranks(4,
                               "run four.yaml --set pipeline.stages=1 --set pipeline.replicas=[4] --set "
                               "run.deterministic=false --json");
    EXPECT_EQ(said.code, 0) << said.err;
}

// A launcher may show each rank only its own GPU.
TEST_P(CudaUnderEveryMpi, ARankTakesTheGpusThatItSees) {
    write("see_one.sh", R"(CUDA_VISIBLE_DEVICES=$((3 - ${OMPI_COMM_WORLD_RANK:-$PMI_RANK})) exec "$@"
)");
    const Json alone = run_well("run four.yaml --json").json();
    const Said said = launch(fmt::format("-n 4 sh ./see_one.sh '{}' run four.yaml --json", GetParam().binary));
    ASSERT_EQ(said.code, 0) << said.err;
    EXPECT_EQ(said.json()["weights_hash"], alone["weights_hash"]);
    EXPECT_NE(said.err.find("rank 3: device 3: host stand-in, GPU 0"), std::string::npos) << said.err;
    const Said given = on_ranks(2, "run four.yaml --set run.gpus=[3,1,2,0]");
    EXPECT_EQ(given.code, 0) << given.err;
    EXPECT_NE(given.err.find("rank 1: device 3: host stand-in, GPU 0"), std::string::npos) << given.err;
}

// All ranks refuse these runs; a launcher may kill some ranks when the first one has ended.
TEST_P(CudaUnderMpi, RefusesImpossibleRuns) {
    const auto expect_refused = [&](int ranks, const std::string& arguments, const std::vector<std::string>& texts) {
        const Said said = on_ranks(ranks, arguments);
        EXPECT_NE(said.code, 0) << arguments;
        for (const std::string& text : texts)
            EXPECT_NE(said.err.find(text), std::string::npos) << arguments << '\n' << said.err;
    };
    see_gpus(1);
    expect_refused(2, "run four.yaml", {"ranks 0 and 1 on host", "would both use the GPU at FFFE:0A:00.0"});
    see_gpus(4);
    expect_refused(2, "run four.yaml --set run.gpus=[0,1,2,4]", {"there is no GPU 4: this machine has 4", "run.gpus"});
    expect_refused(2, "run four.yaml --set run.gpus=[0,1,1,2]", {"would both use the GPU at FFFE:0B:00.0"});
    expect_refused(2, "run four.yaml --set run.graph=step", {"a step cannot be a graph: transport nccl"});
    expect_refused(2, "run four.yaml --set run.transport=mpi", {"write transport: nccl"});
    expect_refused(2, "run four.yaml --set run.transport=threads", {"each would run all devices"});
    expect_refused(2, "profile four.yaml -o profile.yaml", {"in one process"});
    expect_refused(4, "run four.yaml --set run.sms=[8,8,8,8] --set run.gpus=[0,1,2,3]", {"too few for 4 lanes whose"});
    EXPECT_EQ(on_ranks(4, "run four.yaml --set run.sms=[16,16,16,16] --set run.gpus=[0,1,2,3]").code, 0);
}

TEST_P(CudaUnderMpi, ReferenceIsOneDevice) {
    const Json alone = run_well("run four.yaml --json").json();
    const Said said = on_ranks(2, "run four.yaml --reference --json");
    ASSERT_EQ(said.code, 0) << said.err;
    EXPECT_EQ(said.json()["weights_hash"], alone["weights_hash"]);
}

// A run in one process resumes from a checkpoint of ranks, and ranks from that of one process.
TEST_P(CudaUnderMpi, CheckpointsResumeOnAnyNumberOfRanks) {
    const std::string replicated = "four.yaml --set pipeline.stages=2 --set pipeline.replicas=[2,2] --json";
    const Json whole = run_well("run --steps 4 " + replicated).json();
    ASSERT_EQ(on_ranks(4, "run --steps 2 --checkpoint ranks " + replicated).code, 0);
    run_well("run --steps 2 --checkpoint alone " + replicated);
    EXPECT_EQ(run_well("run --steps 4 --resume ranks " + replicated).json()["weights_hash"], whole["weights_hash"]);
    const Said resumed = on_ranks(4, "run --steps 4 --resume alone " + replicated);
    ASSERT_EQ(resumed.code, 0) << resumed.err;
    EXPECT_EQ(resumed.json()["weights_hash"], whole["weights_hash"]);
}

// All tasks of all ranks are on one clock: none begins before its inputs have ended.
TEST_P(CudaUnderMpi, OneTraceOfAllRanks) {
    const Said said = on_ranks(4, "run four.yaml --trace trace.json");
    ASSERT_EQ(said.code, 0) << said.err;
    EXPECT_EQ(run("validate trace.json").code, 0) << run("validate trace.json").err;
    using Key = std::tuple<int, std::string, int, int>;  // step, operation, stage, micro-batch
    std::map<Key, std::pair<std::int64_t, std::int64_t>> events;
    std::set<std::pair<int, int>> homes;
    const Json trace = Json::parse(read("trace.json"));
    for (const Json& event : trace["traceEvents"])
        if (event["ph"] == "X") {
            const Json& args = event["args"];
            homes.insert({args["device"].get<int>(), args["rank"].get<int>()});
            events[{args["step"].get<int>(), args["op"].get<std::string>(), args["stage"].get<int>(),
                    args["microbatch"].get<int>()}] = {args["start_ns"].get<std::int64_t>(),
                                                       args["end_ns"].get<std::int64_t>()};
        }
    EXPECT_EQ(homes, (std::set<std::pair<int, int>>{{0, 0}, {1, 1}, {2, 2}, {3, 3}}));
    constexpr std::int64_t kUncertain = 200'000;  // between the clocks of two GPUs of the stand-in
    int messages = 0;
    for (const auto& [key, interval] : events) {
        const auto& [step, op, stage, mb] = key;
        if (op != "SEND_F")
            continue;
        const auto received = events.at({step, "RECV_F", stage + 1, mb});
        EXPECT_EQ(interval.first, received.first) << step << ' ' << stage << ' ' << mb;
        EXPECT_GE(interval.first + kUncertain, events.at({step, "F", stage, mb}).second);
        EXPECT_GE(events.at({step, "F", stage + 1, mb}).first + kUncertain, received.second);
        ++messages;
    }
    EXPECT_EQ(messages, 3 * 8 * 3);
}

// If any rank is killed at any task, the others end, and one reports the lost rank.
TEST_P(CudaUnderEveryMpi, ARankThatIsKilledIsNamed) {
    for (const auto& [rank, op] :
         std::vector<std::pair<int, const char*>>{{0, "F"}, {1, "SEND_F"}, {1, "RECV_B"}, {3, "U"}}) {
        const auto begun = std::chrono::steady_clock::now();
        const Said said = launch(
            fmt::format("{} -n 4 '{}' four.yaml {} 1 {} 9", GetParam().no_clean_up, GetParam().under_fire, rank, op));
        EXPECT_LT(std::chrono::steady_clock::now() - begun, std::chrono::seconds(60)) << op;  // no hang
        if (is_mpich()) {  // its launcher kills all ranks before they can report anything
            EXPECT_NE(said.code, 0);
            continue;
        }
        EXPECT_NE(said.err.find(fmt::format("rank {} (device {}", rank, rank)), std::string::npos) << op << said.err;
        EXPECT_NE(said.err.find("is gone"), std::string::npos) << op << said.err;
    }
}

TEST_P(CudaUnderMpi, ARankThatIsStoppedIsNamed) {
    std::string config = read("four.yaml");
    write("short.yaml", config.replace(config.find("60 s"), 4, "1500 ms"));
    const auto begun = std::chrono::steady_clock::now();
    const Said said = launch(fmt::format("-n 4 '{}' short.yaml 1 1 F 19", GetParam().under_fire));
    EXPECT_NE(said.err.find("rank 1 (device 1"), std::string::npos) << said.err;
    EXPECT_NE(said.err.find("is silent"), std::string::npos) << said.err;
    EXPECT_NE(said.code, 0);
    EXPECT_LT(std::chrono::steady_clock::now() - begun, std::chrono::seconds(20));  // no hang
}

TEST_P(CudaUnderMpi, AFailureOfOneEndsAll) {
    const Said said = on_ranks(4, "run four.yaml --set training.learning_rate=1e6");
    EXPECT_NE(said.code, 0);
    EXPECT_NE(said.err.find("is not finite"), std::string::npos) << said.err;
    EXPECT_EQ(said.err.find("is gone"), std::string::npos) << said.err;
}

}  // namespace

}  // namespace pw
