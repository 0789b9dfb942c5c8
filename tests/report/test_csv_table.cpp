// Tables as CSV.
#include "report/csv_table.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace pw {

// RFC 4180: lines end in CR LF, and cells with commas, quotes or line breaks are in quotes, which are doubled.
TEST(CsvTable, QuotesAsTheStandardSays) {
    const Json rows = {{{"name", "plain"}, {"time_ns", 12}},
                       {{"name", "a, \"b\"\nc"}, {"time_ns", 0.5}},
                       {{"name", nullptr}, {"time_ns", true}}};
    EXPECT_EQ(csv_of(rows), "name,time_ns\r\nplain,12\r\n\"a, \"\"b\"\"\nc\",0.5\r\n,true\r\n");
}

// No text is a formula; numbers stay numbers.
TEST(CsvTable, HasNoFormulae) {
    const Json rows = {{{"name", "=1+1"}, {"change_ns", -12}},
                       {{"name", "@SUM(A1)"}, {"change_ns", 0.5}},
                       {{"name", "-x, y"}, {"change_ns", 1}},
                       {{"name", "a=b"}, {"change_ns", 2}}};
    EXPECT_EQ(csv_of(rows), "name,change_ns\r\n'=1+1,-12\r\n'@SUM(A1),0.5\r\n\"'-x, y\",1\r\na=b,2\r\n");
}

TEST(CsvTable, HasAColumnForEveryKeyOfAnyRow) {
    const Json rows = {{{"a", 1}, {"memory", {{"weights", 3}, {"inputs", 4}}}}, {{"error", "no"}, {"a", 2}}};
    EXPECT_EQ(csv_of(rows), "a,memory.weights,memory.inputs,error\r\n1,3,4,\r\n2,,,no\r\n");
}

TEST(CsvTable, JoinsListsOfValuesAndLeavesOutListsOfObjects) {
    const Json rows = {{{"stages", {0, 4}}, {"devices", Json::array({{{"busy_ns", 1}}})}, {"last", "x"}}};
    EXPECT_EQ(csv_of(rows), "stages,last\r\n0 4,x\r\n");
    EXPECT_EQ(csv_of(Json::array()), "\r\n");
}

}  // namespace pw
