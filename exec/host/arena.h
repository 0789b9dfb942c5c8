// Memory of one host device: reserved once, then lent by offset. Counts what is lent.
#pragma once

#include "schedules/trace.h"
#include "workloads/units.h"

#include <cstddef>

namespace pw {

class Arena {
public:
    // Reserves `bytes`. `touched`: in huge pages where the system grants them, and touches every page
    // on the calling thread; else pages come as they are used. Throws Error (RunFailed) with the bytes
    // when the system refuses.
    explicit Arena(Bytes bytes, bool touched = true);
    ~Arena();
    Arena(Arena&& other) noexcept;
    Arena& operator=(Arena&&) = delete;

    std::byte* lend(Bytes offset, Bytes bytes, MemoryKind kind);  // counts it
    void give_back(Bytes bytes, MemoryKind kind);
    std::byte* address(Bytes offset) const { return base_ + offset; }  // does not count
    Bytes size() const { return bytes_; }
    const MemoryUse& lent() const { return lent_; }
    const MemoryUse& peak() const { return peak_; }

private:
    std::byte* base_ = nullptr;
    Bytes bytes_ = 0;
    MemoryUse lent_{}, peak_{};
};

}  // namespace pw
