// Memory of one device: reserved once, then lent by offset. Counts what is lent.
#pragma once

#include "exec/memory.h"
#include "schedules/trace.h"

#include <memory>
#include <string>

namespace pw {

// Memory of the system. `touched`: in huge pages where the system grants them, zeroed on the calling thread;
// else pages come as they are used. Throws Error (RunFailed) with `whose` and the bytes when the system refuses.
std::unique_ptr<Memory> host_memory(Bytes bytes, const std::string& whose, bool touched);

class Arena {
public:
    explicit Arena(std::unique_ptr<Memory> memory) : memory_(std::move(memory)) {}

    std::byte* lend(Bytes offset, Bytes bytes, MemoryKind kind);  // counts it
    void give_back(Bytes bytes, MemoryKind kind);
    std::byte* address(Bytes offset) const { return memory_->data() + offset; }  // does not count
    Bytes size() const { return memory_->size(); }
    const MemoryUse& lent() const { return lent_; }
    const MemoryUse& peak() const { return peak_; }

private:
    std::unique_ptr<Memory> memory_;
    MemoryUse lent_{}, peak_{};
};

}  // namespace pw
