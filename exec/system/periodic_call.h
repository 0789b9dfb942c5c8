// A call that is repeated on a thread of its own.
#pragma once

#include "exec/system/threads.h"

#include <functional>
#include <string>
#include <utility>

namespace pw {

// During the lifetime of the object `act` is called on a thread of its own, each time `between` after the last call
// has ended. `act` must not throw.
class PeriodicCall {
public:
    PeriodicCall(Ns between, const std::string& whose, std::function<void()> act)
        : thread_(start_thread(whose, [this, between, act = std::move(act)] {
              Condition::Lock lock(mutex_);
              while (!over_.wait_for(lock, between, [this] { return is_over_; }))
                  act();
          })) {}
    ~PeriodicCall() {
        {
            const std::lock_guard lock(mutex_);
            is_over_ = true;
            over_.notify_all();
        }
        thread_.join();
    }
    PeriodicCall(const PeriodicCall&) = delete;
    PeriodicCall& operator=(const PeriodicCall&) = delete;

private:
    Mutex mutex_;
    Condition over_;
    bool is_over_ = false;
    Thread thread_;  // uses all of the above
};

}  // namespace pw
