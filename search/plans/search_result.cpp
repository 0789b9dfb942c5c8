#include "search/plans/search_result.h"

#include "workloads/lower_bound.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

namespace pw {

namespace {

// Choices are left out if some split could exceed the limits of integers, although other splits may be faster plans.
void note_beyond_limit(const SearchedChoices& choices, std::vector<std::string>& notes) {
    const auto is_beyond = [best = choices.best()](const SearchedChoice& choice) {
        return choice.trial->is_beyond() && choice.trial->bound() < best;
    };
    if (const auto first = std::find_if(choices.begin(), choices.end(), is_beyond); first != choices.end())
        notes.push_back(fmt::format("{} of {} choices were not searched: {}",
                                    std::count_if(choices.begin(), choices.end(), is_beyond), choices.size(),
                                    first->trial->refused()->fact()));
}

// Returns the lower bound, which is never above the best plan.
Ns lower_bound(const SearchedChoices& choices, const std::vector<Family>& families, bool complete) {
    Ns least = choices.unknown() > 0 || !complete ? 0 : choices.best();
    for (const SearchedChoice& choice : choices)
        if (!choices.is_closed(choice))
            least = std::min(least, choice.trial->bound());
    for (const Family& family : families)
        least = std::min(least, bound_of(family, choices));
    return least;
}

std::optional<Shortage> least_shortage(const SearchedChoices& choices) {
    std::optional<Shortage> least;
    for (const SearchedChoice& choice : choices)
        if (const std::optional<Shortage>& lacks = choice.trial->found().shortage;
            lacks && (!least || lacks->needs - lacks->has < least->needs - least->has))
            least = lacks;
    return least;
}

void add_plans(const SearchedChoices& choices, std::vector<FoundPlan>& plans) {
    const Ns best = choices.best();
    for (const SearchedChoice& choice : choices) {
        if (!choice.trial->has_plan() || choice.trial->found().reserved.empty())
            continue;
        FoundPlan& plan = plans.emplace_back(choice.trial->found());
        if (plan.fits)
            check_lower_bound(plan.lower_bound, plan.step_time, print(plan.choice));
        if (choices.is_closed(choice) && best < kNeverFits)
            plan.lower_bound = std::max(plan.lower_bound, best);
        plan.lower_bound = std::min(plan.lower_bound, plan.step_time);  // a plan that does not fit may be faster
    }
    std::stable_sort(plans.begin(), plans.end(), is_better);
}

}  // namespace

Ns lower_bound_of(const SearchedChoices& choices, const std::vector<Family>& families) {
    return lower_bound(choices, families, true);
}

int count_too_long(const SearchedChoices& choices) {
    return static_cast<int>(std::count_if(choices.begin(), choices.end(),
                                          [](const SearchedChoice& choice) { return choice.trial->is_too_long(); }));
}

SearchResult result_of(const SearchedChoices& choices, const std::vector<Family>& families, bool complete) {
    SearchResult result;
    result.every_cut = choices.space().complete();
    result.every_choice = families.empty();
    result.lower_bound = lower_bound(choices, families, complete);
    result.candidates = choices.candidates();
    result.choices = choices.unknown();
    result.left_out = choices.unknown() - count_too_long(choices);
    for (const SearchedChoice& choice : choices) {
        result.choices += !choice.trial->refused();
        result.left_out += choice.left_out;
    }
    note_beyond_limit(choices, result.notes);
    add_plans(choices, result.plans);
    for (const FoundPlan& plan : result.plans)
        result.fitting += plan.fits;
    if (result.fitting == 0) {
        result.shortage = least_shortage(choices);
        result.none_fits = result.lower_bound == kNeverFits;
    }
    return result;
}

}  // namespace pw
