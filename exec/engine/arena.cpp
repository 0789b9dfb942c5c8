#include "exec/engine/arena.h"

namespace pw {

std::byte* Arena::acquire(Bytes offset, Bytes bytes, MemoryKind kind) {
    in_use_[static_cast<int>(kind)] += bytes;
    if (total(in_use_) > total(peak_))
        peak_ = in_use_;
    return address(offset);
}

void Arena::release(Bytes bytes, MemoryKind kind) { in_use_[static_cast<int>(kind)] -= bytes; }

}  // namespace pw
