// The choices that a search for a layer graph tries.
#pragma once

#include "search/plan_choice.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace pw {

struct ChoiceLimits {
    // Ways to share out the devices among the stages: if there are more for a number of stages, only some are tried.
    std::int64_t shares = 512;
    // Orders of devices that are not alike, for each way to share them out; few if only the network distinguishes them:
    // all have the same bounds, and the best one is seldom far from the order of the setup.
    std::size_t orders = 720, network_orders = 6;
};

// All choices of `setup.search`, in a fixed order: schedules, micro-batch sizes, stages, orders of devices that are
// not alike, recomputed stages and how, replicas. Data parallelism, one stage on all devices, is one of them unless the
// config has search.replicas. Throws Error (BadInput) at the key that leaves nothing to try. If there are too many ways
// to give every stage its devices, only some are tried: orders_of() the devices; equal shares of all devices, of half
// as many, a quarter, ...
struct Choices {
    std::vector<PlanChoice> all;
    struct Partial {
        PlanChoice like;      // schedule, sizes and stages of which some ways are missing; on all devices
        bool shares = false;  // some of the missing ones have replicas
        // Every missing choice differs from one of `all` only in the order of devices that the network alone
        // distinguishes.
        bool only_network = false;
    };
    std::vector<Partial> partial;
    std::vector<std::string> notes;  // for the user
    bool complete() const { return partial.empty(); }
};
Choices choices_of(const SearchSetup& setup, int layers, const ChoiceLimits& limits = {});

}  // namespace pw
