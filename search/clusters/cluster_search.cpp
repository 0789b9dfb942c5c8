#include "search/clusters/cluster_search.h"

#include "search/clusters/block_moves.h"
#include "search/clusters/choice_bounds.h"
#include "search/clusters/plan_attempts.h"
#include "search/deadline.h"
#include "search/plans/plan_choice.h"
#include "workloads/lower_bound.h"
#include "workloads/threads.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <map>
#include <mutex>
#include <set>
#include <tuple>
#include <utility>

namespace pw {

namespace {

// The size of a batch is fixed, so that the plans that are simulated do not depend on the number of threads.
constexpr std::size_t kPlansAtOnce = 8;
// Choices of which the plans of a batch are taken.
constexpr std::size_t kChoicesAtOnce = 64;
// Plans of schedules that order tasks by costs that are tried. Each takes as long as about a hundred others.
constexpr std::size_t kMostByCosts = 40;
constexpr std::size_t kMostMoved = 4;      // choices whose blocks are moved
constexpr std::size_t kMostBalanced = 512;  // choices of which the best ones are those
// The share of a limited time that bounds may take; the rest is for plans.
constexpr double kShareOfBounds = 0.6;
constexpr Ns kNoPlan = std::numeric_limits<Ns>::max();

using DegreesKey = std::array<int, 4>;

DegreesKey degrees_key(const ClusterChoice& choice) {
    const Parallel& own = choice.degrees;
    return {own.tensor, own.pipeline, own.context, own.expert};
}

// The step times of plans that fit.
class BestByDegrees {
public:
    void add(const ClusterPlan& plan) {
        Ns& best = best_of_.try_emplace(degrees_key(plan.choice), kNoPlan).first->second;
        best = std::min(best, plan.step_time);
    }

    // Returns the best step time of the degrees that are `place`-th.
    Ns limit_of(std::size_t place) const {
        std::vector<Ns> times;
        for (const auto& [degrees, time] : best_of_)
            times.push_back(time);
        std::sort(times.begin(), times.end());
        return times.size() < place ? kNoPlan : times[place - 1];
    }

private:
    std::map<DegreesKey, Ns> best_of_;
};

// A step through all numbers below `count`, modulo `count`: a prime that does not divide it. Bounds that are known when
// the time is up are then of choices of all kinds.
std::size_t stride_of(std::size_t count) {
    constexpr std::size_t kPrimes[] = {7919, 7907};
    return count % kPrimes[0] == 0 ? kPrimes[1] : kPrimes[0];
}

// Returns those choices first whose degrees, sizes and memory options have the fastest plans of other schedules.
std::vector<std::size_t> in_order_of_others(const std::vector<std::size_t>& indices,
                                            const std::vector<ClusterChoice>& choices,
                                            const std::vector<ChoiceBounds>& bounds,
                                            const std::vector<ClusterPlan>& plans) {
    const auto without_schedule = [](ClusterChoice choice) {
        choice.schedule.clear();
        choice.chunks = 1;
        return print(choice);
    };
    std::map<std::string, Ns> best_of;
    for (const ClusterPlan& plan : plans) {
        Ns& best = best_of.try_emplace(without_schedule(plan.choice), kNoPlan).first->second;
        best = std::min(best, plan.step_time);
    }
    std::vector<std::tuple<Ns, Ns, std::size_t>> order;
    for (const std::size_t index : indices) {
        const auto best = best_of.find(without_schedule(choices[index]));
        order.emplace_back(best == best_of.end() ? kNoPlan : best->second, bounds[index].step_time, index);
    }
    std::sort(order.begin(), order.end());
    std::vector<std::size_t> ordered;
    for (const auto& [best, bound, index] : order)
        ordered.push_back(index);
    return ordered;
}

// Returns the numbers of the choices that are kept. The choice with the least key comes first.
template <class Keeps, class Key>
std::vector<std::size_t> in_order(const std::vector<ChoiceBounds>& bounds, Keeps keeps, Key key) {
    std::vector<std::size_t> order;
    for (std::size_t index = 0; index < bounds.size(); ++index)
        if (std::invoke(keeps, bounds[index]))
            order.push_back(index);
    std::ranges::stable_sort(order, {}, [&](std::size_t index) { return std::invoke(key, bounds[index]); });
    return order;
}

// Returns whether the plan of this choice, with equal numbers of blocks, is known and no worse.
bool has_better(const std::vector<ClusterPlan>& plans, const ClusterChoice& choice, const ClusterPlan& plan) {
    const auto equal = std::ranges::find(plans, choice, &ClusterPlan::choice);
    return equal != plans.end() && !is_better(plan, *equal);
}

// Takes choices from the front of `order` that `is_taken`, until there are enough for a batch. A batch may be empty: a
// search asks between batches whether its time is up.
template <class IsTaken>
std::vector<std::size_t> next_batch(const std::vector<std::size_t>& order, std::size_t& next, IsTaken is_taken) {
    std::vector<std::size_t> batch;
    const std::size_t end = std::min(order.size(), next + kChoicesAtOnce);
    for (; next < end && batch.size() < kPlansAtOnce; ++next)
        if (is_taken(order[next]))
            batch.push_back(order[next]);
    return batch;
}

// Returns the reason that comes last in the enum of the reasons of all processes.
SearchStop agreed(SearchStop stop, const SearchTeam& team) {
    Packet own;
    put(own, stop);
    share(team, own, [&](PacketReader& reader) { stop = std::max(stop, reader.take<SearchStop>()); });
    return stop;
}

std::string text_of_best(Ns step, Ns bound) {
    if (step == kNoPlan)
        return "nothing fits yet";
    const std::string text = "best " + print_time(step);
    return bound > 0 ? fmt::format("{}, gap {:.1f} %", text, 100 * gap_of(step, std::min(bound, step))) : text;
}

class ClusterSearcher {
public:
    ClusterSearcher(const Config& config, const ClusterLimits& limits, const SearchProgress& progress)
        : config_(config),
          limits_(limits),
          progress_(progress),
          deadline_(limits.seconds, 1, limits.should_stop),
          end_of_bounds_(limits.seconds * kShareOfBounds, 1, limits.should_stop),
          choices_(cluster_choices(config)) {}

    ClusterResult run() {
        simulate_recipe();
        make_bounds();
        simulate_best_first();
        simulate_by_costs();
        move_blocks();
        if (result_.fitting == 0)
            find_smallest();
        finish();
        return std::move(result_);
    }

private:
    void show(const std::string& doing, std::size_t done, std::size_t all) const {
        if (!progress_)
            return;
        progress_(fmt::format("{} {}/{}: {}", doing, done, all, text_of_best(limit_of(1), bound_so_far_)));
    }

    // Once true, the search ends without what is left to do, on all processes. The caller stops one or all of them.
    bool is_over() {
        if (deadline_.passed())
            stop_ = std::max(stop_, why_over());
        stop_ = agreed(stop_, limits_.team);
        return stop_ != SearchStop::None;
    }

    SearchStop why_over() const {
        return limits_.should_stop && limits_.should_stop() ? SearchStop::Caller : SearchStop::Time;
    }

    bool bounds_are_over() {
        const std::lock_guard lock(mutex_);
        if (end_of_bounds_.passed())
            result_.every_bound = false;
        return !result_.every_bound;
    }

    // Works on the process's part of the numbers below `count`, and reports progress, until the time for bounds is up.
    void on_all(const std::string& doing, std::size_t count, const std::function<void(std::size_t)>& work) {
        const auto size = static_cast<std::size_t>(limits_.team.size),
                   rank = static_cast<std::size_t>(limits_.team.rank);
        const std::size_t own = count / size + (rank < count % size ? 1 : 0);
        std::size_t done = 0;
        for_each_index(own, limits_.threads, [&](std::size_t index) {
            if (bounds_are_over())
                return;
            work((index * size + rank) * stride_of(count) % count);
            const std::lock_guard lock(mutex_);
            if (++done % 64 == 0)
                show(doing, done * size, count);
        });
    }

    void simulate_recipe() {
        const Recipe* recipe =
            nearest_recipe(*config_.workload.transformer, config_.cluster.device, config_.training.precision,
                           static_cast<int>(config_.parallel.ranks->devices.size()));
        const std::optional<ClusterChoice> choice = recipe ? choice_of(*recipe, config_) : std::nullopt;
        if (!choice)
            return;
        result_.vendor = attempts_at({&*choice}, config_, limits_, deadline_).front().plan;
        if (!result_.vendor)  // its schedule refuses the number of micro-batches
            return;
        result_.recipe = recipe;
        const auto found = std::find(choices_.begin(), choices_.end(), *choice);
        if (found != choices_.end() && !refuses(*found))
            add(*result_.vendor);
    }

    bool refuses(const ClusterChoice& choice) const {
        return limits_.refusal && !limits_.refusal(config_of(config_, choice)).empty();
    }

    // Counts a choice that is refused.
    bool may_be_proposed(const ClusterChoice& choice) {
        const std::string refusal = limits_.refusal ? limits_.refusal(config_of(config_, choice)) : "";
        if (!refusal.empty() && ++result_.refused == 1)
            result_.refusal = refusal;
        return refusal.empty();
    }

    void make_bounds() {
        BoundsOfChoices bounds = bounds_of(
            config_, choices_,
            [&](const std::string& doing, std::size_t count, const std::function<void(std::size_t)>& work) {
                on_all(doing, count, work);
            },
            limits_.team);
        bounds_ = std::move(bounds.of);
        result_.stop = agreed(result_.every_bound ? SearchStop::None : why_over(), limits_.team);
        result_.every_bound = result_.stop == SearchStop::None;
        result_.left_out = bounds.without_memory;
        every_bound_ = result_.every_bound && result_.left_out == 0;
        for (const ChoiceBounds& one : bounds_) {
            result_.choices += one.is_defined ? 1 : 0;
            result_.too_large += one.is_defined && !one.fits ? 1 : 0;
        }
    }

    Ns limit_of(std::size_t place) const { return best_.limit_of(place); }

    void add(ClusterPlan plan) {
        if (plan.fits) {
            best_.add(plan);
            ++result_.fitting;
        }
        result_.plans.push_back(std::move(plan));
    }

    bool is_known(const ClusterChoice& choice) const { return result_.vendor && result_.vendor->choice == choice; }

    // Simulates choices at once, those of other processes there.
    void simulate(const std::vector<std::size_t>& batch) {
        std::vector<const ClusterChoice*> choices;
        for (const std::size_t index : batch)
            choices.push_back(&choices_[index]);
        std::vector<Attempt> found = attempts_at(choices, config_, limits_, deadline_);
        for (std::size_t i = 0; i < batch.size(); ++i) {
            if (!found[i].has_memory || !found[i].has_time) {
                result_.left_out += found[i].has_memory ? 0 : 1;
                least_left_out_ = std::min(least_left_out_, bounds_[batch[i]].step_time);
            } else if (found[i].plan) {
                if (found[i].plan->fits)
                    check_lower_bound(bounds_[batch[i]].step_time, found[i].plan->step_time, print(*choices[i]));
                add(std::move(*found[i].plan));
            } else
                --result_.choices;
        }
    }

    void simulate_best_first() {
        std::vector<std::size_t> order = in_order(bounds_, &ChoiceBounds::fits, &ChoiceBounds::step_time);
        std::erase_if(order, [&](std::size_t index) { return is_known(choices_[index]); });
        const auto end = std::ranges::stable_partition(order, [&](std::size_t index) {
            return !searched_schedule(config_, choices_[index].schedule).needs_costs;
        });
        by_costs_.assign(end.begin(), order.end());
        order.erase(end.begin(), order.end());
        const Ns by_costs = by_costs_.empty() ? kNoPlan : bounds_[by_costs_.front()].step_time;
        std::size_t next = 0;
        while (next < order.size() && bounds_[order[next]].step_time < limit_of(limits_.exact) && !is_over()) {
            simulate(next_batch(order, next, [&](std::size_t index) { return may_be_proposed(choices_[index]); }));
            const Ns least = next < order.size() ? bounds_[order[next]].step_time : kNoPlan;
            bound_so_far_ = every_bound_ ? std::min({limit_of(1), least, by_costs, least_left_out_}) : 0;
            show("plans", next, order.size());
        }
        result_.too_slow = static_cast<int>(order.size() - next);
        const Ns least = next < order.size() ? bounds_[order[next]].step_time : kNoPlan;
        result_.lower_bound = every_bound_ ? std::min({limit_of(1), least, least_left_out_}) : 0;
    }

    void simulate_by_costs() {
        const std::vector<std::size_t> order = in_order_of_others(by_costs_, choices_, bounds_, result_.plans);
        const auto may_be_faster = [&](std::size_t index) { return bounds_[index].step_time < limit_of(1); };
        std::size_t next = 0, tried = 0;
        while (next < order.size() && tried < kMostByCosts && !is_over()) {
            const std::vector<std::size_t> batch = next_batch(order, next, [&](std::size_t index) {
                result_.too_slow += may_be_faster(index) ? 0 : 1;
                return may_be_faster(index) && may_be_proposed(choices_[index]);
            });
            tried += batch.size();
            simulate(batch);
            show("orders by costs", tried, kMostByCosts);
        }
        for (; next < order.size(); ++next) {
            ++(may_be_faster(order[next]) ? result_.untried : result_.too_slow);
            least_left_out_ = std::min(least_left_out_, bounds_[order[next]].step_time);
        }
        if (every_bound_)
            result_.lower_bound = std::min({result_.lower_bound, limit_of(1), least_left_out_});
    }

    // Gives stages unequal numbers of blocks, for the choices that this may make the fastest.
    void move_blocks() {
        const auto is_faster = [&](const ChoiceBounds& bounds) { return bounds.expected_moved < limit_of(1); };
        std::vector<std::size_t> order = in_order(bounds_, is_faster, &ChoiceBounds::expected_moved);
        std::erase_if(order, [&](std::size_t index) {
            return searched_schedule(config_, choices_[index].schedule).needs_costs || refuses(choices_[index]);
        });
        // On unlike devices, balanced numbers make most choices faster: the best ones are those of balanced plans.
        const bool are_alike = config_.parallel.ranks->are_alike;
        std::set<std::tuple<DegreesKey, std::string, int>> kinds;
        std::erase_if(order, [&](std::size_t index) {
            const ClusterChoice& choice = choices_[index];
            return !are_alike && !kinds.emplace(degrees_key(choice), choice.schedule, choice.chunks).second;
        });
        order.resize(std::min(order.size(), are_alike ? kMostMoved : kMostBalanced));
        std::vector<std::pair<std::size_t, ClusterPlan>> starts = balanced(order);
        starts.resize(std::min(starts.size(), kMostMoved));
        std::size_t moved = 0;
        for (auto& [index, start] : starts) {
            if (bounds_[index].least_moved >= limit_of(1) || is_over())
                continue;
            ClusterPlan plan = with_moved_blocks(std::move(start), bounds_[index], config_, limits_, deadline_,
                                                 [&] { return is_over(); });
            if (plan.fits && !has_better(result_.plans, choices_[index], plan))
                add(std::move(plan));
            show("splits", ++moved, starts.size());
        }
        result_.equal_bound = result_.lower_bound;
        if (!every_bound_)
            return;
        result_.lower_bound = std::min(result_.lower_bound, limit_of(1));
        for (std::size_t index = 0; index < choices_.size(); ++index)
            if (bounds_[index].least_moved < result_.lower_bound && !refuses(choices_[index]))
                result_.lower_bound = bounds_[index].least_moved;
    }

    // Returns the plans of choices with balanced numbers of blocks, the best one first. Lists all that fit but the ones
    // whose blocks are moved.
    std::vector<std::pair<std::size_t, ClusterPlan>> balanced(const std::vector<std::size_t>& order) {
        std::vector<std::pair<std::size_t, ClusterPlan>> plans;
        for (std::size_t next = 0; next < order.size() && !is_over();) {
            const std::size_t first = next;
            std::vector<const ClusterChoice*> batch;
            for (; next < order.size() && batch.size() < kPlansAtOnce; ++next)
                batch.push_back(&choices_[order[next]]);
            std::vector<std::optional<ClusterPlan>> found = balanced_plans(batch, config_, limits_, deadline_);
            for (std::size_t k = 0; k < found.size(); ++k)
                if (found[k])
                    plans.emplace_back(order[first + k], std::move(*found[k]));
        }
        std::ranges::stable_sort(plans, [](const auto& a, const auto& b) { return is_better(a.second, b.second); });
        for (std::size_t k = kMostMoved; k < plans.size(); ++k)
            if (auto& [index, plan] = plans[k]; plan.fits && !has_better(result_.plans, choices_[index], plan))
                add(plan);
        return plans;
    }

    // Without a plan that fits: what the smallest ones need.
    void find_smallest() {
        std::vector<std::size_t> order = in_order(bounds_, &ChoiceBounds::is_defined, &ChoiceBounds::lack);
        std::erase_if(order, [&](std::size_t index) { return refuses(choices_[index]); });
        order.resize(std::min(order.size(), kPlansAtOnce));
        if (stop_ == SearchStop::None)
            simulate(order);
        for (const ClusterPlan& plan : result_.plans) {
            const std::vector<DeviceConfig> devices = config_of(config_, plan.choice).cluster.devices;
            const Shortage worst = worst_of(plan.reserved, devices);
            if (!result_.shortage || worst.needs - worst.has < result_.shortage->needs - result_.shortage->has) {
                result_.shortage = worst;
                result_.smallest = plan.choice;
            }
        }
    }

    void finish() {
        std::stable_sort(result_.plans.begin(), result_.plans.end(), is_better);
        result_.none_fits = result_.fitting == 0 && result_.left_out == 0 && result_.untried == 0 && every_bound_ &&
                            stop_ == SearchStop::None && std::ranges::none_of(bounds_, &ChoiceBounds::fits_only_moved);
        if (stop_ != SearchStop::None)
            result_.stop = stop_;
        else if (result_.every_bound && result_.plans.empty() && result_.left_out > 0)
            result_.stop = SearchStop::Memory;
    }

    const Config& config_;
    const ClusterLimits& limits_;
    const SearchProgress& progress_;
    std::mutex mutex_;
    Deadline deadline_, end_of_bounds_;
    SearchStop stop_ = SearchStop::None;  // the same on all processes
    const std::vector<ClusterChoice> choices_;
    std::vector<ChoiceBounds> bounds_;   // by choice
    std::vector<std::size_t> by_costs_;  // choices whose schedules order tasks by costs
    bool every_bound_ = true;            // false: some choice has no bound
    Ns least_left_out_ = kNoPlan;        // bound on the choices for which there was not enough memory or time
    Ns bound_so_far_ = 0;                // on all choices; 0: not known
    BestByDegrees best_;
    ClusterResult result_;
};

}  // namespace

bool is_better(const ClusterPlan& a, const ClusterPlan& b) {
    return std::tuple(!a.fits, a.step_time, a.most_reserved()) < std::tuple(!b.fits, b.step_time, b.most_reserved());
}

Bytes ClusterPlan::most_reserved() const { return *std::max_element(reserved.begin(), reserved.end()); }

const ClusterPlan* ClusterResult::best() const {
    return plans.empty() || !plans.front().fits ? nullptr : &plans.front();
}

std::vector<const ClusterPlan*> ClusterResult::best_by_degrees(std::size_t most) const {
    std::vector<const ClusterPlan*> found;
    std::set<DegreesKey> seen;
    for (const ClusterPlan& plan : plans)
        if (found.size() < most && plan.fits && seen.insert(degrees_key(plan.choice)).second)
            found.push_back(&plan);
    return found;
}

ClusterResult search_cluster(const Config& config, const ClusterLimits& limits, const SearchProgress& progress) {
    assert((!config.search.program || limits.refusal) && "the caller says which plans the program runs");
    return ClusterSearcher(config, limits, progress).run();
}

}  // namespace pw
