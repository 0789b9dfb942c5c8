// A limit on the memory of this process.
#pragma once

#include "workloads/units.h"

#include <sys/resource.h>

namespace pw {

// While a cap exists, allocations of more than `bytes` beyond the current use fail (std::bad_alloc), so that the system
// does not kill the process. Has no effect under a sanitizer, which would end the process.
class MemoryCap {
public:
    explicit MemoryCap(Bytes bytes);
    ~MemoryCap();
    MemoryCap(const MemoryCap&) = delete;
    MemoryCap& operator=(const MemoryCap&) = delete;

private:
    rlimit before_{};
    bool is_set_ = false;
};

}  // namespace pw
