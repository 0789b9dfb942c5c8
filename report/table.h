// Plain text tables, and numbers as tables show them.
#pragma once

#include "workloads/size_text.h"
#include "workloads/units.h"

#include <string>
#include <vector>

namespace pw {

// Sets how many characters the lines of tables have at most, as a terminal has. 0, the default: any number.
void set_table_width(std::size_t most);

// A table has columns as wide as their widest cell. The first column is flush left, all further columns flush right
// unless `left`. Line breaks and other controls in cells are escaped. A table that is wider than set_table_width() has
// narrower columns with cells of several lines. If that does not suffice, further columns are below, next to the first
// column once more.
class Table {
public:
    explicit Table(std::vector<std::string> header, bool left = false) : rows_{std::move(header)}, left_(left) {}
    void add(std::vector<std::string> row);
    std::string print() const;  // as wide as set_table_width() allows
    std::string print(std::size_t most) const;
    // Returns the last row, in columns that are `least` wide at least: for tables that appear row by row.
    std::string last_row(std::size_t least) const;

private:
    std::string line_of(const std::vector<std::string>& row, const std::vector<std::size_t>& widths) const;
    std::vector<std::size_t> widest_cells() const;
    std::string print_narrow(std::size_t most) const;
    std::string print_columns(const std::vector<std::size_t>& columns, std::size_t most) const;

    std::vector<std::vector<std::string>> rows_;
    bool left_;
};

Table table_of(const std::vector<std::vector<std::string>>& rows);  // of which the first is the header

std::string print_percent(double part);         // "11.2 %", or "-" for NaN, a part of nothing
std::string print_signed_percent(double part);  // "+1.5 %", or "-" for NaN
std::string print_signed_time(Ns time);         // "+1.500 ms"

// Returns "reserved of 12 GB", or the name alone where there is no limit.
std::string memory_header(const std::string& name, Bytes limit);

}  // namespace pw
