// Numbers of a trace, predicted or measured alike. Definitions: docs/metrics.md.
#pragma once

#include "schedules/trace/trace.h"
#include "workloads/costs/micro_batch_sizes.h"

#include <optional>
#include <span>
#include <vector>

namespace pw {

struct DeviceMetrics {
    Ns busy = 0;                   // time of tasks F B I W R (schedules/plan/task.h)
    Ns idle = 0;                   // makespan - busy
    Ns sums = 0, updates = 0;      // in S, sums of gradients, and in U, updates; part of idle
    Ns last_end = 0;               // the end of its last task but transfers, from the start of the step
    Ns exposed_communication = 0;  // idle while the next task waits for a transfer under way
    MemoryUse memory{};            // at the peak
    Bytes peak_memory = 0;
    std::optional<Bytes> reserved_memory;  // before the first step. Absent if the trace has none
    int peak_in_flight = 0;                // (micro-batch, stage) pairs, freed at I or B
    int peak_in_flight_until_weight = 0;   // freed at W or B
    int weight_versions = 1;
    Bytes needed_memory() const { return reserved_memory.value_or(peak_memory); }
    bool operator==(const DeviceMetrics&) const = default;
};

struct Metrics {
    Ns makespan = 0;  // last end - first start over all devices, transfers left out
    Ns span = 0;      // max over devices of own last end - own first start, F B I W R only
    Ns step_time = 0;
    Ns ideal = 0;                   // mean over devices of compute time
    double bubble_rate = 0;         // (makespan - ideal) / makespan
    double bubble_ratio = 0;        // (makespan - ideal) / ideal
    double span_bubble_rate = 0;    // (span - ideal) / span
    double samples_per_second = 0;  // of all replicas
    int tasks = 0;                  // of a step, transfers included
    int step = 0;                   // the step of the numbers: the step with the median step time
    std::vector<DeviceMetrics> devices;
    bool operator==(const Metrics&) const = default;
};

// Returns the metrics of the median step of a synchronous trace without its first (when it has more steps), or of the
// whole trace when asynchronous: step time is then the median distance between successive updates of the last stage,
// without the first and last `stages`.
Metrics metrics_of(const Trace& trace);

// Returns only the step time, for a trace of one step or of an asynchronous plan.
Ns step_time_of(const Trace& trace);

// Returns the step time of an asynchronous plan: the median distance of `updates` (ends, of the last stage) without the
// first and last `stages`, where the pipeline fills and drains. With one update, returns the makespan.
Ns asynchronous_step_time(std::vector<Ns> updates, int stages, Ns makespan);

// Computes the metrics of a step device by device, so that not all its events are needed at once.
class StepMetrics {
public:
    // `head` is a trace that may lack its events, and must outlive this. From `first` to `last` the devices computed.
    StepMetrics(const Trace& head, Ns first, Ns last);

    void add(std::span<const TraceEvent> own);  // of the next device, in list order
    // Returns the metrics of all devices added, without memory.
    Metrics of_step(Ns step_time);

private:
    double samples_per_update();

    const Trace& head_;
    Ns start_;
    Metrics metrics_;
    double busy_ = 0;
    std::vector<int> microbatches_, updates_;  // of the last stage
};

// Records a device's memory at some moment: its peak is the first of the largest.
void note_memory(DeviceMetrics& device, const MemoryUse& use);

MicroBatchSizes sizes_of(const Trace& trace);            // of a single replica
std::int64_t samples_of_mini_batch(const Trace& trace);  // of all replicas

// Returns the step times of all steps, in order (asynchronous: distances between updates of the last stage).
std::vector<Ns> step_times(const Trace& trace);

}  // namespace pw
