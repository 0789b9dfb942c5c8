// An array in memory that both the host and the kernels of a device access.
#pragma once

#include "exec/kernels.h"

#include <cstddef>
#include <memory>

namespace pw {

template <class Value>
class SharedArray {
public:
    SharedArray() = default;
    SharedArray(const Kernels& kernels, std::size_t count)
        : memory_(kernels.shared(static_cast<Bytes>(count * sizeof(Value)))) {}
    // Returns null for an array without memory.
    Value* data() const { return memory_ == nullptr ? nullptr : reinterpret_cast<Value*>(memory_->data()); }

private:
    std::unique_ptr<Memory> memory_;
};

}  // namespace pw
