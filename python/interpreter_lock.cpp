#include "python/interpreter_lock.h"

#include <pthread.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <set>
#include <thread>

namespace pw {

namespace py = pybind11;

namespace {

// Threads that wait for the end of the process use it until then, so that it is never destroyed.
struct WorkUnderWay {
    std::mutex mutex;
    std::condition_variable changed;
    int count = 0;
    std::set<std::atomic<bool>*> stops;
    bool has_ended = false;   // the interpreter, from now on
    std::thread::id ends_it;  // the thread that ends it, which goes on
};

WorkUnderWay* under_way = new WorkUnderWay;

// Returns whether the interpreter has ended for this thread. The caller holds the mutex.
bool has_ended() { return under_way->has_ended && under_way->ends_it != std::this_thread::get_id(); }

void wait_if_ended() {
    std::unique_lock lock(under_way->mutex);
    if (!has_ended())
        return;
    lock.unlock();
    wait_for_the_end_of_the_process();
}

bool all_work_is_over_soon() {
    const Unlocked unlocked;
    std::unique_lock lock(under_way->mutex);
    constexpr std::chrono::milliseconds kMoment{50};
    return under_way->changed.wait_for(lock, kMoment, [] { return under_way->count <= 0; });
}

// Ctrl-C ends the wait.
void wait_for_work() {
    {
        const std::scoped_lock lock(under_way->mutex);
        under_way->has_ended = true;
        under_way->ends_it = std::this_thread::get_id();
        for (std::atomic<bool>* stop : under_way->stops)
            *stop = true;
    }
    while (!all_work_is_over_soon())
        if (PyErr_CheckSignals() != 0)
            throw py::error_already_set();
}

}  // namespace

void wait_for_the_end_of_the_process() {
    for (;;)
        pause();
}

Unlocked::Unlocked() : state_(PyEval_SaveThread()) {}

Unlocked::~Unlocked() {
    wait_if_ended();
    run_python([this] { PyEval_RestoreThread(state_); });
}

Work::Work(std::atomic<bool>* stop) : stop_(stop) {
    std::unique_lock lock(under_way->mutex);
    if (has_ended()) {
        lock.unlock();
        wait_for_the_end_of_the_process();
    }
    ++under_way->count;
    if (stop_ != nullptr)
        under_way->stops.insert(stop_);
}

Work::~Work() {
    const std::scoped_lock lock(under_way->mutex);
    --under_way->count;
    under_way->stops.erase(stop_);
    under_way->changed.notify_all();
}

void register_end() {
    // The work of a process does not go on in its child.
    pthread_atfork(nullptr, nullptr, [] { under_way = new WorkUnderWay; });
    py::module_::import("atexit").attr("register")(py::cpp_function(wait_for_work));
}

}  // namespace pw
