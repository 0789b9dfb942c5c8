#include "exec/engine/headroom.h"

#include <malloc.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <new>
#include <utility>

namespace pw {

namespace {

// For each thread malloc tries to get 128 MiB of address space, and where that is refused, tries it again at every
// call: for moments it takes what another thread needs.
void share_heap_if_limited() {
    rlimit limit{};
    if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
        mallopt(M_ARENA_MAX, 1);
}

}  // namespace

Headroom::Headroom() {
    share_heap_if_limited();
    void* const whole =
        mmap(nullptr, 2 * kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (whole == MAP_FAILED)
        throw std::bad_alloc();
    munmap(whole, kBytes);
    kept_ = static_cast<std::byte*>(whole) + kBytes;
}

void Headroom::release() {
    if (kept_ != nullptr)
        munmap(std::exchange(kept_, nullptr), kBytes);
}

}  // namespace pw
