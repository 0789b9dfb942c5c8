#include "search/found_plans.h"

#include "workloads/lower_bound.h"

#include <algorithm>
#include <tuple>

namespace pw {

Bytes FoundPlan::most_reserved() const {
    return reserved.empty() ? 0 : *std::max_element(reserved.begin(), reserved.end());
}

bool is_better(const FoundPlan& a, const FoundPlan& b) {
    return std::tuple(!a.fits, a.step_time, a.most_reserved()) < std::tuple(!b.fits, b.step_time, b.most_reserved());
}

double gap_of(Ns time, Ns lower_bound) {
    check_lower_bound(lower_bound, time, "the step");
    return time > 0 ? static_cast<double>(time - lower_bound) / static_cast<double>(time) : 0;
}

const FoundPlan* SearchResult::best() const { return plans.empty() || !plans.front().fits ? nullptr : &plans.front(); }

double SearchResult::gap() const { return best() == nullptr ? 0 : gap_of(best()->step_time, lower_bound); }

}  // namespace pw
