// The effect of recomputing on a plan, its time and its memory: F drops its saved state, R saves it again right
// before the backward pass reads it.
#include "job/load.h"
#include "job/plan.h"
#include "schedules/csv/csv.h"
#include "schedules/memory/buffers.h"
#include "schedules/passes/passes.h"
#include "schedules/plan/plan_graph.h"
#include "sim/metrics.h"
#include "sim/simulate.h"
#include "tests/support/dice.h"
#include "tests/support/drawn_plans.h"
#include "tests/support/shapes.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/thoroughness.h"
#include "workloads/error.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>

namespace pw {
namespace {

std::vector<int> all_of(int stages) {
    std::vector<int> all(static_cast<std::size_t>(stages));
    std::iota(all.begin(), all.end(), 0);
    return all;
}

PlanOptions recomputing(std::vector<int> stages) {
    PlanOptions options;
    options.recompute.stages = std::move(stages);
    return options;
}

// Equal stages whose boundaries are read until W, as convolutions do.
Costs costs_of_stages(int stages, Ns recompute) {
    Costs costs = uniform(stages, 10, 12, 8, 3);
    for (StageCost& cost : costs.stage)
        cost.recompute = recompute;
    for (StageBytes& bytes : costs.bytes)
        bytes = {.data = 32,
                 .until_input = 700,
                 .until_weight = 300,
                 .gradient_kept = 50,
                 .forward_workspace = 10,
                 .backward_workspace = 10,
                 .input_workspace = 10};
    for (int stage = 0; stage + 1 < stages; ++stage)
        costs.edges.push_back({stage, stage + 1, 100, 100, true, true, true});
    return costs;
}

class EverySchedule : public testing::TestWithParam<std::string_view> {
protected:
    int chunks() const { return schedule_named(GetParam()).chunks; }

    // Calls law(recomputed stages, plan without R, plan with R) where the schedule is defined.
    template <class Law>
    void for_runs(Law law) {
        for (const int p : {1, 2, 4})
            for (const int m : {1, 2, 3, 8})
                for (const auto& stages :
                     {all_of(p * chunks()), std::vector<int>{0}, std::vector<int>{p * chunks() - 1}})
                    try {
                        const Plan plain = plan_of(GetParam(), p, m, chunks());
                        law(stages, plain, plan_of(GetParam(), p, m, chunks(), recomputing(stages)));
                        ASSERT_FALSE(HasFailure()) << fmt::format("p {} m {} first stage {}", p, m, stages[0]);
                    } catch (const Error& error) {
                        EXPECT_EQ(error.code(), ExitCode::BadInput) << error.what();
                        EXPECT_FALSE(error.settings().empty()) << error.what();
                    }
    }
};

// make_plan() has proven both.
TEST_P(EverySchedule, RunsOneRecomputeRightBeforeEachBackward) {
    for_runs([&](const std::vector<int>& stages, const Plan& plain, const Plan& plan) {
        for (std::size_t device = 0; device < plan.order.size(); ++device) {
            std::vector<Task> wanted, found;
            bool in_pair = false;  // R comes before both tasks of a pair
            for (const Task& task : plain.order[device])
                if (!is_transfer(task.op)) {
                    const bool again = std::count(stages.begin(), stages.end(), task.stage) > 0;
                    if (again && (task.op == Op::Backward || task.op == Op::BackwardInput))
                        wanted.insert(wanted.end() - (in_pair ? 1 : 0), {Op::Recompute, task.stage, task.microbatch});
                    wanted.push_back(task);
                    in_pair = task.with_next;
                }
            for (const Task& task : plan.order[device])
                if (!is_transfer(task.op))
                    found.push_back(task);
            EXPECT_EQ(found, wanted);
        }
    });
}

TEST_P(EverySchedule, AFreeRecomputeTakesNoTimeAndNoMoreMemory) {
    for_runs([&](const std::vector<int>&, const Plan& plain, const Plan& plan) {
        const Costs costs = costs_of_stages(plain.shape.stages, 0);
        const Metrics without = metrics_of(simulate(plain, costs)), with = metrics_of(simulate(plan, costs));
        EXPECT_EQ(with.makespan, without.makespan);
        EXPECT_EQ(with.span, without.span);
        EXPECT_EQ(with.ideal, without.ideal);
        for (std::size_t device = 0; device < with.devices.size(); ++device) {
            EXPECT_LE(with.devices[device].peak_memory, without.devices[device].peak_memory) << "device " << device;
            EXPECT_EQ(with.devices[device].peak_in_flight, without.devices[device].peak_in_flight);
            EXPECT_EQ(with.devices[device].weight_versions, without.devices[device].weight_versions);
        }
    });
}

TEST_P(EverySchedule, BusyTimeGrowsByTheRecomputes) {
    for_runs([&](const std::vector<int>&, const Plan& plain, const Plan& plan) {
        const Costs costs = costs_of_stages(plain.shape.stages, 7);
        const Metrics without = metrics_of(simulate(plain, costs)), with = metrics_of(simulate(plan, costs));
        EXPECT_GE(with.makespan, without.makespan);
        for (std::size_t device = 0; device < with.devices.size(); ++device) {
            const auto& order = plan.order[device];
            const auto recomputes =
                std::count_if(order.begin(), order.end(), [](const Task& task) { return task.op == Op::Recompute; });
            EXPECT_EQ(with.devices[device].busy, without.devices[device].busy + 7 * recomputes);
        }
    });
}

INSTANTIATE_TEST_SUITE_P(Recompute, EverySchedule, testing::ValuesIn(names_of_schedules()), [](const auto& test) {
    std::string name(test.param);
    std::replace(name.begin(), name.end(), '-', '_');
    return name;
});

// R needs no gradient: all stages but the last run their first one while they wait. The backward wave moves
// on by B, every further micro-batch takes R + B.
TEST(Recompute, FillAndDrainTakeNoRecompute) {
    for (const char* name : {"gpipe", "1f1b"})
        for (const int p : {1, 2, 3, 8})
            for (const int m : {1, 2, 8, 32}) {
                Costs costs = uniform(p, 10, 10, 10);
                for (StageCost& cost : costs.stage)
                    cost.recompute = 9;
                const Plan plan = plan_of(name, p, m, 1, recomputing(all_of(p)));
                EXPECT_EQ(metrics_of(simulate(plan, costs)).makespan, (m + p - 1) * (10 + 20) + m * 9)
                    << name << " " << p << " " << m;
            }
}

Bytes peak(const Plan& plan, const Costs& costs, int device) {
    return total(peak_of(memory_of(plan, buffers_of(plan, costs, versions_of(plan)))[device]));
}

// Every micro-batch in flight keeps its inputs, and one more may have come in; one has all that F saves.
TEST(Recompute, MemoryIsTheInputsOfAllAndTheStateOfOne) {
    const int p = 4, m = 8;
    Costs costs;
    costs.sent_copies = false;
    costs.stage.resize(p);
    costs.bytes.assign(p, {.until_input = 700, .until_weight = 300});
    for (int stage = 0; stage + 1 < p; ++stage)
        costs.edges.push_back({stage, stage + 1, 100, 0});
    const PlanOptions all = recomputing(all_of(p));
    for (int device = 1; device < p; ++device) {
        const int in_flight = p - device;
        EXPECT_EQ(peak(plan_of("1f1b", p, m, 1, all), costs, device), (in_flight + 1) * 100 + 1000);
        EXPECT_EQ(peak(plan_of("gpipe", p, m, 1, all), costs, device), m * 100 + 1000);
        EXPECT_GE(peak(plan_of("1f1b", p, m), costs, device), in_flight * 1000);
        EXPECT_GE(peak(plan_of("gpipe", p, m), costs, device), m * 1000);
    }
}

// F's inputs are kept until R has read them, R's saved state until the backward pass has read it.
TEST(Recompute, BuffersLiveUntilTheirReaders) {
    Costs costs = costs_of_stages(2, 0);
    costs.edges[0].forward_until_input = costs.edges[0].forward_until_weight = false;
    const Plan plan = plan_of("zb-h1", 2, 3, 1, recomputing({1}));
    const PlanGraph graph(plan);
    const auto at = [&](Op op, int mb) { return graph.position_of(graph.find({op, 1, mb})); };
    int seen = 0;
    for (const Buffer& buffer : buffers_of(plan, costs, versions_of(plan))) {
        if (buffer.device != 1 || buffer.microbatch < 0)
            continue;
        const int mb = buffer.microbatch, forward = at(Op::Forward, mb), again = at(Op::Recompute, mb);
        const std::map<BufferUse, std::pair<int, int>> lives = {
            {BufferUse::Dropped, {forward, forward}},
            {BufferUse::Data, {forward, at(Op::BackwardWeight, mb)}},
            {BufferUse::UntilInput, {again, at(Op::BackwardInput, mb)}},
            {BufferUse::UntilWeight, {again, at(Op::BackwardWeight, mb)}},
            {BufferUse::LandingForward, {buffer.first, again}},
        };
        if (const auto life = lives.find(buffer.use); life != lives.end()) {
            EXPECT_EQ(std::pair(buffer.first, buffer.last), life->second) << static_cast<int>(buffer.use);
            ++seen;
        }
    }
    EXPECT_EQ(seen, 5 * 3);
}

// R's tensors in the workspace are charged while R runs.
TEST(Recompute, ItsWorkspaceCountsWhereItRuns) {
    Costs costs;
    costs.stage.resize(2);
    costs.bytes.assign(2, {.forward_workspace = 40, .recompute_workspace = 50});
    EXPECT_EQ(peak(plan_of("gpipe", 2, 2), costs, 1), 40);
    const Plan plan = plan_of("gpipe", 2, 2, 1, recomputing({1}));
    EXPECT_EQ(peak(plan, costs, 0), 40);
    EXPECT_EQ(peak(plan, costs, 1), 50);
}

// A stage that drops its state still needs the weights that made it: it keeps as many versions as a stash.
TEST(Recompute, UsesTheVersionOfItsForward) {
    PlanOptions options = recomputing(all_of(4));
    options.weights = WeightPolicy::Latest;
    const Plan plan = plan_of("pipedream", 4, 12, 1, options);
    const VersionTable table = versions_of(plan);
    EXPECT_EQ(table.held, versions_of(plan_of("pipedream", 4, 12)).held);
    for (int mb = 0; mb < 12; ++mb)
        EXPECT_EQ(version_of({Op::Recompute, 0, mb}, table, plan), table.forward[0][mb]);
    EXPECT_NE(table.forward[0], table.backward[0]);
}

std::string verdict(const Plan& plan) {
    try {
        check(plan);
        return "";
    } catch (const Error& error) {
        EXPECT_EQ(error.code(), ExitCode::BadInput);
        return error.what();
    }
}

TEST(Recompute, TheProofIncludesIt) {
    const Plan plan = plan_of("zb-h1", 2, 2, 1, recomputing({0, 1}));
    EXPECT_EQ(verdict(plan), "");
    const auto moved = [&](const Task& task, int by) {
        Plan changed = plan;
        std::vector<Task>& order = changed.order[0];
        const auto at = std::find(order.begin(), order.end(), task);
        order.erase(at);
        order.insert(at + by, task);
        return verdict(changed);
    };
    const Task again{Op::Recompute, 0, 0};
    EXPECT_EQ(moved(again, -1), "");  // earlier is only more memory
    EXPECT_NE(moved(again, 2).find("0I0 needs 0R0, which no device runs before it"), std::string::npos) << print(plan);
    EXPECT_NE(moved({Op::Forward, 0, 1}, 8).find("which no device runs before it"), std::string::npos);

    Plan without = plan;  // a micro-batch whose state is kept
    std::erase(without.order[0], again);
    EXPECT_EQ(verdict(without), "");
    Plan twice = plan;
    twice.order[0].insert(std::find(twice.order[0].begin(), twice.order[0].end(), again), again);
    EXPECT_NE(verdict(twice).find("0R0 "), std::string::npos);

    Plan elsewhere = plan_of("gpipe", 2, 1);
    elsewhere.shape.placement = {{0, 1}, {1}};
    elsewhere.order[1].push_back(again);
    EXPECT_NE(verdict(elsewhere).find("0R0 belongs on device 0"), std::string::npos) << verdict(elsewhere);
}

TEST(Recompute, NothingIsInsideAPair) {
    Plan plan;
    plan.shape.microbatches = 3;
    plan.order = {{{Op::Forward, 0, 0},
                   {Op::Forward, 0, 1, 0, -1, true},
                   {Op::Backward, 0, 0},
                   {Op::Backward, 0, 1, 0, -1, true},
                   {Op::Forward, 0, 2},
                   {Op::BackwardInput, 0, 2},
                   {Op::BackwardWeight, 0, 2}}};
    add_recomputes(plan, {.stages = {0}});
    EXPECT_EQ(print(plan), "0: 0F0 0R0 (0F1;0B0) 0R1 (0B1;0F2) 0R2 0I2 0W2\n");
    add_updates(plan);
    EXPECT_EQ(verdict(plan), "");
}

// PyTorch's format has no R: it is left out, and the config adds it to the plan in the file.
TEST(Recompute, PlansFromFiles) {
    const Plan plan = plan_of("1f1b", 2, 3, 1, recomputing({1}));
    for (const bool transfers : {false, true}) {
        const TemporaryFolder folder;
        EXPECT_EQ(print_csv(plan, transfers), print_csv(plan_of("1f1b", 2, 3), transfers));
        folder.write("plan.csv", print_csv(plan, transfers));
        const std::string config = "{workload: {model: uniform}, pipeline: {schedule: plan.csv, recompute: [1]}}";
        const Plan read = make_plan(load_config(folder.write("cfg.yaml", config), {}), {}, 1);
        EXPECT_EQ(read.order, plan.order);
    }
}

PlanOptions recomputing(std::vector<int> stages, int saved, int ahead) {
    PlanOptions options;
    options.recompute = {.stages = std::move(stages), .saved = saved, .ahead = ahead};
    return options;
}

std::string computes_of(const Plan& plan, int device) {
    std::string text;
    for (const Task& task : plan.order[device])
        if (is_compute(task.op))
            text += (text.empty() ? "" : " ") + print(task);
    return text;
}

// Megatron-LM's rule: of each window of (warm-up + 1) micro-batches all but the first k are recomputed.
TEST(Recompute, SavesTheFirstMicroBatchesOfEachWindow) {
    for (const int p : {2, 3, 4})
        for (const int m : {1, 3, 8, 9})
            for (int saved = 0; saved <= p; ++saved) {
                const Plan plan = plan_of("1f1b", p, m, 1, recomputing(all_of(p), saved, 0));
                for (int device = 0; device < p; ++device) {
                    const int window = p - 1 - device + 1;
                    for (int mb = 0; mb < m; ++mb) {
                        const Task again{Op::Recompute, device, mb};
                        EXPECT_EQ(std::count(plan.order[device].begin(), plan.order[device].end(), again),
                                  mb % window >= saved ? 1 : 0)
                            << p << ' ' << m << ' ' << saved << ": " << print(again);
                    }
                }
            }
}

// k of the micro-batches in flight have all that F saves, and one of the others has.
TEST(Recompute, MemoryIsTheStateOfThoseSavedAndOfOne) {
    const int p = 4, m = 12;
    Costs costs;
    costs.stage.resize(p);
    costs.bytes.assign(p, {.until_input = 700, .until_weight = 300});
    for (int saved = 0; saved <= p; ++saved) {
        const Plan plan = plan_of("1f1b", p, m, 1, recomputing(all_of(p), saved, 0));
        for (int device = 0; device < p; ++device)
            EXPECT_EQ(peak(plan, costs, device), std::min(saved + 1, p - device) * 1000) << saved;
    }
    for (int ahead = 0; ahead < p; ++ahead) {
        const Plan plan = plan_of("1f1b", p, m, 1, recomputing(all_of(p), 0, ahead));
        for (int device = 0; device < p; ++device)
            EXPECT_EQ(peak(plan, costs, device), std::min(ahead + 1, p - device) * 1000) << ahead;
    }
}

TEST(Recompute, RunsAheadOfTheFirstBackward) {
    EXPECT_EQ(computes_of(plan_of("1f1b", 2, 4, 1, recomputing({0}, 0, 0)), 0),
              "0F0 0F1 0R0 0B0 0F2 0R1 0B1 0F3 0R2 0B2 0R3 0B3");
    EXPECT_EQ(computes_of(plan_of("1f1b", 2, 4, 1, recomputing({0}, 0, 1)), 0),
              "0F0 0F1 0R0 0R1 0B0 0F2 0B1 0F3 0R2 0B2 0R3 0B3");
    EXPECT_EQ(computes_of(plan_of("1f1b", 2, 4, 1, recomputing({0}, 0, 9)), 0),
              "0F0 0F1 0R0 0R1 0B0 0F2 0B1 0F3 0R2 0B2 0R3 0B3");
    EXPECT_EQ(computes_of(plan_of("gpipe", 2, 3, 1, recomputing({0}, 0, 1)), 0), "0F0 0F1 0F2 0R0 0R1 0B0 0B1 0R2 0B2");
    EXPECT_EQ(computes_of(plan_of("1f1b", 2, 4, 1, recomputing({0}, 1, 1)), 0),
              "0F0 0F1 0R1 0B0 0F2 0B1 0F3 0B2 0R3 0B3");
    EXPECT_EQ(computes_of(plan_of("1f1b", 2, 4, 1, recomputing({0}, 2, 1)), 0), computes_of(plan_of("1f1b", 2, 4), 0));
}

// The first stage alone recomputes, and is the slowest: while it waits for its first gradient, it runs as many R as may
// come ahead. Each of them shortens the step.
TEST(Recompute, AheadTakesRecomputesOutOfTheStepOfTheSlowestStage) {
    const int p = 4, m = 12;
    Costs costs = uniform(p, 10, 10, 10);
    costs.stage[0].recompute = 8;
    const auto step = [&](int ahead) {
        return metrics_of(simulate(plan_of("1f1b", p, m, 1, recomputing({0}, 0, ahead)), costs)).makespan;
    };
    for (int ahead = 1; ahead < p; ++ahead)
        EXPECT_EQ(step(ahead), step(ahead - 1) - 8) << ahead;
    EXPECT_EQ(step(p), step(p - 1));  // no further micro-batch is in flight
    EXPECT_EQ(metrics_of(simulate(plan_of("1f1b", p, m), costs)).makespan, (m + p - 1) * 30);
}

bool has_pairs(const Plan& plan) {
    return std::ranges::any_of(plan.order, [](const std::vector<Task>& order) {
        return std::ranges::any_of(order, [](const Task& task) { return task.with_next; });
    });
}

// Recomputing as a task of its own, which waits for no gradient, takes at most as long as the same work inside of the
// backward; where exchanges block, the backward has what it reads before, and both take equally long. Not so in pairs,
// whose forwards wait for R, too.
TEST(Recompute, TakesNoLongerThanInsideTheBackward) {
    Random random(41);
    int compared = 0;
    for (int round = 0; round < rounds(600); ++round) {
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
            options.recompute.stages = recomputed;
            apart = make_plan(schedule, shape, options);
        } catch (const Error&) {
            continue;
        }
        if (has_pairs(inside))
            continue;
        Costs costs = random_costs(random, inside.shape);
        costs.dispatch = 0;
        ClusterEdit(costs)->kind.clear();
        costs.last.clear();
        costs.lengths.clear();  // which F and B may have apart
        costs.slices.clear();
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
    EXPECT_GT(compared, rounds(600) / 4);
}

}  // namespace
}  // namespace pw
