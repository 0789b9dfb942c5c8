// A dispatcher that several devices share, against hand counts and a simulation nanosecond by nanosecond.
#include "schedules/orders/schedule.h"
#include "schedules/plan/gradient_sums.h"
#include "schedules/plan/plan_graph.h"
#include "sim/metrics.h"
#include "sim/simulate.h"
#include "tests/support/dice.h"
#include "tests/support/shapes.h"
#include "tests/support/thoroughness.h"
#include "workloads/error.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <utility>
#include <vector>

namespace pw {
namespace {

Costs called_by_host(Costs costs, Ns dispatch, std::vector<int> host = {}) {
    costs.dispatch = dispatch;
    ClusterEdit(costs)->dispatch_by_host = true;
    ClusterEdit(costs)->host = std::move(host);
    return costs;
}

Ns start_in(const Trace& trace, const std::string& task) {
    const auto found =
        std::ranges::find_if(trace.events, [&](const TraceEvent& event) { return print(event.task) == task; });
    return found == trace.events.end() ? -1 : found->start;
}

// Two devices, two micro-batches of GPipe, F 10, B 20, calls of 4: written out by hand.
TEST(SharedDispatcher, IssuesOneCallAtATime) {
    Costs costs = called_by_host(uniform(2, 10, 10, 10), 4);
    const Trace trace = simulate(plan_of("gpipe", 2, 2, 1), costs);
    EXPECT_EQ(start_in(trace, "0F0"), 0);   // ends at 14
    EXPECT_EQ(start_in(trace, "0F1"), 14);  // both devices ask at 14: device 0 is first
    EXPECT_EQ(start_in(trace, "1F0"), 18);  // ends at 32
    EXPECT_EQ(start_in(trace, "1F1"), 32);  // 0F1 ended at 28; ends at 46
    EXPECT_EQ(start_in(trace, "1B0"), 46);  // ends at 70
    EXPECT_EQ(start_in(trace, "0B0"), 70);  // both ask at 70
    EXPECT_EQ(start_in(trace, "1B1"), 74);  // ends at 98
    EXPECT_EQ(start_in(trace, "0B1"), 98);  // device 1 asks for its update at 98 too
    EXPECT_EQ(start_in(trace, "1U1"), 102);
    EXPECT_EQ(start_in(trace, "0U1"), 122);
    EXPECT_EQ(metrics_of(trace).makespan, 126);
}

// Eight devices of a host: twice the micro-batches take twice as long, though the bubble shrinks.
TEST(SharedDispatcher, LimitsTheStepByAllItsCalls) {
    std::map<int, Ns> steps;
    for (const int microbatches : {8, 16}) {
        const Plan plan = plan_of("gpipe", 8, microbatches, 1);
        Costs costs = uniform(8, 1'000'000, 1'000'000, 1'000'000);
        costs.dispatch = 2'000'000;
        const Ns apart = metrics_of(simulate(plan, costs)).makespan;
        const Ns shared = metrics_of(simulate(plan, called_by_host(costs, costs.dispatch))).makespan;
        EXPECT_GE(shared, (2 * 8 * microbatches + 8) * costs.dispatch) << "F, B and U";
        EXPECT_GT(shared, apart);
        steps[microbatches] = shared;
    }
    const double ratio = 2.0 * static_cast<double>(steps[8]) / static_cast<double>(steps[16]);
    EXPECT_NEAR(ratio, 1.0, 0.05) << "samples per second";
}

// Every nanosecond: tasks end, devices ask, and every host that is free issues the oldest request. No transfers.
std::map<Task, Ns> starts_by_the_clock(const Plan& plan, const std::vector<std::vector<Ns>>& durations, Ns dispatch,
                                       const std::vector<int>& host) {
    const PlanGraph graph(plan);
    const std::size_t devices = plan.order.size();
    std::map<Task, Ns> starts;
    std::vector<Ns> ends(static_cast<std::size_t>(graph.size()), -1), busy_until(devices, 0), asked(devices, -1);
    std::vector<Ns> issued(devices, 0);  // by host
    std::vector<std::size_t> reached(devices, 0);
    std::size_t left = static_cast<std::size_t>(graph.size());
    for (Ns now = 0; left > 0 && now < 100'000; ++now) {
        const auto is_ready = [&](int node) {
            return std::ranges::all_of(graph.inputs(node),
                                       [&](int input) { return ends[input] >= 0 && ends[input] <= now; });
        };
        for (bool moved = true; std::exchange(moved, false);)
            for (int node = 0; node < graph.size(); ++node)
                if (is_transfer(graph.task(node).op) && ends[node] < 0 && is_ready(node)) {
                    ends[node] = now;  // links are free and instant
                    --left;
                    moved = true;
                }
        for (std::size_t device = 0; device < devices; ++device)
            while (reached[device] < plan.order[device].size() && is_transfer(plan.order[device][reached[device]].op))
                ++reached[device];  // posting does not block the list
        for (std::size_t device = 0; device < devices; ++device)
            if (reached[device] < plan.order[device].size() && busy_until[device] <= now && asked[device] < 0 &&
                is_ready(graph.node(static_cast<int>(device), static_cast<int>(reached[device]))))
                asked[device] = now;
        for (std::size_t number = 0; number < devices; ++number) {
            if (issued[number] > now)
                continue;
            int first = -1;
            for (std::size_t device = 0; device < devices; ++device)
                if (host[device] == static_cast<int>(number) && asked[device] >= 0 &&
                    (first < 0 || asked[device] < asked[first]))
                    first = static_cast<int>(device);
            if (first < 0)
                continue;
            const int node = graph.node(first, static_cast<int>(reached[first]));
            starts[graph.task(node)] = now;
            issued[number] = now + dispatch;
            ends[node] = busy_until[first] = now + durations[first][reached[first]];
            ++reached[first];
            asked[first] = -1;
            --left;
        }
    }
    return starts;
}

TEST(SharedDispatcher, ServesInOrderOfRequestOnEveryHost) {
    Random random(23);
    for (int round = 0; round < rounds(300); ++round) {
        const char* names[] = {"gpipe", "1f1b", "zb-h1", "interleaved", "eager-1f1b", "zb-v"};
        const char* name = names[pick(random, 0, 5)];
        const int devices = pick(random, 2, 4), chunks = schedule_named(name).chunks;
        Plan plan;
        try {
            plan = plan_of(name, devices, pick(random, 1, 6), chunks);
        } catch (const Error&) {
            continue;
        }
        Costs costs;
        for (int stage = 0; stage < plan.shape.stages; ++stage) {
            costs.stage.push_back({.forward = pick(random, 1, 9),
                                   .backward = pick(random, 1, 9),
                                   .backward_input = pick(random, 1, 9),
                                   .backward_weight = pick(random, 1, 9),
                                   .update = pick(random, 1, 3)});
            costs.bytes.emplace_back();
        }
        std::vector<int> host;
        for (int device = 0; device < devices; ++device)
            host.push_back(pick(random, 0, 1));
        const Ns dispatch = pick(random, 1, 6);
        costs = called_by_host(costs, dispatch, host);
        const Trace trace = Simulator(plan, {.sent_copies = false}).trace(costs);
        std::vector<std::vector<Ns>> durations(plan.order.size());
        for (std::size_t device = 0; device < plan.order.size(); ++device)
            for (const Task& task : plan.order[device]) {
                const StageCost& cost = costs.stage[task.stage];
                durations[device].push_back(dispatch + (task.op == Op::Forward          ? cost.forward
                                                        : task.op == Op::Backward       ? cost.backward
                                                        : task.op == Op::BackwardInput  ? cost.backward_input
                                                        : task.op == Op::BackwardWeight ? cost.backward_weight
                                                                                        : cost.update));
            }
        const std::map<Task, Ns> expected = starts_by_the_clock(plan, durations, dispatch, host);
        for (const TraceEvent& event : trace.events)
            if (!is_transfer(event.task.op)) {
                ASSERT_EQ(event.start, expected.at(event.task))
                    << name << ' ' << print(event.task) << " round " << round;
            }
    }
}

// Messages that share what leads out of hosts, devices that slow each other down, replicas that sum: a task that is
// ready waits only while its host issues calls that were asked for earlier.
TEST(SharedDispatcher, MakesTasksWaitForEarlierCallsAlone) {
    Random random(29);
    int waits = 0;
    for (int round = 0; round < rounds(300); ++round) {
        const char* names[] = {"gpipe", "1f1b", "zb-h1", "interleaved", "zb-v"};
        const char* name = names[pick(random, 0, 4)];
        const bool replicated = name == names[1] && pick(random, 0, 1) != 0;
        const Plan plan = replicated ? plan_of(name, Replicas{2, 1, 2}, 6)
                                     : plan_of(name, 4, pick(random, 1, 2) * 4, schedule_named(name).chunks);
        Costs costs = uniform(plan.shape.stages, pick(random, 1, 40), pick(random, 1, 40), pick(random, 1, 40));
        for (int stage = 1; stage < plan.shape.stages; ++stage)
            costs.edges.push_back({stage - 1, stage, pick(random, 0, 60), pick(random, 0, 60)});
        ClusterEdit(costs)->link = {.latency = pick(random, 0, 9), .bandwidth = 1e9};
        ClusterEdit(costs)->between_hosts = Link{.latency = pick(random, 0, 9), .bandwidth = 1e9};
        if (pick(random, 0, 1)) {
            costs.busy = costs.stage;
            for (StageCost& cost : costs.busy)
                cost.forward += pick(random, 0, 30);
        }
        std::vector<int> host;
        for (int device = 0; device < plan.shape.devices; ++device)
            host.push_back(pick(random, 0, 1));
        costs = called_by_host(costs, pick(random, 1, 20), host);
        ClusterEdit(costs)->sums = costs.cluster->link;
        for (StageBytes& bytes : costs.bytes)
            bytes.weights = pick(random, 0, 60);
        add_gradient_sums(costs, plan.shape);
        const Trace trace = Simulator(plan, {.sent_copies = false}).trace(costs);
        const PlanGraph graph(plan);
        struct Call {
            Ns asked, issued;
            int device;
        };
        std::vector<Call> calls;
        std::vector<Ns> free(plan.order.size(), 0);
        for (int node = 0; node < graph.size(); ++node) {
            if (is_transfer(graph.task(node).op))
                continue;
            const TraceEvent& event = trace.events[node];
            Ns ready = std::exchange(free[event.device], event.end);
            for (const int input : graph.inputs(node))
                ready = std::max(ready, trace.events[input].end);
            calls.push_back({ready, event.start, event.device});
        }
        for (const Call& call : calls) {
            Ns covered = 0;
            for (const Call& other : calls) {
                if (&other == &call || host[other.device] != host[call.device])
                    continue;
                ASSERT_GE(std::abs(other.issued - call.issued), costs.dispatch) << name << " round " << round;
                const Ns until = std::min(call.issued, other.issued + costs.dispatch);
                covered += std::max<Ns>(0, until - std::max(call.asked, other.issued));
                const bool earlier = std::pair(other.asked, other.device) < std::pair(call.asked, call.device);
                if (other.issued < call.issued && other.issued >= call.asked) {
                    ASSERT_TRUE(earlier) << name << " round " << round;
                }
            }
            ASSERT_EQ(covered, call.issued - call.asked) << name << " round " << round;
            waits += covered > 0;
        }
    }
    EXPECT_GT(waits, 1000);
}

TEST(SharedDispatcher, ChangesNothingWhereEveryHostHasOneDevice) {
    for (const std::string_view name : names_of_schedules()) {
        const Plan plan = plan_of(name, 4, 8, schedule_named(name).chunks);
        Costs costs = uniform(plan.shape.stages, 30, 20, 10);
        costs.dispatch = 7;
        ClusterEdit(costs)->host = {0, 1, 2, 3};
        Simulator simulator(plan, {});
        const Trace own = simulator.trace(costs);
        ClusterEdit(costs)->dispatch_by_host = true;
        EXPECT_EQ(simulator.trace(costs), own) << name;
        EXPECT_EQ(simulator.trace_by_events(costs), own) << name;
    }
}

TEST(SharedDispatcher, IsExplainedAsIdleTimeAndDrawsRefuse) {
    const Plan plan = plan_of("1f1b", 4, 8, 1);
    const Costs costs = called_by_host(uniform(4, 30, 20, 10), 9);
    Simulator simulator(plan, {});
    const Explanation all = simulator.explain(costs);
    const Metrics metrics = metrics_of(simulator.trace(costs));
    Ns waited = 0, path = 0;
    for (std::size_t device = 0; device < 4; ++device) {
        EXPECT_EQ(all.idle[device].total(), metrics.devices[device].idle) << device;
        waited += all.idle[device].dispatcher;
        path += all.critical[device];
    }
    for (const Explanation::LinkShare& link : all.links)
        path += link.time;
    EXPECT_GT(waited, 0);
    EXPECT_EQ(path, metrics.makespan);
    EXPECT_THROW(simulator.sample(costs, lognormal_jitter(0.1), 8, 1, 1), Error);
}

// Tasks that take nothing but their calls: then the host issues one call after the other. A pair has one call if its
// tasks overlap, else two.
TEST(SharedDispatcher, IssuesOneCallForAPairThatOverlaps) {
    for (const auto& [name, devices] : {std::pair{"dualpipe", 4}, std::pair{"dualpipe-v", 3}}) {
        const Plan plan = plan_of(name, devices, 8, schedule_named(name).chunks);
        Ns tasks = 0, pairs = 0;
        for (const std::vector<Task>& order : plan.order)
            for (const Task& task : order) {
                tasks += is_transfer(task.op) ? 0 : 1;
                pairs += task.with_next ? 1 : 0;
            }
        EXPECT_GT(pairs, 0);
        Costs costs = called_by_host(uniform(plan.shape.stages, 0, 0, 0), 9);
        EXPECT_EQ(metrics_of(simulate(plan, costs)).makespan, 9 * tasks) << name;
        costs.pair_exposed = 0.5;
        EXPECT_EQ(metrics_of(simulate(plan, costs)).makespan, 9 * (tasks - pairs)) << name;
        costs.pair_exposed = 1;
        for (StageCost& cost : costs.stage)
            cost.pair = 0;
        EXPECT_EQ(metrics_of(simulate(plan, costs)).makespan, 9 * (tasks - pairs)) << name;
    }
}

}  // namespace
}  // namespace pw
