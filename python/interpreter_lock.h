// The interpreter's lock, given back while a thread computes, and the end of the interpreter in the meantime.
//
// A thread that asks for the lock after the end of the interpreter never gets it. Before Python 3.14, Python would end
// that thread by unwinding its stack, which C++ does not allow in destructors. Here the thread waits until the process
// has ended, as threads do since Python 3.14.
#pragma once

#include <pybind11/pybind11.h>

#include <cxxabi.h>

#include <atomic>

namespace pw {

// Gives the lock back until the object is destroyed.
class Unlocked {
public:
    Unlocked();
    ~Unlocked();
    Unlocked(const Unlocked&) = delete;
    Unlocked& operator=(const Unlocked&) = delete;

private:
    PyThreadState* state_;
};

// Work that must be over when the process ends. `stop` becomes true when it should end soon. It begins on a thread that
// called from Python and does not hold the lock. It may end on another thread.
class Work {
public:
    explicit Work(std::atomic<bool>* stop);
    ~Work();
    Work(const Work&) = delete;
    Work& operator=(const Work&) = delete;

private:
    std::atomic<bool>* stop_;
};

// Work without the lock: the guard of calls that take long.
class UnlockedWork {
    const Unlocked unlocked_;
    const Work work_{nullptr};
};

[[noreturn]] void wait_for_the_end_of_the_process();

// Calls `act`, which runs Python. If the interpreter ends in the meantime, the call does not return.
template <class Act>
void run_python(Act act) {
    try {
        act();
    } catch (const abi::__forced_unwind&) {
        wait_for_the_end_of_the_process();
    }
}

// Calls `act`, which runs Python, with the lock, on a thread that has it or not.
template <class Act>
void with_lock(Act act) {
    run_python([&] {
        const pybind11::gil_scoped_acquire lock;
        act();
    });
}

// From now on the end of the interpreter stops all work and waits until it is over.
void register_end();

}  // namespace pw
