// A chain of layers in CSV, one per row. The first row names the columns, with the keys of a layer graph; a unit in it
// holds for all numbers below:
//
//     name, forward (ms), backward (ms), output (MB), weights
//     conv1, 3, 6, 12, 3 MB
//
// Tables that programs write have the unit after the name, as in forward_ms, or call a column as other programs do.
#include "workloads/costs/profiled_layers.h"
#include "workloads/text/yaml.h"

#include <algorithm>
#include <cctype>
#include <iterator>
#include <string_view>
#include <utility>

namespace pw {
namespace {

constexpr std::string_view kColumns[] = {"name",   "forward", "backward", "backward_input",     "backward_weight",
                                         "output", "weights", "saved",    "saved_until_weight", "gradient_until_weight",
                                         "part"};
// Column of other programs -> column here.
constexpr std::pair<std::string_view, std::string_view> kOtherColumns[] = {
    {"layer", "name"}, {"parameters", "weights"}, {"parameter", "weights"}, {"params", "weights"}};
// Ending of a name -> unit.
constexpr std::pair<std::string_view, std::string_view> kUnitEndings[] = {
    {"_ns", "ns"}, {"_us", "us"}, {"_ms", "ms"}, {"_s", "s"},     {"_bytes", "B"},
    {"_kb", "kB"}, {"_mb", "MB"}, {"_gb", "GB"}, {"_kib", "KiB"}, {"_mib", "MiB"}};
constexpr const char* kTableForm =
    "the first row names the columns, as in: name, forward (ms), backward (ms), output (MB), weights (MB)";

struct Cell {
    std::string text;
    Place place;
};

struct Column {
    std::string_view key;
    std::string unit;  // of its numbers; empty: each cell has its own
};

std::vector<Cell> cells_of(std::string_view line, int number) {
    std::vector<Cell> cells;
    for (std::size_t start = 0; start <= line.size();) {
        const std::size_t end = std::min(line.find(',', start), line.size());
        std::string_view text = line.substr(start, end - start);
        const std::size_t first = std::min(text.find_first_not_of(" \t"), text.size());
        text.remove_prefix(first);
        text = text.substr(0, text.find_last_not_of(" \t") + 1);
        cells.push_back({std::string(text), {number, static_cast<int>(start + first) + 1}});
        start = end + 1;
    }
    return cells;
}

// Returns the column of that name; empty if there is none.
std::string_view known_column(std::string_view name) {
    for (const auto& [other, column] : kOtherColumns)
        if (name == other)
            return column;
    const auto key = std::find(std::begin(kColumns), std::end(kColumns), name);
    return key == std::end(kColumns) ? std::string_view() : *key;
}

// Reads "forward", "forward (ms)", "forward [ms]" or "forward_ms".
Column column_of(const Cell& cell, Source& source) {
    const std::size_t open = std::min(cell.text.find_first_of("(["), cell.text.size());
    const std::string name = cell.text.substr(0, cell.text.find_last_not_of(' ', open == 0 ? 0 : open - 1) + 1);
    const std::string_view key = known_column(name);
    if (key.empty()) {
        if (open == cell.text.size())
            for (const auto& [ending, unit] : kUnitEndings)
                if (const std::string_view with = name;
                    with.ends_with(ending) && !known_column(with.substr(0, with.size() - ending.size())).empty())
                    return {known_column(with.substr(0, with.size() - ending.size())), std::string(unit)};
        const auto guess = nearest(name, {std::begin(kColumns), std::end(kColumns)});
        source.complain(cell.place, fmt::format("'{}' is no column of layers", name),
                        guess ? fmt::format("did you mean '{}'?", *guess) : kTableForm);
        return {};
    }
    if (open == cell.text.size())
        return {key, ""};
    if (cell.text.find_first_of(")]") != cell.text.size() - 1)
        source.complain(cell.place, fmt::format("'{}' does not end after the unit", cell.text), kTableForm);
    return {key, cell.text.substr(open + 1, cell.text.size() - open - 2)};
}

std::vector<Column> columns_of(const std::vector<Cell>& header, Source& source) {
    std::vector<Column> columns;
    for (const Cell& cell : header) {
        columns.push_back(column_of(cell, source));
        const auto same = [&](const Column& other) { return !other.key.empty() && other.key == columns.back().key; };
        if (std::count_if(columns.begin(), columns.end(), same) > 1)
            source.complain(cell.place, fmt::format("two columns are called '{}'", columns.back().key),
                            "remove one of them");
    }
    return columns;
}

YamlNode layer_of(const std::vector<Cell>& row, const std::vector<Column>& columns, Source& source) {
    YamlNode layer{YamlNode::Kind::Map, row.front().place, "", {}, {}};
    if (row.size() != columns.size())
        source.complain(row.front().place,
                        fmt::format("the row has {} cells, the first row {}", row.size(), columns.size()),
                        "write a cell in every column; an empty one is 0");
    for (std::size_t i = 0; i < std::min(row.size(), columns.size()); ++i) {
        const auto& [text, place] = row[i];
        if (text.empty() || columns[i].key.empty())
            continue;
        const bool bare = !columns[i].unit.empty() && !std::isalpha(static_cast<unsigned char>(text.back()));
        layer.keys.push_back({std::string(columns[i].key), place});
        layer.items.push_back(
            {YamlNode::Kind::Text, place, bare ? fmt::format("{} {}", text, columns[i].unit) : text, {}, {}});
    }
    return layer;
}

}  // namespace

ProfiledModel read_layer_csv(std::shared_ptr<Source> source, int samples) {
    YamlNode layers{YamlNode::Kind::List, {1, 1}, "", {}, {}};
    std::vector<Column> columns;
    const std::string& text = source->text();
    int number = 0;
    for (std::size_t start = 0; start < text.size() && layers.items.size() <= kMostLayers;) {
        const std::size_t end = std::min(text.find('\n', start), text.size());
        std::string_view line = std::string_view(text).substr(start, end - start);
        start = end + 1;
        ++number;
        if (line.ends_with('\r'))
            line.remove_suffix(1);
        if (line.find_first_not_of(" \t,") == std::string_view::npos)
            continue;
        const std::vector<Cell> cells = cells_of(line, number);
        if (columns.empty())
            columns = columns_of(cells, *source);
        else
            layers.items.push_back(layer_of(cells, columns, *source));
    }
    if (layers.items.empty())
        source->complain({1, 1}, "the table has no layers", kTableForm);
    source->throw_if_mistaken();
    YamlNode root{YamlNode::Kind::Map, {1, 1}, "", {{"layers", {1, 1}}}, {std::move(layers)}};
    return read_layer_tree(Yaml::of(std::move(source), std::move(root)), samples);
}

}  // namespace pw
