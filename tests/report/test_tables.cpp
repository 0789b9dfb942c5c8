// Tables that are wider than the terminal.
#include "report/table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>
#include <string>

namespace pw {
namespace {

Table three_schedules() {
    Table table({"name", "bubble of a step", "what it does"}, true);
    table.add({"1f1b", "(p - 1) (F + B)", "after warm-up, one forward then one backward, until nothing is left"});
    table.add({"naive", "all but one part of p", "one device at a time"});
    return table;
}

Table numbers() {
    Table table({"device", "busy", "bubble (rate)", "exposed transfers", "in flight", "peak memory"});
    table.add({"0", "24.00 us", "9.000 us (27.3 %)", "0 ns", "4", "3.815 MiB"});
    return table;
}

std::size_t widest_line(const std::string& text) {
    std::istringstream lines(text);
    std::size_t widest = 0;
    for (std::string line; std::getline(lines, line);)
        widest = std::max(widest, line.size());
    return widest;
}

}  // namespace

TEST(Table, IsWholeWithoutAWidth) {
    EXPECT_EQ(widest_line(numbers().print(0)), numbers().print(1000).find('\n'));
    EXPECT_EQ(numbers().print(0), numbers().print(1000));
}

TEST(Table, BreaksSentencesBetweenWords) {
    EXPECT_EQ(three_schedules().print(60),
              "name   bubble of a step       what it does\n"
              "1f1b   (p - 1) (F + B)        after warm-up, one forward\n"
              "                              then one backward, until\n"
              "                              nothing is left\n"
              "naive  all but one part of p  one device at a time\n");
}

// A number stays with its unit; heads may have several lines.
TEST(Table, PutsFurtherColumnsBelow) {
    for (const std::size_t most : {40, 50, 60, 70}) {
        const std::string text = numbers().print(most);
        EXPECT_LE(widest_line(text), most) << text;
        for (const char* cell : {"24.00 us", "9.000 us (27.3 %)", "0 ns", "3.815 MiB"})
            EXPECT_NE(text.find(cell), std::string::npos) << cell << " at " << most << '\n' << text;
    }
    EXPECT_EQ(numbers().print(46),
              "device      busy      bubble (rate)    exposed\n"
              "                                     transfers\n"
              "0       24.00 us  9.000 us (27.3 %)       0 ns\n"
              "\n"
              "device  in flight  peak memory\n"
              "0               4    3.815 MiB\n");
}

}  // namespace pw
