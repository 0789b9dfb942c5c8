#include "workloads/clock.h"

#include <chrono>

namespace pw {

Ns clock_now() {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
}

}  // namespace pw
