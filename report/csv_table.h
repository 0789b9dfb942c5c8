// Tables as CSV (RFC 4180), for spreadsheets and data frames. All commands' tables follow the same rule.
#pragma once

#include "report/json.h"

#include <string>

namespace pw {

// Returns a table with a row for each object of a list, such as `points`, `plans` or `devices` of --json. A column has
// the key as its name, and the values of the JSON: whole nanoseconds and bytes, no unit. A key of an object within is
// "memory.weights". A list of numbers or words is a cell with spaces between them. Lists of objects are left out. What
// an object lacks is an empty cell. A text that a spreadsheet would take for a formula, since it begins with =, +, - or
// @, has an apostrophe in front. Lines end in CR LF.
std::string csv_of(const Json& rows);

}  // namespace pw
