// The idle time of a trace as it was, by cause: what pages draw, and what the replay of the trace leaves out.
#pragma once

#include "report/idle_causes.h"
#include "schedules/trace/trace.h"
#include "sim/explanation.h"

#include <string>
#include <vector>

namespace pw {

struct TracedPlan;  // traced_plan.h

inline constexpr int kHandOver = kNumberOfIdleCauses;  // all inputs are there, and the task has not begun
int number_of(Ns IdleCauses::*cause);                  // in kIdleCauses, of null kHandOver

// Cuts the idle time of a step, or of an asynchronous run, whose events are the nodes of the plan. `explanation` is of
// its replay. Throws Error if the events are others.
std::vector<IdlePart> idle_of(const Trace& step, const TracedPlan& traced, const Explanation& explanation);
Ns begin_of(const Trace& trace);  // the first start

// Sums by cause and device: the causes of kIdleCauses, then hand-over.
struct IdleTimes {
    explicit IdleTimes(int devices);
    // Updates are idle time of a device, and tasks of its trace.
    void add_updates(const Trace& trace);
    Ns of_device(int device) const;  // of all causes

    std::vector<std::vector<Ns>> of;  // cause -> device
};
IdleTimes idle_times(const std::vector<IdlePart>& parts, const Trace& trace);

// A row for each device, with a head. Causes without time are left out.
std::vector<std::vector<std::string>> rows_of(const IdleTimes& times, const std::vector<std::string>& devices);

}  // namespace pw
