#include "search/clusters/cluster_search.h"

#include "job/setup/rank_groups.h"
#include "search/clusters/block_search.h"
#include "search/clusters/choice_bounds.h"
#include "search/clusters/choice_list.h"
#include "search/clusters/host_orders.h"
#include "search/clusters/plan_attempts.h"
#include "search/deadline.h"
#include "search/plan_choice.h"
#include "workloads/error.h"
#include "workloads/lower_bound.h"
#include "workloads/threads.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <exception>
#include <map>
#include <mutex>
#include <set>
#include <tuple>
#include <utility>

namespace pw {

namespace {

// Choices of which the plans of a batch are taken.
constexpr std::size_t kChoicesAtOnce = 64;
// Plans of schedules that order tasks by costs that are tried. Each takes as long as about a hundred plans of other
// schedules.
constexpr std::size_t kMostByCosts = 40;
// The share of a limited time that bounds may take. The rest is for plans.
constexpr double kShareOfBounds = 0.6;
constexpr int kMostHostOrders = 64;  // that are searched

// A step through all numbers below `count`, modulo `count`: a prime that does not divide it. Bounds that are known when
// the time is up are then of choices of all kinds.
std::size_t stride_of(std::size_t count) {
    constexpr std::size_t kPrimes[] = {7919, 7907};
    return count % kPrimes[0] == 0 ? kPrimes[1] : kPrimes[0];
}

// Orders choices by the fastest plan of other schedules with the same degrees, sizes and memory options.
std::vector<std::size_t> in_order_of_others(const std::vector<std::size_t>& indices,
                                            const std::vector<PlanChoice>& choices,
                                            const std::vector<ChoiceBounds>& bounds,
                                            const std::vector<FoundPlan>& plans) {
    const auto without_schedule = [](PlanChoice choice) {
        choice.schedule.clear();
        choice.stages = choice.degrees.pipeline;
        return print(choice);
    };
    std::map<std::string, Ns> best_of;
    for (const FoundPlan& plan : plans) {
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

class ClusterSearcher {
public:
    ClusterSearcher(const SearchSetup& setup, const PlanLimits& limits, const SearchProgress& progress)
        : state_(setup, limits, progress), end_of_bounds_(limits.seconds * kShareOfBounds, 1, limits.should_stop) {}

    SearchResult run() {
        simulate_recipe();
        make_bounds();
        simulate_best_first();
        simulate_by_costs();
        move_blocks(state_);
        if (state_.result.fitting == 0 && state_.limits.below == kNoPlan)
            find_smallest();
        finish();
        return std::move(state_.result);
    }

private:
    bool bounds_are_over() {
        const std::lock_guard lock(mutex_);
        if (end_of_bounds_.passed())
            state_.result.every_bound = false;
        return !state_.result.every_bound;
    }

    // Works on the process's part of the numbers below `count`, and reports progress, until the time for bounds is up.
    void on_all(const std::string& doing, std::size_t count, const std::function<void(std::size_t)>& work) {
        const auto size = static_cast<std::size_t>(state_.limits.team.size),
                   rank = static_cast<std::size_t>(state_.limits.team.rank);
        const std::size_t own = count / size + (rank < count % size ? 1 : 0);
        std::size_t done = 0;
        for_each_index(own, state_.limits.threads, [&](std::size_t index) {
            if (bounds_are_over())
                return;
            work((index * size + rank) * stride_of(count) % count);
            const std::lock_guard lock(mutex_);
            if (++done % 64 == 0)
                state_.show(doing, done * size, count);
        });
    }

    // Recipes are for models that are trained whole.
    void simulate_recipe() {
        const WorkloadConfig& workload = state_.setup.workload;
        if (workload.encoder || workload.lora || !workload.frozen.empty())
            return;
        const Recipe* recipe =
            nearest_recipe(*workload.transformer, state_.setup.cluster.device, state_.setup.training.precision,
                           static_cast<int>(state_.setup.parallel.ranks->devices.size()));
        const std::optional<PlanChoice> choice = recipe ? choice_of(*recipe, state_.setup) : std::nullopt;
        if (!choice || state_.limits.below != kNoPlan)
            return;
        state_.result.vendor = attempts_at({&*choice}, state_.setup, state_.limits, state_.deadline).front().plan;
        if (!state_.result.vendor)  // its schedule refuses the number of micro-batches
            return;
        state_.result.recipe = recipe;
        const auto found = std::find(state_.choices.begin(), state_.choices.end(), *choice);
        if (found != state_.choices.end() && !state_.refuses(*found))
            state_.add(*state_.result.vendor);
    }

    // Counts a choice that is refused.
    bool may_be_proposed(const PlanChoice& choice) {
        const std::string refusal = state_.limits.refusal ? state_.limits.refusal(setup_of(state_.setup, choice)) : "";
        if (!refusal.empty() && ++state_.result.refused == 1)
            state_.result.refusal = refusal;
        return refusal.empty();
    }

    void make_bounds() {
        BoundsOfChoices bounds = bounds_of(
            state_.setup, state_.choices,
            [&](const std::string& doing, std::size_t count, const std::function<void(std::size_t)>& work) {
                on_all(doing, count, work);
            },
            state_.limits.team);
        state_.bounds = std::move(bounds.of);
        state_.result.stop = state_.agreed(state_.result.every_bound ? SearchStop::None : state_.why_over());
        state_.result.every_bound = state_.result.stop == SearchStop::None;
        state_.result.left_out = bounds.without_memory;
        state_.every_bound = state_.result.every_bound && state_.result.left_out == 0;
        for (const ChoiceBounds& one : state_.bounds) {
            state_.result.choices += one.is_defined ? 1 : 0;
            state_.result.too_large += one.is_defined && !one.fits ? 1 : 0;
        }
    }

    bool is_known(const PlanChoice& choice) const {
        return state_.result.vendor && state_.result.vendor->choice == choice;
    }

    // Simulates choices in parallel, on all processes of the team.
    void simulate(const std::vector<std::size_t>& batch) {
        std::vector<const PlanChoice*> choices;
        for (const std::size_t index : batch)
            choices.push_back(&state_.choices[index]);
        std::vector<Attempt> found = attempts_at(choices, state_.setup, state_.limits, state_.deadline);
        for (std::size_t i = 0; i < batch.size(); ++i) {
            if (!found[i].has_memory || !found[i].has_time) {
                state_.result.left_out += found[i].has_memory ? 0 : 1;
                least_left_out_ = std::min(least_left_out_, state_.bounds[batch[i]].step_time);
            } else if (found[i].plan) {
                if (found[i].plan->fits)
                    check_lower_bound(state_.bounds[batch[i]].step_time, found[i].plan->step_time, print(*choices[i]));
                state_.add(std::move(*found[i].plan));
            } else
                --state_.result.choices;
        }
    }

    void simulate_best_first() {
        std::vector<std::size_t> order = in_order(state_.bounds, &ChoiceBounds::fits, &ChoiceBounds::step_time);
        std::erase_if(order, [&](std::size_t index) { return is_known(state_.choices[index]); });
        const auto end = std::stable_partition(order.begin(), order.end(), [&](std::size_t index) {
            return !searched_schedule(state_.setup, state_.choices[index].schedule).needs_costs;
        });
        by_costs_.assign(end, order.end());
        order.erase(end, order.end());
        const Ns by_costs = by_costs_.empty() ? kNoPlan : state_.bounds[by_costs_.front()].step_time;
        std::size_t next = 0;
        while (next < order.size() && state_.bounds[order[next]].step_time < state_.limit_of(state_.limits.exact) &&
               !state_.is_over()) {
            simulate(
                next_batch(order, next, [&](std::size_t index) { return may_be_proposed(state_.choices[index]); }));
            const Ns least = next < order.size() ? state_.bounds[order[next]].step_time : kNoPlan;
            state_.bound_so_far =
                state_.every_bound ? std::min({state_.limit_of(1), least, by_costs, least_left_out_}) : 0;
            state_.show("plans", next, order.size());
        }
        state_.result.too_slow = static_cast<int>(order.size() - next);
        const Ns least = next < order.size() ? state_.bounds[order[next]].step_time : kNoPlan;
        state_.result.lower_bound = state_.every_bound ? std::min({state_.limit_of(1), least, least_left_out_}) : 0;
    }

    void simulate_by_costs() {
        const std::vector<std::size_t> order =
            in_order_of_others(by_costs_, state_.choices, state_.bounds, state_.result.plans);
        const auto may_be_faster = [&](std::size_t index) {
            return state_.bounds[index].step_time < state_.limit_of(1);
        };
        std::size_t next = 0, tried = 0;
        while (next < order.size() && tried < kMostByCosts && !state_.is_over()) {
            const std::vector<std::size_t> batch = next_batch(order, next, [&](std::size_t index) {
                state_.result.too_slow += may_be_faster(index) ? 0 : 1;
                return may_be_faster(index) && may_be_proposed(state_.choices[index]);
            });
            tried += batch.size();
            simulate(batch);
            state_.show("orders by costs", tried, kMostByCosts);
        }
        for (; next < order.size(); ++next) {
            ++(may_be_faster(order[next]) ? state_.result.untried : state_.result.too_slow);
            least_left_out_ = std::min(least_left_out_, state_.bounds[order[next]].step_time);
        }
        if (state_.every_bound)
            state_.result.lower_bound = std::min({state_.result.lower_bound, state_.limit_of(1), least_left_out_});
    }

    // Without a plan that fits: what the smallest plans need.
    void find_smallest() {
        std::vector<std::size_t> order = in_order(state_.bounds, &ChoiceBounds::is_defined, &ChoiceBounds::lack);
        std::erase_if(order, [&](std::size_t index) { return state_.refuses(state_.choices[index]); });
        order.resize(std::min(order.size(), kPlansAtOnce));
        if (state_.stop == SearchStop::None)
            simulate(order);
        for (const FoundPlan& plan : state_.result.plans) {
            const std::vector<DeviceConfig> devices = setup_of(state_.setup, plan.choice).cluster.devices;
            const Shortage worst = worst_of(plan.reserved, devices);
            if (!state_.result.shortage ||
                worst.needs - worst.has < state_.result.shortage->needs - state_.result.shortage->has) {
                state_.result.shortage = worst;
                state_.result.smallest = plan.choice;
            }
        }
    }

    void finish() {
        std::stable_sort(state_.result.plans.begin(), state_.result.plans.end(), is_better);
        state_.result.none_fits = state_.result.fitting == 0 && state_.result.left_out == 0 &&
                                  state_.result.untried == 0 && state_.every_bound && state_.stop == SearchStop::None &&
                                  std::ranges::none_of(state_.bounds, &ChoiceBounds::fits_only_moved);
        if (state_.stop != SearchStop::None)
            state_.result.stop = state_.stop;
        else if (state_.result.every_bound && state_.result.plans.empty() && state_.result.left_out > 0)
            state_.result.stop = SearchStop::Memory;
    }

    ClusterSearchState state_;
    std::mutex mutex_;
    Deadline end_of_bounds_;
    std::vector<std::size_t> by_costs_;  // choices whose schedules order tasks by costs
    Ns least_left_out_ = kNoPlan;        // bound on the choices for which there was not enough memory or time
};

}  // namespace

namespace {

void add(SearchResult& result, SearchResult&& found, const std::vector<int>& hosts) {
    for (FoundPlan& plan : found.plans)
        if (plan.fits) {
            plan.choice.hosts = hosts;
            result.plans.push_back(std::move(plan));
        }
    result.lower_bound = std::min(result.lower_bound, found.lower_bound);
    result.equal_bound = std::min(result.equal_bound, found.equal_bound);
    result.every_bound = result.every_bound && found.every_bound;
    result.none_fits = result.none_fits && found.none_fits;
    result.stop = std::max(result.stop, found.stop);
    for (int SearchResult::*const count :
         {&SearchResult::choices, &SearchResult::too_large, &SearchResult::too_slow, &SearchResult::refused,
          &SearchResult::untried, &SearchResult::fitting, &SearchResult::left_out})
        result.*count += found.*count;
}

// Searches the orders of hosts that may be faster than the best plan, each as a cluster of its own.
class HostOrderSearch {
public:
    HostOrderSearch(const SearchSetup& setup, const PlanLimits& limits, const SearchProgress& progress)
        : setup_(setup),
          limits_(limits),
          progress_(progress),
          deadline_(limits.seconds, 1, limits.should_stop),
          orders_(setup.search.arrange_hosts ? host_orders(setup) : std::vector<HostOrder>{}) {}

    SearchResult run() {
        std::exception_ptr refused;
        try {
            result_ = ClusterSearcher(setup_, limits_, progress_).run();
        } catch (const Error&) {  // no choice takes this number of devices
            if (orders_.empty())
                throw;
            refused = std::current_exception();
            result_.orders = 0;
            result_.lower_bound = result_.equal_bound = kNoPlan;
            result_.none_fits = true;
        }
        for (const HostOrder& order : orders_)
            consider(order);
        if (result_.orders == 0 && refused)
            std::rethrow_exception(refused);
        result_.candidates = std::ssize(result_.plans);
        return std::move(result_);
    }

private:
    void consider(const HostOrder& order) {
        const Ns best = result_.best() ? result_.best()->step_time : kNoPlan;
        if (order.least >= best) {
            ++result_.slow_orders;
            result_.equal_bound = std::min(result_.equal_bound, order.least);
            return;
        }
        if (result_.stop != SearchStop::None || result_.orders >= kMostHostOrders) {
            ++result_.orders_left;
            result_.lower_bound = std::min(result_.lower_bound, order.least);
            result_.equal_bound = std::min(result_.equal_bound, order.least);
            result_.none_fits = false;
            return;
        }
        PlanLimits own = limits_;
        own.seconds = deadline_.left().count();
        own.below = best;
        if (best != kNoPlan)
            own.exact = 1;
        const SearchProgress named = [&](const std::string& state) {
            progress_(fmt::format("order {} of hosts, {}", result_.orders + 1, state));
        };
        SearchSetup on_hosts = setup_;
        choose_hosts(on_hosts, order.hosts);
        try {
            add(result_, ClusterSearcher(on_hosts, own, progress_ ? named : progress_).run(), order.hosts);
            ++result_.orders;
        } catch (const Error&) {  // no choice takes this number of devices
            ++result_.slow_orders;
        }
        std::ranges::stable_sort(result_.plans, is_better);
    }

    const SearchSetup& setup_;
    const PlanLimits& limits_;
    const SearchProgress& progress_;
    const Deadline deadline_;
    const std::vector<HostOrder> orders_;
    SearchResult result_;
};

}  // namespace

DegreesKey degrees_key(const PlanChoice& choice) {
    const Parallel& own = choice.degrees;
    DegreesKey key{own.tensor, own.pipeline, own.context, own.expert, own.expert_tensor};
    for (const Parallel& of_device : choice.of_stages)
        key.insert(key.end(), {of_device.tensor, of_device.context});
    return key;
}

std::vector<const FoundPlan*> best_by_degrees(const SearchResult& result, std::size_t most) {
    std::vector<const FoundPlan*> found;
    std::set<DegreesKey> seen;
    for (const FoundPlan& plan : result.plans)
        if (found.size() < most && plan.fits && seen.insert(degrees_key(plan.choice)).second)
            found.push_back(&plan);
    return found;
}

SearchResult search_cluster(const SearchSetup& setup, const PlanLimits& limits, const SearchProgress& progress) {
    assert((!setup.search.program || limits.refusal) && "the caller says which plans the program runs");
    return HostOrderSearch(setup, limits, progress).run();
}

}  // namespace pw
