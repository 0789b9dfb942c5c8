#include "search/plans/plan_bound.h"

#include "schedules/plan/versions.h"
#include "workloads/bounded.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <utility>

namespace pw {

namespace {

std::vector<Task> tasks_of(const Plan& plan, int device, int stage) {
    std::vector<Task> tasks;
    for (const Task& task : plan.order[device])
        if (task.stage == stage && !is_transfer(task.op))
            tasks.push_back(task);
    return tasks;
}

// Returns by how many the micro-batches between F and their backward grow.
int opened_by(const Task& task) { return saves_first(task.op) ? 1 : makes_input_gradient(task.op) ? -1 : 0; }

// Returns the most micro-batches that are between F and their backward at once.
int in_flight_of(const std::vector<Task>& tasks) {
    int now = 0, most = 0;
    for (const Task& task : tasks) {
        now += opened_by(task);
        most = std::max(most, now);
    }
    return now == 0 ? most : 0;  // without backwards no activation is kept
}

constexpr double kNoMore = 1 - 1e-9;  // an allowance for rounded sums of doubles

bool never(int) { return false; }
bool always(int) { return true; }

bool is_pass(Op op) { return op == Op::Forward || is_backward(op); }

// Returns the number of tasks of the average device whose times are rounded, each weighted by its device's speed.
double rounded_tasks(const Plan& plan, const std::vector<DeviceConfig>& devices, bool unequal) {
    double rounded = 0, speeds = 0;
    for (std::size_t device = 0; device < devices.size(); ++device) {
        const double speed = devices[device].speed;
        speeds += speed;
        const std::vector<Task>& order = plan.order[device];
        const auto passes = static_cast<double>(
            std::count_if(order.begin(), order.end(), [](const Task& task) { return is_pass(task.op); }));
        rounded += (speed != 1 ? speed * passes : 0) + (unequal ? passes : 0);
    }
    return rounded / speeds;
}

// Returns each holder's part of a stage's update, or of its optimizer's states.
std::int64_t shard_of(std::int64_t whole, int shards) { return (whole + shards - 1) / shards; }

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

// Returns a lower bound on sizes that were rounded up to this length.
Bytes least_bytes(Bytes bytes, double length) {
    return length == 1 ? bytes : static_cast<Bytes>(static_cast<double>(bytes) * length * kNoMore);
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

Ns time_of_shared_work(Ns work, double micro_batches, double speeds, double rounded) {
    const double time = static_cast<double>(work) * micro_batches / speeds - rounded / 2;
    return std::max<Ns>(0, static_cast<Ns>(time));
}

Ns PlanBound::Scale::operator()(Ns time) const {
    return (speed == 1 ? time : bounded(static_cast<double>(time) / speed)) + dispatch;
}

// B takes at least the time of a whole backward at the shorter of its parts' lengths.
PlanBound::Lengths PlanBound::lengths_of(const Task& task) const {
    if (lengths_.empty())
        return {};
    const MicroBatchLength& length = lengths_[static_cast<std::size_t>(task.microbatch) % lengths_.size()];
    double MicroBatchLength::*const own = facts_of(task.op).length;
    return {length.forward, is_backward(task.op) && own != nullptr
                                ? length.*own
                                : std::min(length.backward_input, length.backward_weight)};
}

void PlanBound::count(const Task& task, PathCounts& counts) const {
    const auto add = [](int& count, double& lengths, double length) {
        ++count;
        lengths += length;
    };
    const Lengths length = lengths_of(task);
    switch (task.op) {
        case Op::Forward:
            return add(counts.forwards, counts.forward, length.forward);
        case Op::Backward:
            if (mixed_)
                add(counts.wholes, counts.whole, length.backward);
            return add(counts.backwards, counts.backward, length.backward);
        case Op::BackwardInput:
            return add(counts.backwards, counts.backward, length.backward);
        case Op::BackwardWeight:
            return add(counts.weights, counts.weight, length.backward);
        case Op::Recompute:
            return add(counts.recomputes, counts.recompute, length.forward);
        case Op::Update:  // update_time()
        case Op::SumGradients:
        case Op::SendForward:
        case Op::RecvForward:
        case Op::SendBackward:
        case Op::RecvBackward:
            return;
    }
}

// Every length's time is rounded by half a nanosecond, and that divided by a speed once more.
Ns PlanBound::passes(int count, double length, Ns time, const Stage& stage) const {
    if (lengths_.empty())
        return count * Scale{stage.speed, dispatch_}(time);
    const double rounded = count * (0.5 / stage.speed + 1);
    const double all = static_cast<double>(time) * length * kNoMore / stage.speed - rounded;
    return count * dispatch_ + std::max<Ns>(0, static_cast<Ns>(all));
}

// What B takes longer than `backward`, without a dispatch of its own.
Ns PlanBound::rests(int count, double length, Ns time, const Stage& stage) const {
    if (lengths_.empty() && stage.speed == 1)
        return count * time;
    const double all = static_cast<double>(time) * (lengths_.empty() ? count : length) * kNoMore / stage.speed;
    return std::max<Ns>(0, static_cast<Ns>(all - count * (0.5 / stage.speed + 1)));
}

// The times of the paths from F over the later stages to the backward.
Ns PlanBound::round_trips(const PathCounts& counts, Ns time) const {
    if (lengths_.empty())
        return counts.jumps * path(time);
    const double rounded = counts.jumps * 2.0 * static_cast<double>(stages_.size()) * (0.5 / best_.speed + 1);
    return std::max<Ns>(0, static_cast<Ns>(static_cast<double>(time) * counts.jump * kNoMore / best_.speed - rounded));
}

// Follows the list and jumps at the micro-batches for which `jumps_at` is true.
template <class JumpsAt>
PlanBound::PathCounts PlanBound::path_to(const std::vector<Task>& tasks, std::size_t end, JumpsAt jumps_at) const {
    PathCounts counts;
    std::vector<std::size_t> backwards;  // made where there are jumps
    for (std::size_t at = 0; at < end; ++at) {
        const Task& task = tasks[at];
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
    double now = 0, most = 0, longest = 0;
    bool begun = false;
    for (const Task& task : tasks) {
        const double bytes = lengths_[static_cast<std::size_t>(task.microbatch) % lengths_.size()].bytes;
        if (task.op == Op::Forward && !std::exchange(begun, true))
            stage.first = lengths_of(task).forward;
        if (makes_input_gradient(task.op)) {
            stage.last = lengths_of(task).backward;
            longest = std::max(longest, bytes);
        }
        now += opened_by(task) * bytes;
        most = std::max(most, now);
    }
    stage.in_flight_bytes = stage.recomputes ? longest : stage.in_flight > 0 ? most : 0;
}

// Returns the time that the host with the most calls needs to issue them.
Ns PlanBound::calls_of(const Plan& plan, const Config& config) const {
    if (asynchronous_ || config.cluster.dispatcher == ClusterConfig::Dispatcher::PerDevice)
        return 0;
    std::map<std::string, std::int64_t> calls;  // by host
    for (std::size_t device = 0; device < plan.order.size(); ++device)
        calls[config.cluster.devices[device].host] +=
            std::count_if(plan.order[device].begin(), plan.order[device].end(),
                          [](const Task& task) { return !is_transfer(task.op); });
    Ns most = 0;
    for (const auto& [host, count] : calls)
        most = std::max(most, count * dispatch_);
    return most;
}

PlanBound::PlanBound(const Plan& plan, Ns dispatch, const Config& config)
    : optimizer_(config.training.optimizer),
      asynchronous_(plan.asynchronous),
      sharded_(config.training.shard_optimizer),
      mixed_(backward_form(plan.order) == BackwardForm::Mixed),
      lengths_(config.pipeline.micro_batch_lengths),
      least_(least_micro_batches(lengths_, plan.shape.microbatches)),
      micro_batches_(plan.shape.microbatches),
      dispatch_(dispatch) {
    const std::vector<DeviceConfig>& devices = config.cluster.devices;
    const VersionTable versions = versions_of(plan);
    best_ = best_of(devices);
    for (const DeviceConfig& device : devices)
        all_speeds_ += device.speed;
    calls_ = calls_of(plan, config);
    const auto shortest_of = [](const MicroBatchLength& length) {
        return std::min({length.forward, length.backward_input, length.backward_weight});
    };
    if (!lengths_.empty())
        shortest_ = std::numeric_limits<double>::max(), longest_ = longest_bytes_ = 0;
    for (const MicroBatchLength& length : lengths_) {
        shortest_ = std::min(shortest_, shortest_of(length));
        longest_ = std::max(longest_, shortest_of(length));
        longest_bytes_ = std::max(longest_bytes_, length.bytes);
    }
    if (mixed_ && !lengths_.empty()) {  // B has its own length, between those of I and W
        least_ = 0;
        for (const MicroBatchLength& length : lengths_)
            least_ += shortest_of(length) * kNoMore;
    }
    rounded_ = rounded_tasks(plan, devices, !lengths_.empty());
    for (int number = 0; number < plan.shape.stages; ++number) {
        const std::vector<int> holders = plan.shape.devices_of(number);
        const int device = holders.front();
        const std::vector<Task> tasks = tasks_of(plan, device, number);
        Stage& stage = stages_.emplace_back();
        stage.device = device;
        stage.speed = devices[device].speed;
        stage.available = devices[device].memory;
        stage.paths = paths_through(tasks);
        stage.all = path_to(tasks, tasks.size(), never);
        stage.updates = std::any_of(tasks.begin(), tasks.end(), [](const Task& task) { return task.op == Op::Update; });
        stage.recomputes = stage.all.recomputes > 0;
        stage.in_flight = in_flight_of(tasks);
        stage.versions = versions.held[number];
        note_lengths(tasks, stage);
        stage.shards = sharded_ ? static_cast<int>(holders.size()) : 1;
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

Ns PlanBound::path(Ns time, double length, double speed) const {
    if (speed == 1 && length == 1)
        return time;
    // every stage on the path, there and back, may have been rounded down by half a nanosecond, and for its length
    const double each = length == 1 ? 1 : 2 + 1 / speed;
    const double scaled = static_cast<double>(time) * (length == 1 ? 1 : length * kNoMore) / speed;
    return std::max<Ns>(0, static_cast<Ns>(scaled) - static_cast<Ns>(each * static_cast<double>(stages_.size())) - 1);
}

Ns PlanBound::time_of(const PathCounts& counts, const Piece& piece, const Stage& stage, Ns mid) const {
    const Scale scale{stage.speed, dispatch_};
    const bool split = stage.all.weights > 0;
    const int adding = std::max(0, (split ? counts.weights : counts.backwards) - 1);  // to earlier gradients
    const Ns own = split ? piece.weight : piece.backward;
    const Ns more = lengths_.empty() ? scale(own + piece.accumulate) - scale(own)
                                     : std::max<Ns>(0, scale(piece.accumulate) - dispatch_ - 2);
    return passes(counts.forwards, counts.forward, piece.forward, stage) +
           passes(counts.backwards, counts.backward, piece.backward, stage) +
           passes(counts.weights, counts.weight, piece.weight, stage) +
           rests(counts.wholes, counts.whole, piece.rest, stage) +
           passes(counts.recomputes, counts.recompute, piece.recompute, stage) + (asynchronous_ ? 0 : adding * more) +
           round_trips(counts, mid);
}

Ns PlanBound::between_updates(const Piece& piece) const {
    Ns least = std::numeric_limits<Ns>::max();
    for (const PathCounts& counts : between_updates_)
        least = std::min(least, time_of(counts, piece, stages_.back(), 0));
    return least == std::numeric_limits<Ns>::max() ? 0 : least;
}

Ns PlanBound::time(int number, const Piece& piece) const {
    const Stage& stage = stages_[number];
    if (asynchronous_)
        return number + 1 == static_cast<int>(stages_.size()) ? between_updates(piece) : 0;
    const Ns update = update_time(number, piece);
    const Ns first = head(number, piece), after = std::max(tail(number, piece), update);
    Ns most = whole_time(number, piece);
    for (const PathCounts& counts : stage.paths)
        most = std::max(most, time_of(counts, piece, stage, piece.mid) + after);
    return first + most;
}

Ns PlanBound::until_last_backward(int number, const Piece& piece) const {
    const Stage& stage = stages_[number];
    return stage.paths.empty() ? 0 : time_of(stage.paths.front(), piece, stage, 0);
}

Ns PlanBound::update_time(int number, const Piece& piece) const {
    const Stage& stage = stages_[number];
    return stage.updates ? Scale{stage.speed, dispatch_}(shard_of(piece.update, stage.shards)) : 0;
}

Ns PlanBound::whole_time(int number, const Piece& piece) const {
    const Stage& stage = stages_[number];
    return time_of(stage.all, piece, stage, 0) + update_time(number, piece);
}

// A time that is rounded in every part may be shorter than the rounded whole.
Ns PlanBound::rounding_of(const Stage& stage, int parts) const {
    const PathCounts& all = stage.all;
    const Ns tasks = all.forwards + all.backwards + all.weights + all.recomputes + 1;
    if (!lengths_.empty())
        return static_cast<Ns>((parts + 1) * static_cast<double>(tasks) * (0.5 / stage.speed + 1)) + 1;
    return stage.speed == 1 ? 0 : (parts + 1) * tasks / 2 + 1;
}

// Which weight gradients come before the last backward depends on the stage: none are counted.
Ns PlanBound::until_last_backwards_in_parts(int number, const Piece& piece, int parts) const {
    const Stage& stage = stages_[number];
    const PathCounts& all = stage.all;
    return passes(all.forwards, all.forward, piece.forward, stage) +
           passes(all.backwards, all.backward, piece.backward, stage) +
           passes(all.recomputes, all.recompute, piece.recompute, stage) - rounding_of(stage, parts);
}

Ns PlanBound::whole_time_in_parts(int number, const Piece& piece, int parts) const {
    return whole_time(number, piece) - rounding_of(stages_[number], parts);
}

// Bounds the time of the holder that serves the most micro-batches, as if it were as fast as the fastest device and had
// the most memory.
Ns PlanBound::time_on(int replicas, const Piece& piece, const BestDevice& best) const {
    const Stage& any = stages_.front();
    const Ns served = (micro_batches_ + replicas - 1) / replicas;
    const bool trains = any.all.backwards > 0, split = any.all.weights > 0;
    const int shards = sharded_ ? replicas : 1;
    const Bytes held = trains ? least_bytes(piece.activations, longest_bytes_) : 0;
    const TrainingBytes state = training_bytes(piece.weights, optimizer_);
    const Bytes to_update = any.updates ? state.gradients + shard_of(state.states, shards) : 0;
    if (piece.weights + to_update + piece.statistics + held > best.memory)
        return std::numeric_limits<Ns>::max();
    const Ns update = any.updates ? shard_of(piece.update, shards) : 0;
    if (!lengths_.empty())
        return time_on_average(replicas, piece, best, update);
    const Ns passes = served * (piece.forward + (trains ? piece.backward : 0));
    const Ns adding = trains ? (served - 1) * piece.accumulate : 0;
    const Ns whole = passes + adding + (split ? served * piece.weight : 0) + update;
    const Ns time = piece.head + std::max(whole, passes + std::max(trains ? piece.tail : 0, update));
    const Ns rounding = 3 * served + static_cast<Ns>(stages_.size()) + 2;
    return best.one_speed ? time : std::max<Ns>(0, static_cast<Ns>(static_cast<double>(time) / best.speed) - rounding);
}

// Some holder takes as long as all do on average, which counts all lengths.
Ns PlanBound::time_on_average(int replicas, const Piece& piece, const BestDevice& best, Ns update) const {
    const Stage& any = stages_.front();
    const bool trains = any.all.backwards > 0, split = any.all.weights > 0;
    const double served = least_ / replicas, tasks = 3.0 * micro_batches_ / replicas;
    const double passes = served * static_cast<double>(piece.forward + (trains ? piece.backward : 0));
    const double adding = trains ? std::max(0.0, static_cast<double>(micro_batches_) / replicas - 1) *
                                       static_cast<double>(piece.accumulate)
                                 : 0;
    const double whole = passes + adding + (split ? served * static_cast<double>(piece.weight) : 0);
    const auto least = [&](double time) {
        return std::max<Ns>(0, static_cast<Ns>(time * kNoMore / best.speed - tasks * (0.5 / best.speed + 1) - 1));
    };
    const Ns updated =
        best.one_speed ? update : std::max<Ns>(0, static_cast<Ns>(static_cast<double>(update) / best.speed) - 1);
    return path(piece.head, shortest_, best.speed) +
           std::max(least(whole) + updated,
                    least(passes) + std::max(trains ? path(piece.tail, shortest_, best.speed) : 0, updated));
}

Bytes PlanBound::memory(int number, const Piece& piece) const {
    const Stage& stage = stages_[number];
    const TrainingBytes state = training_bytes(piece.weights, optimizer_);
    const Bytes updated = stage.updates ? state.gradients + shard_of(state.states, stage.shards) : 0;
    const int held = stage.recomputes ? 1 : stage.in_flight;
    const Bytes activations =
        lengths_.empty() ? held * piece.activations : least_bytes(piece.activations, stage.in_flight_bytes);
    return stage.versions * piece.weights + updated + piece.statistics + activations;
}

Ns PlanBound::work_of(const Piece& model) const { return asynchronous_ ? 0 : passes_of(model); }

Ns PlanBound::passes_of(const Piece& piece) const {
    const PathCounts& counts = stages_.front().all;  // every stage has the same kinds of tasks
    return piece.forward + (counts.backwards > 0 ? piece.backward : 0) +
           (mixed_               ? piece.rest
            : counts.weights > 0 ? piece.weight
                                 : 0);
}

Ns PlanBound::of_work(const Pieces& pieces) const {
    return time_of_shared_work(work_of(pieces.model()), least_, all_speeds_, rounded_);
}

Ns PlanBound::of_path(const Pieces& pieces) const {
    if (asynchronous_)
        return 0;
    return path(stages_.front().all.backwards > 0 ? pieces.longest_round() : pieces.longest_forward(), longest_);
}

}  // namespace pw
