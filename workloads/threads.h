// Work on many things at once.
#pragma once

#include "workloads/first_failure.h"

#include <atomic>
#include <cstddef>
#include <new>
#include <system_error>
#include <thread>
#include <vector>

namespace pw {

// Threads share the indices below `count`. The work on an index must not depend on another index. If there is no memory
// for a thread, fewer threads do the work.
template <class Work>
void for_each_index(std::size_t count, int threads, Work work) {
    std::atomic<std::size_t> next = 0;
    FirstFailure failure;
    const auto act = [&] {
        for (std::size_t index = next++; index < count; index = next++)
            work(index);
    };
    const auto serve = [&] { failure.guard(act, [&] { next = count; }); };
    std::vector<std::thread> helpers;
    try {
        for (int thread = 1; thread < threads && static_cast<std::size_t>(thread) < count; ++thread)
            helpers.emplace_back(serve);
    } catch (const std::system_error&) {
    } catch (const std::bad_alloc&) {
    }
    serve();
    for (std::thread& helper : helpers)
        helper.join();
    failure.rethrow();
}

}  // namespace pw
