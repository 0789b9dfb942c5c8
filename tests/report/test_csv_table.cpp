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
