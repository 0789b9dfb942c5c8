// A block of memory for the kernels of a device, freed with its owner.
#pragma once

#include "workloads/units.h"

#include <cstddef>

namespace pw {

// Memory of the host is reserved in multiples of it. CUDA takes a GPU's memory from the system in such multiples,
// too.
inline constexpr Bytes kHugePage = Bytes{2} << 20;

class Memory {
public:
    virtual ~Memory() = default;
    Memory(const Memory&) = delete;
    Memory& operator=(const Memory&) = delete;

    std::byte* data() const { return data_; }
    Bytes size() const { return size_; }

protected:
    Memory() = default;
    std::byte* data_ = nullptr;
    Bytes size_ = 0;
};

}  // namespace pw
