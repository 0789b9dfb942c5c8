// What a schedule may order by, where its row needs costs: how long tasks and messages take, and what there is room
// for.
#pragma once

#include "schedules/plan/plan.h"
#include "workloads/costs/costs.h"

#include <map>
#include <utility>
#include <vector>

namespace pw {

struct OrderCosts {
    struct Place {
        int stage, device;
        auto operator<=>(const Place&) const = default;
    };
    struct Times {
        Ns forward = 0, backward = 0, backward_input = 0, backward_weight = 0;
    };
    // Of a full micro-batch on each holder of a stage, with the device's speed and the dispatch.
    std::map<Place, Times> times;
    // From one holder to another, its latency included: of activations along an edge, and of gradients against it.
    // Between stages of one device nothing is sent.
    std::map<std::pair<Place, Place>, Ns> messages;
    std::vector<StageBytes> bytes;  // by stage
    std::vector<Bytes> memory;      // by device
};

// Works them out for a placed shape. `memory` is that of the devices.
OrderCosts order_costs(const Shape& shape, const Costs& costs, std::vector<Bytes> memory);

}  // namespace pw
