#include "report/csv_table.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <map>
#include <string_view>
#include <vector>

namespace pw {

namespace {

using CsvRow = std::map<std::string, std::string>;  // by column

// A spreadsheet would take such a text for a formula, which may run programs: an apostrophe in front makes it a text.
std::string plain_text(std::string text) {
    const bool is_formula = !text.empty() && std::string_view("=+-@\t\r").find(text[0]) != std::string_view::npos;
    return is_formula ? "'" + text : text;
}

std::string text_of_value(const Json& value) {
    if (value.is_null())
        return "";
    return value.is_string() ? plain_text(value.get<std::string>()) : value.dump();
}

void add_cells(const std::string& name, const Json& value, std::vector<std::string>& columns, CsvRow& row) {
    if (value.is_object()) {
        for (const auto& [key, inner] : value.items())
            add_cells(name.empty() ? key : name + "." + key, inner, columns, row);
        return;
    }
    std::string text;
    if (value.is_array()) {
        if (std::any_of(value.begin(), value.end(), [](const Json& item) { return item.is_structured(); }))
            return;
        for (const Json& item : value)
            text += (text.empty() ? "" : " ") + text_of_value(item);
    } else {
        text = text_of_value(value);
    }
    if (std::find(columns.begin(), columns.end(), name) == columns.end())
        columns.push_back(name);
    row[name] = std::move(text);
}

std::string csv_cell(const std::string& text) {
    if (text.find_first_of(",\"\r\n") == std::string::npos)
        return text;
    std::string quoted = "\"";
    for (const char letter : text)
        quoted += letter == '"' ? "\"\"" : std::string(1, letter);
    return quoted + '"';
}

}  // namespace

std::string csv_of(const Json& rows) {
    std::vector<std::string> columns;
    std::vector<CsvRow> all;
    for (const Json& row : rows)
        add_cells("", row, columns, all.emplace_back());
    std::string text;
    const auto add_line = [&](auto cell_in) {
        for (std::size_t column = 0; column < columns.size(); ++column)
            text += (column > 0 ? "," : "") + csv_cell(cell_in(columns[column]));
        text += "\r\n";
    };
    add_line([](const std::string& column) { return column; });
    for (const CsvRow& row : all)
        add_line([&](const std::string& column) {
            const auto cell = row.find(column);
            return cell == row.end() ? std::string() : cell->second;
        });
    return text;
}

}  // namespace pw
