// The result of a search: its plans, the best plan first, and the bound on all remaining plans.
#pragma once

#include "search/plans/families.h"

#include <vector>

namespace pw {

// Returns the result without the reason why the search stopped. `complete`: false if there was no memory to list all
// choices.
SearchResult result_of(const SearchedChoices& choices, const std::vector<Family>& families, bool complete);

// Returns the lower bound so far, which is never above the best plan.
Ns lower_bound_of(const SearchedChoices& choices, const std::vector<Family>& families);

// Returns the number of choices that had too little time for their plan.
int count_too_long(const SearchedChoices& choices);

}  // namespace pw
