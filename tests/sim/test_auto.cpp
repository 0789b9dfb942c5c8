// The schedule that finds its order: published rates, every order of small instances, and laws of random ones.
#include "schedules/orders/crossing_bound.h"
#include "schedules/orders/list_scheduling.h"
#include "schedules/orders/order_bound.h"
#include "schedules/orders/order_costs.h"
#include "schedules/orders/order_model.h"
#include "sim/metrics.h"
#include "sim/simulate.h"
#include "tests/support/combinations.h"
#include "tests/support/dice.h"
#include "tests/support/orders_by_costs.h"
#include "tests/support/random_passes.h"
#include "tests/support/shapes.h"
#include "tests/support/thoroughness.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <set>
#include <span>

namespace pw {
namespace {

constexpr Bytes kNoMemory = std::numeric_limits<Bytes>::max();

struct Instance {
    Shape shape;
    Costs costs;
    std::vector<Bytes> memory;
};

Instance instance_of(const Schedule& schedule, int p, int m, Costs costs, Bytes memory = kNoMemory) {
    Instance one{shape_of(schedule, p, m, static_cast<int>(costs.stage.size()) / p), std::move(costs), {}};
    one.shape = placed(schedule, one.shape);
    one.memory.assign(static_cast<std::size_t>(p), memory);
    return one;
}

struct Solved {
    Metrics metrics;
    StepTimes least;
    Ns crossings;  // if the step were a quarter longer
    Plan plan;
};

Solved solve(const Schedule& schedule, const Instance& one, int activations, Aim aim = Aim::Step) {
    const OrderCosts costs = order_costs(one.shape, one.costs, one.memory);
    PlanOptions options;
    options.schedule.activations = activations;
    options.schedule.aim = aim;
    Solved solved;
    solved.plan = ordered(schedule, one.shape, options, &costs).plan;
    solved.metrics = metrics_of(simulate(solved.plan, one.costs));
    const OrderModel model({one.shape, options.schedule, &costs});
    solved.least = least_times(model, {solved.metrics.step_time, solved.metrics.span});
    solved.crossings = least_time_by_crossings(model, solved.metrics.step_time * 5 / 4);
    return solved;
}

int most_held(const Metrics& metrics) {
    int most = 0;
    for (const DeviceMetrics& device : metrics.devices)
        most = std::max(most, device.peak_in_flight_until_weight);
    return most;
}

// Table 9 and Table 5 of arXiv 2401.10241: times in ns and rates of the bubble in the span, of ZB-1p and ZB-2p. A
// micro-batch takes 34 h + 5 a s bytes per token at F, of which W frees 32 h.
struct Row {
    Bytes hidden, heads;
    int p, m;
    Ns forward, input, weight, latency;
    double one, two;
};
constexpr Row kRows[] = {{2304, 24, 8, 24, 18522, 18086, 9337, 601, .1585, .0433},
                         {2304, 24, 8, 32, 18513, 18086, 9331, 626, .1242, .0039},
                         {4096, 32, 8, 24, 29718, 29444, 19927, 527, .1323, .0029},
                         {5120, 40, 16, 48, 11347, 11248, 8132, 377, .1397, .0066},
                         {5120, 40, 16, 64, 11307, 11254, 8101, 379, .1088, .0054},
                         {4096, 32, 8, 64, 29935, 29621, 19388, 535, .0554, .0010},
                         {6144, 48, 32, 96, 10419, 10207, 7715, 408, .1421, .0038},
                         {6144, 48, 32, 256, 10402, 10248, 7698, 460, .0594, .0018}};
constexpr std::size_t kUsualRows = 6;

TEST(Auto, ReachesThePublishedRatesOfZeroBubbleSchedules) {
    const Schedule& schedule = schedule_named("auto");
    for (const Row& row : std::span(kRows).first(soaks() ? std::size(kRows) : kUsualRows))
        for (const int times : {1, 2}) {
            Costs costs = uniform(row.p, row.forward, row.input, row.weight, row.latency);
            const Bytes all = 34 * row.hidden + 5 * row.heads * 1024, later = 32 * row.hidden;
            for (StageBytes& bytes : costs.bytes) {
                bytes.until_weight = later;
                bytes.until_input = all - later;
            }
            const Solved solved =
                solve(schedule, instance_of(schedule, row.p, row.m, costs, times * row.p * all), 0, Aim::Span);
            EXPECT_LE(solved.metrics.span_bubble_rate, (times == 1 ? row.one : row.two) + 5e-5)
                << row.p << ' ' << row.m;
            EXPECT_LE(static_cast<double>(solved.metrics.span), 1.01 * static_cast<double>(solved.least.span));
            EXPECT_GE(solved.metrics.span, solved.least.span);
        }
}

// Two rows of Table 8 of the same paper, of ZB-V: times of a stage of which a device has two. They fill the memory that
// a device has as the first one of 1F1B.
struct VRow {
    int p, m;
    Ns forward, input, weight, latency;
    double rate;
};

TEST(Auto, ReachesThePublishedRatesOfZeroBubbleSchedulesInAV) {
    const Schedule& schedule = schedule_named("auto-v");
    for (const VRow& row :
         {VRow{16, 48, 14407, 14380, 9676, 1610, .0697}, VRow{32, 96, 9458, 9748, 7288, 879, .0593}}) {
        Costs costs = uniform(2 * row.p, row.forward, row.input, row.weight, row.latency);
        for (StageBytes& bytes : costs.bytes) {
            bytes.until_input = 42;
            bytes.until_weight = 32;
        }
        const Solved solved =
            solve(schedule, instance_of(schedule, row.p, row.m, costs, 2 * row.p * Bytes{74}), 0, Aim::Span);
        EXPECT_LE(solved.metrics.span_bubble_rate, row.rate + 5e-5) << row.p;
        EXPECT_EQ(solved.metrics.span, solved.least.span) << row.p;  // none is shorter
    }
}

// Optima proven by others with an integer program (objective: the longest span of a device). F takes 2 of the memory, I
// and W free 1 each.
struct Proven {
    int p, m;
    Ns latency;
    Bytes memory;
    Ns span;
};
constexpr Proven kProven[] = {{2, 2, 0, 4, 37}, {2, 4, 0, 4, 67},  {3, 3, 0, 6, 59},  {3, 6, 0, 6, 104},
                              {4, 4, 0, 8, 81}, {4, 6, 0, 8, 111}, {4, 8, 0, 8, 141}, {3, 6, 2, 6, 120},
                              {3, 6, 0, 8, 97}, {4, 4, 0, 12, 81}, {3, 6, 0, 4, 130}};

TEST(Auto, FindsSpansThatAreProvenOptimal) {
    const Schedule& schedule = schedule_named("auto");
    for (const Proven& row : kProven) {
        Costs costs = uniform(row.p, 5, 6, 4, row.latency);
        for (StageBytes& bytes : costs.bytes)
            bytes.until_input = bytes.until_weight = 1;
        const Solved solved = solve(schedule, instance_of(schedule, row.p, row.m, costs, row.memory), 0, Aim::Span);
        EXPECT_EQ(solved.metrics.span, row.span) << row.p << ' ' << row.m << ' ' << row.memory;
        EXPECT_EQ(solved.least.span, row.span);
        EXPECT_LE(solved.crossings, row.span);
    }
}

// All lists of one device that take the micro-batches in order. F takes two of the room, and I frees `first` of them.
using Kinds = std::vector<int>;
void add_lists(int m, int room, int first, std::array<int, 3> done, Kinds& list, std::vector<Kinds>& all) {
    if (done[2] == m) {
        all.push_back(list);
        return;
    }
    for (int kind = 0; kind < 3; ++kind) {
        const int used = 2 * done[0] - first * done[1] - (2 - first) * done[2];
        const bool may = kind == 0 ? done[0] < m && used + 2 <= room : done[kind] < done[kind - 1];
        if (!may)
            continue;
        std::array<int, 3> next = done;
        ++next[kind];
        list.push_back(kind);
        add_lists(m, room, first, next, list, all);
        list.pop_back();
    }
}

struct Passes {
    std::vector<std::array<Ns, 3>> times;  // by stage
    Ns latency;
};

// Runs the lists until nothing can run; returns the end, or nothing for a deadlock.
std::optional<Ns> end_of(const std::vector<const Kinds*>& lists, const Passes& passes, int m) {
    const std::size_t p = lists.size();
    std::vector<std::array<std::vector<Ns>, 3>> ends(p);
    std::vector<Ns> free(p, 0);
    std::vector<std::size_t> next(p, 0);
    for (bool runs = true; runs;) {
        runs = false;
        for (std::size_t d = 0; d < p; ++d)
            while (next[d] < lists[d]->size()) {
                const int kind = (*lists[d])[next[d]];
                const std::size_t mb = ends[d][kind].size();
                const auto* from = kind == 0                ? (d > 0 ? &ends[d - 1][0] : nullptr)
                                   : kind == 1 && d + 1 < p ? &ends[d + 1][1]
                                                            : nullptr;
                if (from != nullptr && from->size() <= mb)
                    break;
                free[d] = std::max(free[d], from == nullptr ? 0 : (*from)[mb] + passes.latency) + passes.times[d][kind];
                ends[d][kind].push_back(free[d]);
                ++next[d];
                runs = true;
            }
    }
    for (std::size_t d = 0; d < p; ++d)
        if (std::ssize(ends[d][2]) < m)
            return std::nullopt;
    return *std::max_element(free.begin(), free.end());
}

Ns least_end(const Passes& passes, const std::vector<Kinds>& all, int m) {
    Ns least = std::numeric_limits<Ns>::max();
    for_each_combination(passes.times.size(), all.size(), [&](const std::vector<std::size_t>& at) {
        std::vector<const Kinds*> lists;
        for (const std::size_t number : at)
            lists.push_back(&all[number]);
        if (const std::optional<Ns> end = end_of(lists, passes, m))
            least = std::min(least, *end);
    });
    return least;
}

TEST(Auto, IsTheShortestOfAllOrdersOfSmallInstances) {
    const Schedule& schedule = schedule_named("auto");
    Random random(4);
    for (int round = 0; round < std::max(1, rounds(2)); ++round)
        for (const auto& [p, m] : {std::pair(2, 3), std::pair(3, 2), std::pair(2, 4)})
            for (int room = 1; room <= (m == 4 ? 2 : m); ++room) {
                Passes passes{{}, pick(random, 0, 3)};
                const int first = pick(random, 0, 2);
                Costs costs = uniform(p, 1, 1, 1, passes.latency);
                passes.times = draw_passes(random, costs);
                for (StageBytes& bytes : costs.bytes) {
                    bytes.until_input = first;
                    bytes.until_weight = 2 - first;
                }
                std::vector<Kinds> all;
                Kinds list;
                add_lists(m, 2 * room, first, {}, list, all);
                const Ns least = least_end(passes, all, m);
                const Solved solved = solve(schedule, instance_of(schedule, p, m, costs, 2 * room), 0);
                EXPECT_EQ(solved.metrics.step_time, least)
                    << p << ' ' << m << ' ' << room << ' ' << first << " round " << round;
                EXPECT_EQ(solved.least.step, least);
                EXPECT_LE(solved.crossings, least)
                    << p << ' ' << m << ' ' << room << ' ' << first << " round " << round;
            }
}

// Steps proven the least by OR-Tools' CP-SAT: instances 66 and 67 of bench/order_gaps.py.
struct TightLine {
    int m, room;
    std::vector<std::array<Ns, 3>> passes;  // F, I and W by device
    std::vector<Ns> down, up;               // latencies
    Ns step;
};

TEST(Auto, CrossingsBoundStepsWithLittleRoom) {
    const Schedule& schedule = schedule_named("auto");
    const TightLine lines[] = {
        {15, 2, {{{1445, 956, 1382}, {752, 801, 1302}, {1305, 762, 1073}}}, {48, 94}, {253, 239}, 64296},
        {9, 2, {{{1495, 773, 939}, {978, 1467, 999}, {925, 1110, 1136}}}, {142, 20}, {104, 90}, 42521}};
    for (const TightLine& line : lines) {
        const auto p = static_cast<int>(line.passes.size());
        Costs costs = uniform(p, 1, 1, 1);
        for (int device = 0; device < p; ++device) {
            StageCost& stage = costs.stage[device];
            const auto& [forward, input, weight] = line.passes[device];
            stage.forward = forward, stage.backward_input = input, stage.backward_weight = weight;
            stage.backward = input + weight;
        }
        {
            ClusterEdit cluster(costs);
            for (int device = 0; device + 1 < p; ++device) {
                cluster->own_links[{device, device + 1}].latency = line.down[device];
                cluster->own_links[{device + 1, device}].latency = line.up[device];
            }
        }
        const Solved solved = solve(schedule, instance_of(schedule, p, line.m, costs), line.room);
        EXPECT_EQ(solved.metrics.step_time, line.step);
        EXPECT_LE(solved.least.step, line.step);
        EXPECT_GE(static_cast<double>(solved.least.step), 0.995 * static_cast<double>(line.step));
        EXPECT_LE(solved.crossings, line.step);
    }
}

// Micro-batches in any order take no longer than in the given or a sorted one, and of few the best order is found.
TEST(Auto, OrdersMicroBatchesOfUnequalLength) {
    const Schedule& schedule = schedule_named("auto");
    Random random(18);
    for (int round = 0; round < rounds(6); ++round) {
        const int p = pick(random, 2, 5), m = round % 2 == 0 ? 3 : pick(random, 4, 12);
        Costs costs = uniform(p, 100, 100, 100);
        for (int mb = 0; mb < m; ++mb) {
            const double length = 0.1 * pick(random, 2, 30);
            costs.lengths.push_back({length, length, length, length});
        }
        const auto step_of = [&](ScheduleOptions::MicroBatches order) {
            const Instance one = instance_of(schedule, p, m, costs);
            const OrderCosts own = order_costs(one.shape, costs, one.memory);
            PlanOptions options;
            options.schedule.micro_batches = order;
            const Plan plan = ordered(schedule, one.shape, options, &own).plan;
            std::set<Task> tasks;
            for (const Tasks& list : plan.order)
                tasks.insert(list.begin(), list.end());
            for (int stage = 0; stage < p; ++stage)
                for (int mb = 0; mb < m; ++mb)
                    EXPECT_TRUE(tasks.contains({Op::Forward, stage, mb})) << stage << ' ' << mb;
            const Metrics metrics = metrics_of(simulate(plan, costs));
            const OrderModel model({one.shape, options.schedule, &own});
            EXPECT_LE(least_times(model, {metrics.step_time, metrics.span}).step, metrics.step_time);
            return metrics.step_time;
        };
        const Ns any = step_of(ScheduleOptions::MicroBatches::Any);
        std::vector<MicroBatchLength>& lengths = costs.lengths;
        EXPECT_LE(any, step_of(ScheduleOptions::MicroBatches::Given));
        const auto is_shorter_one = [](const MicroBatchLength& one, const MicroBatchLength& other) {
            return one.forward < other.forward;
        };
        std::sort(lengths.begin(), lengths.end(), is_shorter_one);
        Ns least = std::numeric_limits<Ns>::max();
        do
            least = std::min(least, step_of(ScheduleOptions::MicroBatches::Given));
        while (m == 3 && std::next_permutation(lengths.begin(), lengths.end(), is_shorter_one));
        EXPECT_LE(any, least) << p << ' ' << m << " round " << round;
    }
}

// Uneven stages of p devices with `chunks` stages each, and a latency per link.
Costs uneven(Random& random, int p, int chunks) {
    Costs costs = uniform(p * chunks, 1, 1, 1);
    for (StageCost& stage : costs.stage) {
        stage.forward = pick(random, 50, 150);
        stage.backward_input = pick(random, 50, 150);
        stage.backward_weight = pick(random, 30, 120);
        stage.backward = stage.backward_input + stage.backward_weight - pick(random, 0, 10);
    }
    ClusterEdit cluster(costs);
    for (int device = 0; device + 1 < p; ++device)
        cluster->own_links[{device, device + 1}].latency = cluster->own_links[{device + 1, device}].latency =
            pick(random, 0, 60);
    return costs;
}

TEST(Auto, KeepsItsLimitsAndIsNeverLongerThanSchedulesThatFit) {
    Random random(7);
    for (int round = 0; round < std::max(1, rounds(3)); ++round) {
        const Schedule& schedule = schedule_by_costs(round);
        const int p = devices_for(schedule, pick(random, 3, soaks() ? 8 : 6)), m = pick(random, 6, soaks() ? 32 : 16);
        const int v = schedule.chunks;
        const Costs costs = uneven(random, p, v);
        const Instance one = instance_of(schedule, p, m, costs);
        std::vector<std::pair<int, Ns>> others;  // most held, step
        for (const Schedule& other : schedules())
            if (!other.needs_costs && !other.asynchronous() && other.trains)
                if (const std::optional<Plan> plan = try_plan(other, shape_of(other, p, m, v));
                    plan && plan->shape.stages == p * v &&
                    plan->shape.devices_of(p * v - 1) == one.shape.devices_of(p * v - 1)) {
                    const Metrics metrics = metrics_of(simulate(*plan, costs));
                    others.emplace_back(most_held(metrics), metrics.step_time);
                }
        Ns before = std::numeric_limits<Ns>::max();
        for (const int activations : {1, 2, p - 1, p, 2 * p}) {
            const Solved solved = solve(schedule, one, activations);
            EXPECT_LE(most_held(solved.metrics), activations * v);
            EXPECT_LE(solved.metrics.step_time, before) << "with more memory, round " << round;
            before = solved.metrics.step_time;
            EXPECT_GE(solved.metrics.step_time, solved.least.step);
            EXPECT_GE(solved.metrics.step_time, solved.crossings);
            for (const auto& [held, step] : others)
                if (held <= activations * v)
                    EXPECT_LE(solved.metrics.step_time, step) << "round " << round << " p " << p << " m " << m;
        }
        EXPECT_EQ(hash_of(solve(schedule, one, p).plan), hash_of(solve(schedule, one, p).plan));
    }
}

std::vector<int> without_weights(const std::vector<OrderPass>& list) {
    std::vector<int> passes;
    for (const OrderPass pass : list)
        if (pass.kind() != OrderPass::W)
            passes.push_back(pass.number());
    return passes;
}

constexpr OrderRules::Stages kStages[] = {OrderRules::Stages::Oldest, OrderRules::Stages::InOrder,
                                          OrderRules::Stages::Apart, OrderRules::Stages::LastApart};

// Whatever the exceptions from the rules are, all passes run, within the limits, also with W at other places.
TEST(Auto, SchedulesWithAnyExceptions) {
    Random random(31);
    for (int round = 0; round < rounds(60); ++round) {
        const Schedule& schedule = schedule_by_costs(round);
        const int p = devices_for(schedule, pick(random, 2, 6)), m = pick(random, 2, 12);
        const Instance one = instance_of(schedule, p, m, uneven(random, p, schedule.chunks));
        const OrderCosts costs = order_costs(one.shape, one.costs, one.memory);
        ScheduleOptions options;
        options.activations = pick(random, 1, p);
        const OrderModel model({one.shape, options, &costs});
        OrderRules rules{.ahead = 0.5 * pick(random, 1, 6)};
        rules.undelayed = pick(random, 0, 1) == 1;
        rules.forward_first = pick(random, 0, 1) == 1;
        rules.whole = pick(random, 0, 4) == 0;
        rules.lag = pick(random, 0, 2);
        rules.level = pick(random, 0, 1) == 1;
        rules.stages = kStages[pick(random, 0, 3)];
        const int last = 3 * static_cast<int>(model.stages_on(0).size()) - 1;
        const int passes = (rules.whole ? 2 : 3) * schedule.chunks * m;
        Exceptions exceptions(static_cast<std::size_t>(p));
        for (std::vector<PassKind>& list : exceptions)
            for (int at = 0; at <= passes; ++at)
                list.push_back(static_cast<PassKind>(pick(random, kByRules, last)));
        const PassLists lists = scheduled(model, rules, &exceptions);
        EXPECT_TRUE(fits(model, lists)) << "round " << round;
        EXPECT_LT(OrderTimer(model).times(lists).step, StepTimes{}.step) << "round " << round;
        for (const std::vector<OrderPass>& list : lists)
            EXPECT_EQ(std::ssize(list), passes) << "round " << round;
        const PassLists filled = refilled(model, {.patience = 0.25 * pick(random, 0, 4), .level = rules.level}, lists);
        ASSERT_EQ(std::ssize(filled), p) << "round " << round;
        EXPECT_TRUE(fits(model, filled)) << "round " << round;
        EXPECT_LT(OrderTimer(model).times(filled).step, StepTimes{}.step) << "round " << round;
        for (int device = 0; device < p; ++device) {
            EXPECT_EQ(std::ssize(filled[device]), 3 * schedule.chunks * m) << "round " << round;
            EXPECT_EQ(without_weights(filled[device]), without_weights(lists[device])) << "round " << round;
        }
    }
}

// With the plan in use at hand, faster tasks never make a plan longer.
TEST(Auto, KeepsThePlanInUseUnlessAnotherIsShorter) {
    Random random(23);
    for (int round = 0; round < rounds(10); ++round) {
        const Schedule& schedule = schedule_by_costs(round);
        const int p = devices_for(schedule, pick(random, 2, 6)), m = pick(random, 4, 12),
                  copies = round % 4 == 3 ? 2 : 1;
        Instance one = instance_of(schedule, p, m, uneven(random, p, schedule.chunks));
        if (copies > 1) {
            one.shape.copies = copies;
            one.shape.devices *= copies;
            one.shape.placement.clear();
            one.shape.serving.clear();
            one.shape = placed(schedule, one.shape);
            one.costs = uniform(p * schedule.chunks, 100, 90, 80);
            one.memory.resize(static_cast<std::size_t>(p * copies), kNoMemory);
        }
        PlanOptions options;
        options.schedule.activations = pick(random, 1, p);
        const auto plan_with = [&](const std::vector<Tasks>& current) {
            const OrderCosts costs = order_costs(one.shape, one.costs, one.memory);
            PlanOptions own = options;
            own.current = current;
            return ordered(schedule, one.shape, own, &costs).plan;
        };
        const auto step_of = [&](const Plan& plan) { return metrics_of(simulate(plan, one.costs)).step_time; };
        const Plan first = plan_with({});
        std::vector<Tasks> tasks = first.order;
        for (Tasks& list : tasks)
            std::erase_if(list, [](const Task& task) { return task.op != Op::Forward && !is_backward(task.op); });
        const Ns before = step_of(first);
        StageCost& stage = one.costs.stage[pick(random, 0, p * schedule.chunks - 1)];
        for (Ns StageCost::*const time : {&StageCost::forward, &StageCost::backward_input, &StageCost::backward_weight})
            stage.*time -= stage.*time / pick(random, 2, 20);
        stage.backward = std::min(stage.backward, stage.backward_input + stage.backward_weight);
        const Plan next = plan_with(tasks);
        EXPECT_LE(step_of(next), step_of(first)) << "round " << round;
        EXPECT_LE(step_of(next), before) << "round " << round;
        EXPECT_LE(step_of(next), step_of(plan_with({}))) << "round " << round;
        EXPECT_LE(most_held(metrics_of(simulate(next, one.costs))), options.schedule.activations * schedule.chunks);
    }
}

}  // namespace
}  // namespace pw
