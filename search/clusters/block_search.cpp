#include "search/clusters/block_search.h"

#include "job/transformer_job.h"
#include "search/clusters/block_moves.h"
#include "search/clusters/plan_attempts.h"
#include "search/plan_choice.h"
#include "workloads/lower_bound.h"

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace pw {

namespace {

constexpr std::int64_t kMostDivisions = 5000;  // of a search that simulates all of them, if bounds do not exclude them
constexpr std::size_t kMostMoved = 4;          // choices whose blocks are moved
constexpr std::size_t kMostBalancedByCosts = 4;  // choices by costs whose blocks are balanced
constexpr std::size_t kMostBalanced = 512;       // choices whose blocks are balanced (the best are moved)

// Returns whether the plan of this choice, with equal numbers of blocks, is known and no worse.
bool has_better(const std::vector<FoundPlan>& plans, const PlanChoice& choice, const FoundPlan& plan) {
    const auto equal = std::ranges::find(plans, choice, &FoundPlan::choice);
    return equal != plans.end() && !is_better(plan, *equal);
}

class BlockSearch {
public:
    explicit BlockSearch(ClusterSearchState& state) : state_(state) {}

    void run() {
        const auto is_faster = [&](const ChoiceBounds& bounds) { return bounds.expected_moved < state_.limit_of(1); };
        std::vector<std::size_t> order = in_order(state_.bounds, is_faster, &ChoiceBounds::expected_moved);
        std::erase_if(order, [&](std::size_t index) { return state_.refuses(state_.choices[index]); });
        const auto by_costs = std::stable_partition(
            order.begin(), order.end(), [&](std::size_t index) { return !is_by_costs(state_.choices[index]); });
        const std::vector<std::size_t> ordered_by_costs(by_costs, order.end());
        order.erase(by_costs, order.end());
        // On unlike devices, balanced numbers make most choices faster, and with offload or unlike blocks more choices
        // fit: the best choices have the best balanced plans.
        const bool are_alike = state_.setup.parallel.ranks->are_alike && !has_unlike_blocks(state_.setup) &&
                               state_.setup.search.offload == SearchConfig::Recompute::None;
        std::set<std::tuple<DegreesKey, std::string, int, int>> kinds;
        std::erase_if(order, [&](std::size_t index) {
            const PlanChoice& choice = state_.choices[index];
            return !are_alike &&
                   !kinds.emplace(degrees_key(choice), choice.schedule, choice.stages, choice.offloaded).second;
        });
        order.resize(std::min(order.size(), are_alike ? kMostMoved : kMostBalanced));
        std::vector<std::pair<std::size_t, FoundPlan>> starts = balanced(order);
        starts.resize(std::min(starts.size(), kMostMoved));
        std::size_t moved = 0;
        for (auto& [index, start] : starts) {
            if (state_.bounds[index].least_moved >= state_.limit_of(1) || state_.is_over())
                continue;
            FoundPlan plan = with_moved_blocks(std::move(start), state_.bounds[index], state_.setup, state_.limits,
                                               state_.deadline, [&] { return state_.is_over(); });
            if (plan.fits && !has_better(state_.result.plans, state_.choices[index], plan))
                state_.add(std::move(plan));
            state_.show("splits", ++moved, starts.size());
        }
        balance_by_costs(ordered_by_costs);
        try_all_divisions();
        state_.result.equal_bound = state_.result.lower_bound;
        if (!state_.every_bound)
            return;
        state_.result.lower_bound = std::min(state_.result.lower_bound, state_.limit_of(1));
        for (std::size_t index = 0; index < state_.choices.size(); ++index)
            if (state_.bounds[index].least_moved < state_.result.lower_bound && !state_.refuses(state_.choices[index]))
                state_.result.lower_bound = state_.bounds[index].least_moved;
    }

private:
    bool is_by_costs(const PlanChoice& choice) const {
        return searched_schedule(state_.setup, choice.schedule).needs_costs;
    }

    // Balances the blocks of plans whose orders depend on costs, which take long to make: of few, and no block is
    // moved.
    void balance_by_costs(const std::vector<std::size_t>& order) {
        std::vector<std::size_t> tried;
        for (const std::size_t index : order)
            if (tried.size() < kMostBalancedByCosts &&
                std::ranges::find(state_.result.plans, state_.choices[index], &FoundPlan::choice) !=
                    state_.result.plans.end())
                tried.push_back(index);
        for (auto& [index, plan] : balanced(tried))
            if (plan.fits && !has_better(state_.result.plans, state_.choices[index], plan))
                state_.add(std::move(plan));
    }

    // Bounds every division of the blocks of a small space, and simulates the divisions that may be the fastest.
    void try_all_divisions() {
        std::vector<std::size_t> open;
        std::int64_t count = 0;
        for (std::size_t index = 0; index < state_.choices.size(); ++index) {
            if (state_.bounds[index].least_moved >= state_.limit_of(1) || state_.refuses(state_.choices[index]))
                continue;
            open.push_back(index);
            count += is_by_costs(state_.choices[index])
                         ? kMostDivisions + 1
                         : divisions_of(state_.setup.workload.all_blocks(), state_.choices[index].stages,
                                        kMostDivisions + 1);
            if (count > kMostDivisions)
                return;
        }
        std::vector<std::pair<BoundedDivision, std::size_t>> divisions;
        for (const std::size_t index : open) {
            if (state_.is_over())
                return;
            for (BoundedDivision& division : bounded_divisions(state_.setup, state_.choices[index], state_.limit_of(1)))
                divisions.emplace_back(std::move(division), index);
        }
        std::ranges::stable_sort(divisions, {}, [](const auto& one) { return one.first.step_time; });
        std::size_t next = 0;
        while (next < divisions.size() && divisions[next].first.step_time < state_.limit_of(1) && !state_.is_over()) {
            std::vector<PlanChoice> batch;
            std::vector<Ns> least;
            for (; next < divisions.size() && batch.size() < kPlansAtOnce; ++next) {
                PlanChoice& choice = batch.emplace_back(state_.choices[divisions[next].second]);
                choice.blocks = divisions[next].first.blocks;
                least.push_back(divisions[next].first.step_time);
                if (state_.refuses(choice)) {
                    batch.pop_back();
                    least.pop_back();
                }
            }
            std::vector<const PlanChoice*> tried;
            for (const PlanChoice& choice : batch)
                tried.push_back(&choice);
            std::vector<Attempt> attempts = attempts_at(tried, state_.setup, state_.limits, state_.deadline);
            for (std::size_t k = 0; k < attempts.size(); ++k)
                if (std::optional<FoundPlan>& plan = attempts[k].plan; plan && plan->fits) {
                    check_lower_bound(least[k], plan->step_time, print(plan->choice));
                    if (plan->step_time < state_.limit_of(1))
                        state_.add(std::move(*plan));
                }
            state_.show("divisions", next, divisions.size());
        }
        const Ns left = next < divisions.size() ? divisions[next].first.step_time : ChoiceBounds::kNoStep;
        for (const std::size_t index : open)
            state_.bounds[index].least_moved = std::max(state_.bounds[index].least_moved, left);
    }

    // Returns the plans of choices with balanced numbers of blocks, the best plan first. Lists all plans that fit,
    // except the plans whose blocks are moved.
    std::vector<std::pair<std::size_t, FoundPlan>> balanced(const std::vector<std::size_t>& order) {
        std::vector<std::pair<std::size_t, FoundPlan>> plans;
        for (std::size_t next = 0; next < order.size() && !state_.is_over();) {
            const std::size_t first = next;
            std::vector<const PlanChoice*> batch;
            for (; next < order.size() && batch.size() < kPlansAtOnce; ++next)
                batch.push_back(&state_.choices[order[next]]);
            std::vector<std::optional<FoundPlan>> found =
                balanced_plans(batch, state_.setup, state_.limits, state_.deadline);
            for (std::size_t k = 0; k < found.size(); ++k)
                if (found[k]) {
                    const std::size_t index = order[first + k];
                    if (found[k]->fits)
                        check_lower_bound(state_.bounds[index].least_moved, found[k]->step_time,
                                          print(found[k]->choice));
                    plans.emplace_back(index, std::move(*found[k]));
                }
        }
        std::ranges::stable_sort(plans, [](const auto& a, const auto& b) { return is_better(a.second, b.second); });
        for (std::size_t k = kMostMoved; k < plans.size(); ++k)
            if (auto& [index, plan] = plans[k];
                plan.fits && !has_better(state_.result.plans, state_.choices[index], plan))
                state_.add(plan);
        return plans;
    }

    ClusterSearchState& state_;
};

}  // namespace

void move_blocks(ClusterSearchState& state) { BlockSearch(state).run(); }

}  // namespace pw
