#include "sim/metrics.h"

#include "workloads/median.h"

#include <algorithm>
#include <limits>
#include <map>
#include <tuple>
#include <utility>

namespace pw {

namespace {

using Events = std::span<const TraceEvent>;  // of one device, in list order
using Pointers = std::vector<const TraceEvent*>;

// From the first start to the last end. Without events, an empty interval.
struct Extent {
    Ns first = std::numeric_limits<Ns>::max(), last = std::numeric_limits<Ns>::min();
    void add(const TraceEvent& event) {
        first = std::min(first, event.start);
        last = std::max(last, event.end);
    }
    Ns length() const { return last > first ? last - first : 0; }
};

Extent extent_of(const Pointers& events) {
    Extent extent;
    for (const TraceEvent* event : events)
        if (!moves_data(event->task.op))
            extent.add(*event);
    return extent;
}

std::map<int, Pointers> by_step(const Trace& trace) {
    std::map<int, Pointers> steps;
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

std::vector<Ns> distances_of(std::vector<Ns> updates) {
    std::sort(updates.begin(), updates.end());
    std::vector<Ns> distances;
    for (std::size_t k = 1; k < updates.size(); ++k)
        distances.push_back(updates[k] - updates[k - 1]);
    return distances;
}

using Pair = std::pair<int, int>;  // stage, micro-batch

// Finds items in a sorted list. Mostly the next item is wanted.
template <class Item, class Key>
class Finder {
public:
    Finder(const std::vector<Item>& sorted, Key key) : sorted_(sorted), key_(key) {}

    // Returns the begin of the items with the wanted key, or the end.
    template <class Wanted>
    auto operator()(const Wanted& wanted) {
        const auto begin = sorted_.begin() + next_;
        const bool is_next =
            begin != sorted_.end() && key_(*begin) == wanted && (next_ == 0 || key_(*std::prev(begin)) != wanted);
        const auto before = [this](const Item& item, const Wanted& other) { return key_(item) < other; };
        const auto found = is_next ? begin : std::lower_bound(sorted_.begin(), sorted_.end(), wanted, before);
        if (found == sorted_.end() || key_(*found) != wanted)
            return sorted_.end();
        next_ = found - sorted_.begin() + 1;
        return found;
    }

private:
    const std::vector<Item>& sorted_;
    Key key_;
    std::ptrdiff_t next_ = 0;
};

// Returns the most (stage, micro-batch) pairs between the start of F and the end of the task that frees them. A pair
// without such a task (no backward pass) ends with its F.
template <class Frees>
int peak_of_pairs(Events events, Frees frees) {
    std::vector<Pair> freed;
    for (const TraceEvent& event : events)
        if (frees(event.task.op))
            freed.emplace_back(event.task.stage, event.task.microbatch);
    if (!std::is_sorted(freed.begin(), freed.end()))
        std::sort(freed.begin(), freed.end());
    Finder find(freed, [](const Pair& pair) { return pair; });
    const auto is_freed = [&](const Task& task) { return find(Pair{task.stage, task.microbatch}) != freed.end(); };
    std::vector<std::pair<Ns, int>> changes;
    for (const TraceEvent& event : events) {
        const bool forward = saves_first(event.task.op);
        if (forward)
            changes.emplace_back(event.start, 1);
        if (frees(event.task.op) || (forward && !is_freed(event.task)))
            changes.emplace_back(event.end, -1);
    }
    // Stable: at equal times, list order decides what ends before what begins.
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

// Returns the idle time right before F, B and I while a tensor of that very task is under way.
Ns exposed_communication(Events events, Ns start_of_step) {
    using Tensor = std::pair<int, int>;  // stage, micro-batch
    using Arrival = std::pair<Tensor, Interval>;
    std::vector<Arrival> activations, gradients;
    for (const TraceEvent& event : events)
        if (const Task& task = event.task; is_recv(task.op))
            (carries_gradients(task.op) ? gradients : activations)
                .push_back({{task.stage, task.microbatch}, {event.start, event.end}});
    for (std::vector<Arrival>* all : {&activations, &gradients})
        if (!std::is_sorted(all->begin(), all->end()))
            std::sort(all->begin(), all->end());
    const auto tensor_of = [](const Arrival& arrival) { return arrival.first; };
    Finder find_activation(activations, tensor_of), find_gradient(gradients, tensor_of);
    std::vector<Interval> own;
    Ns exposed = 0, idle_since = start_of_step;
    const auto add_arrivals = [&](const Task& task) {
        if (!reads(task.op, Op::RecvForward) && !reads(task.op, Op::RecvBackward))
            return;
        const bool forward = reads(task.op, Op::RecvForward);
        const std::vector<Arrival>& all = forward ? activations : gradients;
        const Tensor tensor{task.stage, task.microbatch};
        for (auto at = forward ? find_activation(tensor) : find_gradient(tensor);
             at != all.end() && at->first == tensor; ++at)
            own.push_back(at->second);
    };
    for (std::size_t number = 0; number < events.size(); ++number) {
        const TraceEvent& event = events[number];
        if (moves_data(event.task.op))
            continue;
        if (event.start > idle_since) {
            own.clear();
            add_arrivals(event.task);
            if (event.task.with_next && number + 1 < events.size()) {  // a pair waits for the tensors of both
                add_arrivals(events[number + 1].task);
                std::sort(own.begin(), own.end());
            }
            exposed += covered(own, idle_since, event.start);
        }
        idle_since = std::max(idle_since, event.end);
    }
    return exposed;
}

// Counts the weight versions of a stage that are the newest or still used by a later task, by list order.
class VersionsAlive {
public:
    void add(const TraceEvent& event) {
        // Until the update that replaces it. That update overwrites a version that no task needs any more.
        if (newest_ >= 0 && position_ > 0)
            lives_at(newest_, position_ - 1);
        lives_at(event.version, position_);
        newest_ = std::max(newest_, event.version);
        ++position_;
    }

    int most() const {
        std::vector<int> change(static_cast<std::size_t>(position_) + 1, 0);
        for (const auto& [version, life] : life_) {
            ++change[static_cast<std::size_t>(life.first)];
            --change[static_cast<std::size_t>(life.second) + 1];
        }
        int now = 0, most = 0;
        for (const int step : change)
            most = std::max(most, now += step);
        return position_ == 0 ? 1 : most;
    }

private:
    void lives_at(int version, int position) {
        life_.try_emplace(version, position, position).first->second.second = position;
    }

    std::map<int, std::pair<int, int>> life_;  // by version: first and last position, both included
    int newest_ = -1, position_ = 0;
};

int versions_of_device(Events events) {
    std::map<int, VersionsAlive> of_stage;
    VersionsAlive* own = nullptr;
    int stage = -1;
    for (const TraceEvent& event : events) {
        if (moves_data(event.task.op) || event.version < 0)
            continue;
        if (!own || event.task.stage != stage)
            own = &of_stage[stage = event.task.stage];
        own->add(event);
    }
    int most = 1;
    for (const auto& [number, alive] : of_stage)
        most = std::max(most, alive.most());
    return most;
}

// Returns the step with the median makespan. The first step is left out when there are more.
int median_step(const std::map<int, Pointers>& steps) {
    std::vector<std::pair<Ns, int>> times;
    for (const auto& [step, events] : steps)
        if (steps.size() == 1 || step != steps.begin()->first)
            times.emplace_back(extent_of(events).length(), step);
    return times.empty() ? 0 : lower_median(times).second;
}

double ratio(double part, double whole) { return whole > 0 ? part / whole : 0; }

Pointers events_of_metrics(const Trace& trace, int& step) {
    if (trace.asynchronous) {
        Pointers all;
        for (const TraceEvent& event : trace.events)
            all.push_back(&event);
        return all;
    }
    std::map<int, Pointers> steps = by_step(trace);
    step = median_step(steps);
    return std::move(steps[step]);
}

void sort_and_drop_doubles(std::vector<int>& numbers) {
    std::sort(numbers.begin(), numbers.end());
    numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
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
    return {trace.micro_batch_size, count, trace.mini_batch > 0 ? trace.mini_batch / trace.replicas : full};
}

std::int64_t samples_of_mini_batch(const Trace& trace) { return sizes_of(trace).mini_batch * trace.replicas; }

std::vector<Ns> step_times(const Trace& trace) {
    if (trace.asynchronous)
        return distances_of(updates_of_last_stage(trace));
    std::vector<Ns> times;
    for (const auto& [step, events] : by_step(trace))
        times.push_back(extent_of(events).length());
    return times;
}

StepMetrics::StepMetrics(const Trace& head, Ns first, Ns last) : head_(head), start_(first) {
    metrics_.makespan = last > first ? last - first : 0;
}

void StepMetrics::add(std::span<const TraceEvent> own) {
    DeviceMetrics& device = metrics_.devices.emplace_back();
    Extent computed;
    bool splits = false;
    const std::vector<Ns> times = own_times(own);
    for (std::size_t number = 0; number < own.size(); ++number) {
        const TraceEvent& event = own[number];
        const Op op = event.task.op;
        if (is_compute(op)) {
            device.busy += times[number];
            computed.add(event);
        }
        if (!moves_data(op))
            device.last_end = std::max(device.last_end, event.end - start_);
        if (op == Op::SumGradients || op == Op::Update)
            (op == Op::Update ? device.updates : device.sums) += event.end - event.start;
        splits |= op == Op::BackwardInput || op == Op::BackwardWeight;
        if (event.task.stage == head_.stages - 1 && (op == Op::Forward || op == Op::Update))
            (op == Op::Forward ? microbatches_ : updates_).push_back(event.task.whole());
    }
    device.idle = metrics_.makespan - device.busy;
    device.exposed_communication = exposed_communication(own, start_);
    device.peak_in_flight = peak_of_pairs(own, makes_input_gradient);
    device.peak_in_flight_until_weight = splits ? peak_of_pairs(own, makes_weight_gradient) : device.peak_in_flight;
    device.weight_versions = versions_of_device(own);
    metrics_.tasks += static_cast<int>(own.size());
    metrics_.span = std::max(metrics_.span, computed.length());
    busy_ += static_cast<double>(device.busy);
}

// Returns the samples of all replicas between two updates of the last stage, or in a whole step.
double StepMetrics::samples_per_update() {
    sort_and_drop_doubles(microbatches_);
    sort_and_drop_doubles(updates_);
    const MicroBatchSizes sizes = sizes_of(head_);
    double samples = 0;
    for (const int microbatch : microbatches_)
        samples += sizes.of(microbatch) * static_cast<double>(head_.replicas);
    return head_.asynchronous && !updates_.empty() ? samples / static_cast<double>(updates_.size()) : samples;
}

Metrics StepMetrics::of_step(Ns step_time) {
    const double ideal = ratio(busy_, head_.devices), makespan = static_cast<double>(metrics_.makespan);
    metrics_.step_time = step_time;
    metrics_.ideal = static_cast<Ns>(ideal + 0.5);
    metrics_.bubble_rate = ratio(makespan - ideal, makespan);
    metrics_.bubble_ratio = ratio(makespan - ideal, ideal);
    metrics_.span_bubble_rate = ratio(static_cast<double>(metrics_.span) - ideal, static_cast<double>(metrics_.span));
    metrics_.samples_per_second = ratio(samples_per_update() * 1e9, static_cast<double>(step_time));
    return std::move(metrics_);
}

namespace {

Ns step_time_of(const Trace& trace, Ns makespan) {
    return trace.asynchronous ? asynchronous_step_time(updates_of_last_stage(trace), trace.stages, makespan) : makespan;
}

}  // namespace

Ns step_time_of(const Trace& trace) {
    Extent extent;
    for (const TraceEvent& event : trace.events)
        if (!moves_data(event.task.op))
            extent.add(event);
    return step_time_of(trace, extent.length());
}

Metrics metrics_of(const Trace& trace) {
    int step = 0;
    const Pointers events = events_of_metrics(trace, step);
    const Extent extent = extent_of(events);
    StepMetrics of_devices(trace, extent.first, extent.last);
    std::vector<Pointers> of_device(static_cast<std::size_t>(trace.devices));
    for (const TraceEvent* event : events)
        of_device[static_cast<std::size_t>(event->device)].push_back(event);
    std::vector<TraceEvent> own;
    for (const Pointers& pointers : of_device) {
        own.clear();
        for (const TraceEvent* event : pointers)
            own.push_back(*event);
        of_devices.add(own);
    }
    Metrics metrics = of_devices.of_step(step_time_of(trace, extent.length()));
    metrics.step = step;
    for (const MemorySample& sample : trace.memory)
        if (trace.asynchronous || sample.step == step)
            note_memory(metrics.devices[static_cast<std::size_t>(sample.device)], sample.use);
    for (std::size_t device = 0; device < std::min(metrics.devices.size(), trace.reserved.size()); ++device)
        metrics.devices[device].reserved_memory = trace.reserved[device];
    return metrics;
}

void note_memory(DeviceMetrics& device, const MemoryUse& use) {
    if (const Bytes bytes = total(use); bytes > device.peak_memory) {
        device.peak_memory = bytes;
        device.memory = use;
    }
}

}  // namespace pw
