// Clusters whose hosts and devices are of several makes: keys, defaults, what is printed, and mistakes.
#include "job/build.h"
#include "job/makes.h"
#include "job/transformer_job.h"
#include "tests/support/config_text.h"
#include "tests/support/refusal.h"
#include "workloads/cluster/named_links.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace pw {
namespace {

constexpr const char* kTwoKinds = R"(
workload: {model: llama-3.2-1b, sequence_length: 2048}
cluster:
  hosts:
    - {device: h100-sxm-80, count: 2, devices: 8, between: {link: ndr400, adapters: 8}}
    - {device: a100-sxm-40, devices: 4, speed: 0.5, memory: 30 GB, between: hdr200}
parallel: {tensor: 4, pipeline: 5}
pipeline: {mini_batch: 8}
training: {precision: bf16, optimizer: adamw}
)";

TEST(UnlikeDevices, HaveTheMakesOfTheirHosts) {
    const Config config = pw::load(kTwoKinds);
    for (const Config& read : {config, pw::load(config.yaml)}) {
        ASSERT_EQ(read.cluster.makes.size(), 2u) << read.yaml;
        const ClusterRanks& ranks = *read.parallel.ranks;
        ASSERT_EQ(ranks.devices.size(), 20u);
        EXPECT_EQ(ranks.devices[15].host, "host 1");
        EXPECT_EQ(ranks.devices[16].host, "host 2");
        EXPECT_EQ(ranks.host[16], 2);
        const DeviceMake &fast = read.cluster.makes[0], &slow = read.cluster.makes[1];
        EXPECT_EQ(fast.device, "h100-sxm-80");
        EXPECT_EQ(fast.rates.flops, 794.5e12);
        EXPECT_EQ(fast.link, find_named_link("nvlink4")->link);
        EXPECT_EQ(fast.between_hosts, find_named_link("ndr400")->link);
        EXPECT_EQ(fast.adapters, 8);
        EXPECT_EQ(fast.per_host, 8);
        EXPECT_EQ(slow.link, find_named_link("nvlink3")->link);
        EXPECT_EQ(slow.between_hosts, find_named_link("hdr200")->link);
        EXPECT_EQ(slow.per_host, 4);
        // A device of the plan is a group of four. A program can use a part of the memory of a kind.
        ASSERT_EQ(read.cluster.devices.size(), 5u);
        ASSERT_EQ(read.parallel.makes.size(), 2u);
        EXPECT_EQ(read.parallel.makes[1].makes, std::vector<int>{1});
        EXPECT_EQ(read.cluster.devices[3].make, 0);
        EXPECT_EQ(read.cluster.devices[3].speed, 1);
        EXPECT_LT(read.cluster.devices[3].memory, fast.kind->memory);
        EXPECT_GT(read.cluster.devices[3].memory, fast.kind->memory * 9 / 10);
        EXPECT_EQ(read.cluster.devices[4].make, 1);
        EXPECT_EQ(read.cluster.devices[4].speed, 0.5);
        EXPECT_EQ(read.cluster.devices[4].memory, 30'000'000'000);
    }
}

TEST(UnlikeDevices, OfOneStageCountAsTheSlowestTogether) {
    const Config config = pw::load(kTwoKinds, {"parallel.pipeline=1", "pipeline.mini_batch=10"});
    EXPECT_EQ(config.parallel.degrees.data, 5);
    ASSERT_EQ(config.parallel.makes.size(), 1u);
    EXPECT_EQ(config.parallel.makes[0].makes, (std::vector<int>{0, 1}));
    EXPECT_EQ(config.cluster.devices[0].speed, 0.5);
    EXPECT_EQ(config.cluster.devices[0].memory, 30'000'000'000);
    const std::vector<std::vector<TransformerJob>> jobs = transformer_jobs_of(config);
    ASSERT_EQ(jobs.size(), 1u);
    ASSERT_EQ(jobs[0].size(), 2u);
    for (const TransformerJob& job : jobs[0]) {
        EXPECT_EQ(job.fabric.between, find_named_link("hdr200")->link) << "rings pass the slower hosts";
        EXPECT_EQ(job.fabric.adapters, 1);
        EXPECT_EQ(job.fabric.per_host, 4);
    }
    EXPECT_GT(jobs[0][0].flops, jobs[0][1].flops);
}

TEST(UnlikeDevices, AreListedWithNamedHosts) {
    const Config config = pw::load(R"(
workload: {model: mlp}
cluster:
  devices: [{host: a}, {host: b, speed: 0.5, memory: 1 GB}, {host: a, name: last}, {host: c, device: a100-sxm-80}]
  hosts: [{name: a, device: h100-sxm-80, inside: {bandwidth: 7 GB/s}}, {name: b, device: a100-sxm-40}]
  between: hdr200
pipeline: {stages: 4, split: even}
training: {precision: bf16}
)");
    for (const Config& read : {config, pw::load(config.yaml)}) {
        const std::vector<DeviceConfig>& devices = read.cluster.devices;
        ASSERT_EQ(read.cluster.makes.size(), 3u) << read.yaml;
        EXPECT_EQ(devices[2].make, 0);
        EXPECT_EQ(devices[2].name, "last");
        EXPECT_EQ(devices[1].memory, 1'000'000'000);
        EXPECT_EQ(devices[1].speed, 0.5);
        EXPECT_EQ(read.cluster.makes[2].device, "a100-sxm-80");
        EXPECT_EQ(devices[0].memory, read.cluster.makes[0].kind->memory) << read.yaml;
        EXPECT_EQ(devices[3].memory, read.cluster.makes[2].kind->memory);
        const auto cluster = cluster_of(read, {});
        EXPECT_EQ(cluster->link_of(0, 2).bandwidth, 7e9);
        EXPECT_EQ(cluster->link_of(0, 1), find_named_link("hdr200")->link);
        EXPECT_EQ(cluster->times_of(1), 1);
        EXPECT_EQ(cluster->speed_of(1), 0.5);
    }
}

// As a search orders them.
TEST(UnlikeDevices, KeepTheirMemoryInAnyOrder) {
    Config config = pw::load(
        "workload: {model: gpt, embedding: 16, heads: 2}\n"
        "cluster: {hosts: [{devices: 2, device: a100-sxm-80}, {devices: 2, device: v100-sxm-32, memory: 20 GB}], "
        "between: {bandwidth: 1 GB/s}}\npipeline: {micro_batches: 4}\n");
    std::vector<DeviceConfig>& devices = config.cluster.devices;
    std::swap(devices[0], devices[3]);
    std::swap(devices[1], devices[2]);
    std::swap(devices[1], devices[3]);
    const std::string yaml = print_setup(config);
    const Config read = pw::load(yaml);
    for (std::size_t device = 0; device < 4; ++device)
        EXPECT_EQ(read.cluster.devices[device].memory, devices[device].memory) << yaml;
    EXPECT_EQ(read.cluster.devices[0].memory, 20'000'000'000);
}

TEST(UnlikeDevices, KeepTheLinksOfTheCluster) {
    const TemporaryFolder folder;
    folder.write("slow.yaml", "layers: [{name: a, forward: 2 us, backward: 2 us}]\n");
    const std::string path = folder.write(
        "cfg.yaml",
        "workload: {model: slow.yaml}\ncluster: {devices: [{host: a}, {host: b, profile: slow.yaml}], inside: "
        "{bandwidth: 9 GB/s}, between: hdr200}\n");
    const Config config = load_config(path, {});
    Config printed = config;
    printed.places.clear();
    const Config again = load_config(folder.write("again.yaml", print_config(printed)), {});
    EXPECT_EQ(again.cluster.link, config.cluster.link) << print_config(printed);
    EXPECT_EQ(again.cluster.between_hosts, config.cluster.between_hosts);
    EXPECT_EQ(again.cluster.makes.size(), 2u);
}

TEST(UnlikeDevices, SlowerLinkOfTwoHostsCounts) {
    const Config config = pw::load(R"(
workload: {model: mlp}
cluster:
  hosts:
    - {count: 2, devices: 2, inside: {bandwidth: 100 GB/s}, between: {bandwidth: 10 GB/s, latency: 3 us, adapters: 2}}
    - {devices: 2, inside: {bandwidth: 50 GB/s}, between: {bandwidth: 2 GB/s, latency: 1 us}}
pipeline: {stages: 6, split: even}
)");
    const auto cluster = cluster_of(config, {});
    EXPECT_EQ(cluster->link_of(0, 1).bandwidth, 100e9);
    EXPECT_EQ(cluster->link_of(5, 4).bandwidth, 50e9);
    EXPECT_EQ(cluster->link_of(0, 2), (Link{3'000, 10e9}));
    EXPECT_EQ(cluster->link_of(0, 5), (Link{1'000, 2e9}));
    EXPECT_EQ(cluster->link_of(5, 0), (Link{1'000, 2e9}));
    EXPECT_EQ(cluster->routes.capacities(), (std::vector<double>{20e9, 20e9, 20e9, 20e9, 2e9, 2e9}));
    EXPECT_EQ(cluster->adapters_between(0, 2), 2);
    EXPECT_EQ(cluster->adapters_between(0, 4), 1);
}

TEST(UnlikeDevices, OfOneKindAreAHostsNumber) {
    const std::string rest =
        "workload: {model: llama-3.2-1b, sequence_length: 2048}\nparallel: {tensor: 4, pipeline: 2}\n"
        "pipeline: {mini_batch: 8}\ntraining: {precision: bf16, optimizer: adamw}\n";
    const Config rows = pw::load(rest +
                                 "cluster: {hosts: [{device: h100-sxm-80, count: 2, devices: 4}], between: hdr200}"),
                 number =
                     pw::load(rest + "cluster: {hosts: 2, devices_per_host: 4, device: h100-sxm-80, between: hdr200}");
    const TransformerJob a = transformer_job_of(rows), b = transformer_job_of(number);
    EXPECT_EQ(a.flops, b.flops);
    EXPECT_EQ(a.fabric.between, b.fabric.between);
    EXPECT_EQ(a.fabric.inside, b.fabric.inside);
    EXPECT_EQ(a.fabric.per_host, b.fabric.per_host);
    EXPECT_EQ(rows.cluster.devices[1].memory, number.cluster.devices[1].memory);
    EXPECT_EQ(peak_flops(rows), peak_flops(number));
}

TEST(UnlikeDevices, DegreesMayDifferBetweenStages) {
    const std::string text =
        "workload: {model: llama-3.2-1b, sequence_length: 2048}\ntraining: {precision: bf16}\n"
        "cluster: {hosts: [{device: h100-sxm-80, devices: 4}, {device: a100-sxm-40, devices: 2}], between: hdr200}\n"
        "pipeline: {mini_batch: 8}\n";
    const Config config = pw::load(text + "parallel: {pipeline: 2, tensor: [4, 2], recompute: [none, full]}\n");
    for (const Config& read : {config, pw::load(config.yaml)}) {
        ASSERT_EQ(read.parallel.of_stages.size(), 2u) << read.yaml;
        EXPECT_EQ(read.parallel.degrees_of(0).tensor, 4);
        EXPECT_EQ(read.parallel.degrees_of(1).tensor, 2);
        EXPECT_EQ(read.parallel.degrees_of(1).recompute, set_of(BlockModule::Block));
        EXPECT_EQ(read.parallel.first_rank_of(1), 4);
        EXPECT_EQ(read.parallel.degrees.data, 1);
        ASSERT_EQ(read.parallel.makes.size(), 2u);
        EXPECT_EQ(read.parallel.makes[1].makes, std::vector<int>{1});
        EXPECT_EQ(read.cluster.devices[1].make, 1);
    }
    const auto says = [&](const std::string& parallel, const std::string& more = "") {
        return refusal([&] { pw::load(text + more + "parallel: {" + parallel + "}\n"); });
    };
    EXPECT_TRUE(contains(says("pipeline: 2, tensor: [4, 2, 1]"), "has 3 values, and the pipeline has 2 devices"));
    EXPECT_TRUE(contains(says("pipeline: 2, tensor: [3, 3]"), "does not divide the 32 heads"));
    EXPECT_TRUE(contains(says("pipeline: 2, tensor: [4, 1]"), "tensor x context of all stages are 5 devices"));
    EXPECT_TRUE(contains(says("pipeline: 2, zero: [4, 0]"), "parallel.zero[0]"));
}

TEST(UnlikeDevices, MistakesAreNamedAtTheirRow) {
    const auto says = [](const std::string& cluster, const std::string& more = "") {
        return refusal([&] {
            pw::load("workload: {model: llama-3.2-1b, sequence_length: 2048}\ntraining: {precision: bf16}\n" + more +
                     "cluster: {" + cluster + "}\n");
        });
    };
    EXPECT_TRUE(contains(says("hosts: [{device: h100, devices: 8}, {device: h200, devices: 8}]"),
                         "'cluster.hosts[0].device' is 'h100', which is no kind of device"));
    EXPECT_TRUE(contains(says("hosts: [{device: h100-sxm-80}]"), "no number of devices"));
    EXPECT_TRUE(contains(says("hosts: [{name: a, devices: 8, device: h100-sxm-80}]"), "has a name"));
    EXPECT_TRUE(contains(says("hosts: [{devices: 8, device: h100-sxm-80}], devices_per_host: 8"), "remove the key"));
    EXPECT_TRUE(contains(says("devices: [{host: a}], hosts: [{devices: 8, device: h100-sxm-80}]"), "no name"));
    EXPECT_TRUE(contains(says("hosts: [{devices: 8, device: h100-sxm-80, memory: 0 GB}]"), "nothing fits"));
    EXPECT_TRUE(contains(says("hosts: [{devices: 8, device: h100-sxm-80, count: 0}]"), "count"));
    EXPECT_TRUE(contains(says("hosts: []"), "'cluster.hosts' is empty"));
    EXPECT_TRUE(contains(says("devices: [{host: a}], hosts: [{name: b, device: h100-sxm-80}]"),
                         "no device is on the host 'b'"));
    EXPECT_TRUE(contains(says("hosts: [{device: h100-sxm-80, devices: 8, profile: p.yaml}]"), "has no layers"));
    EXPECT_TRUE(contains(says("hosts: [{name: a, device: h100-sxm-80}, {name: a}], devices: [{host: a}]"), "two rows"));
    EXPECT_TRUE(contains(says("hosts: [{devices: 8, device: h100-sxm-80}, {devices: 8, device: a100-sxm-40}], "
                              "compute: 1 TFLOP/s"),
                         "'cluster.compute' is of all devices"));
    EXPECT_TRUE(contains(says("hosts: [{devices: 8, device: h100-sxm-80, between: hdr200}, {devices: 8, device: "
                              "a100-sxm-40}]"),
                         "some hosts have a link between hosts"));
    EXPECT_TRUE(contains(says("hosts: [{devices: 8, device: h100-sxm-80}, {devices: 8, device: v100-sxm-32}]"),
                         "devices of kind v100-sxm-32 have no rate in bf16"));
}

}  // namespace
}  // namespace pw
