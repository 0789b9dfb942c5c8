// Collectives against published measurements and hand calculations.
#include "workloads/cluster/collectives.h"

#include "tests/support/public_data.h"
#include "workloads/cluster/named_links.h"

#include <gtest/gtest.h>
#include <yaml-cpp/yaml.h>

#include <string>

namespace pw {
namespace {

constexpr double kMiB = 1024.0 * 1024;

Fabric fabric_of(const std::string& inside, int hosts, const std::string& between, int adapters) {
    Fabric fabric;
    fabric.inside_name = inside;
    fabric.inside = find_named_link(inside)->link;
    fabric.domain = fabric.per_host = 8;
    fabric.adapters = adapters;
    if (hosts > 1)
        fabric.between = find_named_link(between)->link;
    return fabric;
}

TEST(Collectives, HaveTheMeasuredTimesInsideAHost) {
    PIPEWRIGHT_NEED_DATA(path, "clusters/devices.yaml");
    int compared = 0;
    for (const YAML::Node& table : YAML::LoadFile(path)["collectives"]) {
        const auto id = table["id"].as<std::string>();
        if (!id.starts_with("a100-nvlink3-") && id != "v100-nvlink2-8")
            continue;
        const Fabric fabric = fabric_of(id.starts_with("a100") ? "nvlink3" : "nvlink2", 1, "", 1);
        for (const YAML::Node& row : table["rows"]) {
            const double seconds = collective_seconds(Collective::AllReduce, row[0].as<double>() * kMiB,
                                                      {table["gpus"].as<int>(), 1}, fabric);
            EXPECT_NEAR(seconds * 1e6, row[1].as<double>(), 1e-6 * row[1].as<double>()) << id << " " << row[0];
            ++compared;
        }
    }
    EXPECT_EQ(compared, 6 + 6 + 11 + 6);
}

// NVIDIA shows 192 GB/s for hosts with eight adapters of 200 Gbit/s, and 380 GB/s with 400.
TEST(Collectives, ReachThePublishedBandwidthBetweenHosts) {
    for (const auto& [inside, between, busbw] :
         {std::tuple("nvlink3", "hdr200", 192e9), std::tuple("nvlink4", "ndr400", 380e9)}) {
        const double bytes = 16.0 * 1024 * kMiB;
        const double seconds =
            collective_seconds(Collective::AllReduce, bytes, {128, 1}, fabric_of(inside, 16, between, 8));
        EXPECT_NEAR(bytes * 2 * 127 / 128 / seconds, busbw, 0.15 * busbw) << between;
    }
}

TEST(Collectives, ShareTheAdaptersOfAHost) {
    // Eight groups, each with one rank on every host: a device has one adapter, 24 GB/s, or half of one.
    const double bytes = 1e9, moved = bytes * 15 / 16;
    for (const int adapters : {8, 4}) {
        const double seconds =
            collective_seconds(Collective::AllGather, bytes, {16, 8}, fabric_of("nvlink3", 16, "hdr200", adapters));
        EXPECT_NEAR(seconds, moved / (24e9 * adapters / 8), 0.01 * seconds);
    }
}

// NCCL's own model (src/graph/tuning.cc): a ring of 256 ranks on 64 hosts has 63 steps of 14 us between hosts and 192
// of 3.4 us within, a tree 2 x (3 steps within and 6 between hosts). Four bytes take no time.
TEST(Collectives, CountTheStepsOfRingsAndTrees) {
    Fabric fabric = fabric_of("nvlink3", 64, "hdr200", 4);
    fabric.domain = fabric.per_host = 4;
    const auto seconds = [&](Collective kind, int ranks) { return collective_seconds(kind, 4, {ranks, 1}, fabric); };
    for (const Collective kind : {Collective::AllGather, Collective::ReduceScatter})
        EXPECT_NEAR(seconds(kind, 256) - seconds(kind, 8), (62 * 14 + 186 * 3.4) * 1e-6, 1e-9);
    EXPECT_NEAR(seconds(Collective::AllReduce, 256) - seconds(Collective::AllReduce, 8), 2 * 5 * 14e-6, 1e-9);
    EXPECT_NEAR(seconds(Collective::AllReduce, 8) - seconds(Collective::AllGather, 8),
                ((2 - 1) * 14 + (6 - 6) * 3.4) * 1e-6, 1e-9);
}

TEST(Collectives, AreFreeAmongOneRank) {
    const Fabric fabric = fabric_of("nvlink3", 2, "hdr200", 1);
    for (const Collective kind :
         {Collective::AllReduce, Collective::AllGather, Collective::ReduceScatter, Collective::AllToAll}) {
        EXPECT_EQ(collective_seconds(kind, 1e9, {1, 1}, fabric), 0);
        EXPECT_EQ(collective_seconds(kind, 0, {8, 1}, fabric), 0);
    }
}

TEST(Collectives, GatherAndScatterInHalfOfASum) {
    const Fabric fabric = fabric_of("nvlink3", 1, "", 1);
    const double sum = collective_seconds(Collective::AllReduce, 64 * kMiB, {8, 1}, fabric);
    EXPECT_DOUBLE_EQ(collective_seconds(Collective::AllGather, 64 * kMiB, {8, 1}, fabric), sum / 2);
    EXPECT_DOUBLE_EQ(collective_seconds(Collective::ReduceScatter, 64 * kMiB, {8, 1}, fabric), sum / 2);
    // Switches of NVLink 4 add up: a sum moves less than a gather and a scatter do.
    const Fabric adding = fabric_of("nvlink4", 1, "", 1);
    EXPECT_GT(2 * collective_seconds(Collective::AllGather, 1024 * kMiB, {8, 1}, adding),
              collective_seconds(Collective::AllReduce, 1024 * kMiB, {8, 1}, adding));
}

// A bandwidth scales a measured table: it does not replace the table by a formula.
TEST(Collectives, ScaleMeasuredTimesByTheBandwidth) {
    for (const Collective kind : {Collective::AllReduce, Collective::AllGather, Collective::ReduceScatter}) {
        const auto seconds = [&](double bytes, double factor, Ns later = 0) {
            Fabric fabric = fabric_of("nvlink4", 1, "", 1);
            fabric.inside.bandwidth *= factor;
            fabric.inside.latency += later;
            return collective_seconds(kind, bytes, {8, 1}, fabric);
        };
        for (const double bytes : {1e7, 1e8, 1e9}) {  // smaller ones take the same time
            EXPECT_LT(seconds(bytes, 451.0 / 450), seconds(bytes, 1));
            EXPECT_GT(seconds(bytes, 451.0 / 450), 0.995 * seconds(bytes, 1));
            EXPECT_NEAR(seconds(2 * bytes, 2), seconds(bytes, 1), 1e-9 * seconds(bytes, 1));
        }
        EXPECT_NEAR(seconds(1e7, 1, 1000) - seconds(1e7, 1), kind == Collective::AllReduce ? 2e-6 : 1e-6, 1e-12);
    }
}

TEST(Collectives, KeepAnAllToAllInsideADomain) {
    // A domain of 72 devices in hosts of four: 64 ranks send over NVLink.
    Fabric fabric = fabric_of("nvlink5", 16, "ndr400", 4);
    fabric.per_host = 4;
    fabric.domain = 72;
    const double inside = collective_seconds(Collective::AllToAll, 1e9, {64, 1}, fabric);
    fabric.domain = 4;
    EXPECT_GT(collective_seconds(Collective::AllToAll, 1e9, {64, 1}, fabric), 5 * inside);
}

}  // namespace
}  // namespace pw
