// What a measured trace answers: which causes its bubble has, what would shorten its step, and which steps and hosts
// were slow.
#pragma once

#include "report/host_times.h"
#include "report/json.h"
#include "report/report.h"
#include "sim/explanation.h"
#include "sim/replay.h"
#include "viz/plot.h"

#include <string>
#include <vector>

namespace pw {

// Idle time of all devices in the measured step, as far as one cause explains it.
struct BubblePart {
    std::string title, key;
    Ns time;
};

// A change that would shorten the measured step. A saving is a difference of two simulations, taken off the measured
// step.
struct StepChange {
    std::string what;  // "equal stages"
    std::string schedule = {};
    Ns saved = 0;
    int in_flight = 0;  // of a schedule: the micro-batches that a device has begun and not ended, at the most
};

// A step that took longer than the median step, and the device that exceeded the median of its own work most.
struct SlowStep {
    int step;
    Ns time;
    int device;
    Ns more;
};

struct TraceAnswers {
    Ns step_time = 0, device_time = 0;  // of the measured step, and of all devices in it
    std::vector<BubblePart> bubble;     // they add up to the idle time of all devices
    std::vector<StepChange> changes;    // the largest saving first
    int in_flight = 0;                  // in the measured step
    int steps = 0;                      // of the trace
    Ns median = 0;                      // of the times of steps after the first, if there are two
    std::vector<SlowStep> slow_steps;   // the slowest first
    std::vector<HostTimes> hosts;       // empty if fewer than two hosts are known
};

// `explanation` and `mechanics` are of the replay of the trace's step. Schedules that order
// tasks without costs and hold the same stages on the same devices are simulated, with the mean times of each stage and
// free messages. Schedules are left out where no config has the trace's stages.
TraceAnswers answers_of(const Report& measured, const Explanation& explanation, const Mechanics& mechanics);

std::string to_text(const TraceAnswers& answers, const std::vector<std::string>& devices);
Json to_json(const TraceAnswers& answers);
// Returns the tables of a page, which has causes of idle time by device already.
std::vector<PanelTable> tables_of(const TraceAnswers& answers, const std::vector<std::string>& devices);

}  // namespace pw
