#include "exec/host/arena.h"

#include "workloads/error.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace pw {

namespace {
constexpr std::size_t kHugePage = std::size_t{2} << 20;
}

Arena::Arena(Bytes bytes, bool touched)
    : bytes_((std::max<Bytes>(bytes, 1) + kHugePage - 1) / kHugePage * kHugePage) {
    const auto size = static_cast<std::size_t>(bytes_);
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | (touched ? 0 : MAP_NORESERVE);
    void* memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (memory == MAP_FAILED)
        fail_with(ExitCode::RunFailed, "cannot reserve {} for a device's arena: {}", print_bytes(bytes_),
                  std::strerror(errno));
    base_ = static_cast<std::byte*>(memory);
    if (!touched)
        return;
    (void)madvise(memory, size, MADV_HUGEPAGE);  // a wish: small pages work too
    std::memset(base_, 0, size);
}

Arena::~Arena() {
    if (base_ != nullptr)
        munmap(base_, static_cast<std::size_t>(bytes_));
}

Arena::Arena(Arena&& other) noexcept
    : base_(std::exchange(other.base_, nullptr)), bytes_(other.bytes_), lent_(other.lent_), peak_(other.peak_) {}

std::byte* Arena::lend(Bytes offset, Bytes bytes, MemoryKind kind) {
    lent_[static_cast<int>(kind)] += bytes;
    if (total(lent_) > total(peak_))
        peak_ = lent_;
    return base_ + offset;
}

void Arena::give_back(Bytes bytes, MemoryKind kind) { lent_[static_cast<int>(kind)] -= bytes; }

}  // namespace pw
