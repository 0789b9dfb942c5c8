// A plan on several ranks learns what it learns in one process, under every MPI that is here: bit for bit.
#include "tests/support/mpi_rig.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <set>
#include <string>
#include <thread>
#include <tuple>
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
        write("unet.yaml", R"(
workload: {model: unet, image_size: 16, classes: 4, base_channels: 16, levels: 2}
cluster: {devices: 4}
pipeline: {schedule: 1f1b, split: even, stages: 2, replicas: [2, 2], micro_batches: 4, micro_batch_size: 2}
training: {steps: 2}
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

// Cores that several ranks may use are shared out: none has two devices while there are enough.
TEST_P(UnderMpi, EveryDeviceHasItsPlace) {
    const Said said = on_ranks(2, "run four.yaml --set cluster.devices=2 --json");
    ASSERT_EQ(said.code, 0) << said.err;
    const Json places = said.json()["places"];
    ASSERT_EQ(places.size(), 2u);
    std::set<int> cores;
    for (int device = 0; device < 2; ++device) {
        EXPECT_EQ(places[device]["rank"], device);
        EXPECT_EQ(places[device]["host"], places[0]["host"]);
        for (const int core : places[device]["cores"])
            cores.insert(core);
    }
    EXPECT_EQ(cores.size(), std::min(2u, std::thread::hardware_concurrency()));
}

TEST_P(UnderMpi, LanesOfNccl) {
    expect_same("four.yaml --set 'transfer={communicator: one, receive: deferred, protocol: rendezvous}'", {2, 4});
    expect_same("four.yaml --set transfer.exchange=blocking", {2});
    expect_same("four.yaml --set 'transfer={protocol: rendezvous, eager_limit: 300 B}'", {4});
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

// Each replica keeps the optimizer's states of a part: the same as in one process that keeps all of them.
TEST_P(UnderMpi, ShardedOptimizers) {
    const std::string sharded = " --set training.shard_optimizer=true";
    const std::string two = " --set pipeline.stages=2 --set pipeline.replicas=[2,2]";
    expect_same("four.yaml" + two, {2, 4}, sharded);
    expect_same("four.yaml --set training.clip_norm=0.1 --set pipeline.stages=2 --set pipeline.replicas=[1,3]", {3},
                sharded);
    expect_same("four.yaml --set pipeline.schedule=pipedream" + two, {4}, sharded);
    expect_same("gpt.yaml --set training.clip_norm=0.5" + two, {2, 4}, sharded);
    expect_same("unet.yaml", {4}, sharded);
}

// Threads beside the devices meet over the ranks, bucket by bucket.
TEST_P(UnderMpi, SumsInBuckets) {
    const std::string small = " --set transfer.sum_bucket=2KiB", sharded = " --set training.shard_optimizer=true";
    const std::string two = " --set pipeline.stages=2 --set pipeline.replicas=[2,2]";
    expect_same("four.yaml" + two, {2, 4}, small);
    expect_same("four.yaml --set pipeline.stages=2 --set pipeline.replicas=[1,3]", {2, 3}, small + sharded);
    expect_same("four.yaml --set pipeline.schedule=zb-h1 --set training.clip_norm=0.1" + two, {4}, small + sharded);
    expect_same("four.yaml --set pipeline.schedule=pipedream" + two, {4}, small);
    expect_same("unet.yaml", {4}, " --set transfer.sum_bucket=16KiB");
}

// The states that the ranks have kept in parts serve any other run, and those of any other run serve them.
TEST_P(UnderMpi, ShardedOptimizersGoOnFromCheckpoints) {
    const std::string two = "four.yaml --set pipeline.stages=2 --set pipeline.replicas=[2,2] ";
    const std::string sharded = two + "--set training.shard_optimizer=true ";
    const Json whole = run_well("run " + two + "--checkpoint whole --checkpoint-every 1 --keep 9 --json").json();
    ASSERT_EQ(on_ranks(4, "run " + sharded + "--checkpoint parts --checkpoint-every 1 --keep 9").code, 0);
    const auto values_in = [&](const std::string& path) {  // behind a header, of so many bytes
        const std::string all = read(path);
        std::uint64_t header = 0;
        std::memcpy(&header, all.data(), sizeof header);
        return all.substr(sizeof header + header);
    };
    for (const std::string name : {"optimizer.safetensors", "model.safetensors"}) {
        EXPECT_GT(values_in("whole/step-00000002/" + name).size(), 1000u);
        EXPECT_EQ(values_in("parts/step-00000002/" + name), values_in("whole/step-00000002/" + name)) << name;
    }
    EXPECT_EQ(run_well("run " + two + "--resume parts/step-00000001 --json").json()["weights_hash"],
              whole["weights_hash"]);
    const Said said = on_ranks(2, "run " + sharded + "--resume whole/step-00000002 --json");
    ASSERT_EQ(said.code, 0) << said.err;
    EXPECT_EQ(said.json()["weights_hash"], whole["weights_hash"]);
}

TEST_P(UnderMpi, StatisticsOfBatchNorm) {
    expect_same("unet.yaml", {2, 4});
    expect_same("unet.yaml --set training.batch_norm=deferred", {4});
    expect_same("resnet.yaml", {4});
}

TEST_P(UnderMpi, SavedParametersAndDumpsAreWhole) {
    run_well("run unet.yaml --save alone --dump alone-dump");
    const Said said = on_ranks(4, "run unet.yaml --save ranks --dump ranks-dump");
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
        EXPECT_GT(files, 50) << folder;
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

// Hosts are what the system calls them: here ranks have names of their own.
TEST_P(UnderMpi, ProfilesMeasureLinksInsideHostsAndBetweenThem) {
    const Said alone = on_ranks(2, "profile four.yaml -o alone.yaml");
    ASSERT_EQ(alone.code, 0) << alone.err;
    EXPECT_EQ(alone.out.find("hand-over"), alone.out.rfind("hand-over")) << alone.out;
    EXPECT_EQ(read("alone.yaml").find("between:"), std::string::npos);
    EXPECT_EQ(run("simulate four.yaml --set cluster.profile=alone.yaml").code, 0);
    if (std::system("unshare -u true 2>/dev/null") != 0)
        GTEST_SKIP() << "this process may not give ranks another host name (unshare -u)";
    write("host.sh", R"sh(each=$1; shift
exec unshare -u sh -c 'hostname host$((${OMPI_COMM_WORLD_RANK:-$PMI_RANK} / '$each')) && exec "$@"' sh "$@"
)sh");
    for (const auto& [ranks, each] : {std::pair(2, 1), std::pair(4, 2), std::pair(3, 1)}) {
        const Said said = launch(
            fmt::format("-n {} sh ./host.sh {} '{}' profile four.yaml -o hosts.yaml", ranks, each, GetParam().binary));
        ASSERT_EQ(said.code, 0) << said.err;
        EXPECT_NE(said.out.find("between hosts"), std::string::npos) << said.out;
        EXPECT_NE(read("hosts.yaml").find("between:"), std::string::npos);
        const Said nowhere = run("simulate four.yaml --set cluster.profile=hosts.yaml");
        EXPECT_EQ(nowhere.code, 2);
        EXPECT_NE(nowhere.err.find("cluster.devices_per_host"), std::string::npos) << nowhere.err;
        EXPECT_EQ(run("simulate four.yaml --set cluster.profile=hosts.yaml --set cluster.devices_per_host=2").code, 0);
    }
}

// Also where the launcher has bound each rank to a core.
TEST_P(UnderMpi, ProfilesKnowTheDevicesOfOtherRanksBesideThem) {
    const std::string two = "profile four.yaml --set cluster.devices=2 -o two.yaml";
    const Said said =
        launch(fmt::format("-n 2 {}-bind-to core '{}' {}", is_mpich() ? "" : "-", GetParam().binary, two));
    ASSERT_EQ(said.code, 0) << said.err;
    if (std::thread::hardware_concurrency() < 2)
        EXPECT_NE(said.err.find("fewer cores here than 2 devices need"), std::string::npos) << said.err;
    else
        EXPECT_NE(read("two.yaml").find("busy:"), std::string::npos) << said.err;
}

TEST_P(UnderMpi, ProfilesEndOnAllRanksWhenOneFails) {
    const Said said = on_ranks(3, "profile four.yaml -o no/such/folder.yaml");
    EXPECT_NE(said.code, 0);
    EXPECT_NE(said.err.find("no/such"), std::string::npos) << said.err;
    EXPECT_EQ(said.err.find("error"), said.err.rfind("[rank 0/3] error") + 11) << said.err;
}

// Predicted, probed and run by all ranks; the first one says what came of it.
TEST_P(UnderMpi, ComparesAPlanOnItsRanks) {
    for (const std::string schedule : {"1f1b", "pipedream"}) {
        const std::string arguments = fmt::format(
            "four.yaml --set pipeline.schedule={} --set pipeline.split=even --set training.steps=8 --json", schedule);
        const Json alone = run_well("run " + arguments).json();
        for (const int ranks : tried({2, 4})) {
            const Said said = on_ranks(ranks, fmt::format("compare {} --interleave 3", arguments));
            ASSERT_EQ(said.code, 0) << schedule << said.err;
            const Json json = said.json();
            EXPECT_EQ(json["schedule"], schedule);
            EXPECT_EQ(json["slices"], 3);
            for (const char* key : {"weights_hash", "losses", "gradient_norms"})
                EXPECT_EQ(json["measured"][key], alone[key]) << schedule << " on " << ranks << ": " << key;
            EXPECT_EQ(json["predicted"]["devices"].size(), json["measured"]["devices"].size());
            EXPECT_EQ(json["peak_memory_error"], 0);
            const Json& parts = json["error_parts"];
            EXPECT_EQ(parts["mechanics_ns"].get<std::int64_t>() + parts["jitter_ns"].get<std::int64_t>() +
                          parts["costs_ns"].get<std::int64_t>(),
                      json["predicted"]["step_time_ns"].get<std::int64_t>() -
                          json["measured"]["step_time_ns"].get<std::int64_t>());
            EXPECT_GT(json["reference"]["median_ns"].get<std::int64_t>(), 0);
            EXPECT_NE(said.err.find(fmt::format("{} ranks on 1 host", ranks)), std::string::npos) << said.err;
        }
    }
}

// With a profile, with pictures, for several schedules.
TEST_P(UnderMpi, ComparesByAProfileAndWritesOnce) {
    ASSERT_EQ(on_ranks(2, "profile four.yaml -o profile.yaml").code, 0);
    const std::string profiled = "compare four.yaml --set cluster.profile=profile.yaml --set training.steps=4";
    const Said plain = on_ranks(2, profiled + " --plot both.html --why");
    ASSERT_EQ(plain.code, 0) << plain.err;
    EXPECT_EQ(plain.out.find("step time"), plain.out.rfind("\nstep time") + 1) << plain.out;
    EXPECT_NE(plain.out.find("The prediction of"), std::string::npos);
    EXPECT_EQ(plain.out.find("calibrated beside"), std::string::npos);
    EXPECT_NE(read("both.html").find("</html>"), std::string::npos);
    const Said probed = on_ranks(2, profiled + " --interleave 2 --json");
    ASSERT_EQ(probed.code, 0) << probed.err;
    EXPECT_TRUE(probed.json()["error_parts"]["drift_ns"].is_number_integer());
    const Said study = on_ranks(2, "compare four.yaml --set training.steps=4 --schedules gpipe,zb-h1 -o study");
    ASSERT_EQ(study.code, 0) << study.err;
    const Json points = Json::parse(read("study/accuracy.json"))["points"];
    ASSERT_EQ(points.size(), 2);
    EXPECT_EQ(points[0]["measured"]["weights_hash"], points[1]["measured"]["weights_hash"]);
    // Traces are the first rank's business.
    ASSERT_EQ(run("simulate four.yaml --set run.transport=mpi --trace predicted.json").code, 0);
    ASSERT_EQ(on_ranks(2, "run four.yaml --trace measured.json").code, 0);
    const Said traces = on_ranks(2, "compare predicted.json measured.json --json");
    ASSERT_EQ(traces.code, 0) << traces.err;
    EXPECT_EQ(traces.json()["schedule"], "1f1b");
}

TEST_P(UnderMpi, AComparisonEndsOnAllRanksWhenOneFails) {
    const Said many = on_ranks(5, "compare four.yaml");
    EXPECT_NE(many.code, 0);
    EXPECT_NE(many.err.find("5 ranks were started for 4 devices"), std::string::npos) << many.err;
    const Said infinite = on_ranks(4, "compare four.yaml --set training.steps=4 --set training.learning_rate=1e6");
    EXPECT_NE(infinite.code, 0);
    EXPECT_NE(infinite.err.find("is not finite"), std::string::npos) << infinite.err;
    EXPECT_EQ(infinite.err.find("stopped"), std::string::npos) << infinite.err;
    const Said small = on_ranks(2, "compare four.yaml --max-error 0%");
    EXPECT_NE(small.code, 0);
    EXPECT_NE(small.err.find("exceeds --max-error"), std::string::npos) << small.err;
    write("last.sh", R"(rank=${OMPI_COMM_WORLD_RANK:-$PMI_RANK}
exec "$1" compare four.yaml --set training.steps=4 --set training.seed=$rank
)");
    const Said differs = launch(fmt::format("-n 2 sh ./last.sh '{}'", GetParam().binary));
    EXPECT_NE(differs.code, 0);
    EXPECT_NE(differs.err.find("has another plan or config"), std::string::npos) << differs.err;
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

// Rank 1 has a clock that is a day ahead. On the clock of rank 0 no task begins before what it needs has ended.
TEST_P(UnderMpi, ClocksMayBeFarApart) {
    if (std::system("unshare -T --monotonic 86400 true 2>/dev/null") != 0)
        GTEST_SKIP() << "this system gives no process another clock";
    write("a_day_ahead.sh", R"(if [ "${OMPI_COMM_WORLD_RANK:-$PMI_RANK}" = 1 ]; then
    exec unshare -T --monotonic 86400 "$@"
fi
exec "$@"
)");
    const Said said = launch(
        fmt::format("-n 2 sh ./a_day_ahead.sh '{}' run four.yaml --trace apart.json --steps 20", GetParam().binary));
    ASSERT_EQ(said.code, 0) << said.err;
    const std::string agree = "their clocks agree within ";
    const std::size_t at = said.err.find(agree);
    ASSERT_NE(at, std::string::npos) << said.err;
    const double error_us =
        std::stod(said.err.substr(at + agree.size())) * (said.err.find(" ms", at) != std::string::npos ? 1000 : 1);
    std::map<std::tuple<int, std::string, int, int>, Json> events;  // by step, operation, stage, micro-batch
    const Json trace = Json::parse(read("apart.json"));
    for (const Json& event : trace["traceEvents"])
        if (event["ph"] == "X")
            events[{event["args"]["step"], event["args"]["op"], event["args"]["stage"], event["args"]["microbatch"]}] =
                event;
    int compared = 0;
    for (const auto& [key, event] : events) {
        const auto& [step, op, stage, microbatch] = key;
        const auto before = op == "F"   ? events.find({step, op, stage - 1, microbatch})
                            : op == "B" ? events.find({step, op, stage + 1, microbatch})
                                        : events.end();
        if (before == events.end())
            continue;
        ++compared;
        const double ended = before->second["ts"].get<double>() + before->second["dur"].get<double>();
        EXPECT_GE(event["ts"].get<double>() + error_us, ended) << event.dump();
    }
    EXPECT_EQ(compared, 20 * 8 * 3 * 2);
    run_well("validate apart.json");
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

// Each piece of an asynchronous plan goes on from the checkpoint that rank 0 has written.
TEST_P(UnderMpi, AsynchronousPlansInPieces) {
    const std::string pieces =
        "run four.yaml --set pipeline.schedule=pipedream-2bw --steps 5 --checkpoint-every 2 --json";
    const Json alone = run_well(pieces + " --checkpoint alone").json();
    const Said said = on_ranks(4, pieces + " --checkpoint ranks");
    ASSERT_EQ(said.code, 0) << said.err;
    EXPECT_EQ(said.json()["weights_hash"], alone["weights_hash"]);
    EXPECT_EQ(said.json()["losses"], alone["losses"]);
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
