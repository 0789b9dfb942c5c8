// The threads and locks of the engine, which use the clock of workloads/clock.h. exec/system/threads.cpp implements
// them with the system's threads and locks. tests/virtual/ links another implementation, in
// which threads take turns and time is virtual.
#pragma once

#include "workloads/clock.h"
#include "workloads/error.h"
#include "workloads/units.h"

#include <algorithm>
#include <condition_variable>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <string>

namespace pw {

class Mutex {
public:
    void lock();
    bool try_lock();
    void unlock();

private:
    friend class Condition;
    std::mutex system_;
};

class Condition {
public:
    using Lock = std::unique_lock<Mutex>;

    void notify_all();
    void wait(Lock& lock);                 // may return spuriously
    void wait_until(Lock& lock, Ns time);  // may return spuriously
    template <class Passed>
    void wait(Lock& lock, Passed passed) {
        while (!passed())
            wait(lock);
    }
    // Return whether the condition has become true in time.
    template <class Passed>
    bool wait_until(Lock& lock, Ns time, Passed passed) {
        while (!passed()) {
            if (clock_now() >= time)
                return false;
            wait_until(lock, time);
        }
        return true;
    }
    template <class Passed>
    bool wait_for(Lock& lock, Ns time, Passed passed) {
        return wait_until(lock, after(time), passed);
    }
    void wait_for(Lock& lock, Ns time) { wait_until(lock, after(time)); }

private:
    static Ns after(Ns time) {
        const Ns now = clock_now();
        return now + std::min(time, std::numeric_limits<Ns>::max() - now);
    }
    std::condition_variable system_;
};

// A thread, which must be joined or detached before it is destroyed.
class Thread {
public:
    Thread();
    explicit Thread(std::function<void()> act);  // throws std::system_error if the system has no thread
    Thread(Thread&&) noexcept;
    Thread& operator=(Thread&&) noexcept;
    ~Thread();

    bool joinable() const;
    void join();
    void detach();

private:
    struct Body;
    std::unique_ptr<Body> body_;
};

// Starts a thread. Throws Error (RunFailed) if the system has no thread for `whose`. The caller must then stop and
// join the threads that already run.
Thread start_thread(const std::string& whose, std::function<void()> act);

void sleep_for(Ns time);
void yield_core();        // as std::this_thread::yield()
void lower_priority();    // the thread gets at most 2.2 % of a core that other threads use
void use_exact_timers();  // the thread's waits end in time, not up to 50 us later
// Pauses a wait that began at `start`: yields for two milliseconds, then sleeps 50 us each time. The awaited thread or
// process may need the core, and a thread that only yields may take most of the core's time.
inline constexpr Ns kAwakeInWait = 2'000'000;
inline void rest_in_wait(Ns start) {
    if (clock_now() - start < kAwakeInWait)
        yield_core();
    else
        sleep_for(50'000);
}
[[noreturn]] void end_process(const std::string& error, ExitCode code);  // at once, whatever other threads do

}  // namespace pw
