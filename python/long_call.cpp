#include "python/long_call.h"

#include "python/interpreter_lock.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>

namespace pw {

namespace py = pybind11;

namespace {

class LongCall {
public:
    explicit LongCall(const std::function<void(const Hooks&)>& work) {
        const Unlocked unlocked;
        work_.emplace(&stop_);
        worker_ = std::thread([this, work] { do_all(work); });
    }
    ~LongCall() {
        stop_ = true;
        const Unlocked unlocked;
        worker_.join();
    }
    LongCall(const LongCall&) = delete;
    LongCall& operator=(const LongCall&) = delete;

    void stop() { stop_ = true; }
    // Waits until the work is done, or for a moment. Returns whether it is done.
    bool wait() {
        constexpr std::chrono::milliseconds kMoment{50};
        const Unlocked unlocked;
        std::unique_lock lock(mutex_);
        return changed_.wait_for(lock, kMoment, [&] { return done_; });
    }
    // Returns what was shown since the last call.
    std::optional<std::string> take_state() {
        const std::scoped_lock lock(mutex_);
        return std::exchange(state_, std::nullopt);
    }
    bool has_failed() const { return failure_ != nullptr; }
    void rethrow() const {
        if (failure_)
            std::rethrow_exception(failure_);
    }

private:
    void do_all(const std::function<void(const Hooks&)>& work) {
        try {
            work({[this](const std::string& state) { show(state); }, [this] { return stop_.load(); }});
        } catch (...) {
            failure_ = std::current_exception();
        }
        work_.reset();
        const std::scoped_lock lock(mutex_);
        done_ = true;
        changed_.notify_one();
    }
    void show(const std::string& state) {
        const std::scoped_lock lock(mutex_);
        state_ = state;
    }

    std::mutex mutex_;
    std::condition_variable changed_;
    std::optional<std::string> state_;
    std::exception_ptr failure_;
    std::atomic<bool> stop_ = false;
    bool done_ = false;
    std::optional<Work> work_;
    std::thread worker_;
};

// Calls the user's function with what is new.
class Teller {
public:
    Teller(const py::object& progress, OnProgress when)
        : progress_(progress), with_time_(when == OnProgress::StatesWithTime) {}
    void tell(std::optional<std::string> state) {
        constexpr std::chrono::milliseconds kMostSilence{900};
        const auto now = std::chrono::steady_clock::now();
        const bool is_due = state || (with_time_ && now - told_ > kMostSilence);
        if (state)
            state_ = std::move(*state);
        if (progress_.is_none() || !is_due)
            return;
        told_ = now;
        progress_(with_time_ ? with_time(state_, now - start_) : state_);
    }

private:
    const py::object& progress_;
    bool with_time_;
    std::string state_ = "starting";
    std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now(), told_ = start_;
};

}  // namespace

bool call_long(const py::object& progress, OnInterrupt on_interrupt, const std::function<void(const Hooks&)>& work,
               OnProgress on_progress) {
    LongCall call(work);
    Teller teller(progress, on_progress);
    bool interrupted = false;
    for (bool done = false; !done;) {
        done = call.wait();
        try {
            run_python([&] {
                if (std::optional<std::string> state = call.take_state(); !interrupted)
                    teller.tell(std::move(state));
                if (PyErr_CheckSignals() != 0)
                    throw py::error_already_set();
            });
        } catch (const py::error_already_set& error) {
            if (on_interrupt == OnInterrupt::Raise || interrupted || !error.matches(PyExc_KeyboardInterrupt))
                throw;
            interrupted = true;
            call.stop();
        }
    }
    if (interrupted && call.has_failed()) {
        PyErr_SetNone(PyExc_KeyboardInterrupt);
        throw py::error_already_set();
    }
    call.rethrow();
    return interrupted;
}

}  // namespace pw
