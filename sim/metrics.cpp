#include "sim/metrics.h"

#include "workloads/median.h"

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <tuple>
#include <utility>

namespace pw {

namespace {

using Events = std::vector<const TraceEvent*>;  // in the order of the trace

// Returns last end - first start of the events that `counts` admits.
template <class Counts>
Ns extent_of(const Events& events, Counts counts) {
    Ns first = std::numeric_limits<Ns>::max(), last = std::numeric_limits<Ns>::min();
    for (const TraceEvent* event : events)
        if (counts(event->task.op)) {
            first = std::min(first, event->start);
            last = std::max(last, event->end);
        }
    return last > first ? last - first : 0;
}

Ns makespan_of(const Events& events) {
    return extent_of(events, [](Op op) { return !is_transfer(op); });
}

std::map<int, Events> by_step(const Trace& trace) {
    std::map<int, Events> steps;
    for (const TraceEvent& event : trace.events)
        steps[event.step].push_back(&event);
    return steps;
}

// Returns the ends of the updates of the last stage, on the first device that has them.
std::vector<Ns> updates_of_last_stage(const Trace& trace) {
    std::vector<Ns> ends;
    int device = -1;
    for (const TraceEvent& event : trace.events)
        if (event.task.op == Op::Update && event.task.stage == trace.stages - 1) {
            if (device < 0)
                device = event.device;
            if (event.device == device)
                ends.push_back(event.end);
        }
    return ends;
}

// Returns the samples between two updates of the last stage, or those of a whole step.
double samples_per_update(const Trace& trace, const Events& events) {
    std::set<int> microbatches, updates;
    for (const TraceEvent* event : events)
        if (event->task.stage == trace.stages - 1) {
            if (event->task.op == Op::Forward)
                microbatches.insert(event->task.microbatch);
            if (event->task.op == Op::Update)
                updates.insert(event->task.microbatch);
        }
    const MicroBatchSizes sizes = sizes_of(trace);
    double samples = 0;
    for (const int microbatch : microbatches)
        samples += sizes.of(microbatch);
    return trace.asynchronous && !updates.empty() ? samples / static_cast<double>(updates.size()) : samples;
}

std::vector<Ns> distances_of(std::vector<Ns> updates) {
    std::sort(updates.begin(), updates.end());
    std::vector<Ns> distances;
    for (std::size_t k = 1; k < updates.size(); ++k)
        distances.push_back(updates[k] - updates[k - 1]);
    return distances;
}

using Pair = std::pair<int, int>;  // stage, micro-batch

// Returns the most (stage, micro-batch) pairs between the start of F and the end of the task that frees them. A pair
// that nothing frees (no backward pass) ends with its F.
template <class Frees>
int peak_of_pairs(const Events& events, Frees frees) {
    std::vector<Pair> freed;
    for (const TraceEvent* event : events)
        if (frees(event->task.op))
            freed.emplace_back(event->task.stage, event->task.microbatch);
    if (!std::is_sorted(freed.begin(), freed.end()))
        std::sort(freed.begin(), freed.end());
    const auto is_freed = [&](const Task& task) {
        return std::binary_search(freed.begin(), freed.end(), Pair{task.stage, task.microbatch});
    };
    std::vector<std::pair<Ns, int>> changes;
    for (const TraceEvent* event : events) {
        const bool forward = event->task.op == Op::Forward;
        if (forward)
            changes.emplace_back(event->start, 1);
        if (frees(event->task.op) || (forward && !is_freed(event->task)))
            changes.emplace_back(event->end, -1);
    }
    // Stable: at one time, list order decides what ends before what begins.
    const auto earlier = [](const auto& a, const auto& b) { return a.first < b.first; };
    if (!std::is_sorted(changes.begin(), changes.end(), earlier))
        std::stable_sort(changes.begin(), changes.end(), earlier);
    int now = 0, peak = 0;
    for (const auto& [time, change] : changes) {
        now += change;
        peak = std::max(peak, now);
    }
    return peak;
}

using Interval = std::pair<Ns, Ns>;

// Returns the length of the union of `intervals`, which are sorted, inside [from, to).
Ns covered(const std::vector<Interval>& intervals, Ns from, Ns to) {
    Ns sum = 0, done = from;
    for (const auto& [start, end] : intervals) {
        const Ns begin = std::max(start, done), finish = std::min(end, to);
        if (finish > begin) {
            sum += finish - begin;
            done = finish;
        }
    }
    return sum;
}

Op receive_for(Op op) { return op == Op::Forward ? Op::RecvForward : Op::RecvBackward; }

// Returns the idle time right before F, B and I while a tensor of that very task is on its way.
Ns exposed_communication(const Events& events, Ns start_of_step) {
    using Tensor = std::tuple<int, int, int>;  // stage, micro-batch, slice
    using Arrival = std::pair<Tensor, Interval>;
    std::map<Op, std::vector<Arrival>> arrivals;
    for (const TraceEvent* event : events)
        if (const Task& task = event->task; is_recv(task.op))
            arrivals[task.op].push_back({{task.stage, task.microbatch, task.slice}, {event->start, event->end}});
    for (auto& [op, all] : arrivals)
        if (!std::is_sorted(all.begin(), all.end()))
            std::sort(all.begin(), all.end());
    std::vector<Interval> own;
    Ns exposed = 0, idle_since = start_of_step;
    for (const TraceEvent* event : events) {
        if (is_transfer(event->task.op))
            continue;
        const Task& task = event->task;
        if (event->start > idle_since && (task.op == Op::Forward || makes_input_gradient(task.op))) {
            const std::vector<Arrival>& all = arrivals[receive_for(task.op)];
            const Tensor tensor{task.stage, task.microbatch, task.slice};
            const auto before = [](const Arrival& arrival, const Tensor& wanted) { return arrival.first < wanted; };
            own.clear();
            for (auto at = std::lower_bound(all.begin(), all.end(), tensor, before);
                 at != all.end() && at->first == tensor; ++at)
                own.push_back(at->second);
            exposed += covered(own, idle_since, event->start);
        }
        idle_since = std::max(idle_since, event->end);
    }
    return exposed;
}

// Returns, from the events of one stage, the most weight versions that are the newest or still used by a later task, by
// list order.
int versions_alive(const Events& events) {
    std::map<int, std::pair<int, int>> life;  // version -> first and last position, both included
    const auto lives_at = [&](int version, int position) {
        const auto [at, fresh] = life.try_emplace(version, position, position);
        if (!fresh)
            at->second.second = position;
    };
    int newest = -1, position = 0;
    for (const TraceEvent* event : events) {
        if (is_transfer(event->task.op) || event->version < 0)
            continue;
        // Until the update that replaces it; that update overwrites what nobody needs any more.
        if (newest >= 0 && position > 0)
            lives_at(newest, position - 1);
        lives_at(event->version, position);
        newest = std::max(newest, event->version);
        ++position;
    }
    std::vector<int> alive(static_cast<std::size_t>(position), 0);
    for (const auto& [version, span] : life)
        for (int at = span.first; at <= span.second; ++at)
            ++alive[static_cast<std::size_t>(at)];
    return alive.empty() ? 1 : *std::max_element(alive.begin(), alive.end());
}

int versions_of_device(const Events& events) {
    std::map<int, Events> of_stage;
    for (const TraceEvent* event : events)
        of_stage[event->task.stage].push_back(event);
    int most = 1;
    for (const auto& [stage, own] : of_stage)
        most = std::max(most, versions_alive(own));
    return most;
}

void add_peak_memory(std::vector<DeviceMetrics>& devices, const Trace& trace, int step) {
    for (const MemorySample& sample : trace.memory) {
        if (!trace.asynchronous && sample.step != step)
            continue;
        DeviceMetrics& device = devices[static_cast<std::size_t>(sample.device)];
        if (const Bytes bytes = total(sample.use); bytes > device.peak_memory) {
            device.peak_memory = bytes;
            device.memory = sample.use;
        }
    }
}

DeviceMetrics device_metrics(const Events& events, Ns start_of_step, Ns makespan) {
    DeviceMetrics device;
    for (const TraceEvent* event : events)
        if (is_compute(event->task.op))
            device.busy += event->end - event->start;
    device.idle = makespan - device.busy;
    device.exposed_communication = exposed_communication(events, start_of_step);
    device.peak_in_flight = peak_of_pairs(events, makes_input_gradient);
    device.peak_in_flight_until_weight = peak_of_pairs(events, makes_weight_gradient);
    device.weight_versions = versions_of_device(events);
    return device;
}

// Returns the step with the median makespan, the first left out when there are others.
int median_step(const std::map<int, Events>& steps) {
    std::vector<std::pair<Ns, int>> times;
    for (const auto& [step, events] : steps)
        if (steps.size() == 1 || step != steps.begin()->first)
            times.emplace_back(makespan_of(events), step);
    return times.empty() ? 0 : lower_median(times).second;
}

double ratio(double part, double whole) { return whole > 0 ? part / whole : 0; }

Ns start_of(const Events& events) {
    Ns first = std::numeric_limits<Ns>::max();
    for (const TraceEvent* event : events)
        if (!is_transfer(event->task.op))
            first = std::min(first, event->start);
    return first;
}

Events events_of_metrics(const Trace& trace, int& step) {
    if (trace.asynchronous) {
        Events all;
        for (const TraceEvent& event : trace.events)
            all.push_back(&event);
        return all;
    }
    std::map<int, Events> steps = by_step(trace);
    step = median_step(steps);
    return std::move(steps[step]);
}

}  // namespace

Ns asynchronous_step_time(std::vector<Ns> updates, int stages, Ns makespan) {
    std::vector<Ns> times = distances_of(std::move(updates));
    if (times.empty())
        return makespan;
    const auto edge = static_cast<std::ptrdiff_t>(stages);
    if (std::ssize(times) > 2 * edge) {
        times.erase(times.end() - edge, times.end());
        times.erase(times.begin(), times.begin() + edge);
    }
    return lower_median(times);
}

MicroBatchSizes sizes_of(const Trace& trace) {
    const int count = std::max(1, trace.micro_batches);
    const std::int64_t full = std::int64_t{count} * trace.micro_batch_size;
    return {trace.micro_batch_size, count, trace.mini_batch > 0 ? trace.mini_batch : full};
}

std::vector<Ns> step_times(const Trace& trace) {
    if (trace.asynchronous)
        return distances_of(updates_of_last_stage(trace));
    std::vector<Ns> times;
    for (const auto& [step, events] : by_step(trace))
        times.push_back(makespan_of(events));
    return times;
}

Metrics metrics_of(const Trace& trace) {
    Metrics metrics;
    const Events events = events_of_metrics(trace, metrics.step);
    std::vector<Events> of_device(static_cast<std::size_t>(trace.devices));
    for (const TraceEvent* event : events)
        of_device[static_cast<std::size_t>(event->device)].push_back(event);

    metrics.tasks = static_cast<int>(events.size());
    metrics.makespan = makespan_of(events);
    metrics.step_time = trace.asynchronous
                            ? asynchronous_step_time(updates_of_last_stage(trace), trace.stages, metrics.makespan)
                            : metrics.makespan;
    const Ns start = start_of(events);
    double busy = 0;
    for (const Events& own : of_device) {
        metrics.span = std::max(metrics.span, extent_of(own, is_compute));
        metrics.devices.push_back(device_metrics(own, start, metrics.makespan));
        busy += static_cast<double>(metrics.devices.back().busy);
    }
    add_peak_memory(metrics.devices, trace, metrics.step);
    for (std::size_t device = 0; device < std::min(metrics.devices.size(), trace.reserved.size()); ++device)
        metrics.devices[device].reserved_memory = trace.reserved[device];

    const double ideal = ratio(busy, trace.devices), makespan = static_cast<double>(metrics.makespan);
    metrics.ideal = static_cast<Ns>(ideal + 0.5);
    metrics.bubble_rate = ratio(makespan - ideal, makespan);
    metrics.bubble_ratio = ratio(makespan - ideal, ideal);
    metrics.span_bubble_rate = ratio(static_cast<double>(metrics.span) - ideal, static_cast<double>(metrics.span));
    metrics.samples_per_second = ratio(samples_per_update(trace, events) * 1e9, static_cast<double>(metrics.step_time));
    return metrics;
}

}  // namespace pw
