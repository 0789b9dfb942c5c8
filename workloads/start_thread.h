// Threads that may not be granted.
#pragma once

#include "workloads/error.h"

#include <string>
#include <system_error>
#include <thread>
#include <utility>

namespace pw {

// Starts a thread. Throws Error (RunFailed) when the system has no thread for `whose`. Threads that run already are the
// caller's to stop and join.
template <class Act>
std::thread start_thread(const std::string& whose, Act act) {
    try {
        return std::thread(std::move(act));
    } catch (const std::system_error& error) {
        fail_with(ExitCode::RunFailed,
                  "cannot start the thread of {}: {}\n  help: allow more processes (ulimit -u) or more memory "
                  "(ulimit -v), or use fewer devices",
                  whose, error.code().message());
    }
}

}  // namespace pw
