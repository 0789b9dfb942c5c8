// A plan on several ranks learns what it learns in one process, under every MPI that is here: bit for bit.
#include "tests/support/mpi_rig.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace pw {

namespace {

class UnderMpi : public MpiRig {
protected:
    void SetUp() override {
        MpiRig::SetUp();
        write("four.yaml", R"(
workload: {model: mlp, hidden: [32, 32, 32, 32, 32, 32, 32]}
cluster: {devices: 4}
pipeline: {schedule: 1f1b, micro_batches: 8, micro_batch_size: 2}
training: {steps: 3}
run: {timeout: 60 s}
)");
        write("gpt.yaml", R"(
workload: {model: gpt, sequence_length: 16, vocabulary: 64, embedding: 32, blocks: 4, heads: 2}
cluster: {devices: 4}
pipeline: {schedule: 1f1b, micro_batches: 4, micro_batch_size: 2}
training: {steps: 3}
run: {timeout: 60 s}
)");
        write("resnet.yaml", R"(
workload: {model: resnet50, image_size: 32, classes: 10}
cluster: {devices: 4}
pipeline: {schedule: 1f1b, stages: 2, replicas: [2, 2], micro_batches: 4, micro_batch_size: 2}
training: {steps: 2}
run: {timeout: 60 s}
)");
    }
};

INSTANTIATE_TEST_SUITE_P(Ranks, UnderMpi, testing::ValuesIn(kMpis), [](const auto& mpi) { return mpi.param.name; });

TEST_P(UnderMpi, EverySchedule) {
    for (const char* schedule :
         {"naive", "gpipe", "1f1b", "eager-1f1b", "zb-h1", "zb-h2", "pipedream", "pipedream-2bw"})
        expect_same(fmt::format("four.yaml --set pipeline.schedule={}", schedule), {4});
    for (const char* schedule : {"interleaved", "bfs", "zb1p", "zb-v"})
        expect_same(fmt::format("four.yaml --set pipeline.schedule={} --set pipeline.stages=8", schedule), {2});
}

TEST_P(UnderMpi, AnyNumberOfRanks) { expect_same("four.yaml"); }

TEST_P(UnderMpi, LanesOfNccl) {
    expect_same("four.yaml --set 'transfer={communicator: one, receive: deferred, protocol: rendezvous}'", {2, 4});
    expect_same("four.yaml --set transfer.exchange=blocking", {2});
}

TEST_P(UnderMpi, GradientsAreSummedAndClippedOverRanks) {
    expect_same("four.yaml --set pipeline.stages=2 --set pipeline.replicas=[2,2] --set training.clip_norm=0.1");
    expect_same("four.yaml --set pipeline.stages=2 --set pipeline.replicas=[1,3]", {2, 3});
    expect_same("four.yaml --set pipeline.stages=1 --set pipeline.replicas=[4]", {4});
}

TEST_P(UnderMpi, SharedTables) {
    expect_same("gpt.yaml", {2, 4});
    expect_same("gpt.yaml --set pipeline.stages=2 --set pipeline.replicas=[2,2] --set training.clip_norm=0.5", {2, 4});
}

TEST_P(UnderMpi, StatisticsOfBatchNorm) {
    expect_same("resnet.yaml", {2, 4});
    expect_same("resnet.yaml --set training.batch_norm=deferred", {4});
}

TEST_P(UnderMpi, SavedParametersAndDumpsAreWhole) {
    run_well("run resnet.yaml --save alone --dump alone-dump");
    const Said said = on_ranks(4, "run resnet.yaml --save ranks --dump ranks-dump");
    ASSERT_EQ(said.code, 0) << said.err;
    for (const std::string folder : {"alone", "alone-dump"}) {
        int files = 0;
        for (const auto& entry : std::filesystem::recursive_directory_iterator(file(folder)))
            if (entry.is_regular_file()) {
                const std::string path = std::filesystem::relative(entry.path(), file(folder)).string();
                const std::string other = (folder == "alone" ? "ranks/" : "ranks-dump/") + path;
                EXPECT_EQ(read(folder + "/" + path), read(other)) << other;
                ++files;
            }
        EXPECT_GT(files, 100) << folder;
    }
}

// One clock, every device, and a rank for each.
TEST_P(UnderMpi, OneTraceOfAllRanks) {
    const Said said = on_ranks(2, "run four.yaml --trace trace.json");
    ASSERT_EQ(said.code, 0) << said.err;
    EXPECT_NE(said.err.find("2 ranks on 1 host"), std::string::npos) << said.err;
    EXPECT_NE(said.err.find("they read one clock"), std::string::npos) << said.err;
    EXPECT_EQ(run("validate trace.json").code, 0) << run("validate trace.json").err;
    const Json trace = Json::parse(read("trace.json"));
    std::set<std::pair<int, int>> homes;
    for (const Json& event : trace["traceEvents"])
        if (event["ph"] == "X")
            homes.insert({event["args"]["device"].get<int>(), event["args"]["rank"].get<int>()});
    EXPECT_EQ(homes, (std::set<std::pair<int, int>>{{0, 0}, {1, 0}, {2, 1}, {3, 1}}));
}

TEST_P(UnderMpi, TheFirstRankSpeaks) {
    const Said said = on_ranks(4, "run four.yaml");
    EXPECT_EQ(said.code, 0);
    EXPECT_EQ(said.out.find("weights"), said.out.rfind("weights")) << said.out;
    EXPECT_EQ(on_ranks(2, "simulate four.yaml").out, run("simulate four.yaml --set run.transport=mpi").out);
}

TEST_P(UnderMpi, RefusesWhatWouldBeWrong) {
    const Said many = on_ranks(5, "run four.yaml");
    EXPECT_NE(many.code, 0) << many.err;
    EXPECT_NE(many.err.find("5 ranks were started for 4 devices"), std::string::npos) << many.err;
    const Said alone = on_ranks(2, "run four.yaml --set run.transport=threads");
    EXPECT_EQ(alone.code, 2) << alone.err;
    EXPECT_NE(alone.err.find("each would run all devices"), std::string::npos) << alone.err;
    write("differs.sh", R"(rank=${OMPI_COMM_WORLD_RANK:-$PMI_RANK}
exec "$1" run four.yaml --set training.seed=$rank
)");
    const Said differs = launch(fmt::format("-n 2 sh ./differs.sh '{}'", GetParam().binary));
    EXPECT_NE(differs.code, 0);
    EXPECT_NE(differs.err.find("has another plan or config"), std::string::npos) << differs.err;
    EXPECT_NE(differs.err.find("seed"), std::string::npos) << differs.err;
}

// Whoever is killed, at whatever task: the others end, and one says who is gone.
TEST_P(UnderMpi, ARankThatIsKilledIsNamed) {
    const std::string config = "four.yaml";
    for (const int rank : {0, 1, 3})
        for (const char* op : {"F", "SEND_F", "RECV_B", "U"}) {
            if (rank == 3 && op[0] != 'F' && op[0] != 'U')  // has neither
                continue;
            const Said said = launch(fmt::format("{} -n 4 '{}' {} {} 1 {} 9", GetParam().no_clean_up,
                                                 GetParam().under_fire, config, rank, op));
            if (is_mpich()) {  // whose launcher ends all ranks all the same, before they can speak
                EXPECT_NE(said.code, 0);
                continue;
            }
            EXPECT_NE(said.err.find(fmt::format("rank {} (device {}", rank, rank)), std::string::npos) << said.err;
            EXPECT_NE(said.err.find("is gone"), std::string::npos) << op << said.err;
        }
}

// The launcher, left to itself, ends a rank that is stopped when the others have found it out.
TEST_P(UnderMpi, ARankThatIsStoppedIsNamed) {
    std::string config = read("four.yaml");
    write("short.yaml", config.replace(config.find("60 s"), 4, "1500 ms"));
    for (const int rank : {0, 1}) {
        const auto begun = std::chrono::steady_clock::now();
        const Said said = launch(fmt::format("-n 4 '{}' short.yaml {} 1 F 19", GetParam().under_fire, rank));
        EXPECT_NE(said.err.find(fmt::format("rank {} (device {}", rank, rank)), std::string::npos) << said.err;
        EXPECT_NE(said.err.find("is silent"), std::string::npos) << said.err;
        EXPECT_NE(said.code, 0);
        if (!is_mpich()) {
            EXPECT_EQ(said.code, 5);
        }
        EXPECT_LT(std::chrono::steady_clock::now() - begun, std::chrono::seconds(20));  // no hang
    }
}

TEST_P(UnderMpi, AFailureOfOneEndsAll) {
    const Said said = on_ranks(4, "run four.yaml --set training.learning_rate=1e6");
    EXPECT_NE(said.code, 0);
    EXPECT_NE(said.err.find("is not finite"), std::string::npos) << said.err;
    EXPECT_NE(said.err.find("/4 stage "), std::string::npos) << said.err;
    EXPECT_EQ(said.err.find("is gone"), std::string::npos) << said.err;
    EXPECT_EQ(said.err.find("stopped"), std::string::npos) << said.err;
}

// A rank is killed from outside, and in another run the launcher, whose ranks nobody ends then but who launched all.
TEST_P(UnderMpi, LaunchGoesOnFromTheLatestCheckpoint) {
    write("launcher.sh", fmt::format(R"sh(for rank in $(cat "$victim.ranks" 2>/dev/null); do
    kill -0 "$rank" && echo "$rank" >>alive
done 2>/dev/null
echo $$ >launcher
shift 2
exec '{}' -n 4 sh ./rank.sh "$@"
)sh",
                                     GetParam().launcher));
    write("rank.sh", R"sh(echo $$ >>"$victim.ranks"
if [ "${OMPI_COMM_WORLD_RANK:-$PMI_RANK}" = 2 ] && mkdir "$victim.killed" 2>/dev/null; then
    [ "$victim" = rank ] && echo $$ >doomed || cp launcher doomed
    (for i in $(seq 3000); do [ -e "$victim.kept/step-00000002/complete" ] && break; sleep 0.01; done
     kill -9 "$(cat doomed)") >/dev/null 2>&1 &
fi
exec "$@"
)sh");
    const Json whole = run_well("run four.yaml --steps 200 --json").json();
    binary_ = GetParam().binary;
    for (const char* victim : {"rank", "launcher"}) {
        setenv("victim", victim, 1);
        const Said said =
            run(fmt::format("launch -n 4 --launcher 'sh ./launcher.sh' four.yaml --steps 200 --json --checkpoint "
                            "{}.kept --checkpoint-every 1 --keep 1000",
                            victim));
        ASSERT_EQ(said.code, 0) << said.err;
        const std::string restart = fmt::format("restart 1 of 3, from {}.kept/step-000000", victim);
        EXPECT_NE(said.err.find(restart), std::string::npos) << said.err;
        EXPECT_EQ(said.err.find("restart 2"), std::string::npos) << said.err;
        EXPECT_EQ(said.json()["weights_hash"], whole["weights_hash"]);
        EXPECT_EQ(read("alive"), "") << victim;
    }
    unsetenv("victim");
}

TEST_P(UnderMpi, ReferenceIsOneDevice) {
    const Json alone = run_well("run four.yaml --json").json();
    const Said said = on_ranks(2, "run four.yaml --reference --json");
    ASSERT_EQ(said.code, 0) << said.err;
    EXPECT_EQ(said.json()["weights_hash"], alone["weights_hash"]);
}

}  // namespace

}  // namespace pw
