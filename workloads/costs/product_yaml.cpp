// Tables of products: the tables of this build, and files of the same form.
#include "workloads/costs/products.h"
#include "workloads/costs/products_text.h"
#include "workloads/text/embedded.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

namespace pw {

namespace {

// Grouped rows begin with their groups.
std::vector<MeasuredProduct> read_rows(const Yaml& rows, bool are_grouped) {
    std::vector<MeasuredProduct> products;
    for (const Yaml& row : rows.items()) {
        const std::vector<Yaml> values = row.items();
        const std::size_t first = are_grouped ? 1 : 0;
        if (values.size() != first + 5) {
            row.complain(fmt::format("'{}' has {} values", row.path(), values.size()),
                         fmt::format("write [{}m, k, n, layout, efficiency]", are_grouped ? "groups, " : ""));
            continue;
        }
        const auto size = [&](std::size_t value, std::int64_t least) {
            return values[value].integer(least, least, std::numeric_limits<std::int32_t>::max());
        };
        products.push_back({{size(first, 1), size(first + 1, 1), size(first + 2, 1),
                             values[first + 3].choice(ProductLayout::TN), are_grouped ? size(0, 2) : 1},
                            values[first + 4].number(1, 1e-6, 1)});
    }
    return products;
}

std::string print_rows(const std::vector<MeasuredProduct>& rows, bool are_grouped) {
    std::string text;
    for (const auto& [product, efficiency] : rows)
        text += fmt::format("  - [{}{}, {}, {}, {}, {:.4g}]\n", are_grouped ? fmt::format("{}, ", product.groups) : "",
                            product.m, product.k, product.n, name_of(product.layout), efficiency);
    return text;
}

ProductTable read_table(const Yaml& at) {
    at.allow({"device", "precision", "peak", "accumulates", "source", "rows", "grouped"});
    for (const std::string_view key : {"device", "precision", "peak", "rows"})
        if (at.is_map() && !at[key].present())
            at.complain(fmt::format("'{}.{}' is missing", at.path(), key), "add it, or measure the products again");
    ProductTable table{.device = at["device"].text(),
                       .source = at["source"].text(),
                       .precision = at["precision"].choice(Precision::Bf16),
                       .peak = at["peak"].flops(1),
                       .accumulates = at["accumulates"].boolean(true),
                       .rows = read_rows(at["rows"], false),
                       .grouped = read_rows(at["grouped"], true)};
    if (at["rows"].is_list() && table.rows.empty())
        at["rows"].complain(fmt::format("'{}' has no product", at["rows"].path()),
                            "write one [m, k, n, layout, efficiency] at least");
    return table;
}

std::vector<ProductTable> tables_in(const Yaml& root) {
    std::vector<ProductTable> tables;
    for (const Yaml& table : root["tables"].items())
        tables.push_back(read_table(table));
    return tables;
}

std::vector<ProductTable> tables_of_build() {
    const Yaml root = parse_embedded("the tables of products of this build", kProductsText);
    std::vector<ProductTable> tables = tables_in(root);
    root.source().throw_if_mistaken();
    return tables;
}

}  // namespace

const std::vector<ProductTable>& product_tables() {
    static const std::vector<ProductTable> tables = tables_of_build();
    return tables;
}

std::vector<ProductTable> read_products(const std::string& path) {
    const Yaml root = Yaml::load(path);
    root.allow({"tables"});
    std::vector<ProductTable> tables = tables_in(root);
    if (root.source().clean() && tables.empty())
        root.complain("the file has no tables of products", "write it by `pipewright profile CONFIG --gemm -o FILE`");
    for (std::size_t table = 0; table < tables.size(); ++table)
        for (std::size_t earlier = 0; earlier < table; ++earlier)
            if (tables[table].precision == tables[earlier].precision)
                root["tables"].items()[table].complain(
                    fmt::format("'tables[{}]' is the second table in {}", table, name_of(tables[table].precision)),
                    "keep one of them: all products of the file are those of one device");
    root.source().throw_if_mistaken();
    return tables;
}

std::string text_of(const ProductTable& table, const std::vector<std::string>& remarks) {
    std::string text;
    for (const std::string& remark : remarks)
        text += fmt::format("# {}\n", remark);
    text +=
        fmt::format("tables:\n- device: {}\n  precision: {}\n  peak: {}\n  accumulates: {}\n  source: {}\n  rows:\n",
                    yaml_text(table.device), name_of(table.precision), exact_flops(table.peak), table.accumulates,
                    yaml_text(table.source));
    text += print_rows(table.rows, false);
    return table.grouped.empty() ? text : text + "  grouped:\n" + print_rows(table.grouped, true);
}

}  // namespace pw
