#include "exec/system/threads.h"

#include <fmt/format.h>

#include <sys/prctl.h>
#include <sys/resource.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <system_error>
#include <thread>
#include <utility>

namespace pw {

void Mutex::lock() { system_.lock(); }
bool Mutex::try_lock() { return system_.try_lock(); }
void Mutex::unlock() { system_.unlock(); }

void Condition::notify_all() { system_.notify_all(); }

void Condition::wait(Lock& lock) {
    std::unique_lock inner(lock.mutex()->system_, std::adopt_lock);
    system_.wait(inner);
    inner.release();
}

void Condition::wait_until(Lock& lock, Ns time) {
    std::unique_lock inner(lock.mutex()->system_, std::adopt_lock);
    system_.wait_until(inner, std::chrono::steady_clock::time_point(std::chrono::nanoseconds(time)));
    inner.release();
}

struct Thread::Body {
    std::thread thread;
};

Thread::Thread() = default;
Thread::Thread(std::function<void()> act) : body_(new Body{std::thread(std::move(act))}) {}
Thread::Thread(Thread&&) noexcept = default;
Thread& Thread::operator=(Thread&&) noexcept = default;
Thread::~Thread() = default;
bool Thread::joinable() const { return body_ != nullptr && body_->thread.joinable(); }
void Thread::join() { body_->thread.join(); }
void Thread::detach() { body_->thread.detach(); }

Thread start_thread(const std::string& whose, std::function<void()> act) {
    try {
        return Thread(std::move(act));
    } catch (const std::system_error& error) {
        fail_with(ExitCode::RunFailed,
                  "cannot start the thread of {}: {}\n  help: allow more processes (ulimit -u) or more memory "
                  "(ulimit -v), or use fewer devices",
                  whose, error.code().message());
    }
}

void sleep_for(Ns time) { std::this_thread::sleep_for(std::chrono::nanoseconds(time)); }
void yield_core() { std::this_thread::yield(); }
void lower_priority() {
    setpriority(PRIO_PROCESS, 0, 17);
}  // weight 23 instead of 1024; on Linux, of this thread alone
void use_exact_timers() { prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL); }

void end_process(const std::string& error, ExitCode code) {
    fmt::print(stderr, "error: {}\n", error);
    std::fflush(stderr);
    std::_Exit(static_cast<int>(code));
}

}  // namespace pw
