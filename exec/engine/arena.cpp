#include "exec/engine/arena.h"

namespace pw {

std::byte* Arena::lend(Bytes offset, Bytes bytes, MemoryKind kind) {
    lent_[static_cast<int>(kind)] += bytes;
    if (total(lent_) > total(peak_))
        peak_ = lent_;
    return address(offset);
}

void Arena::give_back(Bytes bytes, MemoryKind kind) { lent_[static_cast<int>(kind)] -= bytes; }

}  // namespace pw
