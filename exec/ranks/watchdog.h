// Ends a process that waits for others in a library that does not come back.
#pragma once

#include "workloads/error.h"
#include "workloads/start_thread.h"
#include "workloads/units.h"

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

namespace pw {

class Watchdog {
public:
    // Unless it is destroyed within `time`, the process says the text as an error and exits with code 5.
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
        std::unique_lock lock(mutex_);
        if (over_.wait_for(lock, std::chrono::nanoseconds(time), [&] { return is_over_; }))
            return;
        fmt::print(stderr, "error: {}\n", text);
        std::fflush(stderr);
        std::_Exit(static_cast<int>(ExitCode::PeerSilent));
    }

    std::mutex mutex_;
    std::condition_variable over_;
    bool is_over_ = false;
    std::thread thread_;  // uses all of the above
};

}  // namespace pw
