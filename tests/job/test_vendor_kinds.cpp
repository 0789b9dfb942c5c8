// What kinds of devices cost that have the figures of a vendor and no measured product, against calculations by hand
// from the vendors' documents.
#include "job/transformer_job.h"
#include "tests/support/config_text.h"
#include "workloads/cluster/collectives.h"
#include "workloads/costs/costs.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>

namespace pw {
namespace {

Config one_device(const std::string& kind) {
    return pw::load("{workload: {model: mlp}, training: {precision: bf16}, cluster: {device: " + kind + "}}");
}

// Returns the forward of a linear layer without bias in bf16 at the rates of a kind.
Ns forward_of(const std::string& kind, int rows, int inputs, int outputs) {
    Layer layer{.name = "linear", .kind = LayerKind::Linear};
    layer.input = {.channels = inputs, .height = 1, .width = 1};
    layer.output = {.channels = outputs, .height = 1, .width = 1};
    layer.parameters = std::int64_t{inputs} * outputs;
    layer.flops_forward = 2.0 * inputs * outputs;
    return analytic_times(layer, rows, one_device(kind).cluster.rates, Precision::Bf16).forward.median;
}

// 4096 x 4096 x 4096: 2 x 4096^3 = 137 438 953 472 FLOP and three matrices of 2^25 bytes. A single row: 33 554 432
// FLOP, a matrix of 2^25 bytes and two vectors of 8192 bytes: 33 570 816 bytes.
TEST(VendorKinds, HaveTheRooflineOfTheirDataSheets) {
    // TPU v5p: 459 TFLOP/s, so 299.431 us and not 100.66 MB / 2765 GB/s = 36.4 us; then 33.57 MB / 2765 GB/s.
    EXPECT_EQ(forward_of("tpu-v5p", 4096, 4096, 4096), 299'432);
    EXPECT_EQ(forward_of("tpu-v5p", 1, 4096, 4096), 12'142);
    // Trainium2: 667 TFLOP/s and 2.9 TB/s.
    EXPECT_EQ(forward_of("trainium2", 4096, 4096, 4096), 206'056);
    EXPECT_EQ(forward_of("trainium2", 1, 4096, 4096), 11'577);
    // L40S: 362.05 TFLOP/s and 864 GB/s.
    EXPECT_EQ(forward_of("l40s", 4096, 4096, 4096), 379'614);
    EXPECT_EQ(forward_of("l40s", 1, 4096, 4096), 38'856);
    // TPU v6e was measured: 727.7 of 918 TFLOP/s.
    EXPECT_EQ(forward_of("tpu-v6e", 4096, 4096, 4096), 188'868);
    // Gaudi 2 was measured: 418.7 of 432 TFLOP/s.
    EXPECT_EQ(forward_of("gaudi2", 4096, 4096, 4096), 328'252);
}

TransformerJob on_pod(const std::string& cluster, const std::string& precision = "bf16") {
    return transformer_job_of(pw::load("{workload: {model: llama-3-8b, sequence_length: 2048}, cluster: {" + cluster +
                                       "}, pipeline: {mini_batch: 1024}, training: {precision: " + precision +
                                       ", optimizer: adamw}}"));
}

// A transformer gets 0.8 of the peak, the median of the measured kinds, and the shares of an A100 by shape.
TEST(VendorKinds, GiveTransformersTheMedianShareOfTheirPeak) {
    const TransformerJob job = on_pod("hosts: 2, devices_per_host: 4, device: tpu-v5p");
    EXPECT_NEAR(job.flops, 0.8 * 459e12, 1);
    EXPECT_NEAR(on_pod("hosts: 2, devices_per_host: 8, device: tpu-v5e").flops, 181.8e12, 1);
    ASSERT_NE(job.products, nullptr);
    EXPECT_EQ(job.products->table.device, "a100-pcie-80");
}

// In fp8 the head and attention stay in bf16, which gets the same share of its own peak: 1299 and 667 TFLOP/s of
// Trainium2.
TEST(VendorKinds, GiveTheHeadInBf16ItsOwnShareInFp8) {
    const TransformerJob job = on_pod("hosts: 1, devices_per_host: 16, device: trainium2", "fp8");
    EXPECT_NEAR(job.flops, 0.8 * 1299e12, 1);
    EXPECT_NEAR(job.head_flops, 0.8 * 667e12, 1);
    const Product product = LinearShape{4096, 4096, 4096}.product(ProductLayout::TN);
    ASSERT_NE(job.head_products, nullptr);
    EXPECT_NEAR(job.products->flops(product) / job.head_products->flops(product), 1299.0 / 667, 1e-9);
    EXPECT_NEAR(on_pod("hosts: 1, devices_per_host: 8, device: gaudi2", "fp8").head_flops, 418.7e12, 1);
}

// Cloud TPU documentation, v6e: an all-reduce of a pod of 256 has 102.4 TB/s, v5e 51.2 TB/s, so 400 and 200 GB/s for a
// chip. A chip receives 255/256 of a gather of 1 GB at 0.742 of that, after 22 us.
TEST(VendorKinds, GatherOverAllLinksOfAPod) {
    for (const auto& [kind, pod] : {std::pair("tpu-v6e", 102.4e12), std::pair("tpu-v5e", 51.2e12)}) {
        const TransformerJob job =
            on_pod(fmt::format("hosts: 32, devices_per_host: 8, domain: 256, device: {}, between: {{link: roce100, "
                               "adapters: 8}}",
                               kind));
        const double seconds = collective_seconds(Collective::AllGather, 1e9, {256, 1}, job.fabric);
        EXPECT_NEAR(seconds, 22e-6 + 1e9 * 255 / 256 / (0.742 * pod / 256), 1e-9) << kind;
    }
    // Two pods: each of 512 chips sends a part over its share of the network, 0.96 of 100 Gbit/s.
    const TransformerJob job =
        on_pod("hosts: 64, devices_per_host: 8, domain: 256, device: tpu-v6e, between: {link: roce100, adapters: 8}");
    const double across = collective_seconds(Collective::AllReduce, 1e9, {2, 256}, job.fabric);
    EXPECT_NEAR(across, 22e-6 + 2 * 14e-6 + 2 * 1e9 / 2 / (0.96 * 12.5e9), 1e-9);
}

}  // namespace
}  // namespace pw
