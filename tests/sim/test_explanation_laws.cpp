// Explanations of random plans: their parts add up, and slack is what a task may take longer.
#include "sim/metrics.h"
#include "sim/simulate.h"
#include "tests/support/dice.h"
#include "tests/support/drawn_plans.h"
#include "tests/support/relaxed_times.h"
#include "tests/support/thoroughness.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

namespace pw {
namespace {

// The end of the last task that computes, by the inequalities of every rule, with these task times.
Ns last_end(const Drawn& drawn, const std::vector<Ns>& durations, const std::vector<Bytes>& bytes) {
    const RelaxedTimes least(drawn.plan, drawn.mode, latency_of(drawn.costs), durations, bytes);
    Ns last = 0;
    std::size_t number = 0;
    for (const std::vector<Task>& order : drawn.plan.order)
        for (const Task& task : order) {
            last = std::max(last, is_transfer(task.op) ? 0 : least.times()[number].end);
            ++number;
        }
    return last;
}

// The parts of idle time and the tasks that are no transfers fill each device's time; a part ends when what it waits
// for does.
void expect_tiled(const Explanation& all, const Trace& trace, int round) {
    std::vector<std::vector<std::pair<Ns, Ns>>> spans(static_cast<std::size_t>(trace.devices));
    std::vector<Ns> waited(spans.size(), 0);
    for (const TraceEvent& event : trace.events)
        if (!is_transfer(event.task.op) && event.end > event.start)
            spans[event.device].emplace_back(event.start, event.end);
    for (const IdlePart& part : all.parts) {
        spans[part.device].emplace_back(part.from, part.to);
        if (part.cause != &IdleCauses::dependency)
            continue;
        waited[part.device] += part.to - part.from;
        ASSERT_EQ(trace.events[part.waits_for].end, part.to) << "round " << round;
        ASSERT_NE(trace.events[part.waits_for].device, part.device) << "round " << round;
    }
    for (std::size_t device = 0; device < spans.size(); ++device) {
        std::sort(spans[device].begin(), spans[device].end());
        Ns reached = 0;
        for (const auto& [from, to] : spans[device]) {
            ASSERT_EQ(from, reached) << "device " << device << " round " << round;
            reached = to;
        }
        ASSERT_EQ(reached, all.makespan) << "device " << device << " round " << round;
        ASSERT_EQ(waited[device], all.idle[device].dependency + all.idle[device].imbalance) << "round " << round;
    }
    for (const int node : all.path)
        ASSERT_EQ(all.slack[node], 0) << print(trace.events[node].task) << " round " << round;
}

// If devices or messages share something, tasks in an explanation take the times that they took while they shared it.
TEST(Explanation, AddsUpAndItsSlackIsWhatATaskMayTakeLonger) {
    Random random(11);
    for (int round = 0; round < rounds(250); ++round) {
        std::optional<Drawn> drawn = draw(random);
        if (!drawn)
            continue;
        if (round % 2 == 1) {
            add_neighbours(random, drawn->costs);
            add_network(random, drawn->plan.shape, drawn->costs);
        }
        const auto& [plan, costs, mode] = *drawn;
        Simulator simulator(plan, mode);
        const Explanation all = simulator.explain(costs);
        const Trace trace = simulator.trace(costs);
        const Metrics metrics = metrics_of(trace);
        expect_tiled(all, trace, round);
        for (std::size_t device = 0; device < metrics.devices.size(); ++device)
            ASSERT_EQ(all.idle[device].total(), metrics.devices[device].idle)
                << plan.schedule << " device " << device << " round " << round;
        Ns path = 0;
        for (const Ns time : all.critical)
            path += time;
        for (const Explanation::LinkShare& link : all.links)
            path += link.time;
        ASSERT_EQ(path, metrics.makespan) << plan.schedule << " round " << round;
        std::vector<Ns> durations;
        std::vector<Bytes> bytes;
        for (const TraceEvent& event : trace.events) {
            durations.push_back(event.end - event.start);
            bytes.push_back(event.bytes);
        }
        const auto node = static_cast<std::size_t>(pick(random, 0, std::ssize(durations) - 1));
        if (is_recv(trace.events[node].task.op))
            continue;  // takes no time of its own
        durations[node] += all.slack[node];
        ASSERT_EQ(last_end(*drawn, durations, bytes), metrics.makespan) << plan.schedule << " round " << round;
        durations[node] += 1;
        ASSERT_EQ(last_end(*drawn, durations, bytes), metrics.makespan + 1)
            << plan.schedule << ' ' << print(trace.events[node].task) << " round " << round;
    }
}

bool has_equal_shares(const Plan& plan) {
    for (int stage = 1; stage < plan.shape.stages; ++stage)
        if (plan.shape.devices_of(stage).size() != plan.shape.devices_of(0).size())
            return false;
    return true;
}

// No cause without its reason: data takes no time on free links, copies hold up nothing where none are kept, and equal
// stages have no imbalance.
TEST(Explanation, BlamesNothingThatDoesNotExist) {
    Random random(12);
    int with_lanes = 0, with_dependency = 0;
    for (int round = 0; round < rounds(400); ++round) {
        std::optional<Drawn> drawn = draw(random);
        if (!drawn)
            continue;
        auto& [plan, costs, mode] = *drawn;
        ClusterEdit(costs)->link = {};
        ClusterEdit(costs)->kind.clear();
        std::fill(costs.stage.begin(), costs.stage.end(), costs.stage.front());
        if (!costs.last.empty())
            costs.last = costs.stage;
        for (const IdleCauses& idle : Simulator(plan, mode).explain(costs).idle) {
            ASSERT_EQ(idle.data, 0) << plan.schedule << ' ' << print(mode) << " round " << round;
            if (!mode.sent_copies) {
                ASSERT_EQ(idle.send_memory, 0) << plan.schedule << ' ' << print(mode) << " round " << round;
            }
            if (!mode.blocks()) {
                ASSERT_EQ(idle.exchange, 0) << plan.schedule << ' ' << print(mode) << " round " << round;
            }
            const bool recomputes = std::ranges::any_of(plan.order, [](const std::vector<Task>& order) {
                return std::ranges::any_of(order, [](const Task& task) { return task.op == Op::Recompute; });
            });
            if (has_equal_shares(plan) && !recomputes) {
                ASSERT_EQ(idle.imbalance, 0) << plan.schedule << ' ' << print(mode) << " round " << round;
            }
            with_lanes += idle.lane > 0 ? 1 : 0;
            with_dependency += idle.dependency > 0 ? 1 : 0;
        }
    }
    EXPECT_GT(with_lanes, 0);
    EXPECT_GT(with_dependency, 0);
}

}  // namespace
}  // namespace pw
