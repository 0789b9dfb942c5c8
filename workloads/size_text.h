// Sizes as people read them next to a limit.
#pragma once

#include "workloads/units.h"

#include <string>

namespace pw {

// Returns a size in units of 1000 if the limit is written so, "12 GB", else in units of 1024. No limit: the largest
// number of bytes.
std::string print_bytes_as(Bytes size, Bytes limit);
// Returns whether such a limit is written in units of 1000.
bool has_decimal_units(Bytes limit);

}  // namespace pw
