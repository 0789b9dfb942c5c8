// When every task ran: the common result of simulation and execution. Code that reads traces can distinguish them by
// the label only.
#pragma once

#include "schedules/plan/plan.h"
#include "workloads/units.h"

#include <array>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace pw {

enum class MemoryKind { Weights, StashedWeights, Gradients, Optimizer, Activations, Inputs, Workspace, Communication };
inline constexpr int kMemoryKinds = 8;
using MemoryUse = std::array<Bytes, kMemoryKinds>;  // indexed by MemoryKind
std::string_view name_of(MemoryKind kind);          // "stashed_weights"
Bytes total(const MemoryUse& use);

inline constexpr std::size_t kMostHostName = 80;    // characters of a host's name that are kept
inline constexpr const char* kForeign = "foreign";  // the schedule of a trace of another program

struct TraceEvent {
    int step;  // of the run, from 0
    int device;
    int rank;  // the process that hosts the device
    Task task;
    Ns start, end;  // on the same clock, from the start of the trace
    Bytes bytes;    // moved, for transfers
    int version;    // version of the weights used (F B I W R) or made (U), or -1
    int ahead = 0;  // updates from that version to the predicted weights that the task uses

    bool operator==(const TraceEvent&) const = default;
};

struct MemorySample {
    int step;
    int device;
    Ns time;
    MemoryUse use;  // from `time` on

    bool operator==(const MemorySample&) const = default;
};

struct Trace {
    static constexpr int kSchemaVersion = 1;
    std::string label;  // "predicted" | "measured"
    std::string plan_hash;
    std::string schedule;
    std::string config;  // the effective config as YAML
    std::string machine;
    int devices = 0;
    int stages = 0;
    int micro_batches = 0;  // of a mini-batch
    int slices = 1;         // Shape::slices
    int micro_batch_size = 1;
    int replicas = 1;             // of a transformer: each runs the plan with as many micro-batches
    std::int64_t mini_batch = 0;  // samples of all replicas, or 0: all micro-batches are full
    bool asynchronous = false;
    std::vector<std::vector<int>> stages_of;  // device -> stages
    std::vector<std::string> hosts;           // device -> name of its host, empty if not known
    std::vector<Edge> ties;                   // stages that share a parameter
    std::vector<Bytes> reserved;              // device -> memory reserved before the first step, empty if not known
    std::vector<TraceEvent> events;           // by device, then in list order, step by step
    std::vector<MemorySample> memory;         // by device, then time

    bool operator==(const Trace&) const = default;
};

// Makes a trace of the plan without events, label and config.
Trace trace_of(const Plan& plan);
Trace without_hash(const Plan& plan);  // the same without the hash, for which all tasks are read

// Returns whether two tasks of a pair ran overlapped, and not sequentially, up to clocks that differ.
constexpr bool overlap(Ns start, Ns end, Ns start_of_next) { return start_of_next < start + (end - start + 1) / 2; }

// Return by event, for events of `Trace::events`: the interval of its launch, which both tasks of a pair share. Then
// the time that counts for it alone, half of their launch for both tasks of a pair that overlap.
std::vector<std::pair<Ns, Ns>> launches_of(std::span<const TraceEvent> events);
std::vector<Ns> own_times(std::span<const TraceEvent> events);

// Returns only the events of a single step, with times from its first start. A device whose last memory sample is from
// an earlier step starts with that sample.
Trace only_step(const Trace& trace, int step);

// "device 0 (stage 0, 7)" is device_label(trace, 0, " (", ")").
std::string device_label(const Trace& trace, int device, std::string_view open, std::string_view close);

// Returns for every event the first lane (0, 1, ..) among the events of its device and row in which no event overlaps
// it by more than `slack`. Viewers need lanes: overlapping boxes hide each other.
std::vector<int> lanes_of(const Trace& trace, int (*row_of)(Op), Ns slack = 0);

}  // namespace pw
