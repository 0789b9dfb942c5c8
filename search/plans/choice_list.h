// The choices that a search for a layer graph tries.
#pragma once

#include "search/found_plans.h"

#include <string>
#include <vector>

namespace pw {

// All choices of `setup.search`, in a fixed order: schedules, micro-batch sizes, stages, slices, orders of devices that
// are not alike, recomputed stages and how, replicas. Data parallelism, a single stage on all devices, is also a choice
// unless the config has search.replicas. Throws Error (BadInput) at the key that leaves nothing to try. If there are
// too many ways to give every stage its devices, only some are tried: orders_of() the devices, and equal shares of all
// devices, of half as many, a quarter, ...
struct Choices {
    std::vector<PlanChoice> all;
    struct Partial {
        PlanChoice like;      // schedule, sizes and stages of which some ways are missing, on all devices
        bool shares = false;  // some missing choices have replicas
        // Every missing choice differs from a choice in `all` only in the order of devices that the network alone
        // distinguishes.
        bool only_network = false;
    };
    std::vector<Partial> partial;
    std::vector<std::string> notes;  // for the user
    bool complete() const { return partial.empty(); }
};
Choices choices_of(const SearchSetup& setup, int layers, const ChoiceLimits& limits = {});

}  // namespace pw
