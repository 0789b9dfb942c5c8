// Puts large blocks into huge pages if the system has them. Making plans takes hundreds of megabytes of flat arrays,
// and getting them page by page took a quarter of the time of `simulate`.
#include <sys/mman.h>

#include <cstdlib>
#include <new>

#ifndef PIPEWRIGHT_SANITIZED

namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20;

void* large_block(std::size_t bytes) {
    void* block = std::aligned_alloc(kHugePage, (bytes + kHugePage - 1) / kHugePage * kHugePage);
    if (block != nullptr)
        madvise(block, bytes / kHugePage * kHugePage, MADV_HUGEPAGE);  // the rest stays in small pages
    return block;
}

void* block_of(std::size_t bytes) { return bytes < 2 * kHugePage ? std::malloc(bytes) : large_block(bytes); }

}  // namespace

void* operator new(std::size_t bytes) {
    for (;;) {
        if (void* block = block_of(bytes > 0 ? bytes : 1))
            return block;
        const std::new_handler handler = std::get_new_handler();
        if (handler == nullptr)
            throw std::bad_alloc();
        handler();
    }
}

// Not inlined: GCC warns if it sees a block of operator new passed to free().
[[gnu::noinline]] void operator delete(void* block) noexcept { std::free(block); }
[[gnu::noinline]] void operator delete(void* block, std::size_t) noexcept { std::free(block); }

#endif
