#include "workloads/costs/attention.h"

#include "workloads/costs/attention_text.h"
#include "workloads/text/embedded.h"

#include <algorithm>
#include <cmath>
#include <string>

namespace pw {

namespace {

constexpr std::size_t kNearestShapes = 3;
constexpr double kShapesNoNearer = 0.1;  // a nearer row does not weigh more

struct NamedTable {
    std::string device, source;
    AttentionTable table;
};

std::vector<NamedTable> read_attention() {
    const Yaml root = parse_embedded("the tables of attention of this build", kAttentionText);
    std::vector<NamedTable> tables;
    for (const Yaml& at : root["tables"].items()) {
        NamedTable& named = tables.emplace_back();
        named.device = at["device"].text();
        named.source = at["source"].text();
        named.table.kernels = at["kernels"].choice(AttentionKernels::Flash);
        for (const Yaml& row : at["rows"].items()) {
            std::vector<double> values;
            for (const Yaml& value : row.items())
                values.push_back(value.number(1, 0, 1e9));
            named.table.rows.push_back(
                {{values.at(0), values.at(1), values.at(2), values.at(3)}, {values.at(4) * 1e12, values.at(5) * 1e12}});
        }
    }
    root.source().throw_if_mistaken();
    for (NamedTable& named : tables) {
        named.table.device = named.device;
        named.table.source = named.source;
    }
    return tables;
}

double shape_distance(const AttentionShape& a, const AttentionShape& b) {
    return std::hypot(std::log(a.sequences * a.heads / (b.sequences * b.heads)), std::log(a.tokens / b.tokens),
                      std::log(a.width / b.width));
}

}  // namespace

AttentionRates AttentionTable::rates(const AttentionShape& shape) const {
    std::vector<std::pair<double, const Row*>> nearest;
    for (const Row& row : rows)
        nearest.emplace_back(shape_distance(row.shape, shape), &row);
    const std::size_t count = std::min(kNearestShapes, nearest.size());
    std::partial_sort(nearest.begin(), nearest.begin() + static_cast<std::ptrdiff_t>(count), nearest.end());
    double weights = 0, forward = 0, backward = 0;
    for (std::size_t place = 0; place < count; ++place) {
        const double weight = std::pow(nearest[place].first + kShapesNoNearer, -2);
        weights += weight;
        forward += weight * std::log(nearest[place].second->rates.forward);
        backward += weight * std::log(nearest[place].second->rates.backward);
    }
    return {std::exp(forward / weights), std::exp(backward / weights)};
}

const AttentionTable* attention_table(std::string_view device, AttentionKernels kernels) {
    static const std::vector<NamedTable> tables = read_attention();
    const AttentionTable* any = nullptr;
    for (const NamedTable& named : tables)
        if (named.device == device) {
            if (named.table.kernels == kernels)
                return &named.table;
            any = &named.table;
        }
    return any;
}

}  // namespace pw
