// Messages that MPI has taken get on only while somebody calls it: a thread does, whatever the others wait for or
// compute.
#pragma once

#include "exec/ranks/ranks.h"
#include "exec/system/threads.h"

namespace pw {

class Pump {
public:
    explicit Pump(Ranks& ranks) : thread_(start_thread("progress between ranks", [this, &ranks] { keep(ranks); })) {}
    ~Pump() {
        {
            const std::lock_guard lock(mutex_);
            is_over_ = true;
            over_.notify_all();
        }
        thread_.join();
    }
    Pump(const Pump&) = delete;
    Pump& operator=(const Pump&) = delete;

private:
    void keep(Ranks& ranks) {
        constexpr Ns kBetween = 2'000'000;
        Condition::Lock lock(mutex_);
        while (!over_.wait_for(lock, kBetween, [&] { return is_over_; }))
            ranks.get_on();
    }

    Mutex mutex_;
    Condition over_;
    bool is_over_ = false;
    Thread thread_;  // uses all of the above
};

}  // namespace pw
