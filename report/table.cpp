#include "report/table.h"

#include "workloads/text/printable.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace pw {

std::string Table::line_of(const std::vector<std::string>& row, const std::vector<std::size_t>& widths) const {
    std::string line;
    for (std::size_t column = 0; column < row.size(); ++column) {
        if (column > 0)
            line += "  ";
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

std::string Table::print() const {
    std::vector<std::size_t> widths;
    for (const auto& row : rows_) {
        widths.resize(std::max(widths.size(), row.size()));
        for (std::size_t column = 0; column < row.size(); ++column)
            widths[column] = std::max(widths[column], row[column].size());
    }
    std::string text;
    for (const auto& row : rows_)
        text += line_of(row, widths);
    return text;
}

std::string Table::last_row(std::size_t least) const {
    std::vector<std::size_t> widths;
    for (const std::string& title : rows_.front())
        widths.push_back(std::max(least, title.size()));
    return line_of(rows_.back(), widths);
}

std::string print_percent(double part) { return fmt::format("{:.1f} %", part * 100); }

std::string print_signed_percent(double part) { return std::isnan(part) ? "-" : fmt::format("{:+.1f} %", part * 100); }

std::string print_signed_time(Ns time) { return (time > 0 ? "+" : "") + print_time(time); }

std::string memory_header(const std::string& name, Bytes limit) {
    return limit == std::numeric_limits<Bytes>::max() ? name
                                                      : fmt::format("{} of {}", name, print_bytes_as(limit, limit));
}

}  // namespace pw
