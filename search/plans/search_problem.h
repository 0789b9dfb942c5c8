// The problem of a search: the best plan of a model on the devices of a setup.
#pragma once

#include "job/build.h"
#include "job/setup/search_setup.h"
#include "schedules/plan/lanes.h"
#include "search/plan_choice.h"
#include "workloads/costs/costs.h"

#include <functional>

namespace pw {

struct SearchProblem {
    SearchSetup setup;
    Model model = {};                                     // a layer graph; a transformer's setup is the whole problem
    std::function<Profile(int samples)> profile_at = {};  // the profile for micro-batches of this size
    TransferMode mode = {};                               // as the plans will be executed
};

// Makes the search problem of `setup` for its model, with the profiles and the transfer mode of the setup.
SearchProblem problem_of(const SearchSetup& setup, const Model& model);

}  // namespace pw
