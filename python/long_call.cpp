#include "python/long_call.h"

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
    explicit LongCall(const std::function<void(const Hooks&)>& work) : worker_([this, work] { do_all(work); }) {}
    ~LongCall() {
        stop_ = true;
        const py::gil_scoped_release unlocked;
        worker_.join();
    }
    LongCall(const LongCall&) = delete;
    LongCall& operator=(const LongCall&) = delete;

    void stop() { stop_ = true; }
    // Waits until the work is done, or for a moment. Returns whether it is done.
    bool wait() {
        constexpr std::chrono::milliseconds kMoment{50};
        const py::gil_scoped_release unlocked;
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
    std::thread worker_;
};

}  // namespace

bool call_long(const py::object& progress, OnInterrupt on_interrupt, const std::function<void(const Hooks&)>& work) {
    LongCall call(work);
    bool interrupted = false;
    for (bool done = false; !done;) {
        done = call.wait();
        const std::optional<std::string> state = call.take_state();
        try {
            if (state && !progress.is_none() && !interrupted)
                progress(*state);
            if (PyErr_CheckSignals() != 0)
                throw py::error_already_set();
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
