// Ends a process that waits for others in a library that does not come back.
#pragma once

#include "exec/system/threads.h"
#include "workloads/error.h"
#include "workloads/units.h"

#include <string>
#include <utility>

namespace pw {

class Watchdog {
public:
    // Unless it is destroyed within `time`, the process says the text as an error and exits with code 5. Time in which
    // the machine slept does not count.
    Watchdog(Ns time, std::string text)
        : thread_(start_thread("a watchdog", [this, time, text = std::move(text)] { watch(time, text); })) {}
    ~Watchdog() {
        {
            const std::lock_guard lock(mutex_);
            is_over_ = true;
            over_.notify_all();
        }
        thread_.join();
    }
    Watchdog(const Watchdog&) = delete;
    Watchdog& operator=(const Watchdog&) = delete;

private:
    void watch(Ns time, const std::string& text) {
        constexpr int kLooks = 16;
        std::unique_lock lock(mutex_);
        for (int look = 0; look < kLooks; ++look)
            if (over_.wait_for(lock, time / kLooks, [&] { return is_over_; }))
                return;
        end_process(text, ExitCode::PeerSilent);
    }

    Mutex mutex_;
    Condition over_;
    bool is_over_ = false;
    Thread thread_;  // uses all of the above
};

}  // namespace pw
