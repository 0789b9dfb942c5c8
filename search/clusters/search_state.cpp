#include "search/clusters/search_state.h"

#include "search/clusters/choice_list.h"
#include "workloads/lower_bound.h"

#include <fmt/format.h>

#include <algorithm>

namespace pw {

namespace {

std::string text_of_best(Ns step, Ns bound) {
    if (step == kNoPlan)
        return "nothing fits yet";
    const std::string text = "best " + print_time(step);
    return bound > 0 ? fmt::format("{}, gap {:.1f} %", text, 100 * gap_of(step, std::min(bound, step))) : text;
}

}  // namespace

ClusterSearchState::ClusterSearchState(const SearchSetup& searched, const PlanLimits& of_search,
                                       const SearchProgress& of_caller)
    : setup(searched),
      limits(of_search),
      progress(of_caller),
      deadline(of_search.seconds, 1, of_search.should_stop),
      choices(cluster_choices(searched)) {}

void ClusterSearchState::show(const std::string& doing, std::size_t done, std::size_t all) const {
    if (progress)
        progress(fmt::format("{} {}/{}: {}", doing, done, all, text_of_best(limit_of(1), bound_so_far)));
}

bool ClusterSearchState::is_over() {
    if (deadline.passed())
        stop = std::max(stop, why_over());
    stop = agreed(stop);
    return stop != SearchStop::None;
}

SearchStop ClusterSearchState::why_over() const {
    return limits.should_stop && limits.should_stop() ? SearchStop::Caller : SearchStop::Time;
}

SearchStop ClusterSearchState::agreed(SearchStop reason) const {
    Packet own;
    put(own, reason);
    share(limits.team, own, [&](PacketReader& reader) { reason = std::max(reason, reader.take<SearchStop>()); });
    return reason;
}

bool ClusterSearchState::refuses(const PlanChoice& choice) const {
    return limits.refusal && !limits.refusal(setup_of(setup, choice)).empty();
}

void ClusterSearchState::add(FoundPlan plan) {
    if (plan.fits) {
        best.add(plan);
        ++result.fitting;
    }
    result.plans.push_back(std::move(plan));
}

}  // namespace pw
