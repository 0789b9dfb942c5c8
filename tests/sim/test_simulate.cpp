// Closed forms and published numbers of the schedules, as the simulator sees them.
#include "schedules/csv/csv.h"
#include "schedules/memory/limits.h"
#include "sim/metrics.h"
#include "sim/simulate.h"
#include "tests/support/relaxed_times.h"
#include "tests/support/shapes.h"
#include "tests/support/small_stack.h"
#include "workloads/error.h"

#include <gtest/gtest.h>

namespace pw {
namespace {

Metrics simulated(const char* schedule, int p, int m, Ns f, Ns i, Ns w, Ns latency = 0) {
    return metrics_of(simulate(plan_of(schedule, p, m), uniform(p, f, i, w, latency)));
}

std::vector<int> peaks(const Metrics& metrics) {
    std::vector<int> found;
    for (const DeviceMetrics& device : metrics.devices)
        found.push_back(device.peak_in_flight);
    return found;
}

using Case = std::tuple<const char*, int, int>;
class FlushSchedules : public testing::TestWithParam<Case> {};

// gpipe and 1f1b take (m + p - 1) slots when links are free.
TEST_P(FlushSchedules, FillAndDrainOnce) {
    const auto [name, p, m] = GetParam();
    EXPECT_EQ(simulated(name, p, m, 10, 10, 10).makespan, (m + p - 1) * 30);
}

TEST_P(FlushSchedules, BubbleRateIsTheTextbookOne) {
    const auto [name, p, m] = GetParam();
    EXPECT_NEAR(simulated(name, p, m, 10, 10, 10).bubble_rate, double(p - 1) / (m + p - 1), 1e-12);
}
INSTANTIATE_TEST_SUITE_P(Grid, FlushSchedules,
                         testing::Combine(testing::Values("gpipe", "1f1b"), testing::Values(1, 2, 3, 8),
                                          testing::Values(1, 2, 8, 32)));

TEST(Simulate, NaiveRunsOneDeviceAtATime) { EXPECT_EQ(simulated("naive", 4, 8, 1, 1, 1).makespan, 8 * 4 * 3); }

TEST(Golden, GPipe) {
    const Metrics metrics = simulated("gpipe", 4, 8, 1000, 1000, 1000);
    EXPECT_EQ(metrics.makespan, 33000);
    EXPECT_NEAR(metrics.bubble_rate, 3.0 / 11, 1e-12);
    EXPECT_EQ(peaks(metrics), (std::vector<int>{8, 8, 8, 8}));
    Costs half = uniform(4, 1000, 500, 500);
    EXPECT_EQ(metrics_of(simulate(plan_of("gpipe", 4, 8), half, {})).makespan, 22000);
    EXPECT_EQ(simulated("gpipe", 4, 8, 1000, 1000, 1000, 500).makespan, 36000);
}

TEST(Golden, OneForwardOneBackward) {
    EXPECT_EQ(simulated("1f1b", 4, 8, 1000, 1000, 1000).makespan, 33000);
    EXPECT_EQ(peaks(simulated("1f1b", 4, 8, 1000, 1000, 1000)), (std::vector<int>{4, 3, 2, 1}));
    EXPECT_EQ(simulated("1f1b", 2, 4, 1000, 1000, 1000).makespan, 15000);
    EXPECT_EQ(peaks(simulated("1f1b", 2, 4, 1000, 1000, 1000)), (std::vector<int>{2, 1}));
    EXPECT_EQ(simulated("1f1b", 8, 8, 1000, 1000, 1000).makespan, 45000);
    EXPECT_EQ(simulated("1f1b", 4, 8, 1000, 1000, 1000, 500).makespan, 41000);
    EXPECT_EQ(simulated("1f1b", 4, 8, 1000, 1000, 1000, 1000).makespan, 49000);
}

// Three stages, four micro-batches, a backward twice as long as its forward.
Ns uneven(const char* schedule, std::vector<Ns> forward) {
    Costs costs = uniform(3, 1, 1, 1);
    for (int stage = 0; stage < 3; ++stage) {
        costs.stage[stage].forward = forward[stage];
        costs.stage[stage].backward = 2 * forward[stage];
    }
    return metrics_of(simulate(plan_of(schedule, 3, 4), costs, {})).makespan;
}

TEST(Golden, UnevenStages) {
    EXPECT_EQ(uneven("1f1b", {2, 1, 1}), 26);
    EXPECT_EQ(uneven("1f1b", {1, 1, 2}), 30);
    EXPECT_EQ(uneven("gpipe", {2, 1, 1}), 30);
    EXPECT_EQ(uneven("gpipe", {1, 1, 2}), 30);
}

// arXiv 2401.10241, table 9 (times in us) and the 1F1B column of table 5, by span.
struct PaperRow {
    int p, m;
    Ns forward, input, weight, latency;
    double rate;
};

TEST(Golden, ZeroBubblePaperOneForwardOneBackward) {
    const PaperRow rows[] = {
        {8, 24, 18522, 18086, 9337, 601, .2431},  {8, 32, 18513, 18086, 9331, 626, .1985},
        {8, 24, 29718, 29444, 19927, 527, .2347}, {8, 64, 29935, 29621, 19388, 535, .1091},
        {16, 48, 11347, 11248, 8132, 377, .2552}, {16, 64, 11307, 11254, 8101, 379, .2082},
        {32, 96, 10419, 10207, 7715, 408, .2646}, {32, 256, 10402, 10248, 7698, 460, .1352},
    };
    for (const PaperRow& row : rows) {
        const Metrics metrics = simulated("1f1b", row.p, row.m, row.forward, row.input, row.weight, row.latency);
        EXPECT_NEAR(metrics.span_bubble_rate, row.rate, 0.5e-4) << row.p << " " << row.m;
    }
    EXPECT_EQ(simulated("1f1b", 8, 24, 18522, 18086, 9337, 601).span, 1456749);
}

TEST(Golden, PipeDreamHoldsOneVersionPerRemainingStage) {
    const Plan plan = plan_of("pipedream", 4, 40);
    EXPECT_EQ(versions_of(plan).held, (std::vector<int>{4, 3, 2, 1}));
    const Metrics metrics = metrics_of(simulate(plan, uniform(4, 1000, 1000, 1000), {}));
    EXPECT_EQ(metrics.step_time, 3000);
    EXPECT_EQ(metrics.makespan, (40 + 3) * 3000);
}

// w(t+1) = w(t) - lr grad f(w_1(t-n+1), ..., w_n(t)): the staleness equation of PipeDream.
TEST(Versions, FollowTheStalenessEquation) {
    for (int p : {1, 2, 4, 7}) {
        const VersionTable table = versions_of(plan_of("pipedream", p, 30));
        for (int stage = 0; stage < p; ++stage)
            for (int mb = 0; mb < 30; ++mb) {
                EXPECT_EQ(table.forward[stage][mb], std::max(0, mb - (p - 1 - stage)));
                EXPECT_EQ(table.backward[stage][mb], table.forward[stage][mb]);
            }
    }
}

TEST(Simulate, RepeatsExactly) {
    const Plan plan = plan_of("1f1b", 8, 32);
    const Costs costs = uniform(8, 7, 11, 13);
    const Trace first = simulate(plan, costs, {}), second = simulate(plan, costs, {});
    ASSERT_EQ(first.events.size(), second.events.size());
    for (std::size_t k = 0; k < first.events.size(); ++k) {
        EXPECT_EQ(first.events[k].start, second.events[k].start);
        EXPECT_EQ(first.events[k].end, second.events[k].end);
    }
}

TEST(Simulate, ScalesWithTheTimes) {
    for (const char* name : {"naive", "gpipe", "1f1b", "pipedream"}) {
        const Ns once = simulated(name, 5, 13, 3, 5, 2, 1).makespan;
        EXPECT_EQ(simulated(name, 5, 13, 30, 50, 20, 10).makespan, 10 * once) << name;
    }
}

// Tasks that take twice as long while all other devices, or `neighbours` of them, compute; stage 1's are longer by
// `factor`.
Ns crowded(const char* schedule, int p, int m, Ns factor = 1, std::vector<int> hosts = {}, int neighbours = 0) {
    Costs costs = uniform(p, 10, 10, 10);
    costs.stage[1].forward *= factor;
    costs.busy = costs.stage;
    for (StageCost& cost : costs.busy)
        for (Ns* time : {&cost.forward, &cost.backward, &cost.backward_input, &cost.backward_weight})
            *time *= 2;
    ClusterEdit(costs)->host = std::move(hosts);
    costs.neighbours = neighbours;
    return metrics_of(simulate(plan_of(schedule, p, m), costs)).makespan;
}

TEST(Simulate, BusyNeighboursSlowATaskDown) {
    EXPECT_EQ(crowded("naive", 3, 4), 4 * 3 * 30);                // no two devices compute at once
    EXPECT_EQ(crowded("forward-only", 2, 5), 10 + 4 * 20 + 10);   // alone, then both, then alone
    EXPECT_EQ(crowded("forward-only", 3, 2), 10 + 15 + 15 + 10);  // two of three: half of what three would be
    // The second stage has done half of its task in parallel with the first's when it is alone again.
    EXPECT_EQ(crowded("forward-only", 2, 2, 2), 10 + 20 + 10 + 20);
}

TEST(Simulate, NeighboursCountAsTheyWereMeasured) {
    EXPECT_EQ(crowded("forward-only", 2, 5, 1, {}, 1), 10 + 4 * 20 + 10);
    EXPECT_EQ(crowded("forward-only", 2, 5, 1, {}, 2), 10 + 4 * 15 + 10);        // one of two
    EXPECT_EQ(crowded("forward-only", 3, 2, 1, {}, 1), 10 + 20 + 20 + 10);       // one neighbour is all
    EXPECT_EQ(crowded("forward-only", 3, 3, 1, {}, 1), 10 + 20 + 20 + 20 + 10);  // more are as one
    EXPECT_EQ(crowded("forward-only", 3, 3, 1, {}, 5), 10 + 12 + 14 + 12 + 10);  // 0, 1, 2, 1, 0 of five
}

TEST(Simulate, OnlyDevicesOfTheSameHostSlowATaskDown) {
    EXPECT_EQ(crowded("forward-only", 2, 5, 1, {0, 1}), (5 + 1) * 10);  // each alone on its host
    EXPECT_EQ(crowded("forward-only", 2, 5, 1, {3, 3}), 10 + 4 * 20 + 10);
    EXPECT_EQ(crowded("forward-only", 3, 2, 1, {0, 1, 0}), (3 + 1) * 10);  // 0 and 2 never compute at once
    EXPECT_EQ(crowded("forward-only", 3, 2, 1, {0, 0, 1}), 10 + 20 + 10 + 10);
}

// After a long task the list receives many messages, one after the other, that arrived long ago.
TEST(Simulate, FollowsAnyNumberOfMessagesThatWaitInTheList) {
    constexpr int kMessages = 10'000;
    std::string first, receives, forwards;
    for (int mb = 0; mb < kMessages; ++mb) {
        first += fmt::format("0F{0},0SEND_F{0},", mb);
        receives += mb == 0 ? "" : fmt::format("1RECV_F{},", mb);
        forwards += mb == 0 ? "" : fmt::format("1F{},", mb);
    }
    const std::string text = first + "\n1RECV_F0,1F0," + receives + forwards + "\n";
    Costs costs = uniform(2, 1, 1, 1);
    costs.stage[1].forward = kMessages;
    for (const auto receive : {TransferMode::Receive::Early, TransferMode::Receive::Deferred}) {
        TransferMode mode;
        mode.receive = receive;
        const Plan plan = parse_csv(text, "long.csv", mode).plan;
        Ns makespan = 0;
        on_small_stack([&] { makespan = metrics_of(simulate(plan, costs, mode)).makespan; });
        EXPECT_EQ(makespan, 1 + kMessages * kMessages);
    }
}

// In one lane for everything, messages that have arrived queue after a SEND whose task is late.
TEST(Simulate, FollowsAnyNumberOfMessagesThatWaitInALane) {
    constexpr int kMessages = 5'000;
    const Plan plan = [&] {
        Plan made;
        made.schedule = "one lane";
        made.shape.devices = made.shape.stages = 2;
        made.shape.microbatches = kMessages + 1;
        made.shape.edges = std::vector<Edge>{{0, 1}};
        made.shape.placement = {{0, 1}, {0, 1}};
        made.order.resize(2);
        // Device 0 runs stage 1 of all but the last micro-batch, device 1 stage 0 of them, and the last the other way.
        for (int mb = 0; mb < kMessages; ++mb) {
            made.order[1].push_back({Op::Forward, 0, mb});
            made.order[1].push_back({Op::SendForward, 0, mb, 0, 1});
        }
        made.order[0].push_back({Op::Forward, 0, kMessages});
        made.order[0].push_back({Op::SendForward, 0, kMessages, 0, 1});
        for (int mb = 0; mb < kMessages; ++mb)
            made.order[0].push_back({Op::RecvForward, 1, mb, 0, 0});
        for (int mb = 0; mb < kMessages; ++mb)
            made.order[0].push_back({Op::Forward, 1, mb});
        made.order[1].push_back({Op::RecvForward, 1, kMessages, 0, 0});
        made.order[1].push_back({Op::Forward, 1, kMessages});
        serve_as_listed(made);
        return made;
    }();
    TransferMode mode;
    mode.communicator = TransferMode::Communicator::One;
    Costs costs = uniform(2, 1, 1, 1);
    ClusterEdit(costs)->set_speeds({1e-4, 1});  // F of stage 0 takes as long as all of device 1
    Ns makespan = 0;
    on_small_stack([&] { makespan = metrics_of(simulate(plan, costs, mode)).makespan; });
    EXPECT_EQ(makespan, 10'000 * (1 + kMessages));
}

TEST(Simulate, RefusesWhatTakesLongerThanTimesAreCounted) {
    Costs costs = uniform(2, kLongestPlan / 8, 1, 1);
    EXPECT_EQ(metrics_of(simulate(plan_of("naive", 2, 3), costs)).makespan, 6 * (kLongestPlan / 8) + 12);
    EXPECT_THROW(simulate(plan_of("naive", 2, 5), costs), Error);
    costs = uniform(2, 1, 1, 1);
    costs.edges = {{0, 1, 400'000'000, 400'000'000}};
    ClusterEdit(costs)->link.bandwidth = 1;
    EXPECT_EQ(metrics_of(simulate(plan_of("naive", 2, 1), costs)).makespan, 800'000'000'000'000'006);
    EXPECT_THROW(simulate(plan_of("naive", 2, 2), costs), Error);
}

TEST(Simulate, BytesOccupyTheLinkLatencyDoesNot) {
    Costs costs = uniform(2, 10, 0, 0);
    costs.stage[1] = {};
    costs.edges = {{0, 1, 100, 0}};
    ClusterEdit(costs)->link = {1000, 5e9};  // 20 ns per message
    const Trace trace = simulate(plan_of("gpipe", 2, 3), costs);
    std::vector<Ns> arrivals;
    for (const TraceEvent& event : trace.events)
        if (event.task.op == Op::RecvForward)
            arrivals.push_back(event.end);
    EXPECT_EQ(arrivals, (std::vector<Ns>{1030, 1050, 1070}));
}

// F takes 3 and its message 10 of the link. The first device begins F1 at 3, or when F0's message has left, at 13; the
// second one begins F1 when the message is there: the first leaves from 3 to 13, the next from 13 to 23, or from 16
// to 26.
TEST(Simulate, BlockingExchangesHoldTheSender) {
    const auto starts_of = [](TransferMode::Exchange exchange) {
        PlanOptions options;
        options.transfers.exchange = exchange;
        const Plan plan = plan_of("gpipe", 2, 2, 1, options);
        Costs costs = uniform(2, 3, 6, 0);
        costs.edges = {{0, 1, 10, 10}};
        ClusterEdit(costs)->link = {.latency = 0, .bandwidth = 1e9};
        std::vector<Ns> starts;
        for (const TraceEvent& event : simulate(plan, costs, options.transfers).events)
            if (event.task.op == Op::Forward)
                starts.push_back(event.start);
        return starts;
    };
    EXPECT_EQ(starts_of(TransferMode::Exchange::Overlapped), (std::vector<Ns>{0, 3, 13, 23}));
    EXPECT_EQ(starts_of(TransferMode::Exchange::Blocking), (std::vector<Ns>{0, 13, 13, 26}));
}

// The second device begins its F at 3 (2, and 1 of the link), 8 and 13; it posts a receive when its F before it has
// ended. With rendezvous a message is on the link only then, and each F but the first waits 1 for its own.
TEST(Simulate, SmallMessagesDoNotAskFirst) {
    const auto starts_with = [](Bytes limit) {
        PlanOptions options;
        options.transfers.receive = TransferMode::Receive::Deferred;
        options.transfers.protocol = TransferMode::Protocol::Rendezvous;
        options.transfers.eager_limit = limit;
        const Plan plan = plan_of("gpipe", 2, 3, 1, options);
        Costs costs = uniform(2, 2, 6, 0);
        costs.stage[1].forward = 5;
        costs.edges = {{0, 1, 100, 0}};
        ClusterEdit(costs)->link = {.latency = 0, .bandwidth = 100e9};
        std::vector<Ns> starts;
        for (const TraceEvent& event : simulate(plan, costs, options.transfers).events)
            if (event.task.op == Op::Forward && event.device == 1)
                starts.push_back(event.start);
        return starts;
    };
    EXPECT_EQ(starts_with(0), (std::vector<Ns>{3, 9, 15}));
    EXPECT_EQ(starts_with(99), (std::vector<Ns>{3, 9, 15}));
    EXPECT_EQ(starts_with(100), (std::vector<Ns>{3, 8, 13}));
}

// F takes 10 and its message 4 of the link, and a quarter of both devices meanwhile. The first device begins F1 at 10,
// has done 3 of it at 14 and the rest at 21. The second one begins F0 at 14 and has done 7 of it at 21, when the next
// message begins: the last 3 take all of its 4.
TEST(Simulate, MovingMessagesTakesAPartOfBothDevices) {
    Costs costs = uniform(2, 10, 12, 0);
    costs.edges = {{0, 1, 100, 0}};
    ClusterEdit(costs)->link = {.latency = 0, .bandwidth = 25e9};
    costs.mover_share = 0.25;
    std::vector<TaskTime> times;
    for (const TraceEvent& event : simulate(plan_of("gpipe", 2, 2), costs).events)
        if (event.task.op == Op::Forward)
            times.push_back({event.start, event.end});
    EXPECT_EQ(times, (std::vector<TaskTime>{{0, 10}, {10, 21}, {14, 25}, {25, 35}}));
}

TEST(Simulate, RendezvousWaitsForBothEnds) {
    TransferMode transfers;
    transfers.protocol = TransferMode::Protocol::Rendezvous;
    transfers.receive = TransferMode::Receive::Deferred;
    for (const char* name : {"naive", "gpipe", "1f1b", "pipedream"})
        for (int p : {2, 3, 5})
            EXPECT_GE(metrics_of(simulate(plan_of(name, p, 7), uniform(p, 3, 2, 1), transfers)).makespan,
                      simulated(name, p, 7, 3, 2, 1).makespan);
}

}  // namespace
}  // namespace pw
