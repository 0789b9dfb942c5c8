// The capacities that messages take besides their links, calculated by hand. Links are of 1 GB/s, a byte takes 1 ns.
#include "schedules/plan/contention.h"
#include "sim/simulate.h"
#include "tests/support/arrivals.h"
#include "tests/support/shapes.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

namespace pw {
namespace {

using Arrivals = std::vector<Ns>;
constexpr double kInfinite = std::numeric_limits<double>::infinity();

// Devices on a host each.
Costs hosts(int count) {
    Costs costs = costs_of_messages(count);
    for (int host = 0; host < count; ++host)
        ClusterEdit(costs)->host.push_back(host);
    ClusterEdit(costs)->between_hosts = costs.cluster->link;
    return costs;
}

TEST(Network, ANicIsSharedByTwoFlows) {
    // Half of 1 GB/s each: 60 bytes take 120 ns.
    EXPECT_EQ(arrivals_of({{0, 1, 60}, {0, 2, 60}}, hosts(4)), (Arrivals{120, 120}));
}

TEST(Network, AllToOneIsSharedOnTheWayIn) {
    // A third each until the short one is there, 30 x 3 = 90 ns; the others then have 60 - 30 = 30 left, at a half
    // each.
    EXPECT_EQ(arrivals_of({{0, 3, 60}, {1, 3, 30}, {2, 3, 60}}, hosts(4)), (Arrivals{150, 90, 150}));
}

TEST(Network, AFlowCappedByItsOwnLinkLeavesTheRestToTheOther) {
    Costs costs = hosts(4);
    ClusterEdit(costs)->own_links[{0, 1}] = {.latency = 3, .bandwidth = 0.25e9};
    // 0.25 GB/s go over the own link, 50 / 0.25 = 200 ns; the rest, 0.75, to the other: 60 / 0.75 = 80 ns.
    EXPECT_EQ(arrivals_of({{0, 1, 50}, {0, 2, 60}}, costs), (Arrivals{200, 80}));
    // An own link that is faster than the way out of the host: that one holds.
    ClusterEdit(costs)->own_links[{0, 1}] = {.latency = 3, .bandwidth = 5e9};
    EXPECT_EQ(arrivals_of({{0, 1, 50}}, costs), (Arrivals{50}));
    EXPECT_EQ(arrivals_of({{0, 1, 60}, {0, 2, 60}}, costs), (Arrivals{120, 120}));
}

TEST(Network, AnOwnLinkIsOfOneDirection) {
    Costs costs = costs_of_messages(2);
    ClusterEdit(costs)->own_links[{0, 1}] = {.latency = 7, .bandwidth = 0.5e9};
    EXPECT_EQ(arrivals_of({{0, 1, 50}}, costs), (Arrivals{100}));
    EXPECT_EQ(costs.cluster->link_of(1, 0), costs.cluster->link);
}

// Hosts 0 to 2 are below a switch whose way up has 1 GB/s.
TEST(Network, AnOversubscribedSwitchIsSharedByWhatLeavesIt) {
    Costs costs = hosts(6);
    for (const Capacity::Of of : {Capacity::Of::Leaving, Capacity::Of::Entering})
        ClusterEdit(costs)->shared.push_back({of, {0, 1, 2}, 1e9});
    const auto set_bandwidth = [&](double bandwidth) {
        ClusterEdit cluster(costs);
        for (Capacity& capacity : cluster->shared)
            capacity.bandwidth = bandwidth;
    };
    // Two leave: half of the way up each.
    EXPECT_EQ(arrivals_of({{0, 3, 60}, {1, 4, 60}}, costs), (Arrivals{120, 120}));
    // One stays below the switch: nothing is shared.
    EXPECT_EQ(arrivals_of({{0, 2, 60}, {1, 4, 60}}, costs), (Arrivals{60, 60}));
    // Entering messages do not slow down leaving ones.
    EXPECT_EQ(arrivals_of({{0, 3, 60}, {5, 2, 60}}, costs), (Arrivals{60, 60}));
    // 1.5 GB/s up: 0.75 each until 60 / 0.75 = 80 ns; 90 - 60 = 30 bytes then go alone at 1.
    set_bandwidth(1.5e9);
    EXPECT_EQ(arrivals_of({{0, 3, 60}, {1, 4, 90}}, costs), (Arrivals{80, 110}));
    // A way up of 0.5 GB/s slows down a message that is alone, without a queue of events.
    set_bandwidth(0.5e9);
    EXPECT_EQ(arrivals_of({{0, 3, 60}}, costs), (Arrivals{120}));
}

// Devices 0, 1 and 4 are on a bus of 1 GB/s.
TEST(Network, ABusIsSharedInBothDirectionsByWhatHasAnEndOnIt) {
    Costs costs = costs_of_messages(5);
    ClusterEdit(costs)->shared.push_back({Capacity::Of::Touching, {0, 1, 4}, 1e9});
    // One on it, one that leaves and one that enters: a third each until 30 x 3 = 90 ns, then a half until 90 + 30 x 2.
    EXPECT_EQ(arrivals_of({{0, 4, 30}, {1, 2, 60}, {3, 4, 60}}, costs), (Arrivals{90, 150, 150}));
    // One elsewhere.
    EXPECT_EQ(arrivals_of({{0, 4, 30}, {3, 2, 60}}, costs), (Arrivals{30, 60}));
    // A second bus, of 0.8 GB/s, has 2: the two messages that end there get 0.4 each of it, 40 bytes take 100 ns; the
    // one that only takes the first bus gets the rest there, 0.6: 30 / 0.6 = 50 ns.
    ClusterEdit(costs)->shared.push_back({Capacity::Of::Touching, {2}, 0.8e9});
    EXPECT_EQ(arrivals_of({{0, 4, 30}, {1, 2, 40}, {3, 2, 40}}, costs), (Arrivals{50, 100, 100}));
}

TEST(Network, RecognisesWhereNothingIsEverShared) {
    const auto shares = [](const Costs& costs, const Plan& plan) {
        return may_share_links(PlanGraph(plan), {}, costs);
    };
    Plan plan = plan_of("gpipe", 4, 2);
    Costs costs = costs_of_messages(4);
    ClusterEdit(costs)->host = {0, 0, 1, 1};
    EXPECT_FALSE(shares(costs, plan));
    ClusterEdit(costs)->between_hosts = costs.cluster->link;  // activations go out of the first host, gradients into it
    EXPECT_FALSE(shares(costs, plan));
    ClusterEdit(costs)->host = {0, 1, 0, 1};
    EXPECT_TRUE(shares(costs, plan));
    ClusterEdit(costs)->between_hosts->bandwidth = kInfinite;
    EXPECT_FALSE(shares(costs, plan));
    ClusterEdit(costs)->between_hosts.reset();
    // Six lanes of 1 GB/s: as much as all of them can use is never short.
    ClusterEdit(costs)->shared.push_back({Capacity::Of::Touching, {0, 1, 2, 3}, 6e9});
    EXPECT_FALSE(shares(costs, plan));
    ClusterEdit(costs)->shared.back().bandwidth = 5.9e9;
    EXPECT_TRUE(shares(costs, plan));
}

// Hockney: half of the bandwidth at half_size bytes.
TEST(Network, ASmallMessageHasLessBandwidth) {
    const Link link{.bandwidth = 1e9, .half_size = 50};
    EXPECT_EQ(occupation_of(50, link), 100);
    EXPECT_EQ(occupation_of(150, link), 200);
    EXPECT_EQ(occupation_of(0, link), 0);
    EXPECT_EQ(occupation_of(150, link, 0.5e9), 300);  // what it takes has less than 0.75 GB/s
    Costs costs = hosts(4);
    ClusterEdit(costs)->between_hosts->half_size = 50;
    // 50 bytes get at most a half, as do 150 bytes then, and these 0.75 GB/s from 100 ns on: 100 bytes in 133 ns.
    EXPECT_EQ(arrivals_of({{0, 1, 50}, {0, 2, 150}}, costs), (Arrivals{100, 233}));
}

TEST(Network, BandwidthsByATableAreJoinedByLinesOfTime) {
    // 100 bytes take 200 ns, 300 take 300.
    const Link link{.bandwidth = 1e9, .by_size = {{100, 0.5e9}, {300, 1e9}}};
    EXPECT_EQ(occupation_of(100, link), 200);
    EXPECT_EQ(occupation_of(200, link), 250);
    EXPECT_EQ(occupation_of(300, link), 300);
    EXPECT_EQ(occupation_of(50, link), 100);
    EXPECT_EQ(occupation_of(900, link), 900);
}

}  // namespace
}  // namespace pw
