#include "search/plans/plan_bound.h"

#include "schedules/versions.h"
#include "workloads/bounded.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace pw {

namespace {

std::vector<Task> tasks_of(const Plan& plan, int device, int stage) {
    std::vector<Task> tasks;
    for (const Task& task : plan.order[device])
        if (task.stage == stage && !is_transfer(task.op))
            tasks.push_back(task);
    return tasks;
}

// Returns the most micro-batches that are between F and their backward at once.
int in_flight_of(const std::vector<Task>& tasks) {
    int now = 0, most = 0;
    for (const Task& task : tasks) {
        now += task.op == Op::Forward ? 1 : makes_input_gradient(task.op) ? -1 : 0;
        most = std::max(most, now);
    }
    return now == 0 ? most : 0;  // without backwards nothing is kept
}

bool never(int) { return false; }
bool always(int) { return true; }

bool is_pass(Op op) { return op == Op::Forward || op == Op::BackwardWeight || makes_input_gradient(op); }

// Returns the tasks of the average device, each counted by its device's speed, that are not as long as at speed 1.
double rounded_tasks(const Plan& plan, const std::vector<DeviceConfig>& devices) {
    double rounded = 0, speeds = 0;
    for (std::size_t device = 0; device < devices.size(); ++device) {
        const double speed = devices[device].speed;
        speeds += speed;
        const std::vector<Task>& order = plan.order[device];
        if (speed != 1)
            rounded += speed * static_cast<double>(std::count_if(order.begin(), order.end(),
                                                                 [](const Task& task) { return is_pass(task.op); }));
    }
    return rounded / speeds;
}

// Returns what of a stage's update, or of its optimizer's states, is left for each of its holders.
std::int64_t shard_of(std::int64_t whole, int shards) { return (whole + shards - 1) / shards; }

std::size_t position_of_backward(const std::vector<Task>& tasks, int microbatch) {
    const auto found = std::find_if(tasks.begin(), tasks.end(), [&](const Task& task) {
        return makes_input_gradient(task.op) && task.microbatch == microbatch;
    });
    return static_cast<std::size_t>(found - tasks.begin());
}

}  // namespace

Ns time_of_shared_work(Ns work, int micro_batches, double speeds, double rounded) {
    const double time = static_cast<double>(work) * micro_batches / speeds - rounded / 2;
    return std::max<Ns>(0, static_cast<Ns>(time));
}

Ns PlanBound::Scale::operator()(Ns time) const {
    return (speed == 1 ? time : bounded(static_cast<double>(time) / speed)) + dispatch;
}

void PlanBound::Way::count(const Task& task) {
    forwards += task.op == Op::Forward;
    backwards += makes_input_gradient(task.op);
    weights += task.op == Op::BackwardWeight;
    recomputes += task.op == Op::Recompute;
}

// Goes the way and jumps at the micro-batches for which `jumps_at` says so.
template <class JumpsAt>
PlanBound::Way PlanBound::way_to(const std::vector<Task>& tasks, std::size_t end, JumpsAt jumps_at) {
    Way way;
    for (std::size_t at = 0; at < end; ++at) {
        const Task& task = tasks[at];
        way.count(task);
        if (task.op != Op::Forward || !jumps_at(task.microbatch))
            continue;
        const std::size_t backward = position_of_backward(tasks, task.microbatch);
        if (backward >= end)
            continue;
        ++way.jumps;
        at = backward - 1;  // goes on there
    }
    return way;
}

std::vector<PlanBound::Way> PlanBound::ways_through(const std::vector<Task>& tasks) {
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
    return {way_to(tasks, end, never), way_to(tasks, end, [&](int mb) { return mb == first; }),
            way_to(tasks, end, [&](int mb) { return mb == last; }), way_to(tasks, end, always)};
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

PlanBound::PlanBound(const Plan& plan, Ns dispatch, const Config& config)
    : asynchronous_(plan.asynchronous),
      sharded_(config.training.shard_optimizer),
      micro_batches_(plan.shape.microbatches),
      dispatch_(dispatch) {
    const std::vector<DeviceConfig>& devices = config.cluster.devices;
    const VersionTable versions = versions_of(plan);
    best_ = best_of(devices);
    for (const DeviceConfig& device : devices)
        all_speeds_ += device.speed;
    rounded_ = rounded_tasks(plan, devices);
    for (int number = 0; number < plan.shape.stages; ++number) {
        const std::vector<int> holders = plan.shape.devices_of(number);
        const int device = holders.front();
        const std::vector<Task> tasks = tasks_of(plan, device, number);
        Stage& stage = stages_.emplace_back();
        stage.device = device;
        stage.speed = devices[device].speed;
        stage.available = devices[device].memory;
        stage.ways = ways_through(tasks);
        stage.all = way_to(tasks, tasks.size(), never);
        stage.updates = std::any_of(tasks.begin(), tasks.end(), [](const Task& task) { return task.op == Op::Update; });
        stage.recomputes = stage.all.recomputes > 0;
        stage.in_flight = in_flight_of(tasks);
        stage.versions = versions.held[number];
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
            between_updates_.push_back(way_to(between, between.size(), never));
        begun = true;
        between.clear();
    }
}

Ns PlanBound::path(Ns time) const {
    if (best_.speed == 1)
        return time;
    // every stage on the path may have been rounded down by half a nanosecond
    const Ns scaled = static_cast<Ns>(static_cast<double>(time) / best_.speed) - static_cast<Ns>(stages_.size()) - 1;
    return std::max<Ns>(0, scaled);
}

Ns PlanBound::time_of(const Way& way, const Piece& piece, const Stage& stage, Ns mid) const {
    const Scale scale{stage.speed, dispatch_};
    const bool split = stage.all.weights > 0;
    const int adding = std::max(0, (split ? way.weights : way.backwards) - 1);  // to earlier gradients
    const Ns backward = scale(piece.backward), weight = scale(piece.weight);
    const Ns more =
        split ? scale(piece.weight + piece.accumulate) - weight : scale(piece.backward + piece.accumulate) - backward;
    return way.forwards * scale(piece.forward) + way.backwards * backward + way.weights * weight +
           way.recomputes * scale(piece.recompute) + (asynchronous_ ? 0 : adding * more) + way.jumps * mid;
}

Ns PlanBound::between_updates(const Piece& piece) const {
    Ns least = std::numeric_limits<Ns>::max();
    for (const Way& way : between_updates_)
        least = std::min(least, time_of(way, piece, stages_.back(), 0));
    return least == std::numeric_limits<Ns>::max() ? 0 : least;
}

Ns PlanBound::time(int number, const Piece& piece) const {
    const Stage& stage = stages_[number];
    if (asynchronous_)
        return number + 1 == static_cast<int>(stages_.size()) ? between_updates(piece) : 0;
    const Ns update = update_time(number, piece);
    const Ns head = path(piece.head), mid = path(piece.mid), after = std::max(path(piece.tail), update);
    Ns most = whole_time(number, piece);
    for (const Way& way : stage.ways)
        most = std::max(most, time_of(way, piece, stage, mid) + after);
    return head + most;
}

Ns PlanBound::until_last_backward(int number, const Piece& piece) const {
    const Stage& stage = stages_[number];
    return stage.ways.empty() ? 0 : time_of(stage.ways.front(), piece, stage, 0);
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
    const Way& all = stage.all;
    return stage.speed == 1 ? 0
                            : (parts + 1) * (all.forwards + all.backwards + all.weights + all.recomputes + 1) / 2 + 1;
}

// Which weight gradients come before the last backward depends on the stage: none are counted.
Ns PlanBound::until_last_backwards_in_parts(int number, const Piece& piece, int parts) const {
    const Stage& stage = stages_[number];
    const Scale scale{stage.speed, dispatch_};
    const Way& all = stage.all;
    return all.forwards * scale(piece.forward) + all.backwards * scale(piece.backward) +
           all.recomputes * scale(piece.recompute) - rounding_of(stage, parts);
}

Ns PlanBound::whole_time_in_parts(int number, const Piece& piece, int parts) const {
    return whole_time(number, piece) - rounding_of(stages_[number], parts);
}

// Bounds the time of the holder that serves most micro-batches, as if it were as fast as the fastest device and had the
// most memory.
Ns PlanBound::time_on(int replicas, const Piece& piece, const BestDevice& best) const {
    const Stage& any = stages_.front();
    const Ns served = (micro_batches_ + replicas - 1) / replicas;
    const bool trains = any.all.backwards > 0, split = any.all.weights > 0;
    const int shards = sharded_ ? replicas : 1;
    const Bytes held = trains ? piece.activations : 0;
    const Bytes to_update = any.updates ? piece.weights + shard_of(piece.weights, shards) : 0;
    if (piece.weights + to_update + piece.statistics + held > best.memory)
        return std::numeric_limits<Ns>::max();
    const Ns passes = served * (piece.forward + (trains ? piece.backward : 0));
    const Ns update = any.updates ? shard_of(piece.update, shards) : 0;
    const Ns adding = trains ? (served - 1) * piece.accumulate : 0;
    const Ns whole = passes + adding + (split ? served * piece.weight : 0) + update;
    const Ns time = piece.head + std::max(whole, passes + std::max(trains ? piece.tail : 0, update));
    const Ns rounding = 3 * served + static_cast<Ns>(stages_.size()) + 2;
    return best.one_speed ? time : std::max<Ns>(0, static_cast<Ns>(static_cast<double>(time) / best.speed) - rounding);
}

Bytes PlanBound::memory(int number, const Piece& piece) const {
    const Stage& stage = stages_[number];
    const Bytes gradients = stage.updates ? piece.weights : 0;
    const Bytes momentum = shard_of(gradients, stage.shards);
    const int held = stage.recomputes ? 1 : stage.in_flight;
    return stage.versions * piece.weights + gradients + momentum + piece.statistics + held * piece.activations;
}

Ns PlanBound::work_of(const Piece& model) const { return asynchronous_ ? 0 : passes_of(model); }

Ns PlanBound::passes_of(const Piece& piece) const {
    const Way& way = stages_.front().all;  // every stage has the same kinds of tasks
    return piece.forward + (way.backwards > 0 ? piece.backward : 0) + (way.weights > 0 ? piece.weight : 0);
}

Ns PlanBound::of_work(const Pieces& pieces) const {
    return time_of_shared_work(work_of(pieces.model()), micro_batches_, all_speeds_, rounded_);
}

Ns PlanBound::of_path(const Pieces& pieces) const {
    if (asynchronous_)
        return 0;
    return path(stages_.front().all.backwards > 0 ? pieces.longest_round() : pieces.longest_forward());
}

}  // namespace pw
