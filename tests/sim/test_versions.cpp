// The weight version that every task of an asynchronous plan reads, with and without replicas, how far ahead weights
// are predicted, and the memory of that.
#include "job/load.h"
#include "job/plan.h"
#include "schedules/orders/holding.h"
#include "schedules/plan/versions.h"
#include "schedules/trace/trace_json.h"
#include "sim/metrics.h"
#include "sim/simulate.h"
#include "tests/support/asynchronous_plans.h"
#include "tests/support/refusal.h"
#include "tests/support/shapes.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/thoroughness.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

namespace pw {
namespace {

VersionTable pipedream(WeightPolicy policy, int p, int m, Prediction prediction = Prediction::None) {
    return versions_of(plan_of("pipedream", p, m, 1, with_policy(policy, prediction)));
}

// w(t+1) = w(t) - rate grad f(w_1(t-n+1), w_2(t-n+2), ..., w_n(t)) in the paper's steady state; with vertical sync
// every stage reads w(t-n+1). Micro-batch t here makes version t+1 of version t.
TEST(Versions, ReadWhatPipeDreamsEquationsSay) {
    for (const int n : {1, 2, 3, 4, 8}) {
        const VersionTable stash = pipedream(WeightPolicy::Stash, n, 4 * n);
        const VersionTable vertical = pipedream(WeightPolicy::VerticalSync, n, 4 * n);
        for (int t = n; t < 4 * n; ++t)
            for (int stage = 1; stage <= n; ++stage) {
                EXPECT_EQ(stash.forward[stage - 1][t], t - n + stage);
                EXPECT_EQ(stash.backward[stage - 1][t], t - n + stage);
                EXPECT_EQ(vertical.forward[stage - 1][t], t - n + 1);
                EXPECT_EQ(vertical.backward[stage - 1][t], t - n + 1);
            }
        Replicas held(static_cast<std::size_t>(n));
        std::iota(held.rbegin(), held.rend(), 1);
        EXPECT_EQ(stash.held, held);
    }
}

// Of four workers, with tasks and versions counted from 1: the first version, in use before any update, is 1. Tasks 1
// to 4 start with it; task 5 follows the first update. Counted in updates it is version 2 of three workers.
TEST(Versions, TaskFiveOfTheFirstWorkerRunsWithVersionTwo) {
    const VersionTable four = pipedream(WeightPolicy::Stash, 4, 12);
    for (int task = 1; task <= 4; ++task)
        EXPECT_EQ(four.forward[0][task - 1] + 1, 1);
    EXPECT_EQ(four.forward[0][5 - 1] + 1, 2);
    EXPECT_EQ(four.backward[0][5 - 1] + 1, 2);
    EXPECT_EQ(pipedream(WeightPolicy::Stash, 3, 12).forward[0][5 - 1], 2);
    const VersionTable vertical = pipedream(WeightPolicy::VerticalSync, 4, 12);
    for (int worker = 0; worker < 4; ++worker)  // the version travels with the task
        EXPECT_EQ(vertical.forward[worker][5 - 1] + 1, 2);
}

// Chen et al., 2018: of N stages, stage k predicts floor(k/2) + N-k-1 updates in F and floor(k/2) in B. Guan et al.,
// 2023: N-1-k in F.
TEST(Versions, ArePredictedAsFarAsThePapersSay) {
    const auto distances = [](int n, Prediction prediction) {
        const VersionTable table = pipedream(WeightPolicy::Latest, n, 2 * n, prediction);
        return std::pair(table.forward_ahead, table.backward_ahead);
    };
    EXPECT_EQ(distances(1, Prediction::SpecTrain), std::pair(Replicas{0}, Replicas{0}));
    EXPECT_EQ(distances(2, Prediction::SpecTrain), std::pair(Replicas{1, 0}, Replicas{0, 0}));
    EXPECT_EQ(distances(3, Prediction::SpecTrain), std::pair(Replicas{2, 1, 1}, Replicas{0, 0, 1}));
    EXPECT_EQ(distances(4, Prediction::SpecTrain), std::pair(Replicas{3, 2, 2, 1}, Replicas{0, 0, 1, 1}));
    EXPECT_EQ(distances(4, Prediction::PipeOptim), std::pair(Replicas{3, 2, 1, 0}, Replicas{0, 0, 0, 0}));
    EXPECT_EQ(distances(4, Prediction::None), std::pair(Replicas{0, 0, 0, 0}, Replicas{0, 0, 0, 0}));
}

// PipeOptim's F looks at the version that its B reads; SpecTrain's F and B look at the same one, later by floor(k/2).
TEST(Versions, OfForwardAndBackwardMeetInThePrediction) {
    for (const int n : {2, 3, 4, 7})
        for (const Prediction prediction : {Prediction::SpecTrain, Prediction::PipeOptim}) {
            const VersionTable table = pipedream(WeightPolicy::Latest, n, 5 * n, prediction);
            EXPECT_EQ(table.held, Replicas(static_cast<std::size_t>(n), 1));
            for (int stage = 0; stage < n; ++stage)
                for (int k = n; k < 5 * n; ++k)
                    EXPECT_EQ(table.forward[stage][k] + table.forward_ahead[stage],
                              table.backward[stage][k] + table.backward_ahead[stage]);
        }
}

// A pipeline in which each of P stages runs a forward and a backward in every slot. F of
// micro-batch i is on stage j, from 1, in slot i + j; B begins on the last stage in the slot after its F. A stage is
// updated at the end of the slot with the last B of a mini-batch of N, and its tasks read what is there when their slot
// begins.
class Slots {
public:
    Slots(int stages, int per_update) : stages_(stages), per_update_(per_update) {}
    int forward(int stage, int mb) const { return updates_before(stage, mb + stage); }
    int backward(int stage, int mb) const { return updates_before(stage, slot_of_backward(stage, mb)); }

private:
    int slot_of_backward(int stage, int mb) const { return mb + stages_ + 1 + (stages_ - stage); }
    int updates_before(int stage, int slot) const {
        int updates = 0;
        while (slot_of_backward(stage, (updates + 1) * per_update_ - 1) < slot)
            ++updates;
        return updates;
    }
    int stages_, per_update_;
};

Plan pipemare(int p, int n, int mini_batches, const ScheduleOptions& options = {}) {
    Shape shape = shape_of(schedule_named("pipemare"), p, n * mini_batches);
    shape.per_update = n;
    return make_plan(schedule_named("pipemare"), shape,
                     {.schedule = options, .weights = {}, .prediction = Prediction::PipeMare});
}

// F of stage j is (2(P - j) + 1) / N mini-batches late in the mean, B not at all.
TEST(PipeMare, TasksReadTheVersionsOfItsSlots) {
    for (const int p : {1, 2, 3, 5})
        for (const int n : {1, 2, 3, 8}) {
            const int mini_batches = 2 * p + 4;
            const Plan plan = pipemare(p, n, mini_batches);
            const Slots slots(p, n);
            std::vector<int> late(static_cast<std::size_t>(p), 0);
            for (const TraceEvent& event : simulate(plan, uniform(p, 10, 20, 10)).events) {
                const int stage = event.task.stage + 1, mb = event.task.microbatch;
                if (event.task.op == Op::Forward) {
                    EXPECT_EQ(event.version, slots.forward(stage, mb)) << p << " " << n << " " << print(event.task);
                    if (mb >= n * (mini_batches - 1))
                        late[event.task.stage] += mb / n - event.version;
                } else if (event.task.op == Op::Backward) {
                    EXPECT_EQ(event.version, slots.backward(stage, mb)) << p << " " << n << " " << print(event.task);
                    EXPECT_EQ(event.version, mb / n);
                }
            }
            const VersionTable table = versions_of(plan);
            for (int stage = 1; stage <= p; ++stage) {
                EXPECT_EQ(late[stage - 1], 2 * (p - stage) + 1);
                EXPECT_DOUBLE_EQ(table.delay[stage - 1], (2.0 * (p - stage) + 1) / n);
            }
            EXPECT_EQ(table.back, table.delay);
            EXPECT_EQ(table.held, Replicas(static_cast<std::size_t>(p), 1));
        }
}

// Synchronous steps read the version of their number and correct nothing; then the slots begin.
TEST(PipeMare, BeginsWithSynchronousSteps) {
    for (const int p : {1, 2, 4})
        for (const int n : {1, 3})
            for (const int synchronous : {1, 3, 99}) {
                const Plan plan = pipemare(p, n, 12, {.synchronous_steps = synchronous});
                const int first = std::min(synchronous, 12);
                const Slots slots(p, n);
                const VersionTable table = versions_of(plan);
                for (int stage = 0; stage < p; ++stage)
                    for (int mb = 0; mb < 12 * n; ++mb) {
                        const bool flushed = mb < first * n;
                        const int own = mb - first * n;
                        EXPECT_EQ(table.forward[stage][mb], flushed ? mb / n : first + slots.forward(stage + 1, own));
                        EXPECT_EQ(table.backward[stage][mb], mb / n);
                        const double back = back_of({Op::Backward, stage, mb}, table, plan);
                        EXPECT_EQ(back, own < n ? 0 : table.back[stage]) << p << " " << n << " " << stage << " " << mb;
                        EXPECT_EQ(back_of({Op::Forward, stage, mb}, table, plan), 0);
                    }
            }
}

// A corrected B takes three trips of an update's five, a U eleven: a copy, and three corrections. The average of the
// steps and the corrected weights are a block each.
TEST(PipeMare, CostsTimeAndMemory) {
    Costs costs = uniform(3, 10, 20, 10);
    for (int stage = 0; stage < 3; ++stage) {
        costs.stage[stage].update = 5;
        costs.bytes[stage].weights = 1000;
    }
    const Plan plan = pipemare(3, 2, 8);
    const VersionTable table = versions_of(plan);
    for (const TraceEvent& event : simulate(plan, costs).events) {
        const Ns more = back_of(event.task, table, plan) > 0 ? 3 : 0;
        if (event.task.op == Op::Forward || event.task.op == Op::Backward) {
            EXPECT_EQ(event.end - event.start, event.task.op == Op::Forward ? 10 : 30 + more);
        }
        if (event.task.op == Op::Update) {
            EXPECT_EQ(event.end - event.start, 5 + 11);
        }
    }
    const auto memory = memory_of(plan, buffers_of(plan, costs, table));
    for (int device = 0; device < 3; ++device) {
        const MemoryUse peak = peak_of(memory[device]);
        EXPECT_EQ(peak[static_cast<int>(MemoryKind::Weights)], 1000);
        EXPECT_EQ(peak[static_cast<int>(MemoryKind::Optimizer)], 2000);
        EXPECT_EQ(peak[static_cast<int>(MemoryKind::StashedWeights)], 1000);
    }
}

TEST(Prediction, IsPartOfThePlan) {
    const Plan plain = plan_of("pipedream", 3, 6, 1, with_policy(WeightPolicy::Latest));
    Plan predicted = plain;
    predicted.prediction = Prediction::SpecTrain;
    EXPECT_NE(hash_of(plain), hash_of(predicted));
    EXPECT_EQ(print(plain), print(predicted));
}

// Predicting reads weights and momentum and writes weights: three trips of an update's five.
TEST(Prediction, CostsTimeAndMemory) {
    Costs costs = uniform(3, 10, 20, 10);
    for (int stage = 0; stage < 3; ++stage) {
        costs.stage[stage].update = 5;
        costs.bytes[stage].weights = 1000;
    }
    const Plan plan = plan_of("pipedream", 3, 12, 1, with_policy(WeightPolicy::Latest, Prediction::SpecTrain));
    const Trace trace = simulate(plan, costs);
    const VersionTable table = versions_of(plan);
    for (const TraceEvent& event : trace.events) {
        EXPECT_EQ(event.ahead, ahead_of(event.task, table));
        const Ns more = event.ahead > 0 ? 3 : 0;
        if (event.task.op == Op::Forward || event.task.op == Op::Backward) {
            EXPECT_EQ(event.end - event.start, (event.task.op == Op::Forward ? 10 : 30) + more);
        }
        EXPECT_EQ(event.ahead > 0,
                  (event.task.op == Op::Forward) || (event.task.op == Op::Backward && event.task.stage == 2));
    }
    for (const auto& positions : memory_of(plan, buffers_of(plan, costs, table))) {
        const MemoryUse peak = peak_of(positions);
        EXPECT_EQ(peak[static_cast<int>(MemoryKind::Weights)], 1000);
        EXPECT_EQ(peak[static_cast<int>(MemoryKind::StashedWeights)], 1000);
        EXPECT_EQ(peak[static_cast<int>(MemoryKind::Optimizer)], 1000);
    }
}

TEST(Prediction, IsWrittenToAndReadFromTraces) {
    const TemporaryFolder folder;
    const Plan plan = plan_of("pipedream", 3, 6, 1, with_policy(WeightPolicy::Latest, Prediction::SpecTrain));
    const Trace trace = simulate(plan, uniform(3, 10, 20, 10));
    const std::string path = folder.write("trace.json", "");
    write_trace(trace, path);
    EXPECT_EQ(read_trace(path), trace);
}

// R predicts from the version of its F: that one is held, with its momentum.
TEST(Prediction, OfRecomputedStagesHoldsTheMomentumOfEveryVersion) {
    Costs costs = uniform(3, 10, 20, 10);
    for (StageBytes& bytes : costs.bytes)
        bytes.weights = 1000;
    PlanOptions options = with_policy(WeightPolicy::Latest, Prediction::PipeOptim);
    options.recompute.stages = {0, 1, 2};
    const Plan plan = plan_of("pipedream", 3, 12, 1, options);
    const auto memory = memory_of(plan, buffers_of(plan, costs, versions_of(plan)));
    for (int device = 0; device < 3; ++device) {
        const MemoryUse peak = peak_of(memory[device]);
        EXPECT_EQ(peak[static_cast<int>(MemoryKind::Optimizer)], device == 2 ? 1000 : (3 - device) * 1000);
        EXPECT_EQ(peak[static_cast<int>(MemoryKind::StashedWeights)], device == 2 ? 0 : (2 - device) * 1000 + 1000);
    }
}

Plan from_config(const std::string& pipeline, int steps = 3) {
    const TemporaryFolder folder;
    folder.write("mine.csv", "0F0,0B0\n");
    const int stages = contains(pipeline, "mine.csv") ? 1 : 2;
    const std::string text =
        fmt::format("workload: {{model: uniform, stages: {}}}\npipeline: {{{}}}\n", stages, pipeline);
    return make_plan(load_config(folder.write("cfg.yaml", text), {}), {}, steps);
}

TEST(Config, PredictsWeightsUnderLatestOnly) {
    EXPECT_EQ(from_config("schedule: pipedream, weights: latest, prediction: spectrain").prediction,
              Prediction::SpecTrain);
    EXPECT_EQ(from_config("schedule: pipedream, weights: latest, prediction: pipeoptim").prediction,
              Prediction::PipeOptim);
    EXPECT_EQ(from_config("schedule: pipedream, weights: latest, prediction: none").prediction, Prediction::None);
    for (const char* wrong : {"schedule: pipedream", "schedule: pipedream, weights: stash", "schedule: 1f1b",
                              "schedule: pipedream-2bw, micro_batches: 2", "schedule: mine.csv"})
        expect_says(refusal([&] { from_config(fmt::format("prediction: spectrain, {}", wrong)); }),
                    {"cfg.yaml:2:", "predicts no weights",
                     "pipeline.schedule: pipedream or pipemare and pipeline.weights: latest"});
    expect_says(
        refusal([] {
            from_config(
                "schedule: pipedream, weights: latest, prediction: spectrain, replicas: [2, 1], micro_batches: 2");
        }),
        {"cfg.yaml:2:", "replicas"});
}

TEST(Config, OfReplicasNamesTheNextNumberOfMicroBatchesThatComesOutEven) {
    EXPECT_EQ(from_config("schedule: pipedream, replicas: [2, 1], micro_batches: 4").shape.updates(), 6);
    EXPECT_EQ(from_config("schedule: pipedream, replicas: [2, 1], micro_batches: 1", 4).shape.updates(), 2);
    expect_says(refusal([] { from_config("schedule: pipedream, replicas: [2, 1], micro_batches: 3"); }),
                {"cfg.yaml:2:", "every 2", "set pipeline.micro_batches to 4"});
    expect_says(refusal([] { from_config("schedule: pipedream, replicas: [3, 2], micro_batches: 5", 4); }),
                {"every 6", "set pipeline.micro_batches to 6"});
    expect_says(refusal([] { from_config("schedule: pipedream, replicas: [3, 2], micro_batches: 4", 4); }),
                {"every 6", "set pipeline.micro_batches to 6"});
    EXPECT_EQ(from_config("schedule: pipedream, replicas: [3, 2], micro_batches: 2").shape.updates(), 1);
}

TEST(Tables, SayPolicyDistancesAndVersions) {
    const Plan plan = plan_of("pipedream", 3, 4, 1, with_policy(WeightPolicy::Latest, Prediction::SpecTrain));
    EXPECT_EQ(print(plan, versions_of(plan)),
              "weights: latest, predicted as spectrain does, this many updates ahead:\n\n"
              "stage  versions held  ahead in F  ahead in B\n"
              "    0              1           2           0\n"
              "    1              1           1           0\n"
              "    2              1           1           1\n\n"
              "Version that each micro-batch reads, F/B where they differ:\n\n"
              "micro-batch   0   1   2   3\n"
              "stage     0   0 0/1 0/2 1/3\n"
              "stage     1   0 0/1 1/2 2/3\n"
              "stage     2   0   1   2   3\n");
}

TEST(Tables, EndWhereTheyOnlyGoOn) {
    const auto lines = [](const Plan& plan) {
        const std::string text = print(plan, versions_of(plan));
        for (std::size_t at = 0, end; (end = text.find('\n', at)) != text.npos; at = end + 1)
            EXPECT_LE(end - at, 100u);
        return std::count(text.begin(), text.end(), '\n');
    };
    const Plan endless = plan_of("pipedream", 4, 5000);
    EXPECT_LT(lines(endless), 30);
    EXPECT_TRUE(contains(print(endless, versions_of(endless)),
                         "... and so on, one version more every micro-batch, for all 5000 micro-batches.\n"));
    const Plan turns = plan_with("pipedream", {2, 1}, 500, 0);
    EXPECT_TRUE(contains(print(turns, versions_of(turns)), "one version more every 2 micro-batches"));
    const Plan flushed = plan_of("1f1b", 2, 500);
    EXPECT_TRUE(contains(print(flushed, versions_of(flushed)), "and so on for all 500 micro-batches"));
}

}  // namespace
}  // namespace pw
