// Hosts, links and the costs of messages in configs.
#include "job/build.h"
#include "job/config/config.h"
#include "job/load.h"

#include "tests/support/config_text.h"
#include "tests/support/refusal.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace pw {
namespace {

TEST(Config, ReadsAndPrintsHostsAndTheirLinks) {
    const Config config = load(
        "{workload: {model: mlp}, cluster: {hosts: 2, devices_per_host: 3, inside: nvlink3, between: {bandwidth: "
        "100 Gbit/s, latency: 7 us}, dispatch: 900 us}}");
    for (const ClusterConfig& cluster : {config.cluster, load(config.yaml).cluster}) {
        ASSERT_EQ(cluster.devices.size(), 6u);
        EXPECT_EQ(cluster.devices[2].host, "host 0");
        EXPECT_EQ(cluster.devices[3].host, "host 1");
        EXPECT_TRUE(cluster.link_given);
        EXPECT_EQ(cluster.link.bandwidth, 300e9);
        EXPECT_EQ(cluster.link.latency, 3'400);
        EXPECT_EQ(cluster.between_hosts, (Link{7'000, 12.5e9}));
        EXPECT_EQ(cluster.dispatch, 900'000);
    }
    const auto cluster = [](const std::string& text) {
        return refusal([&] { load("{workload: {model: mlp}, cluster: {" + text + "}}"); });
    };
    EXPECT_TRUE(contains(cluster("hosts: 2"), "go together"));
    EXPECT_TRUE(contains(cluster("hosts: 2, devices_per_host: 2, devices: 5"), "2 hosts of 2 devices have 4"));
    EXPECT_TRUE(contains(cluster("hosts: 1000000, devices_per_host: 2"), "more than 1000000 devices"));
    EXPECT_TRUE(contains(cluster("hosts: 1, devices_per_host: 1, devices: [{host: a}]"), "has the host 'a'"));
    EXPECT_TRUE(contains(cluster("devices: 2, inside: nvlink3, between: hdr200"), "device 0 has no host"));
    EXPECT_TRUE(contains(cluster("hosts: 2, devices_per_host: 2, between: hdr200"), "needs the link inside a host"));
    EXPECT_TRUE(contains(cluster("link: hdr200, inside: hdr200"), "both the link"));
    EXPECT_TRUE(
        contains(cluster("hosts: 2, devices_per_host: 2, inside: nvlink, between: hdr200"), "which is not a link"));
}

TEST(Config, ReadsAndPrintsAdaptersOfHosts) {
    for (const char* between : {"{link: ndr400, adapters: 8}", "{bandwidth: 50 GB/s, latency: 14 us, adapters: 8}"}) {
        const Config config =
            load("{workload: {model: mlp}, cluster: {hosts: 2, devices_per_host: 8, inside: nvlink4, between: " +
                 std::string(between) + "}}");
        for (const ClusterConfig& cluster : {config.cluster, load(config.yaml).cluster}) {
            EXPECT_EQ(cluster.between_hosts, (Link{14'000, 50e9}));
            EXPECT_EQ(cluster.adapters, 8);
        }
        const std::shared_ptr<const Cluster> cluster = cluster_of(config, {});
        EXPECT_EQ(cluster->routes.capacities(), std::vector<double>(4, 400e9)) << "out of two hosts and into them";
        EXPECT_EQ(cluster->link_of(0, 8).bandwidth, 50e9) << "a message takes one";
    }
    EXPECT_EQ(load("{workload: {model: mlp}, cluster: {hosts: 2, devices_per_host: 2, inside: nvlink4, between: {link: "
                   "ndr400}}}")
                  .cluster.between_hosts,
              (Link{14'000, 50e9}));
    const auto between = [](const std::string& text) {
        return refusal([&] {
            load("{workload: {model: mlp}, cluster: {hosts: 2, devices_per_host: 2, inside: nvlink4, between: " + text +
                 "}}");
        });
    };
    EXPECT_TRUE(contains(between("{link: ndr400, adapters: 0}"), "adapters"));
    EXPECT_TRUE(contains(between("{link: ndr, adapters: 2}"), "which is not a link"));
    EXPECT_TRUE(contains(between("{link: ndr400, adapters: 2, latency: 1 us}"), "latency"));
}

constexpr const char* kOnH100s =
    "{workload: {model: gpt}, training: {precision: bf16}, pipeline: {stages: 2}, cluster: {hosts: 2, "
    "devices_per_host: 1, device: h100-sxm-80, between: ndr400}}";

TEST(DevicesByName, HaveTheMemoryTheRatesAndTheLinkOfTheirKind) {
    const Config config = load(kOnH100s);
    for (const Config& read : {config, load(config.yaml)}) {
        EXPECT_EQ(read.cluster.rates.flops, 794.5e12) << "the fastest measured product";
        EXPECT_EQ(read.cluster.rates.memory_bandwidth, 3.35e12);
        EXPECT_EQ(read.cluster.devices[1].memory, 84'943'715'697);
        EXPECT_EQ(read.cluster.link, (Link{3'400, 450e9}));
    }
    // The rate follows the precision, also in a printed config; where no product was measured it is the peak.
    EXPECT_EQ(load(config.yaml, {"training.precision=tf32"}).cluster.rates.flops, 494.5e12);
    const Config own = load(kOnH100s, {"cluster.compute=600 TFLOP/s", "cluster.memory=70 GB", "cluster.inside=nvlink3",
                                       "cluster.memory_bandwidth=3 TB/s"});
    for (const Config& read : {own, load(own.yaml)}) {
        EXPECT_EQ(read.cluster.rates.flops, 600e12);
        EXPECT_EQ(read.cluster.rates.memory_bandwidth, 3e12);
        EXPECT_EQ(read.cluster.devices[0].memory, 70'000'000'000);
        EXPECT_EQ(read.cluster.link.bandwidth, 300e9);
    }
}

TEST(DevicesByName, MayBeOfKindsInAFileOfTheUser) {
    const TemporaryFolder folder;
    folder.write("kinds.yaml",
                 "devices:\n  mine: {peak: {bf16: 100 TFLOP/s}, best: {bf16: 80 TFLOP/s}, memory: 10 GB, "
                 "memory_bandwidth: 1 TB/s, link: pcie5, source: measured here}\n");
    const std::string path = folder.write(
        "cfg.yaml",
        "{workload: {model: mlp}, training: {precision: bf16}, cluster: {device: mine, device_kinds: kinds.yaml}}");
    const Config config = load_config(path, {});
    EXPECT_EQ(config.cluster.rates.flops, 80e12);
    EXPECT_EQ(config.cluster.link.latency, 5'700);
    folder.write("kinds.yaml", "devices:\n  mine: {peak: {bf17: 1 TFLOP/s}, memory: 10 GB}\n");
    const std::string mistakes = refusal([&] { load_config(path, {}); });
    for (const char* part : {"kinds.yaml:2", "bf17", "'devices.mine' has no memory_bandwidth"})
        EXPECT_TRUE(contains(mistakes, part)) << mistakes;
}

TEST(DevicesByName, AreRefusedWithTheFactAndAWayOut) {
    const auto says = [](const std::vector<std::string>& set) { return refusal([&] { load(kOnH100s, set); }); };
    EXPECT_TRUE(contains(says({"cluster.device=h100-sxm80"}), "did you mean h100-sxm-80?"));
    EXPECT_TRUE(contains(says({"cluster.device=v100-sxm-32"}), "devices of kind v100-sxm-32 have no rate in bf16"));
    EXPECT_TRUE(contains(says({"cluster.device=v100-sxm-32"}), "known: fp16, fp32"));
    EXPECT_TRUE(contains(says({"cluster.device_kinds=nowhere.yaml"}), "there is no file"));
    // Times in the config need no rate: this kind has none in fp32.
    EXPECT_EQ(load("{workload: {model: uniform, stages: 2}, cluster: {device: b300}}").cluster.devices[0].memory,
              288'000'000'000);
    EXPECT_TRUE(contains(refusal([] { load("{workload: {model: mlp}, cluster: {device_kinds: kinds.yaml}}"); }),
                         "no device is of a named kind"));
    EXPECT_TRUE(contains(refusal([] { load("{workload: {model: mlp}, training: {precision: bf16}}"); }),
                         "is for run.backend cuda, or with cluster.device, not cpu"));
}

// The scale of attention's kernels stays that of the chip.
TEST(MeasuredProducts, ReplaceThoseOfTheKind) {
    const TemporaryFolder folder;
    folder.write("products.yaml",
                 "tables:\n- {device: this one, precision: bf16, peak: 1 TFLOP/s, rows: [[8, 8, 8, TN, 0.5]]}\n");
    const std::string path = folder.write("cfg.yaml", kOnH100s);
    const Config of_kind = load_config(path, {"cluster.device=h100-pcie-80"});
    const Config config = load_config(path, {"cluster.device=h100-pcie-80", "cluster.products=products.yaml"});
    EXPECT_EQ(product_rates_of(config)->flops({8, 8, 8, ProductLayout::TN}), 0.5e12);
    EXPECT_EQ(product_rates_of(config)->chip_scale, product_rates_of(of_kind)->scale);
    EXPECT_EQ(head_rates_of(config)->flops({8, 8, 8, ProductLayout::NN}), 0.5e12);
    EXPECT_EQ(config.cluster.rates.flops, of_kind.cluster.rates.flops);
    EXPECT_EQ(load(config.yaml).cluster.products, (folder.path() / "products.yaml").string());
    const Config with_rate = load_config(path, {"cluster.compute=1 GFLOP/s", "cluster.products=products.yaml"});
    EXPECT_EQ(product_rates_of(with_rate)->flops({8, 8, 8, ProductLayout::TN}), 0.5e12);
}

TEST(MeasuredProducts, AreRefusedWhereTheyAreNeededAndNotThere) {
    const TemporaryFolder folder;
    folder.write("products.yaml",
                 "tables:\n- {device: this one, precision: fp32, peak: 1 TFLOP/s, rows: [[8, 8, 8, TN, 0.5]]}\n");
    const std::string path = folder.write("cfg.yaml", kOnH100s);
    const auto says = [&](const std::string& set) {
        const Config config = load_config(path, {set});
        return refusal([&] { product_rates_of(config); });
    };
    EXPECT_TRUE(contains(says("cluster.products=nowhere.yaml"), "nowhere.yaml'"));
    EXPECT_TRUE(contains(says("cluster.products=nowhere.yaml"), "profile CONFIG --gemm"));
    EXPECT_TRUE(
        contains(says("cluster.products=products.yaml"), "has products in fp32, and 'training.precision' is bf16"));
}

TEST(Config, ReadsAndPrintsTheCostsOfMessages) {
    const Config config = load(
        "{workload: {model: mlp}, cluster: {devices: [{name: a, host: x}, {name: b, host: y}, {host: z}], "
        "link: {bandwidth: 10 GB/s, half_size: 64 KiB}, links: [{from: a, to: 2, bandwidth: 1 GB/s, latency: 3 us}, "
        "{from: 2, to: a, bandwidths: [{bytes: 1 kB, bandwidth: 1 GB/s}, {bytes: 1 MB, bandwidth: 8 GB/s}]}], "
        "shared: [{devices: [2, b], bandwidth: 5 GB/s}], switches: [{hosts: [x, 1], bandwidth: 4 GB/s}]}}");
    for (const ClusterConfig& cluster : {config.cluster, load(config.yaml).cluster}) {
        EXPECT_EQ(cluster.link, (Link{0, 10e9, 65'536}));
        ASSERT_EQ(cluster.links.size(), 2u);
        EXPECT_EQ(cluster.links[0], (ClusterConfig::PairLink{0, 2, {3'000, 1e9}}));
        EXPECT_EQ(cluster.links[1], (ClusterConfig::PairLink{2, 0, {0, 8e9, 0, {{1'000, 1e9}, {1'000'000, 8e9}}}}));
        EXPECT_EQ(cluster.shared, (std::vector<ClusterConfig::Shared>{{{1, 2}, 5e9}}));
        EXPECT_EQ(cluster.switches, (std::vector<ClusterConfig::Switch>{{{"x", "y"}, 4e9}}));
    }
}

TEST(Config, RefusesContradictionsInTheNetwork) {
    const auto says = [](const std::string& text) {
        return refusal([&] { load("{workload: {model: mlp}, cluster: {" + text + "}}"); });
    };
    EXPECT_TRUE(contains(says("links: []"), "their number is not given"));
    EXPECT_TRUE(contains(says("devices: 2, links: [{from: 0, to: 2}]"), "there is no device '2'"));
    EXPECT_TRUE(contains(says("devices: 2, links: [{from: 0, to: 2}]"), "a number from 0 to 1"));
    EXPECT_TRUE(contains(says("devices: [{name: left}, {name: right}], links: [{from: lefd, to: right}]"), "'left'?"));
    EXPECT_TRUE(contains(says("devices: 2, links: [{from: 0}]"), "'cluster.links[0]' has no to"));
    EXPECT_TRUE(contains(says("devices: 2, links: [{from: 1, to: 1}]"), "from device 1 to itself"));
    EXPECT_TRUE(contains(says("devices: 2, links: [{from: 0, to: 1}, {from: 0, to: 1}]"), "is listed twice"));
    EXPECT_TRUE(contains(says("devices: 2, links: [{from: 0, to: 1, bandwidht: 1 GB/s}]"), "bandwidth"));
    EXPECT_TRUE(contains(says("devices: 2, shared: [{devices: [0, 0], bandwidth: 1 GB/s}]"), "'0' is listed twice"));
    EXPECT_TRUE(contains(says("devices: 2, shared: [{devices: [], bandwidth: 1 GB/s}]"), "is empty"));
    EXPECT_TRUE(contains(says("devices: 2, shared: [{devices: [0]}]"), "has no bandwidth"));
    EXPECT_TRUE(contains(
        says("devices: 2, shared: [{devices: [0, 1], bandwidth: 1 GB/s}, {devices: [1, 0], bandwidth: 2 GB/s}]"),
        "share two bandwidths"));
    EXPECT_TRUE(
        contains(says("devices: 2, switches: [{hosts: [0], bandwidth: 1 GB/s}]"), "not every device has a host"));
    const std::string hosts = "hosts: 4, devices_per_host: 1, switches: [";
    EXPECT_TRUE(contains(says(hosts + "{hosts: [0, 1, 2, 3], bandwidth: 1 GB/s}]"), "no message leaves it"));
    EXPECT_TRUE(contains(says(hosts + "{hosts: [0, 1], bandwidth: 1 GB/s}, {hosts: [1, 2], bandwidth: 1 GB/s}]"),
                         "have common hosts"));
    EXPECT_TRUE(contains(says(hosts + "{hosts: [0, 1], bandwidth: 1 GB/s}, {hosts: [1, 0], bandwidth: 1 GB/s}]"),
                         "have the same hosts"));
    EXPECT_TRUE(contains(says(hosts + "{hosts: [host 9], bandwidth: 1 GB/s}]"), "there is no host 'host 9'"));
    EXPECT_TRUE(contains(says("link: {half_size: 1 kB}"), "no bandwidth to halve"));
    EXPECT_TRUE(
        contains(says("link: {bandwidth: 1 GB/s, bandwidths: [{bytes: 1 kB, bandwidth: 1 GB/s}]}"), "and a bandwidth"));
    EXPECT_TRUE(contains(
        says("link: {bandwidths: [{bytes: 2 kB, bandwidth: 1 GB/s}, {bytes: 1 kB, bandwidth: 1 GB/s}]}"), "ascend"));
    EXPECT_TRUE(
        contains(says("link: {bandwidths: [{bytes: 1 kB, bandwidth: 1 MB/s}, {bytes: 2 kB, bandwidth: 1 GB/s}]}"),
                 "less time than fewer bytes"));
}

TEST(Config, CountsTheHostsOfItsDevices) {
    const Config config =
        load("{workload: {model: mlp}, cluster: {devices: 5, devices_per_host: 2, inside: nvlink3, between: hdr200}}");
    for (const ClusterConfig& cluster : {config.cluster, load(config.yaml).cluster}) {
        ASSERT_EQ(cluster.devices.size(), 5u);
        EXPECT_EQ(cluster.devices[1].host, "host 0");
        EXPECT_EQ(cluster.devices[3].host, "host 1");
        EXPECT_EQ(cluster.devices[4].host, "host 2");
    }
}
}  // namespace
}  // namespace pw
