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
