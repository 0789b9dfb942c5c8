// Causes of idle time, by hand.
#include "sim/explanation.h"

#include "sim/simulate.h"
#include "tests/support/shapes.h"

#include <gtest/gtest.h>

namespace pw {
namespace {

// Forwards of 1 and 3, backwards of 2. Device 0 is through with its forwards at 2, device 1 computes F at 1 to 7 and
// its first B until 9: 7 to wait. With forwards of 2 each it is 4 to 8.
TEST(Explanation, CallsImbalanceWhatEqualStagesWouldSave) {
    const Plan plan = plan_of("gpipe", 2, 2);
    Costs costs = uniform(2, 1, 1, 1);
    costs.stage[1].forward = 3;
    const Explanation all = Simulator(plan, {}).explain(costs);
    EXPECT_EQ(all.idle[0].dependency, 4);
    EXPECT_EQ(all.idle[0].imbalance, 3);
    EXPECT_EQ(all.idle[1].warm_up, 1);
    EXPECT_EQ(all.idle[1].cool_down, 2);
    EXPECT_EQ(all.idle[1].total(), 3);

    costs.stage[0].forward = 3;  // equal again
    EXPECT_EQ(Simulator(plan, {}).explain(costs).idle[0].imbalance, 0);
    EXPECT_EQ(Simulator(plan, {}).explain(costs).idle[0].dependency, 3 + 2);

    // A device of half the speed is a slower stage; one that recomputes, too.
    ClusterEdit(costs)->set_speeds({1, 0.5});
    EXPECT_GT(Simulator(plan, {}).explain(costs).idle[0].imbalance, 0);
    PlanOptions options;
    options.recompute.stages = {1};
    ClusterEdit(costs)->kind.clear();
    costs.stage[1].recompute = 2;
    const Plan recomputing = plan_of("gpipe", 2, 2, 1, options);
    // Device 1 is through with R and B at 13 and 17; device 0, from 6 on, waits 7 and 2. With R and B of 3 each they
    // end at 12 and 15, and the B of device 0 is from 12 to 15: 6 to wait.
    EXPECT_EQ(Simulator(recomputing, {}).explain(costs).idle[0].dependency, 6);
    EXPECT_EQ(Simulator(recomputing, {}).explain(costs).idle[0].imbalance, 3);
}

// F takes 1 us on each device, a message 1 us. An exchange holds both until it is through: device 0 between its
// forwards, device 1 between its own, which waits there for data.
TEST(Explanation, ABlockingExchangeIsACauseOfItsOwn) {
    PlanOptions options;
    options.transfers.exchange = TransferMode::Exchange::Blocking;
    const Plan plan = plan_of("forward-only", 2, 2, 1, options);
    Costs costs = uniform(2, 1000, 1000, 1000);
    costs.edges = {{0, 1, 1000, 1000}};
    ClusterEdit(costs)->link = {.latency = 0, .bandwidth = 1e9};
    TransferMode mode = options.transfers;
    mode.sent_copies = false;
    const Explanation all = Simulator(plan, mode).explain(costs);
    EXPECT_EQ(all.idle[0].exchange, 1000);
    EXPECT_EQ(all.idle[0].cool_down, 2000);
    EXPECT_EQ(all.idle[0].total(), 3000);
    EXPECT_EQ(all.idle[1].warm_up, 2000);
    EXPECT_EQ(all.idle[1].data, 1000);
    EXPECT_EQ(all.idle[1].total(), 3000);
}

}  // namespace
}  // namespace pw
