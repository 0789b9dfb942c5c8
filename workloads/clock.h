// The clock that everything measured is on.
#pragma once

#include "workloads/units.h"

namespace pw {

Ns clock_now();  // steady, nanoseconds

}  // namespace pw
