// What a search tries with a choice whose schedule, sizes and stages are set: a row of kWays (choice_ways.cpp) for each
// member of PlanChoice that the values of a key are tried for. Lists of choices, setups, and comparisons go by the
// rows.
#pragma once

#include "search/plan_choice.h"

#include <string>
#include <vector>

namespace pw {

// How sequences are cut is chosen before devices are. What devices recompute and offload is chosen last.
enum class WaysTo { CutSequences, SaveMemory };

// Returns the choice with every combination of values that the setup's search tries, the last row changing fastest.
std::vector<PlanChoice> ways_to(WaysTo part, const SearchSetup& setup, PlanChoice choice);
// Returns whether both choices have the same values.
bool are_same_ways(const PlanChoice& a, const PlanChoice& b);
// Sets the values of the choice in a setup.
void set_ways(const PlanChoice& choice, Setup& chosen);
// Returns what is not as usual: "2 of the stages recomputed".
std::vector<std::string> words_of_ways(WaysTo part, const PlanChoice& choice);

}  // namespace pw
