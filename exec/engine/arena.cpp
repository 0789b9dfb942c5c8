#include "exec/engine/arena.h"

#include "workloads/error.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace pw {

namespace {

class Pages : public Memory {
public:
    Pages(Bytes bytes, const std::string& whose, bool touched) {
        const auto page = static_cast<std::size_t>(kHugePage);
        const auto size = (static_cast<std::size_t>(std::max<Bytes>(bytes, 1)) + page - 1) / page * page;
        size_ = static_cast<Bytes>(size);
        const int flags = MAP_PRIVATE | MAP_ANONYMOUS | (touched ? 0 : MAP_NORESERVE);
        void* memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, flags, -1, 0);
        if (memory == MAP_FAILED)
            fail_with(ExitCode::RunFailed, "{}: cannot reserve {}: {}", whose, print_bytes(size_),
                      std::strerror(errno));
        data_ = static_cast<std::byte*>(memory);
        if (!touched)
            return;
        (void)madvise(memory, size, MADV_HUGEPAGE);  // a wish: small pages work too
        std::memset(data_, 0, size);
    }
    ~Pages() override { munmap(data_, static_cast<std::size_t>(size_)); }
};

}  // namespace

std::unique_ptr<Memory> host_memory(Bytes bytes, const std::string& whose, bool touched) {
    return std::make_unique<Pages>(bytes, whose, touched);
}

std::byte* Arena::lend(Bytes offset, Bytes bytes, MemoryKind kind) {
    lent_[static_cast<int>(kind)] += bytes;
    if (total(lent_) > total(peak_))
        peak_ = lent_;
    return address(offset);
}

void Arena::give_back(Bytes bytes, MemoryKind kind) { lent_[static_cast<int>(kind)] -= bytes; }

}  // namespace pw
