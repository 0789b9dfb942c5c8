// Measuring on a thread of its own.
#pragma once

#include "exec/system/threads.h"
#include "workloads/first_failure.h"

#include <string>

namespace pw {

// Calls `work` on a new thread, so that the cores of the caller's thread do not change, and waits for it. Throws what
// it throws.
template <class Work>
void on_own_thread(const std::string& whose, Work work) {
    FirstFailure failure;
    Thread device = start_thread(whose, [&] { failure.guard(work, [] {}); });
    device.join();
    failure.rethrow();
}

}  // namespace pw
