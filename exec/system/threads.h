// Threads and locks of the engine, which wait on the clock of workloads/clock.h. exec/system/threads.cpp makes them of
// the system's; tests/virtual/ links others in its place, which take turns and whose time is virtual.
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
    void wait(Lock& lock);                 // may return too early
    void wait_until(Lock& lock, Ns time);  // the same
    template <class Passed>
    void wait(Lock& lock, Passed passed) {
        while (!passed())
            wait(lock);
    }
    // Return whether it has passed in time.
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

// A thread that is joined, or left behind, before it is destroyed.
class Thread {
public:
    Thread();
    explicit Thread(std::function<void()> act);  // throws std::system_error when the system has none
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

// Starts a thread. Throws Error (RunFailed) when the system has no thread for `whose`. Threads that run already are the
// caller's to stop and join.
Thread start_thread(const std::string& whose, std::function<void()> act);

void sleep_for(Ns time);
void let_others_run();  // yields
void give_way();        // the thread takes no more than 2.2 % of a core that others want
void wake_on_time();    // the thread's waits end when they are to, not up to 50 us later
[[noreturn]] void end_process(const std::string& error, ExitCode code);  // at once, whatever other threads do

}  // namespace pw
