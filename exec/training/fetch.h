// A fetch: bytes of another device's memory that a sum needs.
#pragma once

#include "workloads/units.h"

#include <cstddef>

namespace pw {

struct Fetch {
    int from_device, to_device;
    const std::byte* from;
    std::byte* to;
    Bytes bytes;
};

}  // namespace pw
