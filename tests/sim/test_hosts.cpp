// Messages between hosts that share the way out of one and into another, calculated by hand.
#include "schedules/orders/schedule.h"
#include "sim/simulate.h"
#include "tests/support/arrivals.h"
#include "tests/support/shapes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace pw {
namespace {

// On hosts of their own, but the first stages on one.
std::vector<Ns> arrivals_on_hosts(int stages, const std::vector<Message>& messages, int hosts_from = 0) {
    Costs costs = costs_of_messages(stages);
    ClusterEdit(costs)->between_hosts = costs.cluster->link;
    for (int stage = 0; stage < stages; ++stage)
        ClusterEdit(costs)->host.push_back(std::max(0, stage - hosts_from));
    return arrivals_of(messages, costs);
}

using Times = std::vector<Ns>;

TEST(Hosts, TwoMessagesShareWhatLeadsOutOfAHost) {
    EXPECT_EQ(arrivals_on_hosts(3, {{0, 1, 50}, {0, 2, 50}}), (Times{100, 100}));
    // Both have half until the short one has left: 50 of 150 are gone at 100, and the rest goes alone.
    EXPECT_EQ(arrivals_on_hosts(3, {{0, 1, 50}, {0, 2, 150}}), (Times{100, 200}));
}

TEST(Hosts, AllToOneShareWhatLeadsIn) {
    EXPECT_EQ(arrivals_on_hosts(4, {{0, 3, 50}, {1, 3, 50}, {2, 3, 50}}), (Times{150, 150, 150}));
    // A third each until 90, half each until 150, then alone.
    EXPECT_EQ(arrivals_on_hosts(4, {{0, 3, 30}, {1, 3, 60}, {2, 3, 90}}), (Times{90, 150, 180}));
}

// Three messages enter host 3, each at a third. The message to host 4 gets the part of host 0's way out that the first
// of them leaves: two thirds.
TEST(Hosts, UnusedBandwidthGoesToAnotherMessage) {
    EXPECT_EQ(arrivals_on_hosts(5, {{0, 3, 60}, {0, 4, 60}, {1, 3, 60}, {2, 3, 60}}), (Times{180, 90, 180, 180}));
}

TEST(Hosts, OutAndInAreApartAndDevicesOfOneHostShareNothing) {
    // On two hosts: 0 and 1, and 2 alone, to which both send.
    EXPECT_EQ(arrivals_on_hosts(3, {{0, 2, 50}, {1, 2, 50}}, 1), (Times{100, 100}));
    // All on one host: no message leaves it.
    EXPECT_EQ(arrivals_on_hosts(3, {{0, 2, 50}, {1, 2, 50}}, 2), (Times{50, 50}));
    // A chain over three hosts: messages into the second do not slow down messages out of it.
    EXPECT_EQ(arrivals_on_hosts(4, {{0, 1, 50}, {2, 3, 50}}), (Times{50, 50}));
}

// Activations of the first chunks and gradients of the last go out of one host at once.
TEST(Hosts, PlansTakeLongerWhereTheirMessagesShare) {
    for (const char* schedule : {"interleaved", "1f1b", "zb-v", "gpipe"}) {
        const Plan plan = plan_of(schedule, 4, 8, schedule_named(schedule).chunks);
        Costs costs = uniform(plan.shape.stages, 100, 100, 100);
        for (int stage = 1; stage < plan.shape.stages; ++stage)
            costs.edges.push_back({stage - 1, stage, 80, 80});
        ClusterEdit(costs)->link = {.latency = 5, .bandwidth = 1e9};
        ClusterEdit(costs)->host = {0, 0, 1, 1};
        const Ns alone = Simulator(plan, {}).step_time(costs);
        ClusterEdit(costs)->between_hosts = costs.cluster->link;
        const Ns shared = Simulator(plan, {}).step_time(costs);
        EXPECT_GE(shared, alone) << schedule;
        ClusterEdit(costs)->between_hosts->bandwidth = 1e18;
        EXPECT_LE(Simulator(plan, {}).step_time(costs), alone) << schedule;
    }
}

}  // namespace
}  // namespace pw
