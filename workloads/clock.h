// The clock of all measurements.
#pragma once

#include "workloads/units.h"

namespace pw {

Ns clock_now();  // steady, nanoseconds

}  // namespace pw
