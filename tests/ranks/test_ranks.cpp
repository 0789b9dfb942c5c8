// A plan on several ranks gives the weights of one process, bit for bit, under every installed MPI.
#include "schedules/orders/schedule.h"
#include "tests/ranks/under_mpi.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <set>
#include <string>
#include <thread>

namespace pw {

INSTANTIATE_TEST_SUITE_P(Ranks, UnderMpi, testing::ValuesIn(usual_mpis()), name_of_mpi);
INSTANTIATE_TEST_SUITE_P(Ranks, UnderEveryMpi, testing::ValuesIn(kMpis), name_of_mpi);

TEST_P(UnderEveryMpi, EverySchedule) {
    OneIn some(is_mpich() ? 7 : 3);
    for (const Schedule& schedule : schedules())
        if (schedule.trains && !schedule.cuts_sequences() && some.picks())
            expect_same(fmt::format("four.yaml --set pipeline.schedule={} --set pipeline.stages={}", schedule.name,
                                    4 * schedule.chunks),
                        {schedule.chunks == 1 ? 4 : 2});
}

// Replicas of a pipeline of two devices with two stages each: ranks have a replica, a device of each, or both.
TEST_P(UnderMpi, ReplicasOfPipelines) {
    const std::string twice = " --set pipeline.stages=4 --set pipeline.replicas=2";
    for (const std::string schedule : {"interleaved", "zb-v"})
        expect_same("four.yaml --set training.clip_norm=0.1 --set pipeline.schedule=" + schedule + twice);
    const std::string shared = " --set training.shard_optimizer=true --set transfer.sum_bucket=2KiB";
    expect_same("four.yaml --set pipeline.schedule=zb1p" + twice, {2, 4}, shared);
    expect_same("gpt.yaml --set pipeline.schedule=interleaved" + twice, {2}, shared);
}

TEST_P(UnderMpi, AnyNumberOfRanks) { expect_same("four.yaml"); }

// Ranks divide the cores that several of them may use: no core has two devices if there are enough cores.
TEST_P(UnderEveryMpi, EveryDeviceHasItsPlace) {
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

TEST_P(UnderEveryMpi, GradientsAreSummedAndClippedOverRanks) {
    expect_same("four.yaml --set pipeline.stages=2 --set pipeline.replicas=[2,2] --set training.clip_norm=0.1");
    expect_same("four.yaml --set pipeline.stages=2 --set pipeline.replicas=[1,3]", {2, 3});
    expect_same("four.yaml --set pipeline.stages=1 --set pipeline.replicas=[4]", {4});
}

TEST_P(UnderMpi, SharedTables) {
    expect_same("gpt.yaml", {2, 4});
    expect_same("gpt.yaml --set pipeline.stages=2 --set pipeline.replicas=[2,2] --set training.clip_norm=0.5", {2, 4});
}

// Each replica keeps the optimizer's states of a part: the weights are those of one process that keeps all states.
TEST_P(UnderMpi, ShardedOptimizers) {
    const std::string sharded = " --set training.shard_optimizer=true";
    const std::string two = " --set pipeline.stages=2 --set pipeline.replicas=[2,2]";
    expect_same("four.yaml" + two, {2, 4}, sharded);
    expect_same("four.yaml --set training.clip_norm=0.1 --set pipeline.stages=2 --set pipeline.replicas=[1,3]", {3},
                sharded);
    expect_same("four.yaml --set pipeline.schedule=pipedream" + two, {4}, sharded);
    expect_same("four.yaml --set training.optimizer=adamw" + two, {4}, sharded);
    expect_same("gpt.yaml --set training.clip_norm=0.5" + two, {2, 4}, sharded);
    expect_same("unet.yaml", {4}, sharded);
}

// The bucket threads of all ranks wait for each other, bucket by bucket.
TEST_P(UnderMpi, SumsInBuckets) {
    const std::string small = " --set transfer.sum_bucket=2KiB", sharded = " --set training.shard_optimizer=true";
    const std::string two = " --set pipeline.stages=2 --set pipeline.replicas=[2,2]";
    expect_same("four.yaml" + two, {2, 4}, small);
    expect_same("four.yaml --set pipeline.stages=2 --set pipeline.replicas=[1,3]", {2, 3}, small + sharded);
    expect_same("four.yaml --set pipeline.schedule=zb-h1 --set training.clip_norm=0.1" + two, {4}, small + sharded);
    expect_same("four.yaml --set pipeline.schedule=pipedream" + two, {4}, small);
    expect_same("unet.yaml", {4}, " --set transfer.sum_bucket=16KiB");
}

// Other runs resume from states that ranks have kept in parts, and such ranks resume from states of other runs.
TEST_P(UnderMpi, ShardedOptimizersResumeFromCheckpoints) {
    const auto values_in = [&](const std::string& path) {  // they follow the header, whose length comes first
        const std::string all = read(path);
        std::uint64_t header = 0;
        std::memcpy(&header, all.data(), sizeof header);
        return all.substr(sizeof header + header);
    };
    for (const std::string optimizer : {"sgd", "adamw"}) {
        const std::string whole = "whole-" + optimizer, parts = "parts-" + optimizer,
                          every = " --checkpoint-every 1 --keep 9";
        const std::string two = "four.yaml --set pipeline.stages=2 --set pipeline.replicas=[2,2] " +
                                ("--set training.optimizer=" + optimizer);
        const std::string sharded = two + " --set training.shard_optimizer=true";
        const Json hash = run_well("run " + two + " --checkpoint " + whole + every + " --json").json()["weights_hash"];
        ASSERT_EQ(on_ranks(4, "run " + sharded + " --checkpoint " + parts + every).code, 0);
        for (const std::string name : {"optimizer.safetensors", "model.safetensors"}) {
            const std::string file = "/step-00000002/" + name;
            EXPECT_GT(values_in(whole + file).size(), 1000u);
            EXPECT_EQ(values_in(parts + file), values_in(whole + file)) << optimizer << " " << name;
        }
        EXPECT_EQ(run_well("run " + two + " --resume " + parts + "/step-00000001 --json").json()["weights_hash"], hash);
        const Said said = on_ranks(2, "run " + sharded + " --resume " + whole + "/step-00000002 --json");
        ASSERT_EQ(said.code, 0) << said.err;
        EXPECT_EQ(said.json()["weights_hash"], hash);
    }
}

TEST_P(UnderMpi, StatisticsOfBatchNorm) {
    expect_same("unet.yaml", {2, 4});
    expect_same("unet.yaml --set training.batch_norm=deferred", {4});
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

// Each segment of an asynchronous plan resumes from the checkpoint that rank 0 has written.
TEST_P(UnderMpi, AsynchronousPlansInSegments) {
    const std::string pieces =
        "run four.yaml --set pipeline.schedule=pipedream-2bw --steps 5 --checkpoint-every 2 --json";
    const Json alone = run_well(pieces + " --checkpoint alone").json();
    const Said said = on_ranks(4, pieces + " --checkpoint ranks");
    ASSERT_EQ(said.code, 0) << said.err;
    EXPECT_EQ(said.json()["weights_hash"], alone["weights_hash"]);
    EXPECT_EQ(said.json()["losses"], alone["losses"]);
}

TEST_P(UnderMpi, ReferenceIsOneDevice) {
    const Json alone = run_well("run four.yaml --json").json();
    const Said said = on_ranks(2, "run four.yaml --reference --json");
    ASSERT_EQ(said.code, 0) << said.err;
    EXPECT_EQ(said.json()["weights_hash"], alone["weights_hash"]);
}

}  // namespace pw
