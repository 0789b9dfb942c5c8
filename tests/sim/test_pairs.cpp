// Overlapped pairs are one launch: compared with published times of DualPipe, and with a recurrence over the lists that
// has no graph, no transfers and no kinds.
#include "schedules/csv/csv.h"
#include "schedules/passes/passes.h"
#include "sim/metrics.h"
#include "sim/simulate.h"
#include "tests/support/dice.h"
#include "tests/support/refusal.h"
#include "tests/support/shapes.h"
#include "workloads/error.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <utility>

namespace pw {
namespace {

// F, I and W of one unit each on every stage, and pairs of F and B of `pair` units.
Costs with_pairs(int stages, Ns pair) {
    Costs costs = uniform(stages, 1, 1, 1);
    for (StageCost& cost : costs.stage)
        cost.pair = pair;
    return costs;
}

Metrics metrics_with(const Plan& plan, const Costs& costs) { return metrics_of(simulate(plan, costs)); }

// The overlapped pair takes as long as both tasks, or a third less. The bubble of DualPipe's README is
// (p/2 - 1) (F&B + B - 3W), on the device that has most.
TEST(Pairs, HaveTheTimesOfDualPipe) {
    const Plan whole = plan_of("dualpipe", 8, 20), half = plan_of("dualpipe-v", 4, 10, 2);
    for (const auto& [plan, stages] : {std::pair(&whole, 8), std::pair(&half, 8)}) {
        EXPECT_EQ(metrics_with(*plan, with_pairs(stages, 3)).makespan, 60 + 3 * (3 + 2 - 3));
        EXPECT_EQ(metrics_with(*plan, uniform(stages, 1, 1, 1)).makespan, 60 + 3 * (3 + 2 - 3));
        EXPECT_EQ(metrics_with(*plan, with_pairs(stages, 2)).makespan, 52);
    }
    std::vector<Ns> idle;
    for (const DeviceMetrics& device : metrics_with(whole, with_pairs(8, 2)).devices) {
        idle.push_back(device.idle);
        EXPECT_EQ(device.peak_in_flight_until_weight, 9);
    }
    EXPECT_EQ(idle, (std::vector<Ns>{1, 2, 3, 3, 3, 3, 2, 1}));
    const Plan small = plan_of("dualpipe-v", 2, 4, 2);
    EXPECT_EQ(metrics_with(small, with_pairs(4, 3)).makespan, 26);
    EXPECT_EQ(metrics_with(small, with_pairs(4, 2)).makespan, 22);
}

// The tasks that compute and their times, from the lists alone.
class Recurring {
public:
    Recurring(const Plan& plan, const Costs& costs) : plan_(plan), costs_(costs) {
        for (const std::vector<Task>& order : plan.order) {
            std::vector<Task>& list = lists_.emplace_back();
            for (const Task& task : order)
                if (is_compute(task.op))
                    list.push_back(task);
        }
        std::vector<std::size_t> next(lists_.size(), 0);
        std::vector<Ns> free(lists_.size(), 0);
        for (bool moved = true; std::exchange(moved, false);)
            for (std::size_t device = 0; device < lists_.size(); ++device)
                while (next[device] < lists_[device].size() && launch(device, next[device], free[device]))
                    moved = true;
    }
    std::map<Task, std::pair<Ns, Ns>> times;  // start and end of the launch
    std::map<Task, Ns> ends;

private:
    std::optional<Ns> end_of(Op op, int stage, int mb) const {
        const auto found = ends.find({op, stage, mb});
        return found == ends.end() ? std::nullopt : std::optional(found->second);
    }

    // When its inputs are there; nothing if they are not known yet.
    std::optional<Ns> ready(const Task& task) const {
        const int stage = task.stage, mb = task.microbatch;
        if (task.op == Op::Forward)
            return stage == 0 ? Ns{0} : end_of(Op::Forward, stage - 1, mb);
        const std::optional<Ns> own =
            end_of(task.op == Op::BackwardWeight ? Op::BackwardInput : Op::Forward, stage, mb);
        if (task.op == Op::BackwardWeight || stage + 1 == plan_.shape.stages || !own)
            return own;
        std::optional<Ns> gradient = end_of(Op::Backward, stage + 1, mb);
        if (!gradient)
            gradient = end_of(Op::BackwardInput, stage + 1, mb);
        return gradient ? std::optional(std::max(*own, *gradient)) : std::nullopt;
    }

    Ns alone(const Task& task) const {
        const StageCost& cost = costs_.stage[static_cast<std::size_t>(task.stage)];
        return task.op == Op::Forward         ? cost.forward
               : task.op == Op::Backward      ? cost.backward
               : task.op == Op::BackwardInput ? cost.backward_input
                                              : cost.backward_weight;
    }

    Ns together(const Task& a, const Task& b) const {
        const Task& forward = a.op == Op::Forward ? a : b;
        if (const auto pair = costs_.stage[static_cast<std::size_t>(forward.stage)].pair)
            return *pair;
        const Ns longer = std::max(alone(a), alone(b)), shorter = std::min(alone(a), alone(b));
        return longer + static_cast<Ns>(std::ceil(static_cast<double>(shorter) * costs_.pair_exposed));
    }

    bool launch(std::size_t device, std::size_t& next, Ns& free) {
        const Task& task = lists_[device][next];
        const Task* other = task.with_next ? &lists_[device][next + 1] : nullptr;
        const std::optional<Ns> own = ready(task), of_other = other ? ready(*other) : own;
        if (!own || !of_other)
            return false;
        const Ns start = std::max({free, *own, *of_other});
        free = start + (other ? together(task, *other) : alone(task));
        for (const Task* one : {&task, other})
            if (one != nullptr) {
                times[*one] = {start, free};
                ends[*one] = free;
                ++next;
            }
        return true;
    }

    const Plan& plan_;
    const Costs& costs_;
    std::vector<std::vector<Task>> lists_;
};

void expect_recurring(const Plan& plan, const Costs& costs) {
    const Recurring expected(plan, costs);
    const Trace trace = simulate(plan, costs);
    Ns last = 0;
    const std::vector<std::pair<Ns, Ns>> launches = launches_of(trace.events);
    for (std::size_t number = 0; number < trace.events.size(); ++number) {
        const TraceEvent& event = trace.events[number];
        if (!is_compute(event.task.op))
            continue;
        last = std::max(last, event.end);
        EXPECT_EQ(launches[number], expected.times.at(event.task)) << print(event.task);
        if (overlaps_pairs(costs)) {
            EXPECT_EQ(std::pair(event.start, event.end), launches[number]) << print(event.task);
        }
    }
    const Metrics metrics = metrics_of(trace);
    EXPECT_EQ(metrics.makespan, last);
    EXPECT_EQ(metrics, Simulator(plan, {}).metrics(costs, trace_of(plan)));
    EXPECT_EQ(Simulator(plan, {}).trace(costs).events, Simulator(plan, {}).trace_by_events(costs).events);
}

Costs drawn(Random& random, int stages) {
    Costs costs = uniform(stages, 1, 1, 1);
    const bool measured = pick(random, 0, 2) == 0;
    costs.pair_exposed = std::vector<double>{0, 0.25, 0.5, 1}[static_cast<std::size_t>(pick(random, 0, 3))];
    for (StageCost& cost : costs.stage) {
        cost.forward = pick(random, 1, 40);
        cost.backward_input = pick(random, 1, 40);
        cost.backward_weight = pick(random, 1, 40);
        cost.backward = cost.backward_input + cost.backward_weight;
        if (measured)
            cost.pair = pick(random, 1, 120);  // longer than both, too
    }
    return costs;
}

TEST(Pairs, AreOneLaunch) {
    Random random(5);
    for (int round = 0; round < 40; ++round) {
        const int h = pick(random, 1, 4), m = 2 * h + pick(random, 0, 5);
        expect_recurring(plan_of("dualpipe", 2 * h, 2 * m), drawn(random, 2 * h));
        expect_recurring(plan_of("dualpipe-v", h, m, 2), drawn(random, 2 * h));
        ASSERT_FALSE(HasFailure()) << round;
    }
}

// A plan in a file is timed as the schedule that wrote it.
TEST(Pairs, OfFilesTakeTheSameTime) {
    Random random(7);
    const Plan plan = plan_of("dualpipe-v", 4, 10, 2);
    for (const bool transfers : {false, true}) {
        const Plan read = parse_csv(print_csv(plan, transfers), "plan.csv").plan;
        for (int round = 0; round < 5; ++round) {
            const Costs costs = drawn(random, 8);
            EXPECT_EQ(simulate(read, costs).events, simulate(plan, costs).events);
        }
    }
}

// Both micro-batches are held for the whole launch: three at once, where one task after the other would hold two.
TEST(Pairs, HoldTheMemoryOfBoth) {
    Costs costs = uniform(1, 10, 10, 10);
    costs.bytes[0].until_weight = 64;
    costs.bytes[0].forward_workspace = 128;
    costs.bytes[0].backward_workspace = 256;
    const std::string list = "0F0,0F1,(0B0;0F2)OVERLAP_F_B,0B1,0B2\n";
    const auto peak = [&](const std::string& text) {
        return metrics_with(parse_csv(text, "plan.csv").plan, costs).devices[0].memory;
    };
    const auto activations = static_cast<std::size_t>(MemoryKind::Activations),
               workspace = static_cast<std::size_t>(MemoryKind::Workspace);
    EXPECT_EQ(peak("0F0,0F1,0B0,0F2,0B1,0B2\n")[activations], 2 * 64);
    EXPECT_EQ(peak(list)[activations], 3 * 64);
    EXPECT_EQ(peak(list)[workspace], 256);  // one after the other
    costs.pair_exposed = 0.5;
    EXPECT_EQ(peak(list)[workspace], 128 + 256);
}

TEST(Pairs, ScaleWithSpeedsLengthsAndDispatch) {
    const Plan plan = parse_csv("0F0,0F1,(0B0;0F2)OVERLAP_F_B,0B1,0B2\n", "plan.csv").plan;
    Costs costs = uniform(1, 100, 100, 100);
    costs.stage[0].pair = 240;
    EXPECT_EQ(metrics_with(plan, costs).makespan, 2 * 100 + 240 + 2 * 200);
    costs.dispatch = 7;
    EXPECT_EQ(metrics_with(plan, costs).makespan, 2 * 107 + 247 + 2 * 207 + 7);  // and U
    costs.dispatch = 0;
    ClusterEdit(costs)->set_speeds({2});
    EXPECT_EQ(metrics_with(plan, costs).makespan, (2 * 100 + 240 + 2 * 200) / 2);
    costs = uniform(1, 100, 100, 100);
    costs.stage[0].pair = 240;
    costs.lengths = {{1, 1, 1, 1}, {1, 1, 1, 1}, {2, 2, 2, 1}};  // F2 takes 200: the pair 240 * 400 / 300
    EXPECT_EQ(metrics_with(plan, costs).makespan, 2 * 100 + 320 + 200 + 400);
}

TEST(Pairs, ThatNeedEachOtherAreRefused) {
    Plan plan = plan_of("1f1b", 2, 2);
    const auto with_pair_at = [&](std::size_t position) {
        Plan other = plan;
        other.order[1][position].with_next = true;
        return refusal([&] { check(other); });
    };
    // 1: 1RECV_F0<0 1F0 1B0 1SEND_B0>0 1RECV_F1<0 1F1 1B1 1SEND_B1>0 1U1
    expect_says(with_pair_at(1), {"device 1 step 1: 1F0 overlaps 1B0, which needs it", "help: a pair is two"});
    expect_says(with_pair_at(2), {"device 1 step 2: 1B0 cannot overlap 1SEND_B0>0"});
    expect_says(with_pair_at(8), {"device 1 step 8: 1U1 overlaps the next task, but is the last one"});
    // 0F1 waits for what 0B0 needs: 1B0, which waits for what 1F1 needs: 0F1
    const std::string circle = "0F0,(0F1;0B0)OVERLAP_F_B,0B1\n1F0,(1F1;1B0)OVERLAP_F_B,1B1\n";
    expect_says(refusal([&] { prove(parse_csv(circle, "plan.csv"), {}); }, ExitCode::Infeasible), {"deadlocks"});
}

// F 10, B 20 and a dispatch of 4, which a pair takes once: it takes 4 + 20 + 5.
TEST(Pairs, TakeOneDispatch) {
    const Plan plan = parse_csv("0F0,(0F1;0B0)OVERLAP_F_B,0B1\n", "plan.csv").plan;
    Costs costs = uniform(1, 10, 10, 10);
    costs.dispatch = 4;
    costs.stage[0].update = 3;
    EXPECT_EQ(metrics_with(plan, costs).makespan, 14 + 14 + 24 + 24 + 7);
    costs.pair_exposed = 0.5;
    EXPECT_EQ(metrics_with(plan, costs).makespan, 14 + 29 + 24 + 7);
    costs.stage[0].pair = 22;
    EXPECT_EQ(metrics_with(plan, costs).makespan, 14 + 26 + 24 + 7);
}

}  // namespace
}  // namespace pw
