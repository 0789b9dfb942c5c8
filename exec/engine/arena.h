// The memory of one device: an arena is reserved once, and its parts are used by offset. It counts the bytes in
// use.
#pragma once

#include "exec/memory.h"
#include "schedules/trace/trace.h"

#include <memory>

namespace pw {

class Arena {
public:
    explicit Arena(std::unique_ptr<Memory> memory) : memory_(std::move(memory)) {}

    std::byte* acquire(Bytes offset, Bytes bytes, MemoryKind kind);  // counts the bytes
    void release(Bytes bytes, MemoryKind kind);
    std::byte* address(Bytes offset) const { return memory_->data() + offset; }  // counts nothing
    Bytes size() const { return memory_->size(); }
    const MemoryUse& in_use() const { return in_use_; }
    const MemoryUse& peak() const { return peak_; }

private:
    std::unique_ptr<Memory> memory_;
    MemoryUse in_use_{}, peak_{};
};

}  // namespace pw
