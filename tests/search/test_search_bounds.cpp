// Bounds of incomplete searches, each against a plan written by hand; and which devices are alike.
#include "job/build.h"
#include "job/job.h"
#include "job/load.h"
#include "report/predict.h"
#include "search/plans/device_orders.h"
#include "search/plans/makespan.h"
#include "sim/metrics.h"
#include "tests/support/temporary_folder.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace pw {
namespace {

// A layer graph and a cluster, to be searched or simulated.
class SearchBounds : public testing::Test {
protected:
    void write(const std::vector<std::string>& rows, const std::string& cluster) {
        folder_.write("layers.yaml", fmt::format("samples: 1\nlayers: [{{{}}}]\n", fmt::join(rows, "}, {")));
        cluster_ = cluster;
    }
    std::string text(const std::string& cluster, const std::string& blocks) const {
        return fmt::format("workload: {{model: layers.yaml}}\ncluster: {}\nrun: {{backend: emulated}}\n{}\n", cluster,
                           blocks);
    }
    SearchResult search(const std::string& keys, const PlanLimits& limits = {}) const {
        const Config config = load_config(
            folder_.write(
                "search.yaml",
                text(cluster_, fmt::format("search: {{{}, micro_batch_sizes: [1], profile_batch: 1}}", keys))),
            {});
        const Model model = build_model(config);
        return search_plans(problem_of(config, model), limits);
    }
    Ns simulated(const std::string& cluster, const std::string& pipeline) const {
        Notices notices;
        const Job job = make_job(
            load_config(folder_.write("plan.yaml", text(cluster, fmt::format("pipeline: {{{}}}", pipeline))), {}),
            notices);
        refuse_over_memory(job);
        return metrics_of(predict(job)).step_time;
    }
    const std::string& cluster() const { return cluster_; }

private:
    TemporaryFolder folder_;
    std::string cluster_;
};

TEST_F(SearchBounds, HaveNoWayBackWithoutBackwards) {
    std::vector<std::string> rows;
    for (const int time : {6, 16, 3, 3, 2, 3, 7, 18, 5, 58, 2, 5, 2, 1, 7, 8, 3, 59})
        rows.push_back(fmt::format("name: l{}, forward: {} us, backward: {} us", rows.size(), time, 20 * time));
    write(rows, "{devices: 2}");
    const Ns by_hand = simulated(cluster(),
                                 "schedule: forward-only, micro_batches: 4, stages: 8, "
                                 "split: [l2, l3, l4, l6, l7, l9, l15]");
    EXPECT_EQ(by_hand, 563'000);
    const SearchResult result = search("schedules: [forward-only], mini_batch: 4, stages: [8]");
    EXPECT_LE(result.lower_bound, by_hand);
    EXPECT_LE(result.best()->step_time, by_hand) << "proposals weigh stages by the passes that are run";
}

// 2049 ways to cut. The work alone bounds the splits that are no ranges of the forward order.
TEST_F(SearchBounds, HoldForCutsThatAreNotTried) {
    std::vector<std::string> rows = {"name: src, inputs: []"}, names;
    for (int branch = 0; branch < 11; ++branch) {
        names.push_back(fmt::format("{}{}", branch % 2 == 0 ? "m" : "t", branch / 2 + 1));
        rows.push_back(fmt::format("name: {}, inputs: [src], {}", names.back(),
                                   branch % 2 == 0 ? "weights: 10 MB" : "forward: 100 us, backward: 200 us"));
    }
    rows.push_back(fmt::format("name: sink, inputs: [{}]", fmt::join(names, ", ")));
    write(rows, "{devices: [{memory: 20 MB}, {memory: 1 GB}]}");
    const Ns by_hand = simulated(cluster(),
                                 "schedule: bfs, micro_batches: 8, split: {stages: [[src, t1], [m1, t3, m2, m3], [t2], "
                                 "[m4, m5, m6, t4, t5, sink]]}");
    EXPECT_EQ(by_hand, 7'500'000);
    const SearchResult result = search("schedules: [bfs], mini_batch: 8, stages: [4]");
    EXPECT_FALSE(result.every_cut);
    EXPECT_LE(result.lower_bound, by_hand);
    EXPECT_EQ(result.lower_bound, 6'000'000) << "8 x 5 x 300 us on two devices";
}

std::vector<std::string> six_layers(const std::string& other, const std::string& last) {
    std::vector<std::string> rows;
    for (int layer = 0; layer < 6; ++layer)
        rows.push_back(fmt::format("name: l{}, {}", layer, layer < 5 ? other : last));
    return rows;
}

std::string thirteen(const std::string& other, const std::string& last) {
    std::string devices;
    for (int device = 0; device < 12; ++device)
        devices += fmt::format("{{{}}}, ", other);
    return fmt::format("{{devices: [{}{{{}}}]}}", devices, last);
}

constexpr const char* kShared =
    "schedule: gpipe, micro_batches: 8, replicas: [3, 3, 2, 2, 2, 1], split: [l1, l2, l3, l4, l5]";
constexpr const char* kShares = "schedules: [gpipe], mini_batch: 8, stages: [6], replicas: true";

// 1716 ways to share out the devices: the selection that is tried leaves out the last one.
TEST_F(SearchBounds, TakeTheFastestDeviceOfTheClusterForAllWaysToShareOutDevices) {
    write(six_layers("forward: 100 us, backward: 200 us", "forward: 1 ms, backward: 2 ms"),
          thirteen("speed: 1", "speed: 20"));
    const Ns by_hand = simulated(cluster(), kShared);
    EXPECT_EQ(by_hand, 2'700'000);
    const SearchResult result = search(kShares);
    EXPECT_FALSE(result.every_choice);
    EXPECT_LE(result.lower_bound, by_hand);
    EXPECT_GT(result.lower_bound, 0);
}

TEST_F(SearchBounds, TakeTheLargestMemoryOfTheClusterForAllWaysToShareOutDevices) {
    const std::string passes = "forward: 100 us, backward: 200 us, weights: ";
    write(six_layers(passes + "1 kB", passes + "10 MB"), thirteen("memory: 1 MB", "memory: 1 GB"));
    EXPECT_GT(simulated(cluster(), kShared), 0);  // it fits
    const SearchResult result = search(kShares);
    EXPECT_FALSE(result.none_fits);
    write(six_layers(passes + "1 kB", passes + "1 GB"), thirteen("memory: 1 MB", "memory: 1 GB"));
    EXPECT_TRUE(search(kShares).none_fits) << "three times its weights fit nowhere";
}

class SearchOfHosts : public SearchBounds {
protected:
    void write_chain(int layers, const std::string& hosts) {
        std::vector<std::string> rows;
        for (int layer = 0; layer < layers; ++layer)
            rows.push_back(fmt::format("name: l{}, forward: 100 us, backward: 200 us{}", layer,
                                       layer + 1 < layers ? ", output: 1 MB" : ""));
        write(rows, on(hosts));
    }
    static std::string on(const std::string& hosts) {
        std::vector<std::string> devices;
        for (const char host : hosts)
            devices.push_back(fmt::format("{{host: {}}}", host));
        return fmt::format(
            "{{devices: [{}], inside: {{bandwidth: 100 GB/s, latency: 1 us}}, between: {{bandwidth: 1 GB/s, latency: "
            "20 us}}}}",
            fmt::join(devices, ", "));
    }
};

TEST_F(SearchOfHosts, TriesTheirOrders) {
    write_chain(4, "xyxy");
    const Ns by_hand = simulated(on("xxyy"), "schedule: 1f1b, micro_batches: 8, split: [l1, l2, l3]");
    const SearchResult result = search("schedules: [1f1b], mini_batch: 8, stages: [4]");
    EXPECT_TRUE(result.every_choice);
    EXPECT_EQ(result.choices, 3) << "xyxy, xyyx and xxyy";
    EXPECT_LE(result.best()->step_time, by_hand);
    EXPECT_LE(result.lower_bound, by_hand);
}

// Only orders with the devices of each host next to each other are tried; the bounds ignore the network and hold for
// all orders.
TEST_F(SearchOfHosts, BoundsOrdersThatItDoesNotTry) {
    write_chain(8, "xyxyxyxy");
    const Ns by_hand =
        simulated(on("xxxxyyyy"), "schedule: 1f1b, micro_batches: 8, split: [l1, l2, l3, l4, l5, l6, l7]");
    const SearchResult result = search("schedules: [1f1b], mini_batch: 8, stages: [8]");
    EXPECT_FALSE(result.every_choice);
    EXPECT_EQ(result.choices, 2);
    EXPECT_EQ(result.best()->step_time, by_hand);
    EXPECT_EQ(result.best()->choice.devices, (std::vector<int>{0, 2, 4, 6, 1, 3, 5, 7}));
    EXPECT_LE(result.lower_bound, by_hand);
    EXPECT_GT(result.gap(), 0);
    EXPECT_GE(result.lower_bound, (8 + 7) * 300'000) << "the slowest stage and the longest path";
}

ClusterConfig cluster_of(const std::string& hosts) {
    ClusterConfig cluster;
    for (const char host : hosts)
        cluster.devices.push_back({"", 1, kUnlimited, std::string(1, host)});
    return cluster;
}

std::size_t orders(const ClusterConfig& cluster, int count) {
    const DeviceOrders orders = orders_of(AlikeDevices(cluster), count, 100'000);
    EXPECT_TRUE(orders.complete);
    return orders.all.size();
}

TEST(DeviceOrders, AreTriedOnceIfTheyAreEquivalent) {
    EXPECT_EQ(orders(cluster_of("xxxx"), 4), 1u);
    EXPECT_EQ(orders(cluster_of("wxyz"), 3), 1u);  // a device on each host
    EXPECT_EQ(orders(cluster_of("xxyy"), 4), 3u);
    EXPECT_EQ(orders(cluster_of("xyxy"), 2), 2u);       // on one host, or on two
    EXPECT_EQ(orders(cluster_of("xxxxyyyy"), 8), 35u);  // 8! / (4! 4!) / 2
    EXPECT_EQ(orders(cluster_of("xxy"), 3), 3u);        // hosts of different sizes
    EXPECT_EQ(orders(cluster_of("wwxxyyzz"), 8), 105u);
}

TEST(DeviceOrders, DependOnSharedCapacities) {
    ClusterConfig buses = cluster_of("xxxx");
    buses.shared = {{{0, 1}, 1e9}, {{2, 3}, 1e9}};
    EXPECT_EQ(orders(buses, 4), 6u);  // which two are on the first one's bus, and whose bus that is
    buses.shared = {{{0, 1, 2, 3}, 1e9}};
    EXPECT_EQ(orders(buses, 4), 1u);
    ClusterConfig linked = cluster_of("xxx");
    linked.links = {{0, 1, {5, 1e9}}};
    EXPECT_EQ(orders(linked, 3), 6u);
    linked.links.push_back({1, 0, {5, 1e9}});
    EXPECT_EQ(orders(linked, 3), 3u);
    ClusterConfig switches = cluster_of("wxyz");
    switches.switches = {{{"w", "x"}, 1e9}};
    EXPECT_EQ(orders(switches, 2), 4u);
    switches.switches.push_back({{"y", "z"}, 2e9});
    EXPECT_EQ(orders(switches, 2), 4u);
}

TEST(DeviceOrders, AreASelectionWhereThereAreTooMany) {
    const DeviceOrders by_network = orders_of(AlikeDevices(cluster_of("xyxyxyxy")), 8, 30);
    EXPECT_FALSE(by_network.complete);
    EXPECT_EQ(by_network.all, (std::vector<std::vector<int>>{{0, 1, 2, 3, 4, 5, 6, 7}, {0, 2, 4, 6, 1, 3, 5, 7}}));
    ClusterConfig unequal = cluster_of("xxxxx");
    for (std::size_t device = 0; device < 5; ++device)
        unequal.devices[device].speed = static_cast<double>(device) + 1;
    EXPECT_EQ(orders(unequal, 5), 120u);
    EXPECT_EQ(orders_of(AlikeDevices(unequal), 5, 50).all.size(), 50u);
    EXPECT_FALSE(orders_of(AlikeDevices(unequal), 5, 50).complete);
}

}  // namespace
}  // namespace pw
