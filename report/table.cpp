#include "report/table.h"

#include "workloads/text/printable.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

namespace pw {

namespace {

constexpr std::string_view kBetweenColumns = "  ";

std::size_t table_width = 0;

std::size_t sum_of(const std::vector<std::size_t>& widths) {
    return std::accumulate(widths.begin(), widths.end(), kBetweenColumns.size() * (widths.size() - 1));
}

// Returns the cell in lines of at most `width` bytes. Words that are longer are divided.
std::vector<std::string> lines_of(const std::string& cell, std::size_t width) {
    std::vector<std::string> lines;
    std::string_view text = cell;
    while (text.size() > width) {
        std::size_t end = text.rfind(' ', width);
        if (end == std::string_view::npos || end == 0)
            for (end = width; end > 1 && continues_character(text[end]);)
                --end;
        lines.emplace_back(text.substr(0, end));
        text.remove_prefix(end);
        text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
    }
    lines.emplace_back(text);
    return lines;
}

// Returns how narrow each column can be. Heads and sentences are divided between words, numbers with their units not.
std::vector<std::size_t> least_widths(const std::vector<std::vector<std::string>>& rows, std::size_t most) {
    constexpr std::size_t kSentence = 24;
    std::vector<std::size_t> least;
    for (const auto& row : rows) {
        least.resize(std::max(least.size(), row.size()), 1);
        for (std::size_t column = 0; column < row.size(); ++column) {
            const std::string& cell = row[column];
            const bool is_whole = &row != &rows.front() && cell.size() <= kSentence;
            std::size_t longest = is_whole ? cell.size() : 0;
            for (std::size_t begin = 0; !is_whole && begin < cell.size();) {
                const std::size_t end = std::min(cell.find(' ', begin), cell.size());
                longest = std::max(longest, end - begin);
                begin = end + 1;
            }
            least[column] = std::max(least[column], std::min(longest, std::min(kSentence, most)));
        }
    }
    return least;
}

}  // namespace

void set_table_width(std::size_t most) { table_width = most; }

std::string Table::line_of(const std::vector<std::string>& row, const std::vector<std::size_t>& widths) const {
    std::string line;
    for (std::size_t column = 0; column < row.size(); ++column) {
        if (column > 0)
            line += kBetweenColumns;
        line += left_ || column == 0 ? fmt::format("{:<{}}", row[column], widths[column])
                                     : fmt::format("{:>{}}", row[column], widths[column]);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    return line + '\n';
}

void Table::add(std::vector<std::string> row) {
    for (std::string& cell : row)
        cell = escaped_line(cell);
    rows_.push_back(std::move(row));
}

std::vector<std::size_t> Table::widest_cells() const {
    std::vector<std::size_t> widths;
    for (const auto& row : rows_) {
        widths.resize(std::max(widths.size(), row.size()));
        for (std::size_t column = 0; column < row.size(); ++column)
            widths[column] = std::max(widths[column], row[column].size());
    }
    return widths;
}

std::string Table::print() const { return print(table_width); }

std::string Table::print(std::size_t most) const {
    const std::vector<std::size_t> widths = widest_cells();
    if (most > 0 && sum_of(widths) > most)
        return print_narrow(most);
    std::string text;
    for (const auto& row : rows_)
        text += line_of(row, widths);
    return text;
}

// Takes as many columns as fit with their least widths, then the next ones, each time after the first column.
std::string Table::print_narrow(std::size_t most) const {
    const std::vector<std::size_t> least = least_widths(rows_, most);
    std::string text;
    for (std::size_t next = 1; next < least.size();) {
        std::vector<std::size_t> columns = {0};
        for (std::size_t width = least[0]; next < least.size(); ++next) {
            width += kBetweenColumns.size() + least[next];
            if (width > most && columns.size() > 1)
                break;
            columns.push_back(next);
        }
        text += (text.empty() ? "" : "\n") + print_columns(columns, most);
    }
    return text;
}

// Gives the room that the least widths leave to the columns that lack most.
std::string Table::print_columns(const std::vector<std::size_t>& columns, std::size_t most) const {
    const std::vector<std::size_t> widest = widest_cells(), least = least_widths(rows_, most);
    std::vector<std::size_t> widths, wanted;
    for (const std::size_t column : columns) {
        widths.push_back(std::min(widest[column], least[column]));
        wanted.push_back(widest[column]);
    }
    for (std::size_t used = sum_of(widths); used < most; ++used) {
        std::size_t lacking = 0;
        for (std::size_t k = 0; k < widths.size(); ++k)
            if (wanted[k] - widths[k] > wanted[lacking] - widths[lacking])
                lacking = k;
        if (wanted[lacking] == widths[lacking])
            break;
        ++widths[lacking];
    }
    std::string text;
    for (const auto& row : rows_) {
        std::vector<std::vector<std::string>> cells;
        std::size_t lines = 1;
        for (std::size_t k = 0; k < columns.size(); ++k) {
            cells.push_back(lines_of(columns[k] < row.size() ? row[columns[k]] : "", widths[k]));
            lines = std::max(lines, cells.back().size());
        }
        for (std::size_t line = 0; line < lines; ++line) {
            std::vector<std::string> part;
            for (const std::vector<std::string>& cell : cells)
                part.push_back(line < cell.size() ? cell[line] : "");
            text += line_of(part, widths);
        }
    }
    return text;
}

std::string Table::last_row(std::size_t least) const {
    std::vector<std::size_t> widths;
    for (const std::string& title : rows_.front())
        widths.push_back(std::max(least, title.size()));
    return line_of(rows_.back(), widths);
}

Table table_of(const std::vector<std::vector<std::string>>& rows) {
    Table table(rows.front());
    for (std::size_t row = 1; row < rows.size(); ++row)
        table.add(rows[row]);
    return table;
}

std::string print_percent(double part) { return std::isnan(part) ? "-" : fmt::format("{:.1f} %", part * 100); }

std::string print_signed_percent(double part) { return std::isnan(part) ? "-" : fmt::format("{:+.1f} %", part * 100); }

std::string print_signed_time(Ns time) { return (time > 0 ? "+" : "") + print_time(time); }

std::string memory_header(const std::string& name, Bytes limit) {
    if (limit == std::numeric_limits<Bytes>::max())
        return name;
    const std::string exact = exact_bytes(limit);  // "16 GiB"; of a kind of devices "81152 MiB", or a number of bytes
    return fmt::format("{} of {}", name, exact.find(' ') > 4 ? print_bytes_as(limit, limit) : exact);
}

}  // namespace pw
