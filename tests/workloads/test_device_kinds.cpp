// The table of kinds of devices against the figures that were collected from its sources.
#include "workloads/cluster/device_kinds.h"

#include "tests/support/public_data.h"
#include "tests/support/refusal.h"
#include "tests/support/temporary_folder.h"
#include "workloads/cluster/named_links.h"

#include <gtest/gtest.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <string>
#include <vector>

namespace pw {
namespace {

TEST(DeviceKinds, HaveTheFiguresOfTheirSources) {
    PIPEWRIGHT_NEED_DATA(path, "clusters/devices.yaml");
    const std::vector<DeviceKindFacts>& kinds = device_kinds();
    int compared = 0;
    for (const auto& entry : YAML::LoadFile(path)["devices"]) {
        const auto name = entry.first.as<std::string>();
        const YAML::Node facts = entry.second;
        const DeviceKindFacts* kind = find_device_kind(kinds, name);
        ASSERT_NE(kind, nullptr) << name;
        const auto expect = [&](const RatesByPrecision& rates, const std::string& precision, const std::string& key) {
            if (!facts[key] || facts[key].IsNull())
                return;
            ASSERT_TRUE(rates.contains(precision)) << name << ' ' << key;
            EXPECT_NEAR(rates.find(precision)->second, facts[key].as<double>() * 1e12, 1) << name << ' ' << key;
            ++compared;
        };
        for (const char* precision : {"fp32", "tf32", "bf16", "fp8", "fp4"})
            expect(kind->peak, precision, precision + std::string("_tflops"));
        for (const char* precision : {"bf16", "fp8"})
            expect(kind->best, precision, "best_" + std::string(precision) + "_tflops");
        EXPECT_NEAR(kind->memory_bandwidth, facts["memory_tb_per_s"].as<double>() * 1e12, 1) << name;
        // What a program can have lies between 98 % of the size in powers of ten and that in powers of two.
        const auto sold = facts["memory_gb"].as<double>();
        EXPECT_GE(static_cast<double>(kind->memory), sold * 0.98e9) << name;
        EXPECT_LE(static_cast<double>(kind->memory), sold * (1 << 30)) << name;
        const char* own = facts["link_peer_gb_per_s"] ? "link_peer_gb_per_s" : "link_gb_per_s";
        EXPECT_NEAR(kind->link.bandwidth, facts[own].as<double>() * 1e9, 1) << name;
    }
    EXPECT_GT(compared, 70);
}

TEST(DeviceKinds, AllHaveASourceAndCompleteFigures) {
    for (const DeviceKindFacts& kind : device_kinds()) {
        EXPECT_GT(kind.source.size(), 10u) << kind.name;
        EXPECT_TRUE(kind.peak.contains("bf16") || kind.peak.contains("fp16")) << kind.name;
        EXPECT_GT(kind.memory, 0) << kind.name;
        EXPECT_GT(kind.memory_bandwidth, 1e11) << kind.name;
        EXPECT_GT(kind.link.bandwidth, 1e10) << kind.name;
        EXPECT_LT(kind.link.bandwidth, 1e12) << kind.name << ": a kind names its link";
        if (kind.source.starts_with("vendor figures only"))
            EXPECT_TRUE(kind.best.empty()) << kind.name;
    }
}

// Vendors state figures of whole systems. A system has the figures of one device times the number of devices.
TEST(DeviceKinds, AddUpToTheSystemsOfTheirVendors) {
    const std::vector<DeviceKindFacts>& kinds = device_kinds();
    const auto kind = [&](const char* name) { return *find_device_kind(kinds, name); };
    const auto peak = [&](const char* name, const char* precision) { return kind(name).peak.find(precision)->second; };
    // Google: 234.9 PFLOP/s in bf16 for a pod of v6e (v5e: 100 PetaOps in int8, twice bf16), 42.5 EFLOP/s in fp8 for a
    // pod of 9216 Ironwoods, all-reduce of a pod of v6e 102.4 TB/s and of v5e 51.2 TB/s.
    EXPECT_NEAR(256 * peak("tpu-v6e", "bf16"), 234.9e15, 0.2e15);
    EXPECT_NEAR(2 * 256 * peak("tpu-v5e", "bf16"), 100e15, 1e15);
    EXPECT_NEAR(9216 * peak("tpu-v7", "fp8"), 42.5e18, 0.05e18);
    EXPECT_EQ(256 * kind("tpu-v6e").link.bandwidth, 102.4e12);
    EXPECT_EQ(256 * kind("tpu-v5e").link.bandwidth, 51.2e12);
    // AWS: a Trn1.32xlarge has 16 Trainiums, 3040 TFLOP/s, 512 GiB and 13120 GB/s.
    EXPECT_EQ(16 * peak("trainium1", "bf16"), 3040e12);
    EXPECT_EQ(16 * kind("trainium1").memory, Bytes{512} << 30);
    EXPECT_EQ(16 * kind("trainium1").memory_bandwidth, 13120e9);
    // Huawei: a supernode of 384 Ascend 910C has about 300 PFLOP/s dense and 48 TiB.
    EXPECT_NEAR(384 * peak("ascend-910c", "fp16"), 300e15, 15e15);
    EXPECT_EQ(384 * kind("ascend-910c").memory, Bytes{48} << 40);
    // Intel: arrays of 256 x 256 multipliers, two at 1.65 GHz and eight at 1.75 GHz.
    EXPECT_NEAR(2.0 * 2 * 256 * 256 * 1.65e9, peak("gaudi2", "bf16"), 1e12);
    EXPECT_NEAR(8.0 * 2 * 256 * 256 * 1.75e9, peak("gaudi3", "bf16"), 1e12);
    // Intel: 21 of 24 ports join the eight of a host, of 100 and 200 Gbit/s.
    EXPECT_EQ(kind("gaudi2").link.bandwidth, 21 * 100e9 / 8);
    EXPECT_EQ(kind("gaudi3").link.bandwidth, 21 * 200e9 / 8);
}

// The share of the peak in bf16 that transformers are given on devices without a measured product
// (job/transformer_job.cpp) is the median over devices with a measured product.
TEST(DeviceKinds, ReachTheMedianShareOfThePeak) {
    std::vector<double> shares;
    for (const DeviceKindFacts& kind : device_kinds())
        if (const auto best = kind.best.find("bf16"); best != kind.best.end())
            shares.push_back(best->second / kind.peak.find("bf16")->second);
    std::sort(shares.begin(), shares.end());
    ASSERT_EQ(shares.size(), 17u);
    EXPECT_NEAR(shares[8], 0.8, 0.005);
    EXPECT_NEAR(shares.front(), 0.51, 0.005);
    EXPECT_NEAR(shares.back(), 0.97, 0.005);
}

// Collectives are looked up by the link's figures, so a link with a measured table must be unlike all other links.
TEST(DeviceKinds, HaveLinksThatAreNotTakenForNvlink) {
    for (const NamedLink& measured : kNamedLinks)
        for (const NamedLink& other : kNamedLinks)
            if (measured.name.starts_with("nvlink") && measured.name != other.name)
                EXPECT_FALSE(measured.link == other.link) << measured.name << ' ' << other.name;
}

TEST(DeviceKinds, HaveTheRateOfAMeasuredProductOrThePeak) {
    const std::vector<DeviceKindFacts>& kinds = device_kinds();
    const auto rate = [&](const char* name, Precision precision) {
        return product_rate(*find_device_kind(kinds, name), precision);
    };
    EXPECT_EQ(rate("mi300x", Precision::Bf16)->flops, 668.4e12);
    EXPECT_TRUE(rate("mi300x", Precision::Bf16)->is_measured);
    EXPECT_EQ(rate("h100-pcie-80", Precision::Bf16)->flops, 756e12);
    EXPECT_FALSE(rate("h100-pcie-80", Precision::Bf16)->is_measured);
    EXPECT_FALSE(rate("v100-sxm-32", Precision::Bf16));
}

TEST(DeviceKinds, OfAFileReplaceThoseOfTheBuild) {
    const TemporaryFolder folder;
    const std::string path = folder.write("kinds.yaml",
                                          "devices:\n"
                                          "  b200: {peak: {bf16: 2 TFLOP/s}, memory: 1 GB, memory_bandwidth: 1 GB/s, "
                                          "link: {bandwidth: 1 GB/s, latency: 1 "
                                          "us}, source: a test}\n");
    const std::vector<DeviceKindFacts> kinds = device_kinds(path);
    EXPECT_EQ(kinds.size(), device_kinds().size());
    EXPECT_EQ(find_device_kind(kinds, "b200")->link, (Link{1'000, 1e9}));
    const std::string mistakes = refusal([&] {
        device_kinds(
            folder.write("kinds.yaml",
                         "devices:\n"
                         "  a: {peak: {bf16: 2 TFLOP/s}, best: {bf16: 3 TFLOP/s, fp8: 1 TFLOP/s}, memory: 1 GB, "
                         "memory_bandwidth: 1 GB/s, link: nvlink9, source: a test}\n"
                         "  b: {}\n"));
    });
    for (const char* part : {"'devices.a.best.bf16' is 3 TFLOP/s, more than the peak", "'devices.a.best.fp8'",
                             "'devices.a.link' is 'nvlink9', which is not a link", "'devices.b' has no source"})
        EXPECT_NE(mistakes.find(part), std::string::npos) << part << '\n' << mistakes;
    EXPECT_NE(refusal([&] { device_kinds(folder.write("kinds.yaml", "kinds: 1\n")); }).find("has no devices"),
              std::string::npos);
}

}  // namespace
}  // namespace pw
