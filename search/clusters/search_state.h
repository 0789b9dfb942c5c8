// The state of a search for a cluster on its hosts in one order: choices, their bounds, and the plans found so far.
#pragma once

#include "search/clusters/choice_bounds.h"
#include "search/clusters/cluster_search.h"
#include "search/deadline.h"
#include "search/plan_choice.h"

#include <cstddef>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace pw {

inline constexpr Ns kNoPlan = std::numeric_limits<Ns>::max();
inline constexpr std::size_t kPlansAtOnce = 8;  // fixed, so that the plans that are simulated do not depend on threads

// The step times of plans that fit.
class BestByDegrees {
public:
    void add(const FoundPlan& plan) {
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

// The processes of a team have equal states.
struct ClusterSearchState {
    ClusterSearchState(const SearchSetup& setup, const PlanLimits& limits, const SearchProgress& progress);

    void show(const std::string& doing, std::size_t done, std::size_t all) const;
    // Once true, the search ends without what is left to do, on all processes. The caller stops one or all processes.
    bool is_over();
    SearchStop why_over() const;
    // Returns the reason that comes last in the enum of the reasons of all processes.
    SearchStop agreed(SearchStop reason) const;
    bool refuses(const PlanChoice& choice) const;
    // Returns the best step time of the degrees that are `place`-th, or `limits.below`.
    Ns limit_of(std::size_t place) const { return std::min(limits.below, best.limit_of(place)); }
    void add(FoundPlan plan);

    const SearchSetup& setup;
    const PlanLimits& limits;
    const SearchProgress& progress;
    Deadline deadline;
    SearchStop stop = SearchStop::None;  // the same on all processes
    const std::vector<PlanChoice> choices;
    std::vector<ChoiceBounds> bounds;  // by choice
    bool every_bound = true;           // false: some choice has no bound
    Ns bound_so_far = 0;               // on all choices (0: not known)
    BestByDegrees best;
    SearchResult result;
};

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

}  // namespace pw
