// What tests of schedules that order tasks by their costs draw.
#pragma once

#include "schedules/orders/list_scheduling.h"
#include "schedules/orders/schedule.h"
#include "tests/support/dice.h"

namespace pw {

// Returns each of these schedules in turn.
inline const Schedule& schedule_by_costs(int round) {
    constexpr const char* kNames[] = {"auto", "auto-bidirectional", "auto-v"};
    return schedule_named(kNames[round % 3]);
}

// Returns the next number of devices that the schedule can place.
inline int devices_for(const Schedule& schedule, int p) {
    return schedule.placement.place == place_in_both_directions ? p + p % 2 : p;
}

inline OrderRules any_rules(Random& random) {
    return {.ahead = 0.25 * pick(random, 1, 12),
            .undelayed = pick(random, 0, 3) == 0,
            .forward_first = pick(random, 0, 1) == 1,
            .whole = pick(random, 0, 4) == 0,
            .lag = 0.5 * pick(random, 0, 3),
            .patience = 0.25 * pick(random, 0, 4),
            .level = pick(random, 0, 1) == 1,
            .stages = static_cast<OrderRules::Stages>(pick(random, 0, 3))};
}

}  // namespace pw
