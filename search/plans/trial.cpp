#include "search/plans/trial.h"

#include "job/build.h"
#include "schedules/orders/schedule.h"
#include "search/plans/device_bound.h"
#include "search/plans/longest_time.h"
#include "workloads/bounded.h"
#include "workloads/error.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace pw {

SizedModel::SizedModel(const SearchProblem& problem, const StageSpace& space, int samples)
    : profile(problem.profile_at(samples)), costs(problem.model, profile, samples), problem_(problem), space_(space) {
    const auto backward_of = [](const StageCost& cost) {
        return std::min(cost.backward, cost.backward_input + cost.backward_weight);
    };
    for (std::size_t layer = 0; layer < costs.alone().size(); ++layer) {
        const StageCost& alone = costs.alone()[layer];
        const StageCost& busy = costs.busy().empty() ? alone : costs.busy()[layer];
        forward += std::min(alone.forward, busy.forward);
        backward += std::min(backward_of(alone), backward_of(busy));
        weights += costs.bytes()[layer].weights;
    }
}

const Pieces& SizedModel::pieces(bool split_backward, Deadline& deadline) const {
    const std::lock_guard lock(mutex_);
    std::optional<Pieces>& pieces = split_backward ? split_ : fused_;
    if (!pieces)
        pieces.emplace(problem_.model.layers, space_, costs, split_backward, deadline);
    return *pieces;
}

Trial::Trial(const SearchProblem& problem, const StageSpace& space, const SizedModel& model, PlanChoice choice)
    : problem_(problem), space_(space), model_(model) {
    found_.choice = std::move(choice);
    if (const Schedule& schedule = schedule_named(problem_.config, found_.choice.schedule); !schedule.asynchronous())
        work_ = model.forward + (schedule.trains ? model.backward : 0);
    double speeds = 0;
    for (const int device : found_.choice.devices)
        speeds += problem.config.cluster.devices[device].speed;
    found_.lower_bound = bound_of_any_devices(speeds);
    expect();
}

// Returns the rounded tasks of any plan of the choice with any number of devices: see time_of_shared_work().
double Trial::rounded_tasks(double speeds) const {
    const std::vector<DeviceConfig>& devices = problem_.config.cluster.devices;
    const bool one_speed =
        std::all_of(devices.begin(), devices.end(), [](const DeviceConfig& device) { return device.speed == 1; });
    const double tasks = 3.0 * found_.choice.micro_batches * found_.choice.stages;
    return (one_speed ? 0 : tasks) + (problem_.config.pipeline.micro_batch_lengths.empty() ? 0 : tasks / speeds);
}

// Expects equal stages on equal devices: work, then bubble, then sums of gradients.
void Trial::expect() {
    const PlanChoice& choice = found_.choice;
    const auto devices = static_cast<int>(choice.devices.size());
    const int pipelines = std::max(1, devices / choice.stages), depth = devices / pipelines;
    Bytes most = 0;
    for (const int device : choice.devices)
        most = std::max(most, problem_.config.cluster.devices[device].memory);
    const Bytes weights = model_.weights / std::min(choice.stages, depth);  // on each device
    const TrainingConfig& training = problem_.config.training;
    const TrainingBytes state = training_bytes(weights, training.optimizer);
    const Bytes states = training.shard_optimizer ? state.states / pipelines : state.states;
    if (schedule_named(problem_.config, choice.schedule).trains && weights + state.gradients + states > most) {
        expected_ = kNever;
        return;
    }
    const double filling = static_cast<double>(depth - 1) * pipelines / choice.micro_batches;
    expected_ = static_cast<Ns>(static_cast<double>(found_.lower_bound) * (1 + filling)) +
                ring_sum(pipelines, model_.weights / choice.stages, cluster_of(problem_.config, model_.profile)->sums);
}

Judge& Trial::judge() {
    if (!judge_)
        judge_ = std::make_unique<Judge>(problem_, found_.choice, model_.profile, model_.costs);
    return *judge_;
}

// Making a plan and simulating it is not interrupted. The times of plans with fewer micro-batches show whether it would
// end too late.
void Trial::check_time_for_plan(const Deadline& deadline) {
    constexpr int kPlanAndSteps = 4;  // the time for its plan, its simulation and its buffers, in times for the plan
    constexpr int kFirst = 8192, kTimes = 8;  // forwards of the first plan, growth of the next ones
    const std::chrono::duration<double> left = deadline.left();
    const PlanChoice& choice = found_.choice;
    const auto devices = static_cast<int>(choice.devices.size());
    for (std::int64_t count = std::max(1, kFirst / choice.stages);
         !too_long_ && std::isfinite(left.count()) && count * kTimes <= choice.micro_batches; count *= kTimes) {
        PlanChoice smaller = choice;
        smaller.micro_batches = static_cast<int>((count + devices - 1) / devices) * devices;
        const auto start = std::chrono::steady_clock::now();
        try {
            const Judge judge(problem_, smaller, model_.profile, model_.costs);
        } catch (const Error&) {  // some schedules are defined for some numbers only
            continue;
        }
        const std::chrono::duration<double> lasts = std::chrono::steady_clock::now() - start;
        too_long_ = lasts * kPlanAndSteps * choice.micro_batches / smaller.micro_batches > left;
    }
    if (too_long_)
        throw TimeIsUp{};
}

void Trial::refuse(const Error& error) {
    refused_ = error;
    sharp_ = true;
}

void Trial::open(Deadline& deadline) {
    if (open_ || refused_)
        return;
    deadline.check();
    check_time_for_plan(deadline);
    const auto start = std::chrono::steady_clock::now();
    try {
        judge();
    } catch (const Error& error) {  // the schedule is not defined for this choice
        refuse(error);
        found_.lower_bound = kNever;
        found_.may_fit = false;
        return;
    }
    try {
        refuse_long_splits(judge().plan(), model_.costs, problem_.model.layers, judge().config(), model_.profile);
    } catch (const Error& error) {  // some of its splits may be plans
        refuse(error);
        beyond_ = true;
        return;
    }
    step_lasts_ = 3 * (std::chrono::steady_clock::now() - start);  // the plan is made, simulated, its buffers listed
    deadline.leave(step_lasts_);
    const Plan& plan = judge().plan();
    const std::vector<DeviceConfig>& devices = judge().config().cluster.devices;
    pieces_ = &model_.pieces(splits_backward(plan), deadline);
    plan_bound_.emplace(plan, model_.profile.dispatch.median, judge().config());
    limited_ = std::any_of(devices.begin(), devices.end(),
                           [](const DeviceConfig& device) { return device.memory != kUnlimited; });
    same_speed_ = std::all_of(devices.begin(), devices.end(),
                              [&](const DeviceConfig& device) { return device.speed == devices.front().speed; });
    tasks_of_plan_ = 0;
    for (const std::vector<Task>& order : plan.order)
        tasks_of_plan_ += std::ssize(order);
    bounds_ = least_bottleneck([this](int stage, const Piece& piece) { return bound_of(stage, piece); }, deadline);
    work_ = plan_bound_->work_of(pieces_->model());
    found_.lower_bound =
        std::max({plan_bound_->of_work(*pieces_), plan_bound_->of_path(*pieces_), plan_bound_->of_calls()});
    if (space_.complete())
        found_.lower_bound = std::max(found_.lower_bound, bounds_[0][0]);
    found_.may_fit = found_.lower_bound < kNever;
    open_ = true;
}

Ns Trial::bound_of_any_devices(double speeds) const {
    const double least = least_micro_batches(problem_.config.pipeline.micro_batch_lengths, found_.choice.micro_batches);
    return time_of_shared_work(work_, least, speeds, rounded_tasks(speeds));
}

// Other ways to share out the devices may use other devices.
TimeOn Trial::time_on() const {
    return [this, best = best_of(problem_.config.cluster.devices)](int replicas, const Piece& piece) {
        return plan_bound_->time_on(replicas, piece, best);
    };
}

Ns Trial::bound_of_any_shares(Deadline& deadline) const {
    const std::vector<DeviceConfig>& devices = problem_.config.cluster.devices;
    double speeds = 0;
    for (const DeviceConfig& device : devices)
        speeds += device.speed;
    const Ns below = bound_of_any_devices(speeds), above = std::min(found_.lower_bound, kNever / 4);
    if (!space_.complete())
        return below;  // the stages may be other pieces
    return bound_of_sharing(*pieces_, found_.choice.stages, static_cast<int>(devices.size()), time_on(), below, above,
                            deadline);
}

std::vector<int> Trial::shares_by_work(Deadline& deadline) const {
    const auto work = [this](int stage, const Piece& piece) { return work_of(stage, piece); };
    const Cuts cuts = cuts_of(least_bottleneck(work, deadline), work);
    std::vector<const Piece*> stages;
    for (std::size_t stage = 0; stage + 1 < cuts.size(); ++stage)
        for (const Piece& piece : pieces_->from(cuts[stage]))
            if (piece.to == cuts[stage + 1])
                stages.push_back(&piece);
    if (stages.empty())
        return {};
    return pw::shares_by_time(stages, static_cast<int>(problem_.config.cluster.devices.size()), time_on());
}

Bytes Trial::shortage_of(int stage, const Piece& piece) const {
    if (!limited_)
        return 0;
    const Bytes needs = plan_bound_->memory(stage, piece), has = plan_bound_->available(stage);
    return needs > has ? needs - has : 0;
}

Ns Trial::bound_of(int stage, const Piece& piece) const {
    return shortage_of(stage, piece) > 0 ? kNever : plan_bound_->time(stage, piece);
}

Ns Trial::work_of(int stage, const Piece& piece) const {
    if (shortage_of(stage, piece) > 0)
        return kNever;
    const int device = found_.choice.devices[plan_bound_->device_of(stage)];
    const auto time = static_cast<double>(plan_bound_->passes_of(piece));
    return bounded(time / problem_.config.cluster.devices[device].speed);
}

// Returns the cost of the best path from a cut to the end in stages: `joined` combines the costs of a stage and of the
// later stages.
template <class Cost, class Joined>
Trial::Table Trial::least(Cost cost, Joined joined, Deadline& deadline) const {
    const int stages = found_.choice.stages;
    Table table(static_cast<std::size_t>(stages) + 1, std::vector<Ns>(static_cast<std::size_t>(space_.cuts()), kNever));
    table[stages][space_.whole()] = 0;
    for (int stage = stages - 1; stage >= 0; --stage)
        for (int cut = 0; cut < space_.cuts(); ++cut) {
            deadline.check();
            if (space_.size_of(cut) < stage || (stage == 0 && cut != 0))
                continue;
            Ns& least = table[stage][cut];
            for (const Piece& piece : pieces_->from(cut))
                if (const Ns rest = table[stage + 1][piece.to]; rest < least)
                    least = std::min(least, joined(cost(stage, piece), rest));
        }
    return table;
}

template <class Cost>
Trial::Table Trial::least_bottleneck(Cost cost, Deadline& deadline) const {
    return least(
        cost, [](Ns a, Ns b) { return std::max(a, b); }, deadline);
}

// Returns the cuts with the work of stages as even as possible: the sum of its squares is the least.
Trial::Cuts Trial::even_cuts(Deadline& deadline) const {
    const Piece& model = pieces_->model();
    const double mean = std::max(1.0, static_cast<double>(plan_bound_->passes_of(model)) / found_.choice.stages);
    const auto square = [&](int stage, const Piece& piece) {
        const Ns work = work_of(stage, piece);
        return work >= kNever ? kNever : bounded(static_cast<double>(work) * (static_cast<double>(work) / mean));
    };
    const auto sum = [](Ns a, Ns b) { return std::min(bounded_sum(a, b), kNever); };
    const Table table = least(square, sum, deadline);
    Cuts cuts = {0};
    while (table[0][0] < kNever && std::ssize(cuts) <= found_.choice.stages) {
        const int stage = static_cast<int>(cuts.size()) - 1;
        const std::vector<Piece>& pieces = pieces_->from(cuts.back());
        const auto best = std::find_if(pieces.begin(), pieces.end(), [&](const Piece& piece) {
            const Ns rest = table[stage + 1][piece.to];
            return rest < kNever && sum(square(stage, piece), rest) == table[stage][cuts.back()];
        });
        cuts.push_back(best->to);
    }
    return table[0][0] < kNever ? cuts : Cuts{};
}

// Returns the path with the least bottleneck; among several, the one with the cheapest stages, compared from the first
// on.
template <class Cost>
Trial::Cuts Trial::cuts_of(const Table& table, Cost cost) const {
    Cuts cuts = {0};
    if (table[0][0] >= kNever)
        return {};  // no remaining path reaches the end
    for (int stage = 0; stage < found_.choice.stages; ++stage) {
        int next = -1;
        Ns least = kNever;
        for (const Piece& piece : pieces_->from(cuts.back())) {
            if (table[stage + 1][piece.to] > table[0][0])
                continue;
            const Ns own = cost(stage, piece);
            if (own <= table[0][0] && own < least) {
                least = own;
                next = piece.to;
            }
        }
        if (next < 0)
            return {};
        cuts.push_back(next);
    }
    return cuts;
}

void Trial::propose(Deadline& deadline) {
    const auto propose_by = [&](const Table& table, auto cost) {
        deadline.check();
        if (const Cuts cuts = cuts_of(table, cost); !cuts.empty())
            try_cuts(cuts);
    };
    const auto bound = [this](int stage, const Piece& piece) { return bound_of(stage, piece); };
    const auto work = [this](int stage, const Piece& piece) { return work_of(stage, piece); };
    propose_by(bounds_, bound);
    propose_by(least_bottleneck(work, deadline), work);
    if (shares_devices())
        if (const Cuts cuts = balanced_cuts(deadline); !cuts.empty())
            try_cuts(cuts);
    if (limited_) {
        propose_what_fits(deadline);
        const auto shortage = [this](int stage, const Piece& piece) { return shortage_of(stage, piece); };
        propose_by(least_bottleneck(shortage, deadline), shortage);
    }
}

// A simulated plan shows how much memory it needs beyond its bound; the next proposal leaves room for that.
void Trial::propose_what_fits(Deadline& deadline) {
    constexpr int kRounds = 4;
    std::vector<Bytes> beyond(static_cast<std::size_t>(found_.choice.stages), 0);
    const auto bound = [&](int stage, const Piece& piece) {
        const bool fits = plan_bound_->memory(stage, piece) + beyond[stage] <= plan_bound_->available(stage);
        return fits ? plan_bound_->time(stage, piece) : kNever;
    };
    Cuts cuts = cuts_of(bounds_, bound);
    for (int round = 0; round < kRounds && !cuts.empty(); ++round) {
        deadline.check();
        const std::vector<Bytes> reserved = judge().reserved(split_of(cuts));
        spent_ += 3 * tasks_of_plan_;
        if (reserved.empty() || !judge().shortage(reserved))
            return;
        for (int stage = 0; stage < found_.choice.stages; ++stage)
            for (const Piece& piece : pieces_->from(cuts[stage]))
                if (piece.to == cuts[stage + 1])
                    beyond[stage] = std::max(
                        beyond[stage], reserved[plan_bound_->device_of(stage)] - plan_bound_->memory(stage, piece));
        cuts = cuts_of(least_bottleneck(bound, deadline), bound);
        if (!cuts.empty())
            try_cuts(cuts);
    }
}

StageSplit Trial::split_of(const Cuts& cuts) const {
    StageSplit split = space_.split_of(cuts);
    group_readers(split, problem_.config.run);
    return split;
}

// Returns the value of the cuts where it is below this one.
std::optional<Trial::Value> Trial::try_cuts(const Cuts& cuts, const Value& above) {
    const StageSplit split = split_of(cuts);
    const std::optional<Ns> time = judge().step_time(split);
    ++candidates_;
    spent_ += tasks_of_plan_;
    if (!time || (above.shortage == 0 && *time >= above.time))
        return std::nullopt;
    if (best_.shortage == 0 && *time >= best_.time)
        return Value{0, *time};  // on the way to better ones, whether or not it fits
    std::optional<Shortage> shortage;
    if (limited_) {
        shortage = judge().shortage(split);
        spent_ += 2 * tasks_of_plan_;
    }
    const Value value{shortage ? shortage->needs - shortage->has : 0, *time};
    if (value >= above)
        return std::nullopt;
    if (value < best_) {
        best_ = value;
        cuts_ = cuts;
        at_rest_ = false;
        tries_in_vain_ = 0;
        found_.split = split;
        found_.step_time = value.time;
        found_.fits = !shortage;
        found_.shortage = shortage;
        found_.reserved.clear();
        found_.bubble_rate.reset();
    }
    return value;
}

void Trial::sharpen(Ns limit, Deadline& deadline) {
    sharp_ = true;
    if (!shares_devices() || !space_.complete() ||
        schedule_named(problem_.config, found_.choice.schedule).asynchronous())
        return;
    const auto bound_of_stage = [this](int stage, const Piece& piece) { return bound_of(stage, piece); };
    const Ns bound =
        bound_of_devices(judge().plan(), *plan_bound_, *pieces_, space_, bound_of_stage, limit, spent_, deadline);
    found_.lower_bound = std::max(found_.lower_bound, bound);
}

Trial::Load Trial::with(Load load, int stage, const Piece& piece) const {
    if (load.head < 0) {
        load.head = plan_bound_->path(pieces_->least_head(piece.from));
        load.tail = plan_bound_->trains() ? plan_bound_->path(pieces_->least_tail(piece.from)) : 0;
    }
    load.until_last_backward += plan_bound_->until_last_backward(stage, piece);
    load.whole += plan_bound_->whole_time(stage, piece);
    return load;
}

// Returns, for devices with several stages, whether this device can take the piece, and all devices the later pieces,
// below the limit.
bool Trial::leaves_room(const Descent& descent, int stage, const Piece& piece) const {
    const Ns limit = found_.fits ? std::min(descent.limit, found_.step_time) : descent.limit;
    const int device = plan_bound_->device_of(stage);
    const Load load = with(descent.loads[device], stage, piece);
    if (std::max(load.in_all(), load.with_way_back()) >= limit)
        return false;
    const std::vector<Piece>& rest = pieces_->from(piece.to);
    if (rest.empty() || !same_speed_)
        return true;
    Ns room = 0, room_on_the_way = 0;  // of all devices
    for (int other = 0; other < std::ssize(descent.loads); ++other) {
        const Load& has = other == device ? load : descent.loads[other];
        room = bounded_sum(room, std::max<Ns>(0, limit - 1 - has.in_all()));
        room_on_the_way = bounded_sum(room_on_the_way, std::max<Ns>(0, limit - 1 - has.with_way_back()));
    }
    const int last = found_.choice.stages - 1, parts = last - stage;  // the last one runs R only where all stages do
    return plan_bound_->whole_time_in_parts(last, rest.back(), parts) <= room &&
           plan_bound_->until_last_backwards_in_parts(last, rest.back(), parts) <= room_on_the_way;
}

bool Trial::is_too_slow(const Descent& descent, Ns bound) const {
    return bound >= descent.limit || (found_.fits && bound >= found_.step_time);
}

Trial::Level Trial::next_level(const Descent& descent, Ns so_far) {
    const int stage = static_cast<int>(descent.cuts.size()) - 1, cut = descent.cuts.back();
    Level level;
    for (const Piece& piece : pieces_->from(cut)) {
        const Ns rest = bounds_[stage + 1][piece.to];
        if (rest >= kNever || is_too_slow(descent, std::max(so_far, rest)))
            continue;
        if (const Ns bound = std::max({so_far, rest, bound_of(stage, piece)}); !is_too_slow(descent, bound))
            level.steps.emplace_back(bound, &piece);
    }
    spent_ += std::ssize(pieces_->from(cut));
    std::stable_sort(level.steps.begin(), level.steps.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    return level;
}

bool Trial::prove(Ns limit, std::int64_t tasks, Deadline& deadline) {
    const std::int64_t end = spent_ + tasks;
    Descent descent{{0}, std::vector<Load>(found_.choice.devices.size()), limit};
    std::vector<Level> levels = {next_level(descent, 0)};
    while (!levels.empty()) {
        const int stage = static_cast<int>(levels.size()) - 1;
        Level& level = levels.back();
        Load& load = descent.loads[plan_bound_->device_of(stage)];
        if (level.before) {
            descent.cuts.pop_back();
            load = *std::exchange(level.before, std::nullopt);
        }
        if (level.next == level.steps.size()) {
            levels.pop_back();
            continue;
        }
        const auto [bound, piece] = level.steps[level.next++];
        if (is_too_slow(descent, bound) || (shares_devices() && !leaves_room(descent, stage, *piece)))
            continue;
        if (spent_ >= end || deadline.passed())
            return false;
        level.before = load;
        load = with(load, stage, *piece);
        descent.cuts.push_back(piece->to);
        if (stage + 1 == found_.choice.stages)
            try_cuts(descent.cuts);
        else
            levels.push_back(next_level(descent, bound));
    }
    return true;
}

void Trial::settle() {
    if (has_plan() && found_.reserved.empty())
        found_.reserved = judge().reserved(found_.split);
}

void Trial::finish() {
    settle();
    if (fits() && !found_.bubble_rate)
        found_.bubble_rate = judge().bubble_rate(found_.split);
}

}  // namespace pw
