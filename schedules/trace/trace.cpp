#include "schedules/trace/trace.h"

#include "schedules/plan/shape_index.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <numeric>
#include <utility>

namespace pw {

namespace {

constexpr std::string_view kMemoryNames[] = {"weights",     "stashed_weights", "gradients", "optimizer",
                                             "activations", "inputs",          "workspace", "communication"};
static_assert(std::size(kMemoryNames) == kMemoryKinds);

// Adds what each device held at `begin`, for devices without a sample at that moment.
void carry_over(const Trace& trace, int step, Ns begin, Trace& only) {
    std::map<int, MemorySample> held;
    for (const MemorySample& sample : trace.memory)
        if (sample.step < step && sample.time <= begin)
            held.insert_or_assign(sample.device, sample);
    for (const MemorySample& sample : only.memory)
        if (sample.time == 0)
            held.erase(sample.device);
    for (auto& [device, sample] : held)
        only.memory.push_back({step, device, 0, sample.use});
    std::stable_sort(only.memory.begin(), only.memory.end(), [](const MemorySample& a, const MemorySample& b) {
        return std::pair(a.device, a.time) < std::pair(b.device, b.time);
    });
}

}  // namespace

Trace trace_of(const Plan& plan) {
    Trace trace = without_hash(plan);
    trace.plan_hash = hash_of(plan);
    return trace;
}

Trace without_hash(const Plan& plan) {
    Trace trace;
    trace.schedule = plan.schedule;
    trace.devices = plan.shape.devices;
    trace.stages = plan.shape.stages;
    trace.micro_batches = plan.shape.whole_of(plan.shape.microbatches);
    trace.slices = plan.shape.slices;
    trace.asynchronous = plan.asynchronous;
    trace.ties = plan.shape.ties;
    const ShapeIndex index(plan.shape);
    for (int device = 0; device < plan.shape.devices; ++device)
        trace.stages_of.emplace_back(index.stages_of(device).begin(), index.stages_of(device).end());
    return trace;
}

std::string_view name_of(MemoryKind kind) { return kMemoryNames[static_cast<int>(kind)]; }

Bytes total(const MemoryUse& use) { return std::accumulate(use.begin(), use.end(), Bytes{0}); }

namespace {

// Returns whether the event after this one is the other task of its pair.
bool leads_pair(std::span<const TraceEvent> events, std::size_t number) {
    return events[number].task.with_next && number + 1 < events.size() &&
           events[number + 1].device == events[number].device && events[number + 1].step == events[number].step;
}

}  // namespace

std::vector<std::pair<Ns, Ns>> launches_of(std::span<const TraceEvent> events) {
    std::vector<std::pair<Ns, Ns>> launches;
    launches.reserve(events.size());
    for (const TraceEvent& event : events)
        launches.emplace_back(event.start, event.end);
    for (std::size_t number = 0; number < events.size(); ++number)
        if (leads_pair(events, number)) {
            const TraceEvent &first = events[number], &second = events[number + 1];
            launches[number] =
                launches[number + 1] = {std::min(first.start, second.start), std::max(first.end, second.end)};
        }
    return launches;
}

std::vector<Ns> own_times(std::span<const TraceEvent> events) {
    std::vector<Ns> times;
    times.reserve(events.size());
    for (const TraceEvent& event : events)
        times.push_back(event.end - event.start);
    for (std::size_t number = 0; number < events.size(); ++number) {
        const TraceEvent& first = events[number];
        if (!leads_pair(events, number) || !overlap(first.start, first.end, events[number + 1].start))
            continue;
        const TraceEvent& second = events[number + 1];
        const Ns both = std::max(first.end, second.end) - std::min(first.start, second.start);
        times[number] = both / 2;
        times[number + 1] = both - both / 2;
    }
    return times;
}

Trace only_step(const Trace& trace, int step) {
    Trace only = trace;
    std::erase_if(only.events, [&](const TraceEvent& event) { return event.step != step; });
    std::erase_if(only.memory, [&](const MemorySample& sample) { return sample.step != step; });
    if (only.events.empty())
        return only;

    const Ns begin = std::min_element(only.events.begin(), only.events.end(), [](const auto& a, const auto& b) {
                         return a.start < b.start;
                     })->start;
    for (TraceEvent& event : only.events) {
        event.start -= begin;
        event.end -= begin;
    }
    for (MemorySample& sample : only.memory)
        sample.time = std::max<Ns>(sample.time - begin, 0);
    carry_over(trace, step, begin, only);
    return only;
}

std::string device_label(const Trace& trace, int device, std::string_view open, std::string_view close) {
    const std::string name = fmt::format("device {}", device);
    if (device >= static_cast<int>(trace.stages_of.size()) || trace.stages_of[device].empty())
        return name;
    const std::vector<int>& stages = trace.stages_of[device];
    return fmt::format("{}{}stage {}{}", name, open, fmt::join(stages, ", "), close);
}

std::vector<int> lanes_of(const Trace& trace, int (*row_of)(Op), Ns slack) {
    std::vector<std::size_t> by_start(trace.events.size());
    std::iota(by_start.begin(), by_start.end(), std::size_t{0});
    std::stable_sort(by_start.begin(), by_start.end(),
                     [&](std::size_t a, std::size_t b) { return trace.events[a].start < trace.events[b].start; });

    std::map<std::pair<int, int>, std::vector<Ns>> ends;  // of the last event in each lane, by device and row
    std::vector<int> lanes(trace.events.size());
    for (const std::size_t i : by_start) {
        const TraceEvent& event = trace.events[i];
        std::vector<Ns>& lane_ends = ends[{event.device, row_of(event.task.op)}];
        const auto lane =
            std::find_if(lane_ends.begin(), lane_ends.end(), [&](Ns end) { return end <= event.start + slack; });
        lanes[i] = static_cast<int>(lane - lane_ends.begin());
        if (lane == lane_ends.end())
            lane_ends.push_back(event.end);
        else
            *lane = std::max(*lane, event.end);
    }
    return lanes;
}

}  // namespace pw
