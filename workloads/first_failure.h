// The first exception of several threads, thrown again by the one that joins them.
#pragma once

#include "workloads/error.h"

#include <exception>
#include <mutex>

namespace pw {

class FirstFailure {
public:
    // Calls `stop`, which must wake the other threads, when `act` throws.
    template <class Act, class Stop>
    void guard(Act act, Stop stop) {
        try {
            act();
        } catch (...) {
            keep();
            stop();
        }
    }
    bool happened() const {
        const std::lock_guard lock(mutex_);
        return first_ != nullptr;
    }
    void rethrow() const {  // if there is one
        const std::lock_guard lock(mutex_);
        if (first_)
            std::rethrow_exception(first_);
    }

private:
    void keep() {
        const std::lock_guard lock(mutex_);
        if (!first_)
            first_ = std::current_exception();
    }

    mutable std::mutex mutex_;
    std::exception_ptr first_;
};

// Thrown by a thread that another thread's failure has stopped.
[[noreturn]] inline void fail_because_of_others() {
    fail_with(ExitCode::RunFailed, "stopped because another device failed");
}

}  // namespace pw
