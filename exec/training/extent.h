// Ranges of bytes in the blocks of a stage. Weights, gradients and the optimizer's states have the same
// layout in their blocks.
#pragma once

#include "workloads/units.h"

#include <algorithm>
#include <cstddef>

namespace pw {

struct Extent {
    Bytes first = 0, bytes = 0;
    Bytes end() const { return first + bytes; }
};

inline Extent common(const Extent& one, const Extent& other) {
    const Bytes first = std::max(one.first, other.first);
    return {first, std::max<Bytes>(0, std::min(one.end(), other.end()) - first)};
}

// Returns the share of a range for device `number` of `count`, in whole lines of 64 bytes.
inline Extent share_of(const Extent& all, std::size_t number, std::size_t count) {
    const auto line = [&](std::size_t k) {
        return all.bytes / 64 * static_cast<Bytes>(k) / static_cast<Bytes>(count) * 64;
    };
    return {all.first + line(number), line(number + 1) - line(number)};
}

}  // namespace pw
