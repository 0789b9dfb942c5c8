#include "search/plans/trial.h"

#include "job/build.h"
#include "job/slices.h"
#include "schedules/orders/schedule.h"
#include "search/plans/descent.h"
#include "search/plans/device_bound.h"
#include "search/plans/longest_time.h"
#include "workloads/error.h"
#include "workloads/models/frozen_layers.h"

#include <algorithm>
#include <cmath>

namespace pw {

namespace {

constexpr int kOrdersOfSplit = 50;  // that are simulated, about, where the order depends on the split
constexpr std::int64_t kMostOrderedSplits = 60;

// Every stage that reads data counts the time of reading it. So attention is the largest part of all passes with one
// stage, and the smallest with a stage for each layer.
SliceEndRange slice_ends_of_splits(const Setup& setup, int slices, const CostTable& costs) {
    if (slices == 1)
        return {};
    StageSplit one{.layers = {{}}, .stage_of = std::vector<int>(costs.alone().size(), 0)}, most;
    for (int layer = 0; layer < std::ssize(costs.alone()); ++layer) {
        one.layers.front().push_back(layer);
        most.layers.push_back({layer});
        most.stage_of.push_back(layer);
    }
    const auto ends = [&](const StageSplit& split) {
        return slice_ends_of(setup, slices, attention_part(costs.times_of(split)));
    };
    return {ends(most), ends(one)};
}

}  // namespace

Trial::Trial(const SearchProblem& problem, const StageSpace& space, const SizedModel& model, PlanChoice choice)
    : problem_(problem), space_(space), model_(model), moves_(space, choice.stages) {
    found_.choice = std::move(choice);
    const Schedule& schedule = schedule_named(problem_.setup, found_.choice.schedule);
    any_order_ = schedule.needs_costs;
    orders_by_costs_ = any_order_ || found_.choice.ahead == Recomputation::kByCosts;
    work_ = {.micro_batches = slices(), .zero = problem_.setup.training.zero};
    if (!schedule.asynchronous())
        work_.passes = exposed_work(model.forward, problem_.setup.pipeline.pair_exposed);
    if (!schedule.asynchronous() && schedule.trains) {
        work_.passes += model.backward;
        work_.accumulate = model.accumulate;
        work_.update = model.update;
    }
    double speeds = 0;
    for (const int device : found_.choice.devices)
        speeds += problem.setup.cluster.devices[device].speed;
    found_.lower_bound = bound_of_any_devices(speeds);
    expect();
}

// Returns the rounded tasks of any plan of the choice with any number of devices: see time_of_shared_work().
double Trial::rounded_tasks(double speeds) const {
    const std::vector<DeviceConfig>& devices = problem_.setup.cluster.devices;
    const bool one_speed =
        std::all_of(devices.begin(), devices.end(), [](const DeviceConfig& device) { return device.speed == 1; });
    const double tasks = 4.0 * slices() * found_.choice.stages;
    const bool unequal = !problem_.setup.pipeline.micro_batch_lengths.empty() || found_.choice.slices > 1;
    return (one_speed ? 0 : tasks) + (unequal ? tasks / speeds : 0);
}

// Expects equal stages on equal devices: work, then bubble, then sums of gradients.
void Trial::expect() {
    const PlanChoice& choice = found_.choice;
    const auto devices = static_cast<int>(choice.devices.size());
    const int pipelines = std::max(choice.copies, devices / choice.stages), depth = devices / pipelines;
    Bytes most = 0;
    for (const int device : choice.devices)
        most = std::max(most, problem_.setup.cluster.devices[device].memory);
    const Bytes weights = model_.weights / std::min(choice.stages, depth);  // on each device
    const HeldState state =
        held_of_weights(weights, weights / pipelines, kept_in_bounds(problem_.setup), problem_.setup.training.zero);
    if (schedule_named(problem_.setup, choice.schedule).trains &&
        state.weights + state.gradients + state.states > most) {
        expected_ = kNeverFits;
        return;
    }
    const double filling = static_cast<double>(depth - 1) * pipelines / slices();
    expected_ = static_cast<Ns>(static_cast<double>(found_.lower_bound) * (1 + filling)) +
                ring_sum(pipelines, model_.weights / choice.stages, cluster_of(problem_.setup, model_.profile)->sums);
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
    constexpr int kFirst = 8192, kTimes = 8;  // forwards of the first plan, growth of the next plans
    const std::chrono::duration<double> left = deadline.left();
    const PlanChoice& choice = found_.choice;
    const auto devices = static_cast<int>(choice.devices.size());
    for (std::int64_t count = std::max(1, kFirst / choice.stages / choice.slices);
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

// Makes the plan. Returns false, and refuses the choice, if there is none or if some of its splits go beyond what is
// counted.
bool Trial::is_defined() {
    try {
        judge();
    } catch (const Error& error) {  // the schedule is not defined for this choice
        refuse(error);
        found_.lower_bound = kNeverFits;
        found_.may_fit = false;
        return false;
    }
    try {
        refuse_long_splits(judge().plan(), model_.costs, problem_.model.layers, judge().setup(), model_.profile);
    } catch (const Error& error) {  // some of its splits may be plans
        refuse(error);
        beyond_ = true;
        return false;
    }
    return true;
}

void Trial::find_bounds(Deadline& deadline) {
    const Plan& plan = judge().plan();
    bounds_.emplace(plan, judge().setup(), model_.profile.dispatch.median,
                    model_.pieces(any_order_ ? BackwardForm::Mixed : backward_form(plan.order), deadline),
                    slice_ends_of_splits(judge().setup(), plan.shape.slices, model_.costs));
    tasks_of_plan_ = 0;
    for (const std::vector<Task>& order : plan.order)
        tasks_of_plan_ += std::ssize(order) * (orders_by_costs_ ? kOrdersOfSplit : 1);
    least_ = least_bottleneck(*bounds_, space_, least_step_time(), deadline);
    const PlanBound& bound = bounds_->plan();
    const Pieces& pieces = bounds_->pieces();
    has_pairs_ = std::ranges::any_of(plan.order,
                                     [](const Tasks& order) { return std::ranges::any_of(order, &Task::with_next); });
    work_ = bound.work_of(pieces.model());
    found_.lower_bound = std::max(bound.of_work(pieces), bound.of_path(pieces));
    if (!has_forwards_only(problem_.model.layers))  // else some splits have fewer tasks
        found_.lower_bound = std::max(found_.lower_bound, bound.of_calls());
    if (space_.complete())
        found_.lower_bound = std::max(found_.lower_bound, least_[0][0]);
    found_.may_fit = found_.lower_bound < kNeverFits;
}

void Trial::open(Deadline& deadline) {
    if (open_ || refused_)
        return;
    deadline.check();
    check_time_for_plan(deadline);
    const auto start = std::chrono::steady_clock::now();
    if (!is_defined())
        return;
    // the plan is made, simulated, its buffers listed
    step_lasts_ = (orders_by_costs_ ? kOrdersOfSplit : 3) * (std::chrono::steady_clock::now() - start);
    deadline.leave(step_lasts_);
    find_bounds(deadline);
    open_ = true;
}

NumberOfStage Trial::least_step_time() const {
    return [this](int stage, const Piece& piece) { return bounds_->step_time(stage, piece); };
}

NumberOfStage Trial::work() const {
    return [this](int stage, const Piece& piece) { return bounds_->work(stage, piece); };
}

Ns Trial::bound_of_any_devices(double speeds) const {
    const double least = least_micro_batches(problem_.setup.pipeline.micro_batch_lengths, found_.choice.micro_batches);
    StepWork work = work_;
    work.holders = static_cast<int>(problem_.setup.cluster.devices.size());
    return time_of_shared_work(work, least, speeds, rounded_tasks(speeds));
}

// Different ways to share out the devices may use different devices.
TimeOn Trial::time_on() const {
    return [this, best = best_of(problem_.setup.cluster.devices)](int replicas, const Piece& piece) {
        return bounds_->plan().time_on(replicas, piece, best);
    };
}

Ns Trial::bound_of_any_shares(Deadline& deadline) const {
    const std::vector<DeviceConfig>& devices = problem_.setup.cluster.devices;
    double speeds = 0;
    for (const DeviceConfig& device : devices)
        speeds += device.speed;
    const Ns below = bound_of_any_devices(speeds), above = std::min(found_.lower_bound, kNeverFits / 4);
    if (!space_.complete())
        return below;  // the stages may be other pieces
    return bound_of_sharing(bounds_->pieces(), bounds_->stages(), static_cast<int>(devices.size()), time_on(), below,
                            above, deadline);
}

std::vector<int> Trial::shares_by_work(Deadline& deadline) const {
    const Cuts cuts = cuts_of(least_bottleneck(*bounds_, space_, work(), deadline), *bounds_, work());
    std::vector<const Piece*> stages;
    for (std::size_t stage = 0; stage + 1 < cuts.size(); ++stage)
        for (const Piece& piece : bounds_->pieces().from(cuts[stage]))
            if (piece.to == cuts[stage + 1])
                stages.push_back(&piece);
    if (stages.empty())
        return {};
    return pw::shares_by_time(stages, static_cast<int>(problem_.setup.cluster.devices.size()), time_on());
}

void Trial::propose_by(const CutTable& table, const NumberOfStage& number) {
    if (const Cuts cuts = cuts_of(table, *bounds_, number); !cuts.empty())
        try_cuts(cuts, best_);
}

void Trial::propose(Deadline& deadline) {
    const auto propose_least = [&](const NumberOfStage& number) {
        const CutTable table = least_bottleneck(*bounds_, space_, number, deadline);
        deadline.check();
        propose_by(table, number);
    };
    deadline.check();
    propose_by(least_, least_step_time());
    propose_least(work());
    if (bounds_->shares_devices())
        if (const Cuts cuts = balanced_cuts(*bounds_, space_, moves_, deadline); !cuts.empty())
            try_cuts(cuts, best_);
    if (bounds_->limited()) {
        propose_what_fits(deadline);
        propose_least([this](int stage, const Piece& piece) { return bounds_->shortage(stage, piece); });
    }
}

// A simulated plan shows how much memory it needs beyond its bound; the next proposal leaves room for that.
void Trial::propose_what_fits(Deadline& deadline) {
    constexpr int kProposals = 4;
    std::vector<Bytes> beyond(static_cast<std::size_t>(bounds_->stages()), 0);
    const PlanBound& plan = bounds_->plan();
    const auto bound = [&](int stage, const Piece& piece) {
        const bool fits = plan.memory(stage, piece) + beyond[stage] <= plan.available(stage);
        return fits ? plan.time(stage, piece) : kNeverFits;
    };
    Cuts cuts = cuts_of(least_, *bounds_, bound);
    for (int round = 0; round < kProposals && !cuts.empty(); ++round) {
        deadline.check();
        const std::vector<Bytes> reserved = judge().reserved(split_of(cuts));
        spent_ += 3 * tasks_of_plan_;
        if (reserved.empty() || !judge().shortage(reserved))
            return;
        for (int stage = 0; stage < bounds_->stages(); ++stage)
            for (const Piece& piece : bounds_->pieces().from(cuts[stage]))
                if (piece.to == cuts[stage + 1])
                    beyond[stage] =
                        std::max(beyond[stage], reserved[plan.device_of(stage)] - plan.memory(stage, piece));
        cuts = cuts_of(least_bottleneck(*bounds_, space_, bound, deadline), *bounds_, bound);
        if (!cuts.empty())
            try_cuts(cuts, best_);
    }
}

StageSplit Trial::split_of(const Cuts& cuts) const {
    StageSplit split = space_.split_of(cuts);
    group_readers(split, problem_.setup.run);
    return split;
}

// Returns the value of the cuts if it is below this value.
std::optional<CutValue> Trial::try_cuts(const Cuts& cuts, const CutValue& above) {
    const StageSplit split = split_of(cuts);
    const std::optional<Ns> time = judge().step_time(split);
    ++candidates_;
    spent_ += tasks_of_plan_;
    if (!time || (above.shortage == 0 && *time >= above.time))
        return std::nullopt;
    if (best_.shortage == 0 && *time >= best_.time)
        return CutValue{0, *time};  // on the way to better cuts, whether or not the split fits
    std::optional<Shortage> shortage;
    if (bounds_->limited()) {
        shortage = judge().shortage(split);
        spent_ += 2 * tasks_of_plan_;
    }
    const CutValue value{shortage ? shortage->needs - shortage->has : 0, *time};
    if (value >= above)
        return std::nullopt;
    if (value < best_) {
        std::vector<Bytes> reserved;
        if (orders_by_costs_)  // the order is at hand; later it would have to be found again
            reserved = judge().reserved(split);
        keep(cuts, split, value, shortage);
        found_.reserved = std::move(reserved);
    }
    return value;
}

void Trial::keep(const Cuts& cuts, const StageSplit& split, const CutValue& value,
                 const std::optional<Shortage>& shortage) {
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
    found_.plan.reset();
    found_.effort.reset();
}

// Climbs from the best cuts, and then from cuts near the best, however bad the near cuts are: further away after more
// failures.
void Trial::climb(std::int64_t tasks, Deadline& deadline) {
    constexpr int kTries = 50;  // per distance
    const std::int64_t end = spent_ + tasks;
    const auto is_over = [&] {
        return spent_ >= end || deadline.passed() || (orders_by_costs_ && candidates_ >= kMostOrderedSplits);
    };
    const auto value_below = [&](const Cuts& cuts, const CutValue& above) {
        return is_over() ? std::nullopt : try_cuts(cuts, above);
    };
    const auto descend_from = [&](const Cuts& cuts, const CutValue& value) {
        const ValuedCuts rest = moves_.descend({cuts, value}, value_below);
        at_rest_ = at_rest_ || (rest.cuts == cuts_ && !is_over());
    };
    if (!at_rest_)
        descend_from(cuts_, best_);
    const int inner = static_cast<int>(cuts_.size()) - 2;
    while (inner > 0 && !is_over()) {
        const Cuts cuts = moves_.perturbed(cuts_, 3 + tries_in_vain_ / kTries % inner);
        ++tries_in_vain_;
        if (cuts == cuts_)
            spent_ += tasks_of_plan_;  // else there might be no end
        else if (const std::optional<CutValue> value = try_cuts(cuts, kWorstCuts))
            descend_from(cuts, *value);
    }
}

// Windows of lists are between stages with a device each. In any order every stage has backwards.
bool Trial::has_windows() {
    if (bounds_->shares_devices() && !any_order_)
        return !orders_by_costs_;
    const Shape& shape = judge().plan().shape;
    bool several = any_order_;
    for (int device = 0; device < shape.devices; ++device)
        several = several || shape.stages_of(device).size() > 1;
    return several && !has_forwards_only(problem_.model.layers);
}

void Trial::sharpen(Ns limit, int effort, Deadline& deadline) {
    sharp_ = true;
    if (refused_ || !space_.complete() || !has_windows() ||
        schedule_named(problem_.setup, found_.choice.schedule).asynchronous())
        return;
    const Ns bound =
        bound_of_devices(judge().plan(), *bounds_, space_, judge().cluster(), limit, effort, spent_, deadline);
    found_.lower_bound = std::max(found_.lower_bound, bound);
}

void Trial::adopt(const Trial& other, Deadline& deadline) {
    open(deadline);
    if (!refused_)
        try_cuts(other.cuts_, best_);
}

void Trial::raise_to_any_order(Ns bound) {
    const Schedule& schedule = schedule_named(problem_.setup, found_.choice.schedule);
    if (open_ && !refused_ && !has_pairs_ && schedule.trains && !schedule.asynchronous())
        found_.lower_bound = std::max(found_.lower_bound, bound);
}

// Returns the best cuts near others, for the order of the others.
Cuts Trial::moved_under_order(const Cuts& cuts) {
    judge().hold_order(split_of(cuts));
    const auto value_below = [&](const Cuts& moved, const CutValue& above) -> std::optional<CutValue> {
        const std::optional<Ns> time = judge().step_time(split_of(moved));
        spent_ += tasks_of_plan_ / kOrdersOfSplit;
        return time && *time < above.time ? std::optional(CutValue{0, *time}) : std::nullopt;
    };
    ValuedCuts best{cuts, kWorstCuts};
    if (const std::optional<CutValue> value = value_below(cuts, kWorstCuts))
        best = moves_.descend({cuts, *value}, value_below);
    judge().release_order();
    return best.cuts;
}

void Trial::polish(double effort, Deadline& deadline) {
    constexpr int kRounds = 60, kMostMoved = 5;
    if (cuts_.size() < 3)
        return;
    judge().set_effort(effort);
    Cuts cuts = cuts_;
    for (int round = 0; round < kRounds && !deadline.passed(); ++round) {
        Cuts moved = moved_under_order(cuts);
        if (moved == cuts)
            moved = moves_.perturbed(cuts_, kMostMoved);
        if (try_cuts(moved, best_))
            found_.effort = effort;
        cuts = std::move(moved);
    }
}

void Trial::refine(double effort, Deadline& deadline) {
    deadline.check();
    judge().set_effort(effort);
    const std::optional<Ns> time = judge().step_time(found_.split);
    if (!time || *time >= found_.step_time || judge().shortage(found_.split))
        return;
    std::vector<Bytes> reserved = judge().reserved(found_.split);  // these may end the search: then nothing has changed
    const std::optional<double> bubble_rate = judge().bubble_rate(found_.split);
    found_.step_time = best_.time = *time;
    found_.effort = effort;
    found_.reserved = std::move(reserved);
    found_.bubble_rate = bubble_rate;
    found_.plan = judge().plan_of(found_.split);
}

bool Trial::prove(Ns limit, std::int64_t tasks, Deadline& deadline) {
    if (orders_by_costs_)
        return false;
    const auto least_so_far = [this] { return fits() ? step_time() : kNeverFits; };
    Descent descent(*bounds_, least_, std::min(limit, least_so_far()), spent_);
    return descent.run(spent_ + tasks, deadline, [&](const Cuts& cuts) {
        try_cuts(cuts, best_);
        return least_so_far();
    });
}

// Returns the judge of the plan found. An interrupted effort for another order may have left its effort or its order.
Judge& Trial::judge_of_found() {
    judge().release_order();
    judge().set_effort(found_.effort.value_or(setup_of(problem_.setup, found_.choice).pipeline.options.effort));
    return judge();
}

void Trial::settle() {
    if (has_plan() && found_.reserved.empty())
        found_.reserved = judge_of_found().reserved(found_.split);
}

void Trial::finish() {
    settle();
    if (fits() && !found_.bubble_rate)
        found_.bubble_rate = judge_of_found().bubble_rate(found_.split);
}

}  // namespace pw
