// Calls that take long, while Python's other threads run.
#pragma once

#include "report/hooks.h"

#include <pybind11/pybind11.h>

#include <functional>

namespace pw {

// What Ctrl-C does to a call: KeyboardInterrupt is raised, or the results so far are returned.
enum class OnInterrupt { Raise, ReturnSoFar };
// Whether `progress` is called with new states alone, or at least once per second, with the time that has passed.
enum class OnProgress { States, StatesWithTime };

// Calls `work` on a thread of its own, without the interpreter's lock. Meanwhile this thread calls `progress`, unless
// it is None, with the latest state, and lets signals be handled. Ctrl-C and an exception of `progress` stop the work.
// Rethrows what `work` throws. If Ctrl-C has stopped the work before there were results, KeyboardInterrupt is raised.
// Returns whether Ctrl-C has stopped the work.
bool call_long(const pybind11::object& progress, OnInterrupt on_interrupt,
               const std::function<void(const Hooks&)>& work, OnProgress on_progress = OnProgress::States);

}  // namespace pw
