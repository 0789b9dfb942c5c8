// Rates of matrix products by shape, from tables of measured products.
#pragma once

#include "workloads/cluster/device_kinds.h"
#include "workloads/models/layer_graph.h"
#include "workloads/models/precision.h"
#include "workloads/text/choice.h"

#include <compare>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace pw {

// Which matrices are transposed: in the forward, for the gradient of the inputs, for the gradient of the weights.
enum class ProductLayout : std::uint8_t { TN, NN, NT };
template <>
inline constexpr Choice<ProductLayout> kChoices<ProductLayout>[] = {
    {"TN", ProductLayout::TN}, {"NN", ProductLayout::NN}, {"NT", ProductLayout::NT}};

// C[m, n] = A[m, k] B[k, n], in one call for all of `groups` groups of matrices with these shapes.
struct Product {
    std::int64_t m = 1, k = 1, n = 1;
    ProductLayout layout = ProductLayout::TN;
    std::int64_t groups = 1;
    auto operator<=>(const Product&) const = default;

    // Returns the product of a single group.
    Product single() const { return {m, k, n, layout}; }
    double flops() const {
        return static_cast<double>(groups) * 2.0 * static_cast<double>(m) * static_cast<double>(k) *
               static_cast<double>(n);
    }
};

// A linear layer, whose three passes are products.
struct LinearShape {
    std::int64_t rows = 1, inputs = 1, outputs = 1;
    auto operator<=>(const LinearShape&) const = default;

    Product product(ProductLayout layout, std::int64_t groups = 1) const;
};
// Returns the layer of which a product is a pass. For a grouped product, returns the layer of a single group.
LinearShape linear_of(const Product& product);

struct MeasuredProduct {
    Product product;
    double efficiency;  // share of the peak
};

// The products that were measured on a kind of device in a precision.
struct ProductTable {
    std::string device, source;
    Precision precision = Precision::Bf16;
    double peak = 0;          // FLOP/s
    bool accumulates = true;  // whether gradients of weights (NT) were added to fp32 sums
    std::vector<MeasuredProduct> rows, grouped;

    // Returns the share of the peak at which a product is computed: the share in its row, else the geometric mean of
    // the four nearest rows of its layout, each with the weight 1 / (d + 0.05)^2, where d is the distance between the
    // logarithms of m, k and n. For a grouped product, the rows are the grouped rows, and the number of groups counts
    // in the distance.
    double efficiency(const Product& product) const;
    // Returns the rate of a grouped product relative to the product of a single group. If no grouped product of its
    // layout was measured, returns the relative rate of the forward of its layer.
    double rate_of_groups(const Product& product) const;
    double fastest() const;  // FLOP/s of its fastest product
};

// Returns the tables of this build (workloads/costs/products.yaml).
const std::vector<ProductTable>& product_tables();
// Returns the table that has the rates of grouped products for devices with this chip (DeviceKindFacts::products) where
// a table has none: the chip's table in bf16, else an A100's.
const ProductTable& table_with_groups(std::string_view chip);
// Reads a file of the same form, with the products of one device: a table for each precision. Throws Error (BadInput)
// with the mistakes of the file.
std::vector<ProductTable> read_products(const std::string& path);
// Returns the text of such a file with a single table. Each remark is a comment at the top of the file.
std::string text_of(const ProductTable& table, const std::vector<std::string>& remarks);

// The computed shares of the products of a table: searches ask for the same products again and again, from several
// threads.
class KnownEfficiencies {
public:
    // `with_groups` has the rates of grouped products.
    double of(const Product& product, const ProductTable& table, const ProductTable& with_groups);
    std::vector<Product> products() const;  // products for which of() was called, each once

private:
    mutable std::mutex mutex_;
    std::map<Product, double> known_;
};

// The rates of products on a kind of device.
struct ProductRates {
    ProductTable table;
    double scale = 1;       // device to table: of their fastest products, or of their peaks where none is known
    double chip_scale = 1;  // the same for tables of other kernels, whose device has the same chip

    const ProductTable* with_groups = nullptr;  // of this build, null if the table has grouped products itself

    std::shared_ptr<KnownEfficiencies> known = std::make_shared<KnownEfficiencies>();

    double flops(const Product& product) const {
        return scale * table.peak * known->of(product, table, with_groups ? *with_groups : table);
    }
};
// Returns the rates by the table that the kind names, in this precision. Null if there is none. On the device of the
// table, the rates are the measured rates.
std::shared_ptr<const ProductRates> product_rates(const DeviceKindFacts& kind, Precision precision);

// The products of a layer for a micro-batch: a linear layer's three passes.
struct LayerProducts {
    Product forward, input, weight;
};
std::optional<LayerProducts> products_of(const Layer& layer, int samples);

}  // namespace pw
