// Times from one pass over a plan against those from a queue of events, and against the least that fulfil every rule;
// and their explanations.
#include "schedules/memory/buffers.h"
#include "schedules/orders/schedule.h"
#include "schedules/passes/passes.h"
#include "schedules/plan/durations.h"
#include "sim/metrics.h"
#include "sim/replay.h"
#include "sim/simulate.h"
#include "tests/support/dice.h"
#include "tests/support/relaxed_times.h"
#include "tests/support/shapes.h"
#include "tests/support/thoroughness.h"
#include "workloads/error.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

namespace pw {
namespace {

TransferMode random_mode(Random& random) {
    TransferMode mode;
    mode.communicator = static_cast<TransferMode::Communicator>(pick(random, 0, 2));
    mode.receive = static_cast<TransferMode::Receive>(pick(random, 0, 1));
    mode.protocol = pick(random, 0, 1) ? TransferMode::Protocol::Rendezvous : TransferMode::Protocol::Eager;
    if (mode.protocol == TransferMode::Protocol::Rendezvous && pick(random, 0, 1))
        mode.eager_limit = pick(random, 1, 30);
    mode.exchange = pick(random, 0, 2) ? TransferMode::Exchange::Overlapped : TransferMode::Exchange::Blocking;
    return mode;
}

Shape random_shape(Random& random, const Schedule& schedule) {
    Shape shape = shape_of(schedule, pick(random, 1, 6), pick(random, 1, 14));
    if (schedule.placement.name == "looped" || schedule.placement.name == "any")
        shape.stages = shape.devices * pick(random, 1, 3);
    if (schedule.takes_replicas() && pick(random, 0, 2) == 0) {
        Replicas replicas;
        for (int stage = pick(random, 1, 4); stage > 0; --stage)
            replicas.push_back(pick(random, 1, 3));
        shape = shape_of(replicas, shape.microbatches);
    } else if (!schedule.asynchronous() && pick(random, 0, 2) == 0) {
        shape.copies = pick(random, 2, 3);
        shape.devices *= shape.copies;
    }
    if (schedule.updates == Updates::PerMiniBatch)
        shape.per_update = pick(random, shape.devices, 2 * shape.devices);
    shape.global_norm = !schedule.asynchronous() && pick(random, 0, 3) == 0;
    if (shape.stages > 2 && pick(random, 0, 3) == 0) {  // a skip past stages
        shape.edges.emplace();
        for (int stage = 1; stage < shape.stages; ++stage)
            shape.edges->push_back({stage - 1, stage});
        shape.edges->push_back({0, shape.stages - 1});
    }
    if (shape.stages > 1 && pick(random, 0, 3) == 0)
        shape.ties = {{0, shape.stages - 1}};
    return shape;
}

Costs random_costs(Random& random, const Shape& shape) {
    Costs costs;
    const int shortest = pick(random, 0, 1);
    for (int stage = 0; stage < shape.stages; ++stage) {
        StageCost& cost = costs.stage.emplace_back();
        for (Ns* time : {&cost.forward, &cost.backward, &cost.backward_input, &cost.backward_weight, &cost.recompute,
                         &cost.update, &cost.sum_gradients, &cost.accumulate})
            *time = pick(random, shortest, 20);
        costs.bytes.emplace_back();
        if (stage > 0)
            costs.edges.push_back({stage - 1, stage, pick(random, 0, 30), pick(random, 0, 30)});
    }
    if (shape.edges)
        costs.edges.push_back({0, shape.stages - 1, pick(random, 0, 30), pick(random, 0, 30)});
    if (pick(random, 0, 1))
        costs.last = costs.stage;
    if (pick(random, 0, 2) == 0)
        for (int microbatch = pick(random, 1, shape.microbatches); microbatch > 0; --microbatch)
            costs.lengths.push_back({pick(random, 1, 30) * 0.1, pick(random, 1, 30) * 0.1, pick(random, 1, 3) * 0.5,
                                     pick(random, 1, 3) * 0.5});
    ClusterEdit(costs)->link = {.latency = pick(random, 0, 1) * pick(random, 0, 40),
                                .bandwidth = 1e9 / pick(random, 1, 3)};
    if (pick(random, 0, 1)) {
        std::vector<double> speeds;
        for (int device = 0; device < shape.devices; ++device)
            speeds.push_back(pick(random, 5, 20) * 0.1);
        ClusterEdit(costs)->set_speeds(speeds);
    }
    costs.dispatch = pick(random, 0, 2);
    costs.sent_copies = pick(random, 0, 1) != 0;
    return costs;
}

RelaxedTimes::Latency latency_of(const Costs& costs) {
    return [&costs](int from, int to) { return costs.cluster->link_of(from, to).latency; };
}

// Places the devices on hosts, whose messages may share the ways out and in, and adds other shared capacities and sums
// that are messages too.
void add_network(Random& random, const Shape& shape, Costs& costs) {
    if (pick(random, 0, 2) == 0)
        return;
    const auto any_devices = [&] {
        std::vector<int> devices;
        for (int device = 0; device < shape.devices; ++device)
            if (pick(random, 0, 1))
                devices.push_back(device);
        return devices;
    };
    const auto any_bandwidth = [&] { return 1e9 / pick(random, 1, 3); };
    for (int device = 0; device < shape.devices; ++device)
        ClusterEdit(costs)->host.push_back(pick(random, 0, 2));
    ClusterEdit(costs)->between_hosts = {.latency = pick(random, 0, 40)};
    if (pick(random, 0, 1))
        ClusterEdit(costs)->between_hosts->bandwidth = any_bandwidth();
    if (pick(random, 0, 2) == 0)
        ClusterEdit(costs)->between_hosts->half_size = pick(random, 1, 30);
    for (int count = pick(random, 0, 2); count > 0; --count)
        ClusterEdit(costs)->shared.push_back(
            {static_cast<Capacity::Of>(pick(random, 0, 2)), any_devices(), any_bandwidth()});
    if (pick(random, 0, 2) == 0 && shape.devices > 1)
        ClusterEdit(costs)->own_links[{pick(random, 1, shape.devices - 1), 0}] = {.latency = pick(random, 0, 40),
                                                                                  .bandwidth = any_bandwidth()};
    ClusterEdit(costs)->sums = costs.cluster->link;
    for (StageBytes& bytes : costs.bytes)
        bytes.weights = pick(random, 0, 60);
    costs.shard_optimizer = pick(random, 0, 2) == 0;
    if (pick(random, 0, 1))
        add_gradient_sums(costs, shape, {}, static_cast<SumAlgorithm>(pick(random, 0, 2)));
}

// Lets the devices of a host slow each other down, and messages slow the devices down.
void add_neighbours(Random& random, Costs& costs) {
    if (pick(random, 0, 1)) {
        costs.busy = costs.stage;
        for (StageCost& cost : costs.busy)
            for (Ns* time : {&cost.forward, &cost.backward, &cost.backward_input, &cost.backward_weight})
                *time += pick(random, 0, 20);
        costs.busy_last = costs.last.empty() ? costs.last : costs.busy;
    }
    if (pick(random, 0, 3) == 0)
        costs.mover_share = pick(random, 1, 8) * 0.1;
    if (pick(random, 0, 3) == 0)
        costs.sum_bucket = pick(random, 1, 60);
}

void expect_least_times(const Plan& plan, const TransferMode& mode, const Costs& costs, const Trace& trace) {
    std::vector<Ns> durations;
    std::vector<Bytes> bytes;
    for (const TraceEvent& event : trace.events) {
        durations.push_back(event.end - event.start);
        bytes.push_back(event.bytes);
    }
    const RelaxedTimes least(plan, mode, latency_of(costs), durations, bytes);
    ASSERT_TRUE(least.fulfilled());
    for (std::size_t task = 0; task < trace.events.size(); ++task)
        ASSERT_EQ((TaskTime{trace.events[task].start, trace.events[task].end}), least.times()[task])
            << print(trace.events[task].task);
}

struct Drawn {
    Plan plan;
    Costs costs;
    TransferMode mode;  // with the copies that the costs ask for
};

// Returns nothing if the schedule is not defined for the drawn shape.
std::optional<Drawn> draw(Random& random) {
    const Schedule& schedule = schedules()[static_cast<std::size_t>(pick(random, 0, std::ssize(schedules()) - 1))];
    PlanOptions options;
    options.transfers = random_mode(random);
    const Shape shape = random_shape(random, schedule);
    if (pick(random, 0, 2) == 0)
        options.recompute = {pick(random, 0, shape.stages - 1)};
    Drawn drawn;
    try {
        drawn.plan = make_plan(schedule, shape, options);
    } catch (const Error&) {
        return std::nullopt;
    }
    drawn.costs = random_costs(random, drawn.plan.shape);
    drawn.mode = options.transfers;
    drawn.mode.sent_copies = keeps_copies(drawn.costs, drawn.mode.early_receive());
    return drawn;
}

TEST(Recurrence, TimesAreThoseOfTheEventsAndTheLeastOfAll) {
    Random random(2026);
    int compared = 0;
    const int count = soaks() ? 200'000 : rounds(1500);
    for (int round = 0; round < count; ++round) {
        std::optional<Drawn> drawn = draw(random);
        if (!drawn)
            continue;
        add_network(random, drawn->plan.shape, drawn->costs);
        const auto& [plan, costs, mode] = *drawn;
        Simulator simulator(plan, mode);
        const Trace expected = simulator.trace_by_events(costs);
        ASSERT_EQ(simulator.trace(costs), expected) << plan.schedule << ' ' << print(mode) << " round " << round;
        expect_least_times(plan, mode, costs, expected);
        if (round % 8 == 0) {
            const auto graph = std::make_shared<const Proof>(Proof{PlanGraph(plan)});
            ASSERT_EQ(mechanics_of(plan, graph, mode, expected), Mechanics{}) << plan.schedule << " round " << round;
        }
        ASSERT_FALSE(HasFatalFailure()) << plan.schedule << ' ' << print(mode) << " round " << round;
        ++compared;
    }
    EXPECT_GT(compared, count / 2);
}

// The rest of a sum after the backward does not wait for a list that waits for an exchange or a copy.
TEST(Recurrence, SumsInBucketsEndAsByTheEvents) {
    Random random(40);
    int compared = 0;
    for (int round = 0; round < rounds(6000); ++round) {
        std::optional<Drawn> drawn = draw(random);
        if (!drawn)
            continue;
        auto& [plan, costs, mode] = *drawn;
        ClusterEdit(costs)->sums = {.latency = pick(random, 0, 9), .bandwidth = 1e9 / pick(random, 1, 3)};
        for (StageBytes& bytes : costs.bytes)
            bytes.weights = pick(random, 0, 300);
        costs.shard_optimizer = pick(random, 0, 2) == 0;
        costs.sum_bucket = pick(random, 1, 60);
        add_gradient_sums(costs, plan.shape);
        if (std::ranges::none_of(costs.stage_sums,
                                 [](const StageSum& sum) { return sum.alone > 0 && sum.buckets > 1; }))
            continue;
        Simulator simulator(plan, mode);
        const Trace expected = simulator.trace_by_events(costs);
        ASSERT_EQ(simulator.trace(costs), expected) << plan.schedule << ' ' << print(mode) << " round " << round;
        expect_least_times(plan, mode, costs, expected);
        ASSERT_FALSE(HasFatalFailure()) << plan.schedule << ' ' << print(mode) << " round " << round;
        ASSERT_EQ(simulator.sample(costs, lognormal_jitter(0), 3, 1, 1).step_times,
                  std::vector<Ns>(3, simulator.step_time(costs)));
        ++compared;
    }
    EXPECT_GT(compared, 50);
}

// Recomputing as a task of its own, which waits for no gradient, takes at most as long as the same work inside of the
// backward; where exchanges block, the backward has what it reads before, and both take equally long.
TEST(Recompute, TakesNoLongerThanInsideTheBackward) {
    Random random(41);
    int compared = 0;
    for (int round = 0; round < rounds(1500); ++round) {
        const Schedule& schedule = schedules()[static_cast<std::size_t>(pick(random, 0, std::ssize(schedules()) - 1))];
        PlanOptions options;
        options.transfers = random_mode(random);
        const Shape shape = random_shape(random, schedule);
        std::vector<int> recomputed;
        for (int stage = 0; stage < shape.stages; ++stage)
            if (pick(random, 0, 2) > 0)
                recomputed.push_back(stage);
        Plan inside, apart;
        try {
            inside = make_plan(schedule, shape, options);
            options.recompute = recomputed;
            apart = make_plan(schedule, shape, options);
        } catch (const Error&) {
            continue;
        }
        Costs costs = random_costs(random, inside.shape);
        costs.dispatch = 0;
        ClusterEdit(costs)->kind.clear();
        costs.last.clear();
        costs.lengths.clear();  // which F and B may have apart
        Costs longer = costs;
        for (const int stage : recomputed)
            for (Ns* time : {&longer.stage[stage].backward, &longer.stage[stage].backward_input})
                *time += costs.stage[stage].recompute;
        const Ns of_both = metrics_of(simulate(inside, longer, options.transfers)).makespan;
        const Ns of_each = metrics_of(simulate(apart, costs, options.transfers)).makespan;
        ASSERT_LE(of_each, of_both) << schedule.name << ' ' << print(options.transfers) << " round " << round;
        if (options.transfers.blocks()) {
            ASSERT_EQ(of_each, of_both) << schedule.name << ' ' << print(options.transfers) << " round " << round;
        }
        ++compared;
    }
    EXPECT_GT(compared, rounds(1500) / 4);
}

TEST(Simulator, TakesTheNumbersOfTheTraceWithoutIt) {
    Random random(7);
    for (int round = 0; round < rounds(400); ++round) {
        const std::optional<Drawn> drawn = draw(random);
        if (!drawn)
            continue;
        const auto& [plan, costs, mode] = *drawn;
        Simulator simulator(plan, mode);
        const Trace trace = simulator.trace(costs);
        ASSERT_EQ(simulator.metrics(costs, without_hash(plan)), metrics_of(trace))
            << plan.schedule << " round " << round;
        ASSERT_EQ(simulator.step_time(costs), metrics_of(trace).step_time) << plan.schedule << " round " << round;
    }
}

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
    for (int round = 0; round < rounds(600); ++round) {
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
    for (int round = 0; round < rounds(1000); ++round) {
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

TEST(Samples, AreTheStepTimeWithoutJitterAndTheSameOnAnyNumberOfThreads) {
    Random random(13);
    for (int round = 0; round < rounds(100); ++round) {
        std::optional<Drawn> drawn = draw(random);
        if (!drawn)
            continue;
        if (round % 2 == 1)
            add_neighbours(random, drawn->costs);
        const auto& [plan, costs, mode] = *drawn;
        Simulator simulator(plan, mode);
        const Samples still = simulator.sample(costs, lognormal_jitter(0), 11, 1, 2);
        ASSERT_EQ(still.step_times, std::vector<Ns>(11, simulator.step_time(costs))) << plan.schedule;
        const Samples one = simulator.sample(costs, lognormal_jitter(0.3), 50, 1, 1);
        const Samples three = simulator.sample(costs, lognormal_jitter(0.3), 50, 1, 3);
        ASSERT_EQ(one.step_times, three.step_times) << plan.schedule;
        ASSERT_EQ(one.slowest, three.slowest) << plan.schedule;
    }
}

}  // namespace
}  // namespace pw
