// The clock that everything measured is on.
#pragma once

#include "workloads/units.h"

#include <chrono>

namespace pw {

inline Ns clock_now() {  // steady, nanoseconds
    return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
}

}  // namespace pw
