// The angles of rotary positions (arXiv 2104.09864), in every backend.
#pragma once

#include "workloads/host_and_device.h"

#include <cmath>
#include <cstdint>

namespace pw {

// Returns the angle by which values `pair` and `pair` + `pairs` of every head turn in a row; `pairs` is half the width
// of a head.
PW_HOST_AND_DEVICE inline double rotary_angle(double base, std::int64_t pairs, std::int64_t row, std::int64_t pair) {
    return static_cast<double>(row) * std::pow(base, -static_cast<double>(pair) / static_cast<double>(pairs));
}

}  // namespace pw
