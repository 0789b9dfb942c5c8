// The table of kinds of devices against the figures that were collected from its sources.
#include "workloads/cluster/device_kinds.h"

#include "tests/support/public_data.h"
#include "tests/support/refusal.h"
#include "tests/support/temporary_folder.h"
#include "workloads/cluster/named_links.h"

#include <gtest/gtest.h>
#include <yaml-cpp/yaml.h>

#include <string>

namespace pw {
namespace {

TEST(DeviceKinds, HaveTheFiguresOfTheirSources) {
    PIPEWRIGHT_NEED_DATA(path, "clusters/devices.yaml");
    const std::vector<DeviceKindFacts> kinds = device_kinds();
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

TEST(DeviceKinds, HaveTheRateOfAMeasuredProductOrThePeak) {
    const std::vector<DeviceKindFacts> kinds = device_kinds();
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
