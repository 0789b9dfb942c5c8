// Something that is done again and again beside all else.
#pragma once

#include "exec/system/threads.h"

#include <functional>
#include <string>
#include <utility>

namespace pw {

// While it lives, `act` is called on a thread of its own, `between` after the last time; `act` must not throw.
class Every {
public:
    Every(Ns between, const std::string& whose, std::function<void()> act)
        : thread_(start_thread(whose, [this, between, act = std::move(act)] {
              Condition::Lock lock(mutex_);
              while (!over_.wait_for(lock, between, [this] { return is_over_; }))
                  act();
          })) {}
    ~Every() {
        {
            const std::lock_guard lock(mutex_);
            is_over_ = true;
            over_.notify_all();
        }
        thread_.join();
    }
    Every(const Every&) = delete;
    Every& operator=(const Every&) = delete;

private:
    Mutex mutex_;
    Condition over_;
    bool is_over_ = false;
    Thread thread_;  // uses all of the above
};

}  // namespace pw
