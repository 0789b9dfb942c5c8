// Rates of matrix products by shape, against the measured tables.
#include "workloads/costs/products.h"

#include "tests/support/public_data.h"
#include "tests/support/refusal.h"
#include "tests/support/temporary_folder.h"
#include "workloads/costs/costs.h"

#include <gtest/gtest.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace pw {
namespace {

const ProductTable& measured_on(const std::string& device) {
    const std::vector<ProductTable>& tables = product_tables();
    return *std::find_if(tables.begin(), tables.end(),
                         [&](const ProductTable& table) { return table.device == device; });
}

DeviceKindFacts kind_called(const std::string& name) {
    const std::vector<DeviceKindFacts>& kinds = device_kinds();
    return *find_device_kind(kinds, name);
}

TEST(Products, HaveTheFiguresOfTheirSource) {
    PIPEWRIGHT_NEED_DATA(path, "clusters/gemm.yaml");
    std::size_t compared = 0;
    for (const YAML::Node& group : YAML::LoadFile(path)["groups"]) {
        const auto id = group["id"].as<std::string>();
        if (id != "simumax-a100-pcie-matmul" && id != "simumax-b200-matmul")
            continue;
        const ProductTable& table = measured_on(group["device"].as<std::string>());
        EXPECT_EQ(table.peak, group["peak_tflops"].as<double>() * 1e12);
        std::map<std::tuple<int, int, int, std::string>, std::vector<double>> measured;
        for (const YAML::Node& row : group["rows"])
            measured[{row[0].as<int>(), row[1].as<int>(), row[2].as<int>(), row[3].as<std::string>()}].push_back(
                row[6].as<double>());
        EXPECT_EQ(table.rows.size(), measured.size());
        for (const auto& [shape, shares] : measured) {
            const auto& [m, k, n, layout] = shape;
            const double share = table.efficiency({m, k, n, *parse_choice<ProductLayout>(layout)});
            EXPECT_GE(share, *std::min_element(shares.begin(), shares.end()) * 0.999);
            EXPECT_LE(share, *std::max_element(shares.begin(), shares.end()) * 1.001);
            ++compared;
        }
    }
    EXPECT_EQ(compared, 183u + 432u);
}

// In the source the three passes of a layer have the numbers of its forward.
TEST(Products, OfExpertsHaveTheFiguresOfTheirSource) {
    PIPEWRIGHT_NEED_DATA(path, "clusters/gemm.yaml");
    std::size_t compared = 0;
    for (const YAML::Node& group : YAML::LoadFile(path)["groups"]) {
        const auto id = group["id"].as<std::string>();
        if (id != "simumax-a100-pcie-group-matmul" && id != "simumax-b200-group-matmul")
            continue;
        const std::map<std::string, ProductLayout> layouts = {
            {"fwd", ProductLayout::TN}, {"bwd_grad_act", ProductLayout::NN}, {"bwd_grad_w", ProductLayout::NT}};
        const std::size_t stage = id == "simumax-a100-pcie-group-matmul" ? 4 : 5;
        const ProductTable& table = measured_on(group["device"].as<std::string>());
        std::map<Product, std::vector<double>> measured;
        for (const YAML::Node& row : group["rows"]) {
            const LinearShape layer{row[1].as<int>(), row[3].as<int>(), row[2].as<int>()};
            measured[layer.product(layouts.at(row[stage].as<std::string>()), row[0].as<int>())].push_back(
                row[row.size() - 1].as<double>());
        }
        EXPECT_EQ(table.grouped.size(), measured.size());
        for (const auto& [product, shares] : measured) {
            double logarithm = 0;
            for (const double share : shares)
                logarithm += std::log(share) / static_cast<double>(shares.size());
            EXPECT_NEAR(table.efficiency(product), std::exp(logarithm), 1e-4);
            ++compared;
        }
    }
    EXPECT_EQ(compared, 12u + 60u);
}

// DeepGEMM's grouped products in fp8 on H800s were not used for anything: their rate here follows from the single
// products in fp8 and the grouped ones in bf16 of an H100.
TEST(Products, OfExpertsInLowPrecisionAreNearThoseOfAnotherLibrary) {
    PIPEWRIGHT_NEED_DATA(path, "clusters/gemm.yaml");
    const auto rates = product_rates(kind_called("h800-sxm-80"), Precision::Fp8);
    std::vector<double> errors;
    for (const YAML::Node& group : YAML::LoadFile(path)["groups"])
        if (group["id"].as<std::string>().starts_with("deepgemm-h800-grouped"))
            for (const YAML::Node& row : group["rows"]) {
                const LinearShape layer{row[1].as<int>(), row[3].as<int>(), row[2].as<int>()};
                const Product product = layer.product(ProductLayout::TN, row[0].as<int>());
                errors.push_back(std::abs(rates->flops(product) / (row[4].as<double>() * 1e12) - 1));
            }
    ASSERT_EQ(errors.size(), 10u);
    EXPECT_NEAR(std::accumulate(errors.begin(), errors.end(), 0.0) / 10, 0.06, 0.01);
    EXPECT_NEAR(*std::max_element(errors.begin(), errors.end()), 0.15, 0.005);
}

using Rows = std::vector<MeasuredProduct> ProductTable::*;

// Returns the mean error of each row by the other rows, and by the mean of the table.
std::pair<double, double> errors_of(const ProductTable& table, Rows rows = &ProductTable::rows) {
    const auto count = static_cast<double>((table.*rows).size());
    double by_rule = 0, by_mean = 0, mean = 0;
    for (const MeasuredProduct& row : table.*rows)
        mean += row.efficiency / count;
    for (std::size_t left_out = 0; left_out < (table.*rows).size(); ++left_out) {
        ProductTable others = table;
        (others.*rows).erase((others.*rows).begin() + static_cast<std::ptrdiff_t>(left_out));
        const MeasuredProduct& row = (table.*rows)[left_out];
        by_rule += std::abs(others.efficiency(row.product) / row.efficiency - 1) / count;
        by_mean += std::abs(mean / row.efficiency - 1) / count;
    }
    return {by_rule, by_mean};
}

// The fastest product of ml-engineering's search over shapes is nearly as fast as that of our table of the same card.
TEST(Products, AreAsFastAsThoseOfOthersOnTheSameCard) {
    double best = 0;
    const ProductTable& table = measured_on("h100-sxm-80");
    for (const MeasuredProduct& row : table.rows)
        best = std::max(best, row.efficiency * table.peak);
    EXPECT_NEAR(best / kind_called("h100-sxm-80").best.at("bf16"), 1, 0.04);
}

// docs/config.md has these figures.
TEST(Products, OfShapesThatWereNotMeasuredAreNearTheMeasuredOnes) {
    const auto [a100, a100_by_mean] = errors_of(measured_on("a100-pcie-80"));
    EXPECT_NEAR(a100, 0.037, 0.0005);
    EXPECT_NEAR(a100_by_mean, 0.069, 0.0005);
    const auto [b200, b200_by_mean] = errors_of(measured_on("b200"));
    EXPECT_NEAR(b200, 0.097, 0.0005);
    EXPECT_NEAR(b200_by_mean, 0.119, 0.0005);
    const auto [h100, h100_by_mean] = errors_of(measured_on("h100-sxm-80"));
    EXPECT_NEAR(h100, 0.077, 0.0005);
    EXPECT_NEAR(h100_by_mean, 0.193, 0.0005);
}

// docs/config.md has these figures, too.
TEST(Products, OfExpertsThatWereNotMeasuredAreNearTheMeasuredOnes) {
    const std::tuple<const char*, double, double> kinds[] = {
        {"a100-pcie-80", 0.072, 0.095}, {"b200", 0.138, 0.730}, {"h100-sxm-80", 0.100, 0.375}};
    for (const auto& [kind, by_rule, by_single_products] : kinds) {
        const ProductTable& table = measured_on(kind);
        EXPECT_NEAR(errors_of(table, &ProductTable::grouped).first, by_rule, 0.0005) << kind;
        double single = 0;
        for (const MeasuredProduct& row : table.grouped)
            single += std::abs(table.efficiency(row.product.single()) / row.efficiency - 1);
        EXPECT_NEAR(single / static_cast<double>(table.grouped.size()), by_single_products, 0.0005) << kind;
    }
}

// By hand from the rows [40, 616, 5120, 3072, TN, 0.6313] of the A100, [4, 1024, 4096, 3072, TN, 0.6728] of the H100.
TEST(Products, OfExpertsHaveTheRateOfGroupedRows) {
    const Product of_a100{616, 5120, 3072, ProductLayout::TN, 40};
    const auto a100 = product_rates(kind_called("a100-sxm-80"), Precision::Bf16);
    EXPECT_NEAR(a100->flops(of_a100), 0.6313 * 312e12 * 271.2 / 252.9, 1e8);
    const auto h100 = product_rates(kind_called("h100-sxm-80"), Precision::Bf16);
    const LinearShape layer{1024, 4096, 3072};
    const Product forward = layer.product(ProductLayout::TN, 4);
    EXPECT_NEAR(h100->flops(forward), 0.6728 * 989e12, 1e8);
    // Other passes were not measured there, nor anything in fp8.
    const double relative = h100->flops(forward) / h100->flops(forward.single());
    for (const ProductLayout pass : {ProductLayout::NN, ProductLayout::NT})
        EXPECT_NEAR(h100->flops(layer.product(pass, 4)) / h100->flops(layer.product(pass)), relative, 1e-9);
    const auto fp8 = product_rates(kind_called("h100-sxm-80"), Precision::Fp8);
    EXPECT_NEAR(fp8->flops(forward) / fp8->flops(forward.single()), relative, 1e-9);
    EXPECT_EQ(table_with_groups("").device, "a100-pcie-80");
    EXPECT_EQ(table_with_groups("b200").device, "b200");
}

TEST(Products, AreScaledToDevicesWithTheSameChip) {
    const Product product{4096, 5120, 1536, ProductLayout::TN};
    const auto rate = [&](const char* device) {
        return product_rates(kind_called(device), Precision::Bf16)->flops(product);
    };
    EXPECT_NEAR(rate("a100-pcie-80"), 0.7877 * 312e12, 1e6);
    // 271.2 and 252.9 TFLOP/s are the fastest products of the two cards.
    EXPECT_NEAR(rate("a100-sxm-80"), 0.7877 * 312e12 * 271.2 / 252.9, 1e6);
    // 0.6551 of 2250 is the fastest product of the B200 whose table this is, and others found 1745. GB200: 1822.
    const Product wide{4096, 8192, 2560, ProductLayout::TN};
    const auto on = [&](const char* device, Precision precision) {
        return product_rates(kind_called(device), precision)->flops(wide);
    };
    EXPECT_NEAR(on("gb200", Precision::Bf16) / on("b200", Precision::Bf16), 1822 / (0.6551 * 2250), 1e-9);
    EXPECT_NEAR(on("b200", Precision::Fp8) / on("b200", Precision::Bf16), 3432.5 / (0.6551 * 2250), 1e-9);
    // None is known of this one; its peak is that of the table.
    EXPECT_NEAR(rate("a100-sxm-40"), 0.7877 * 312e12, 1e6);
    EXPECT_EQ(product_rates(kind_called("mi300x"), Precision::Bf16), nullptr) << "nothing was measured";
    EXPECT_EQ(product_rates(kind_called("a100-sxm-80"), Precision::Tf32), nullptr);
    DeviceKindFacts mistaken = kind_called("b200");
    mistaken.products = "b2oo";
    EXPECT_THROW(product_rates(mistaken, Precision::Bf16), Error);
}

TEST(Products, AreThePassesOfOneLinearLayer) {
    const LinearShape shape{7, 5, 3};
    EXPECT_EQ(shape.product(ProductLayout::TN), (Product{7, 5, 3, ProductLayout::TN}));
    EXPECT_EQ(shape.product(ProductLayout::NN), (Product{7, 3, 5, ProductLayout::NN}));
    EXPECT_EQ(shape.product(ProductLayout::NT), (Product{3, 7, 5, ProductLayout::NT}));
    for (const ProductLayout layout : {ProductLayout::TN, ProductLayout::NN, ProductLayout::NT})
        EXPECT_EQ(linear_of(shape.product(layout)), shape);
}

TEST(Products, OfAFileAreThoseThatWereWritten) {
    const ProductTable written{.device = "one \"core\"",
                               .source = "a test",
                               .precision = Precision::Fp32,
                               .peak = 123.45e9,
                               .accumulates = false,
                               .rows = {{{64, 32, 16, ProductLayout::TN}, 0.5}, {{16, 64, 32, ProductLayout::NT}, 1}},
                               .grouped = {{{64, 32, 16, ProductLayout::TN, 4}, 0.25}}};
    const TemporaryFolder folder;
    const std::string text = text_of(written, {"one remark"});
    EXPECT_EQ(text.find("# one remark\ntables:\n"), 0u) << text;
    const std::vector<ProductTable> read = read_products(folder.write("products.yaml", text));
    ASSERT_EQ(read.size(), 1u);
    EXPECT_EQ(read[0].device, written.device);
    EXPECT_EQ(read[0].source, written.source);
    EXPECT_EQ(read[0].precision, written.precision);
    EXPECT_EQ(read[0].peak, written.peak);
    EXPECT_EQ(read[0].accumulates, written.accumulates);
    ASSERT_EQ(read[0].rows.size(), 2u);
    for (std::size_t row = 0; row < 2; ++row) {
        EXPECT_EQ(read[0].rows[row].product, written.rows[row].product);
        EXPECT_EQ(read[0].rows[row].efficiency, written.rows[row].efficiency);
    }
    ASSERT_EQ(read[0].grouped.size(), 1u);
    EXPECT_EQ(read[0].grouped[0].product, written.grouped[0].product);
    EXPECT_EQ(read[0].grouped[0].efficiency, 0.25);
}

TEST(Products, OfAFileAreRefusedWithAllMistakes) {
    const TemporaryFolder folder;
    const auto says = [&](const std::string& text) {
        return refusal([&] { read_products(folder.write("products.yaml", text)); });
    };
    const std::string mistakes = says(
        "tables:\n- {device: a, precision: fp32, peak: 1 TFLOP/s, rows: [[1, 2, 3, TN], [1, 2, 3, TM, 2]]}\n"
        "- {precision: fp32, rows: [], grouped: [[8, 8, 8, TN, 0.5], [1, 8, 8, 8, TN, 0.5]]}\n");
    for (const char* part : {"products.yaml:2", "'tables[0].rows[0]' has 4 values", "did you mean 'TN'?",
                             "'tables[0].rows[1][4]' is 2", "'tables[1].peak' is missing",
                             "'tables[1].rows' has no product", "write [groups, m, k, n, layout, efficiency]",
                             "'tables[1].grouped[1][0]' is 1", "'tables[1]' is the second table in fp32"})
        EXPECT_NE(mistakes.find(part), std::string::npos) << part << '\n' << mistakes;
    EXPECT_NE(says("{}").find("the file has no tables of products"), std::string::npos);
    EXPECT_NE(says("rows: 1").find("unknown key 'rows'"), std::string::npos);
}

// A layer of 4096 rows, 5120 inputs and 1536 outputs, whose three products are rows of the table.
TEST(Products, GiveLinearLayersTheirTimes) {
    Layer layer;
    layer.name = "fc";
    layer.kind = LayerKind::RowLinear;
    layer.input = {1, 1024, 5120};
    layer.output = {1, 1024, 1536};
    layer.parameters = 5120 * 1536;
    layer.flops_forward = layer.flops_input = layer.flops_weight = 2.0 * 1024 * 5120 * 1536;
    const auto products = products_of(layer, 4);
    ASSERT_TRUE(products);
    EXPECT_EQ(products->forward, (Product{4096, 5120, 1536, ProductLayout::TN}));
    EXPECT_EQ(products->input, (Product{4096, 1536, 5120, ProductLayout::NN}));
    EXPECT_EQ(products->weight, (Product{1536, 4096, 5120, ProductLayout::NT}));
    const DeviceRates rates{.flops = 252.9e12,
                            .memory_bandwidth = 1e18,
                            .products = product_rates(kind_called("a100-pcie-80"), Precision::Bf16)};
    const LayerTimes times = analytic_times(layer, 4, rates, Precision::Bf16);
    const double flops = 2.0 * 4096 * 5120 * 1536, peak = 312e12;
    EXPECT_NEAR(static_cast<double>(times.forward.median), flops / (0.7877 * peak) * 1e9, 1);
    EXPECT_NEAR(static_cast<double>(times.backward_input.median), flops / (0.7375 * peak) * 1e9, 1);
    EXPECT_NEAR(static_cast<double>(times.backward_weight.median), flops / (0.6245 * peak) * 1e9, 1);
}

}  // namespace
}  // namespace pw
