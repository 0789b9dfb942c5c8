// A chain of layers in CSV, a layer per row. The first row names the columns, with the keys of a layer graph. A unit in
// a column's name holds for all numbers below:
//
//     name, forward (ms), backward (ms), output (MB), weights
//     conv1, 3, 6, 12, 3 MB
//
// Tables that programs write have the unit after the name, as in forward_ms, or call a column as other programs do.
// Spreadsheets write blanks and capitals into names, quotes around cells (RFC 4180), a byte-order mark at the
// beginning, and semicolons or tabs between cells. With these separators, a comma is a decimal point. The first column
// may count the rows.
#include "workloads/costs/profiled_layers.h"
#include "workloads/text/yaml.h"

#include <algorithm>
#include <cctype>
#include <iterator>
#include <map>
#include <string_view>
#include <utility>

namespace pw {
namespace {

constexpr std::string_view kColumns[] = {
    "name",   "forward",        "backward", "backward_input",     "backward_weight",
    "output", "weights",        "saved",    "saved_until_weight", "gradient_until_weight",
    "frozen", "frozen_weights", "part",     "attention"};
// Column of other programs -> column here.
constexpr std::pair<std::string_view, std::string_view> kOtherColumns[] = {
    {"layer", "name"},     {"parameters", "weights"}, {"parameter", "weights"},
    {"params", "weights"}, {"fwd", "forward"},        {"bwd", "backward"}};
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
    std::string unit;  // of the column's numbers, empty: each cell has its own
};

using Row = std::vector<Cell>;

// Returns the character between the cells of the first row: the most frequent separator outside of quotes.
char separator_of(std::string_view text) {
    std::map<char, int> counts;
    bool quoted = false;
    for (const char c : text.substr(0, text.find('\n'))) {
        quoted = quoted != (c == '"');
        if (!quoted && (c == ';' || c == '\t' || c == ','))
            ++counts[c];
    }
    const auto most = std::max_element(counts.begin(), counts.end(),
                                       [](const auto& a, const auto& b) { return a.second < b.second; });
    return most == counts.end() ? ',' : most->first;
}

// Splits a text into rows of cells, without the blanks around cells.
class LayerTable {
public:
    LayerTable(std::string_view text, Source& source) : text_(text), source_(source) {
        if (text_.starts_with(kByteOrderMark))
            at_ = begin_of_line_ = kByteOrderMark.size();
        separator_ = separator_of(text_.substr(at_));
    }

    // Returns the next row that is not blank, empty at the end.
    Row next() {
        Row row;
        while (row.empty() && at_ < text_.size()) {
            do
                row.push_back(next_cell());
            while (!ends_row());
            if (std::all_of(row.begin(), row.end(), [](const Cell& cell) { return cell.text.empty(); }))
                row.clear();
        }
        return row;
    }
    // With another separator, "1,5" is one and a half.
    bool has_decimal_commas() const { return separator_ != ','; }

private:
    static constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

    bool is_blank(char c) const { return (c == ' ' || c == '\t' || c == '\r') && c != separator_; }
    bool is_end(char c) const { return c == separator_ || c == '\n'; }
    Place place() const { return {line_, static_cast<int>(at_ - begin_of_line_) + 1}; }

    Cell next_cell() {
        while (at_ < text_.size() && is_blank(text_[at_]))
            ++at_;
        Cell cell{"", place()};
        if (at_ < text_.size() && text_[at_] == '"')
            cell.text = quoted(cell.place);
        while (at_ < text_.size() && !is_end(text_[at_]))
            cell.text += text_[at_++];
        while (!cell.text.empty() && is_blank(cell.text.back()))
            cell.text.pop_back();
        return cell;
    }

    std::string quoted(Place begin) {
        std::string text;
        for (++at_; at_ < text_.size(); ++at_) {
            if (text_[at_] == '"' && !text_.substr(at_ + 1).starts_with('"')) {
                ++at_;
                return text;
            }
            at_ += text_[at_] == '"' ? 1 : 0;  // two quotes are one
            text += text_[at_] == '\n' ? ' ' : text_[at_];
            if (text_[at_] == '\n')
                begin_line();
        }
        source_.complain(begin, "the quotes of the cell are not closed", "write a quote at its end");
        return text;
    }

    bool ends_row() {
        if (at_ >= text_.size())
            return true;
        const bool ends = text_[at_] == '\n';
        if (ends)
            begin_line();
        ++at_;
        return ends;
    }

    void begin_line() {
        ++line_;
        begin_of_line_ = at_ + 1;
    }

    const std::string_view text_;
    Source& source_;
    char separator_ = ',';
    std::size_t at_ = 0, begin_of_line_ = 0;
    int line_ = 1;
};

// "Forward ms" is forward_ms.
std::string plain_name(std::string name) {
    for (char& c : name)
        c = c == ' ' || c == '-' ? '_' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    return name;
}

// Returns the column of that name, empty if there is none.
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
    const std::string shown = cell.text.substr(0, cell.text.find_last_not_of(' ', open == 0 ? 0 : open - 1) + 1);
    const std::string name = plain_name(shown);
    const std::string_view key = known_column(name);
    if (key.empty()) {
        if (open == cell.text.size())
            for (const auto& [ending, unit] : kUnitEndings)
                if (const std::string_view with = name;
                    with.ends_with(ending) && !known_column(with.substr(0, with.size() - ending.size())).empty())
                    return {known_column(with.substr(0, with.size() - ending.size())), std::string(unit)};
        const auto guess = nearest(name, {std::begin(kColumns), std::end(kColumns)});
        source.complain(
            cell.place,
            shown.empty() ? "a column of layers without a name" : fmt::format("'{}' is no column of layers", shown),
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

// "1,5" or "1,5 ms" -> "1.5", "1.5 ms".
std::string with_decimal_point(std::string text) {
    const std::size_t comma = text.find_first_not_of("0123456789");
    if (comma != text.npos && comma > 0 && text[comma] == ',' && text.find(',', comma + 1) == text.npos)
        text[comma] = '.';
    return text;
}

YamlNode layer_of(const Row& row, const std::vector<Column>& columns, bool decimal_commas, Source& source) {
    YamlNode layer{YamlNode::Kind::Map, row.front().place, "", {}, {}};
    if (row.size() != columns.size())
        source.complain(row.front().place,
                        fmt::format("the row has {} cells, the first row {}", row.size(), columns.size()),
                        "write a cell in every column; an empty one is 0");
    for (std::size_t i = 0; i < std::min(row.size(), columns.size()); ++i) {
        const Place place = row[i].place;
        const bool is_number = decimal_commas && columns[i].key != "name" && columns[i].key != "part";
        const std::string text = is_number ? with_decimal_point(row[i].text) : row[i].text;
        if (text.empty() || columns[i].key.empty())
            continue;
        const bool bare = !columns[i].unit.empty() && !std::isalpha(static_cast<unsigned char>(text.back()));
        layer.keys.push_back({std::string(columns[i].key), place});
        layer.items.push_back(
            {YamlNode::Kind::Text, place, bare ? fmt::format("{} {}", text, columns[i].unit) : text, {}, {}});
    }
    return layer;
}

// Returns whether the first column only counts the rows, from 0 or 1, as pandas writes it.
bool counts_rows(const std::vector<Row>& rows) {
    if (rows.size() < 2 || !(rows[0][0].text.empty() || rows[0][0].text.starts_with("Unnamed:")))
        return false;
    const std::string& first = rows[1][0].text;
    for (std::size_t k = 1; k < rows.size(); ++k)
        if (rows[k].size() < 2 || rows[k][0].text != fmt::format("{}", k - (first == "0" ? 1 : 0)))
            return false;
    return true;
}

}  // namespace

ProfiledModel read_layer_csv(std::shared_ptr<Source> source, int samples) {
    LayerTable table(source->text(), *source);
    std::vector<Row> rows;
    for (Row row = table.next(); !row.empty() && rows.size() <= kMostLayers + 1; row = table.next())
        rows.push_back(std::move(row));
    if (counts_rows(rows))
        for (Row& row : rows)
            row.erase(row.begin());
    YamlNode layers{YamlNode::Kind::List, {1, 1}, "", {}, {}};
    const std::vector<Column> columns = rows.empty() ? std::vector<Column>() : columns_of(rows.front(), *source);
    for (std::size_t k = 1; k < rows.size() && !columns.empty(); ++k)
        layers.items.push_back(layer_of(rows[k], columns, table.has_decimal_commas(), *source));
    if (layers.items.empty())
        source->complain({1, 1}, "the table has no layers", kTableForm);
    source->throw_if_mistaken();
    YamlNode root{YamlNode::Kind::Map, {1, 1}, "", {{"layers", {1, 1}}}, {std::move(layers)}};
    return read_layer_tree(Yaml::of(std::move(source), std::move(root)), samples);
}

}  // namespace pw
