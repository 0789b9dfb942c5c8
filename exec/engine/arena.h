// The memory of one device: an arena is reserved once, and parts of it are lent by offset. It counts the bytes lent.
#pragma once

#include "exec/memory.h"
#include "schedules/trace/trace.h"

#include <memory>

namespace pw {

class Arena {
public:
    explicit Arena(std::unique_ptr<Memory> memory) : memory_(std::move(memory)) {}

    std::byte* lend(Bytes offset, Bytes bytes, MemoryKind kind);  // counts the bytes
    void give_back(Bytes bytes, MemoryKind kind);
    std::byte* address(Bytes offset) const { return memory_->data() + offset; }  // counts nothing
    Bytes size() const { return memory_->size(); }
    const MemoryUse& lent() const { return lent_; }
    const MemoryUse& peak() const { return peak_; }

private:
    std::unique_ptr<Memory> memory_;
    MemoryUse lent_{}, peak_{};
};

}  // namespace pw
