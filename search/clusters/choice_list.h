// The choices that a search for a cluster tries: the values of its keys, or the usual values.
#pragma once

#include "search/plan_choice.h"
#include "workloads/transformers/recipes.h"

#include <optional>
#include <vector>

namespace pw {

// Returns the degrees and sizes of micro-batches of `setup.search` that layers may have, with one stage and without
// recomputation.
std::vector<PlanChoice> ways_to_share_layers(const SearchSetup& setup);

// Returns all choices of `setup.search`, in a fixed order. Choices with the same degrees and size are neighbours.
// Throws Error (BadInput) at the key that leaves nothing to try.
std::vector<PlanChoice> cluster_choices(const SearchSetup& setup);

// Returns the plan of a recipe for the setup's cluster. Nothing if the cluster cannot run this model, sequence or
// mini-batch.
std::optional<PlanChoice> choice_of(const Recipe& recipe, const SearchSetup& setup);

}  // namespace pw
