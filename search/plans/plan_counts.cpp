// What a bound takes from the task lists of a plan: how many tasks are on which paths, and how long their micro-batches
// are.
#include "job/plan.h"
#include "schedules/plan/versions.h"
#include "search/plans/plan_bound.h"

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <utility>

namespace pw {

namespace {

std::vector<Task> tasks_of(const Plan& plan, int device, int stage, bool with_copies = false) {
    std::vector<Task> tasks;
    for (const Task& task : plan.order[device])
        if (task.stage == stage && (with_copies ? !is_transfer(task.op) : !moves_data(task.op)))
            tasks.push_back(task);
    return tasks;
}

// Returns the largest sum of sizes of the micro-batches whose saved activations are held at once: from F, or from R and
// while F makes them, until the backward, but not between an OFFLOAD and its RELOAD.
template <class SizeOf>
double most_held(const std::vector<Task>& tasks, SizeOf size_of) {
    std::set<int> again;
    bool trains = false;
    for (const Task& task : tasks) {
        trains |= makes_input_gradient(task.op);
        if (task.op == Op::Recompute)
            again.insert(task.microbatch);
    }
    double now = 0, most = 0;
    for (const Task& task : tasks) {
        if (saves_first(task.op) || task.op == Op::Recompute || task.op == Op::Reload) {
            now += size_of(task);
            most = std::max(most, now);
        }
        if (makes_input_gradient(task.op) || task.op == Op::Offload ||
            (saves_first(task.op) && again.contains(task.microbatch)))
            now -= size_of(task);
    }
    return trains ? most : 0;  // without backwards no activation is kept
}

// Returns the same if no two micro-batches are held at once.
template <class SizeOf>
double largest_held(const std::vector<Task>& tasks, SizeOf size_of) {
    double largest = 0;
    for (const Task& task : tasks)
        if (task.op == Op::Forward)
            largest = std::max<double>(largest, size_of(task));
    return largest;
}

bool never(int) { return false; }
bool always(int) { return true; }

bool is_timed(Op op) { return op == Op::Forward || is_backward(op) || op == Op::Update; }

// Returns the number of tasks of the average device whose times are rounded, each weighted by its device's speed.
double rounded_tasks(const Plan& plan, const std::vector<DeviceConfig>& devices, bool unequal) {
    double rounded = 0, speeds = 0;
    for (std::size_t device = 0; device < devices.size(); ++device) {
        const double speed = devices[device].speed;
        speeds += speed;
        const std::vector<Task>& order = plan.order[device];
        const auto passes = static_cast<double>(
            std::count_if(order.begin(), order.end(), [](const Task& task) { return is_timed(task.op); }));
        rounded += (speed != 1 ? speed * passes : 0) + (unequal ? passes : 0);
    }
    return rounded / speeds;
}

// Returns the position of the first backward of each micro-batch, or the end if it has none.
std::vector<std::size_t> positions_of_backwards(const std::vector<Task>& tasks) {
    std::vector<std::size_t> positions;
    for (std::size_t at = tasks.size(); at-- > 0;) {
        const auto microbatch = static_cast<std::size_t>(tasks[at].microbatch);
        if (microbatch >= positions.size())
            positions.resize(microbatch + 1, tasks.size());
        if (makes_input_gradient(tasks[at].op))
            positions[microbatch] = at;
    }
    return positions;
}

}  // namespace

namespace {

// Returns the F that overlap another task.
std::set<Task> forwards_in_pairs(const Plan& plan) {
    std::set<Task> all;
    for (const std::vector<Task>& order : plan.order)
        for (std::size_t at = 0; at + 1 < order.size(); ++at)
            if (order[at].with_next)
                all.insert(order[at].op == Op::Forward ? order[at] : order[at + 1]);
    return all;
}

}  // namespace

double least_micro_batches(const std::vector<MicroBatchLength>& lengths, int micro_batches) {
    if (lengths.empty())
        return micro_batches;
    MicroBatchLength sum{0, 0, 0, 0};
    for (const MicroBatchLength& length : lengths) {
        sum.forward += length.forward;
        sum.backward_input += length.backward_input;
        sum.backward_weight += length.backward_weight;
    }
    return std::min({sum.forward, sum.backward_input, sum.backward_weight}) * kNoMore;
}

namespace {

double shortest_of(const MicroBatchLength& length) {
    return std::min({length.forward, length.backward_input, length.backward_weight});
}

// Returns this part of the times and bytes of a micro-batch.
MicroBatchLength part_of(const MicroBatchLength& whole, double part) {
    return {whole.forward * part, whole.backward_input * part, whole.backward_weight * part, whole.bytes * part};
}

}  // namespace

double PlanBound::TaskLength::shortest() const { return std::min(shortest_of(plain), shortest_of(attention)); }

// Attention takes e^2 - b^2 of its time from b to e of a sequence (workloads/costs/slices.h).
std::vector<PlanBound::TaskLength> PlanBound::lengths_of(const Setup& setup, const SliceEndRange& slices) {
    std::vector<MicroBatchLength> wholes = setup.pipeline.micro_batch_lengths;
    if (wholes.empty() && slices.latest.size() > 1)
        wholes.emplace_back();
    std::vector<TaskLength> lengths;
    for (const MicroBatchLength& whole : wholes) {
        if (slices.latest.empty())
            lengths.push_back({whole, whole});
        double begin = 0;  // at the latest
        for (std::size_t slice = 0; slice < slices.latest.size(); ++slice) {
            const double end = slices.earliest[slice];
            lengths.push_back(
                {part_of(whole, std::max(0.0, end - begin)), part_of(whole, std::max(0.0, end * end - begin * begin))});
            begin = slices.latest[slice];
        }
    }
    return lengths;
}

// B takes at least the time of a whole backward at the shorter of its parts' lengths.
PlanBound::Lengths PlanBound::lengths_of(const Task& task) const {
    if (lengths_.empty())
        return {};
    const TaskLength& length = lengths_[static_cast<std::size_t>(task.microbatch) % lengths_.size()];
    double MicroBatchLength::*const own = facts_of(task.op).length;
    const auto backward = [&](const MicroBatchLength& of) {
        return is_backward(task.op) && own != nullptr ? of.*own : std::min(of.backward_input, of.backward_weight);
    };
    return {{length.plain.forward, length.attention.forward}, {backward(length.plain), backward(length.attention)}};
}

double PlanBound::bytes_of(const Task& task) const {
    return lengths_.empty() ? 1 : lengths_[static_cast<std::size_t>(task.microbatch) % lengths_.size()].plain.bytes;
}

void PlanBound::count(const Task& task, PathCounts& counts) const {
    const auto add = [](int& count, Length& lengths, const Length& length) {
        ++count;
        lengths += length;
    };
    const Lengths length = lengths_of(task);
    switch (task.op) {
        case Op::Forward:
            if (hidden_.contains(task))
                add(counts.hidden, counts.hidden_length, length.forward);
            return add(counts.forwards, counts.forward, length.forward);
        case Op::Backward:
            if (mixed_)
                add(counts.wholes, counts.whole, length.backward);
            return add(counts.backwards, counts.backward, length.backward);
        case Op::BackwardInput:
            return add(counts.backwards, counts.backward, length.backward);
        case Op::BackwardWeight:
            return any_order_ ? add(counts.wholes, counts.whole, length.backward)
                              : add(counts.weights, counts.weight, length.backward);
        case Op::Recompute:
            return add(counts.recomputes, counts.recompute, length.forward);
        case Op::Update:  // update_time()
        case Op::SumGradients:
        case Op::Offload:
        case Op::Reload:
        case Op::Store:
        case Op::Load:
        case Op::SendForward:
        case Op::RecvForward:
        case Op::SendBackward:
        case Op::RecvBackward:
            return;
    }
}

// Follows the list and jumps at the micro-batches for which `jumps_at` is true. An R that follows a jump may run before
// it instead, where the costs or an order that is not known decide that.
template <class JumpsAt>
PlanBound::PathCounts PlanBound::path_to(const std::vector<Task>& tasks, std::size_t end, JumpsAt jumps_at) const {
    PathCounts counts;
    std::vector<std::size_t> backwards;  // made where there are jumps
    for (std::size_t at = 0; at < end; ++at) {
        const Task& task = tasks[at];
        if (task.op != Op::Recompute || counts.jumps == 0 || !moves_recomputes_)
            count(task, counts);
        if (task.op != Op::Forward || !jumps_at(task.microbatch))
            continue;
        if (backwards.empty())
            backwards = positions_of_backwards(tasks);
        const std::size_t backward = backwards[static_cast<std::size_t>(task.microbatch)];
        if (backward >= end)
            continue;
        ++counts.jumps;
        counts.jump += lengths_of(tasks[backward]).both();
        at = backward - 1;  // continues there
    }
    return counts;
}

std::vector<PlanBound::PathCounts> PlanBound::paths_through(const std::vector<Task>& tasks) const {
    std::size_t end = 0;
    int first = -1, last = -1;
    for (std::size_t at = 0; at < tasks.size(); ++at) {
        if (makes_input_gradient(tasks[at].op))
            end = at + 1;
        if (tasks[at].op == Op::Forward) {
            first = first < 0 ? tasks[at].microbatch : first;
            last = tasks[at].microbatch;
        }
    }
    if (end == 0)
        return {};  // nothing flows back
    return {path_to(tasks, end, never), path_to(tasks, end, [&](int mb) { return mb == first; }),
            path_to(tasks, end, [&](int mb) { return mb == last; }), path_to(tasks, end, always)};
}

BestDevice best_of(const std::vector<DeviceConfig>& devices) {
    BestDevice best;
    for (const DeviceConfig& device : devices) {
        best.speed = std::max(best.speed, device.speed);
        best.memory = std::max(best.memory, device.memory);
        best.one_speed = best.one_speed && device.speed == 1;
    }
    return best;
}

void PlanBound::note_lengths(const std::vector<Task>& tasks, Stage& stage) const {
    if (lengths_.empty())
        return;
    bool begun = false;
    for (const Task& task : tasks) {
        if (task.op == Op::Forward && !std::exchange(begun, true))
            stage.first = lengths_of(task).forward.least();
        if (makes_input_gradient(task.op))
            stage.last = lengths_of(task).backward.least();
    }
}

// Returns the time that the host with the most calls needs to issue them.
Ns PlanBound::calls_of(const Plan& plan, const Setup& setup) const {
    if (asynchronous_ || setup.cluster.dispatcher == ClusterConfig::Dispatcher::PerDevice)
        return 0;
    const bool overlaps = exposed_ < 1;         // then a pair is one launch
    std::map<std::string, std::int64_t> calls;  // by host
    for (std::size_t device = 0; device < plan.order.size(); ++device)
        calls[setup.cluster.devices[device].host] +=
            std::count_if(plan.order[device].begin(), plan.order[device].end(),
                          [&](const Task& task) { return !moves_data(task.op) && !(overlaps && task.with_next); });
    Ns most = 0;
    for (const auto& [host, count] : calls)
        most = std::max(most, count * dispatch_);
    return most;
}

PlanBound::PlanBound(const Plan& plan, Ns dispatch, const Setup& setup, const SliceEndRange& slices)
    : kept_(kept_in_bounds(setup)),
      asynchronous_(plan.asynchronous),
      zero_(setup.training.zero),
      any_order_(schedule_of(setup).needs_costs),
      moves_recomputes_(setup.pipeline.recompute.ahead == Recomputation::kByCosts ||
                        (any_order_ && setup.pipeline.recompute.ahead > 0)),
      mixed_(any_order_ || backward_form(plan.order) == BackwardForm::Mixed),
      lengths_(lengths_of(setup, slices)),
      least_(least_micro_batches(setup.pipeline.micro_batch_lengths, plan.shape.microbatches / plan.shape.slices)),
      micro_batches_(plan.shape.microbatches),
      dispatch_(dispatch),
      exposed_(setup.pipeline.pair_exposed) {
    if (exposed_ < 1)
        hidden_ = forwards_in_pairs(plan);
    const std::vector<DeviceConfig>& devices = setup.cluster.devices;
    const VersionTable versions = versions_of(plan);
    best_ = best_of(devices);
    for (const DeviceConfig& device : devices) {
        speeds_.push_back(device.speed);
        all_speeds_ += device.speed;
    }
    calls_ = calls_of(plan, setup);
    if (!lengths_.empty())
        shortest_ = std::numeric_limits<double>::max(), longest_ = longest_bytes_ = 0;
    for (const TaskLength& length : lengths_) {
        shortest_ = std::min(shortest_, length.shortest());
        longest_ = std::max(longest_, length.shortest());
        longest_bytes_ = std::max(longest_bytes_, length.plain.bytes);
    }
    if (mixed_ && !setup.pipeline.micro_batch_lengths.empty()) {  // the length of B is between the lengths of I and W
        least_ = 0;
        for (const TaskLength& length : lengths_)
            least_ += length.shortest() * kNoMore;
    }
    rounded_ = rounded_tasks(plan, devices, !lengths_.empty());
    for (int number = 0; number < plan.shape.stages; ++number) {
        const std::vector<int> holders = plan.shape.devices_of(number);
        const int device = holders.front();
        most_holders_ = std::max(most_holders_, static_cast<int>(holders.size()));
        const std::vector<Task> tasks = tasks_of(plan, device, number);
        Stage& stage = stages_.emplace_back();
        stage.device = device;
        stage.speed = devices[device].speed;
        stage.available = devices[device].memory;
        stage.paths = paths_through(tasks);
        stage.all = path_to(tasks, tasks.size(), never);
        stage.updates = std::any_of(tasks.begin(), tasks.end(), [](const Task& task) { return task.op == Op::Update; });
        const auto size_of = [&](const Task& task) { return bytes_of(task); };
        stage.held =
            any_order_ ? largest_held(tasks, size_of) : most_held(tasks_of(plan, device, number, true), size_of);
        stage.versions = versions.held[number];
        note_lengths(tasks, stage);
        stage.shards = zero_ > 0 ? static_cast<int>(holders.size()) : 1;
    }
    if (!asynchronous_)
        return;
    const int last = plan.shape.stages - 1;
    bool begun = false;
    std::vector<Task> between;
    for (const Task& task : tasks_of(plan, plan.shape.devices_of(last).front(), last)) {
        if (task.op != Op::Update) {
            between.push_back(task);
            continue;
        }
        if (begun)
            between_updates_.push_back(path_to(between, between.size(), never));
        begun = true;
        between.clear();
    }
}

}  // namespace pw
