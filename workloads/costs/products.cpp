#include "workloads/costs/products.h"

#include "workloads/error.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace pw {

namespace {

constexpr std::size_t kNearest = 4;
constexpr double kNoNearer = 0.05;  // a nearer row does not weigh more
// The fastest products of the tables of an A100 and an H100 are 1 % slower and 3 % faster than the products that others
// found on the same cards. A B200's is 16 % slower.
constexpr double kAsFast = 0.96;

bool has_layout(const std::vector<MeasuredProduct>& rows, ProductLayout layout) {
    return std::any_of(rows.begin(), rows.end(),
                       [&](const MeasuredProduct& row) { return row.product.layout == layout; });
}

double distance(const Product& a, const Product& b) {
    const auto apart = [](std::int64_t x, std::int64_t y) {
        return std::log(static_cast<double>(x) / static_cast<double>(y));
    };
    return std::hypot(std::hypot(apart(a.m, b.m), apart(a.k, b.k), apart(a.n, b.n)), apart(a.groups, b.groups));
}

const ProductTable* find_table(std::string_view device, Precision precision) {
    const std::vector<ProductTable>& tables = product_tables();
    const auto found = std::find_if(tables.begin(), tables.end(), [&](const ProductTable& table) {
        return table.device == device && table.precision == precision;
    });
    return found == tables.end() ? nullptr : &*found;
}

// Returns the vendor's rate of the precision, else the vendor's rate of bf16, else the fastest measured rate.
double peak_of(const DeviceKindFacts& kind, Precision precision) {
    for (const std::string_view name : {rate_name(precision), name_of(Precision::Bf16)})
        if (const auto peak = kind.peak.find(name); peak != kind.peak.end())
            return peak->second;
    return product_rate(kind, precision)->flops;
}

// Returns the ratio of the clocks of two devices with the same chip whose power is limited: power grows with the cube
// of the clock, as it is proportional to the clock and the square of the voltage, which grows with the clock.
double clock_ratio(const DeviceKindFacts& kind, const DeviceKindFacts& measured) {
    return kind.power > 0 && kind.power < measured.power ? std::cbrt(kind.power / measured.power) : 1;
}

}  // namespace

Product LinearShape::product(ProductLayout layout, std::int64_t groups) const {
    switch (layout) {
        case ProductLayout::TN:
            return {rows, inputs, outputs, layout, groups};
        case ProductLayout::NN:
            return {rows, outputs, inputs, layout, groups};
        case ProductLayout::NT:
            break;
    }
    return {outputs, rows, inputs, layout, groups};
}

LinearShape linear_of(const Product& product) {
    switch (product.layout) {
        case ProductLayout::TN:
            return {product.m, product.k, product.n};
        case ProductLayout::NN:
            return {product.m, product.n, product.k};
        case ProductLayout::NT:
            break;
    }
    return {product.k, product.n, product.m};
}

double ProductTable::efficiency(const Product& product) const {
    const std::vector<MeasuredProduct>& measured = product.groups > 1 ? grouped : rows;
    std::vector<std::pair<double, double>> nearest;  // distance, efficiency
    const bool has_it = has_layout(measured, product.layout);
    for (const MeasuredProduct& row : measured) {
        if (row.product == product)
            return row.efficiency;
        if (!has_it || row.product.layout == product.layout)
            nearest.emplace_back(distance(row.product, product), row.efficiency);
    }
    const std::size_t count = std::min(kNearest, nearest.size());
    std::partial_sort(nearest.begin(), nearest.begin() + static_cast<std::ptrdiff_t>(count), nearest.end());
    double weights = 0, logarithm = 0;
    for (std::size_t place = 0; place < count; ++place) {
        const auto [apart, share] = nearest[place];
        const double weight = std::pow(apart + kNoNearer, -2);
        weights += weight;
        logarithm += weight * std::log(share);
    }
    return std::exp(logarithm / weights);
}

double ProductTable::rate_of_groups(const Product& product) const {
    const Product measured =
        has_layout(grouped, product.layout) ? product : linear_of(product).product(ProductLayout::TN, product.groups);
    return efficiency(measured) / efficiency(measured.single());
}

double ProductTable::fastest() const {
    double share = 0;
    for (const MeasuredProduct& row : rows)
        share = std::max(share, row.efficiency);
    return share * peak;
}

const ProductTable& table_with_groups(std::string_view chip) {
    const ProductTable* const own = find_table(chip, Precision::Bf16);
    return own != nullptr && !own->grouped.empty() ? *own : *find_table("a100-pcie-80", Precision::Bf16);
}

double KnownEfficiencies::of(const Product& product, const ProductTable& table, const ProductTable& with_groups) {
    constexpr std::size_t kMostKnown = 100'000;
    {
        const std::lock_guard lock(mutex_);
        if (const auto found = known_.find(product); found != known_.end())
            return found->second;
    }
    double share = table.efficiency(product.single());
    if (product.groups > 1)
        share = std::min(1.0, share * with_groups.rate_of_groups(product));
    const std::lock_guard lock(mutex_);
    if (known_.size() < kMostKnown)
        known_.emplace(product, share);
    return share;
}

std::vector<Product> KnownEfficiencies::products() const {
    const std::lock_guard lock(mutex_);
    std::vector<Product> products;
    for (const auto& [product, share] : known_)
        products.push_back(product);
    return products;
}

namespace {

// Returns what is known of a table of this build.
std::shared_ptr<KnownEfficiencies> known_of(const ProductTable& table) {
    static const std::vector<std::shared_ptr<KnownEfficiencies>> all = [] {
        std::vector<std::shared_ptr<KnownEfficiencies>> made;
        while (made.size() < product_tables().size())
            made.push_back(std::make_shared<KnownEfficiencies>());
        return made;
    }();
    return all[static_cast<std::size_t>(&table - product_tables().data())];
}

}  // namespace

std::shared_ptr<const ProductRates> product_rates(const DeviceKindFacts& kind, Precision precision) {
    const std::vector<ProductTable>& tables = product_tables();
    if (!kind.products.empty() && std::none_of(tables.begin(), tables.end(), [&](const ProductTable& table) {
            return table.device == kind.products;
        }))
        fail(
            "'{}' has the products of '{}', of which there is no table\n  help: write a100-pcie-80, h100-sxm-80 or "
            "b200, or "
            "remove the key products",
            kind.name, kind.products);
    const Precision measured_in[] = {
        precision, precision == Precision::Mxfp8 ? Precision::Fp8 : precision,
        precision == Precision::Fp32 || precision == Precision::Tf32 ? precision : Precision::Bf16};
    const ProductTable* table = nullptr;
    for (const Precision one : measured_in)
        if (table == nullptr)
            table = find_table(kind.products, one);
    if (table == nullptr)
        return nullptr;
    const std::vector<DeviceKindFacts>& kinds = device_kinds();
    const DeviceKindFacts* measured = find_device_kind(kinds, table->device);
    const std::optional<ProductRate> own = product_rate(kind, precision),
                                     other = measured ? product_rate(*measured, table->precision) : std::nullopt;
    if (!own || !other)
        return nullptr;
    // The machine of a table may be slower than its kind. Its own kind has the measured rates.
    const bool is_its_own = kind.name == measured->name && precision == table->precision;
    const bool is_slow = !is_its_own && table->fastest() < kAsFast * other->flops;
    const double reached = is_slow ? table->fastest() : other->flops;
    const double scale = own->is_measured && other->is_measured
                             ? own->flops / reached
                             : peak_of(kind, precision) / table->peak * clock_ratio(kind, *measured);
    const ProductTable* const with_groups = table->grouped.empty() ? &table_with_groups(kind.products) : nullptr;
    return std::make_shared<const ProductRates>(ProductRates{*table, scale, scale, with_groups, known_of(*table)});
}

std::optional<LayerProducts> products_of(const Layer& layer, int samples) {
    std::int64_t rows = samples, inputs = 0, outputs = 0;
    if (layer.kind == LayerKind::RowLinear) {
        rows *= layer.input.height;
        inputs = layer.input.width;
        outputs = layer.output.width;
    } else if (layer.kind == LayerKind::Linear) {
        inputs = layer.input.elements();
        outputs = layer.output.channels;
    } else {
        return std::nullopt;
    }
    const LinearShape shape{rows, inputs, outputs};
    return LayerProducts{shape.product(ProductLayout::TN), shape.product(ProductLayout::NN),
                         shape.product(ProductLayout::NT)};
}

}  // namespace pw
