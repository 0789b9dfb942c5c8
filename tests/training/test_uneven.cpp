// A mini-batch whose samples the micro-batch size does not divide: its last micro-batch is smaller.
#include "exec/measuring/profile.h"
#include "job/build.h"
#include "job/load.h"
#include "job/plan.h"
#include "schedules/csv/csv.h"
#include "schedules/trace/trace_json.h"
#include "sim/metrics.h"
#include "sim/simulate.h"
#include "tests/support/execution.h"
#include "tests/support/refusal.h"
#include "tests/support/thoroughness.h"

#include <gtest/gtest.h>

#include <random>

namespace pw {
namespace {

using Settings = std::vector<std::string>;

bool takes_uneven(const Schedule& schedule) { return schedule.updates != Updates::PerMicroBatch; }

TEST(MicroBatchSizes, MiniBatchesFollowEachOtherWithoutGaps) {
    const MicroBatchSizes sizes{3, 4, 10};
    EXPECT_FALSE(sizes.is_even());
    EXPECT_EQ(sizes.last(), 1);
    EXPECT_EQ(sizes.different(), (std::vector<int>{1, 3}));
    EXPECT_EQ(print(sizes), "4 micro-batches of 3, the last of 1");
    const std::vector<std::int64_t> firsts{0, 3, 6, 9, 10, 13, 16, 19, 20};
    for (std::size_t mb = 0; mb + 1 < firsts.size(); ++mb) {
        EXPECT_EQ(sizes.first_sample(static_cast<std::int64_t>(mb)), firsts[mb]);
        EXPECT_EQ(sizes.of(static_cast<std::int64_t>(mb)), firsts[mb + 1] - firsts[mb]);
    }
}

TEST(MicroBatchSizes, EveryMiniBatchHasItsSamples) {
    std::mt19937 random(11);
    for (int round = 0; round < 200; ++round) {
        const int full = 1 + static_cast<int>(random() % 9), count = 1 + static_cast<int>(random() % 9);
        const int missing = static_cast<int>(random() % static_cast<unsigned>(full));
        const MicroBatchSizes sizes{full, count, std::int64_t{count} * full - missing};
        EXPECT_EQ(sizes.is_even(), missing == 0);
        std::int64_t sum = 0;
        for (int mb = 0; mb < 3 * count; ++mb) {
            EXPECT_EQ(sizes.first_sample(mb), sum);
            EXPECT_EQ(sizes.of(mb), mb % count == count - 1 ? full - missing : full);
            sum += sizes.of(mb);
        }
        EXPECT_EQ(sum, 3 * sizes.mini_batch);
    }
}

// Prediction

constexpr const char* kUniform = R"(
workload: {model: uniform, forward: 40 us, backward_input: 40 us, backward_weight: 40 us,
           activation: 4 kB, output: 1 kB, weights: 2 kB}
cluster: {devices: 3}
pipeline: {schedule: gpipe, micro_batches: 5, micro_batch_size: 4}
training: {steps: 6}
)";

Config uniform_config(const Settings& set) {
    const TemporaryFolder folder;
    return load_config(folder.write("config.yaml", kUniform), set);
}

Trace predicted(const Config& config) {
    Costs costs = uniform_costs(config);
    ClusterEdit(costs)->link = {config.cluster.link.latency, config.cluster.link.bandwidth};
    Trace trace = simulate(make_plan(config, {}, config.training.steps), costs);
    trace.micro_batches = config.pipeline.micro_batches;
    trace.micro_batch_size = config.pipeline.micro_batch_size;
    trace.mini_batch = config.pipeline.mini_batch;
    return trace;
}

// There are (m + p - 1) slots; the last one is as short as its micro-batch.
TEST(Uneven, GPipeFillsAndDrainsOnce) {
    for (const int devices : {1, 2, 3, 5})
        for (const int last : {1, 2, 3, 4}) {
            const std::int64_t samples = 16 + last;
            const Metrics metrics =
                metrics_of(predicted(uniform_config({"pipeline.drain=fifo", fmt::format("cluster.devices={}", devices),
                                                     fmt::format("pipeline.mini_batch={}", samples)})));
            EXPECT_EQ(metrics.makespan, 120'000 * (5 + devices - 2) + 30'000 * last) << devices << " " << last;
            EXPECT_DOUBLE_EQ(metrics.samples_per_second,
                             static_cast<double>(samples) * 1e9 / static_cast<double>(metrics.makespan));
        }
}

// The last device never idles between two updates once the pipeline is full.
TEST(Uneven, EveryMiniBatchOfAnAsynchronousPlanEndsWithASmallerOne) {
    const Trace trace = predicted(uniform_config(
        {"pipeline.schedule=pipedream-2bw", "pipeline.mini_batch=18", "training.steps=12", "cluster.devices=1"}));
    for (const TraceEvent& event : trace.events)
        if (is_compute(event.task.op)) {
            const Ns full = event.task.op == Op::Forward ? 40'000 : 80'000;
            EXPECT_EQ(event.end - event.start, event.task.microbatch % 5 == 4 ? full / 2 : full) << print(event.task);
        }
    EXPECT_DOUBLE_EQ(metrics_of(trace).samples_per_second, 18 / (4.5 * 120e-6));
}

TEST(Uneven, ASmallerTensorTakesLessTime) {
    const Trace trace = predicted(uniform_config({"pipeline.mini_batch=17", "cluster.link={bandwidth: 1 MB/s}"}));
    int sends = 0;
    for (const TraceEvent& event : trace.events)
        if (is_send(event.task.op)) {
            const Bytes bytes = event.task.microbatch == 4 ? 250 : 1000;
            EXPECT_EQ(event.bytes, bytes) << print(event.task);
            EXPECT_EQ(event.end - event.start, 1000 * bytes) << print(event.task);
            ++sends;
        }
    EXPECT_EQ(sends, 2 * 2 * 5);
}

TEST(Uneven, EvenMiniBatchesHaveUnchangedCosts) {
    const Config config = uniform_config({}), same = uniform_config({"pipeline.mini_batch=20"});
    EXPECT_EQ(predicted(config), predicted(same));
    EXPECT_TRUE(uniform_costs(same).last.empty());
}

// For a model with layers, at both sizes.
TEST(Uneven, TheLastMicroBatchHasTheCostsOfItsSize) {
    const Execution execution(kMlp, {"pipeline.mini_batch=10", "pipeline.split=[fc2]"});
    const Job job = execution.job();
    const Profile profile = profile_of(job.setup, *job.model);
    const Costs full = costs_of(*job.model, job.split, profile, 3), last = costs_of(*job.model, job.split, profile, 1);
    EXPECT_FALSE(job.costs.interpolated);
    ASSERT_EQ(job.costs.last.size(), 2u);
    for (std::size_t stage = 0; stage < 2; ++stage) {
        EXPECT_EQ(job.costs.stage[stage].backward, full.stage[stage].backward);
        EXPECT_EQ(job.costs.last[stage].backward, last.stage[stage].backward);
        EXPECT_EQ(job.costs.last[stage].forward, last.stage[stage].forward);
        EXPECT_LE(last.stage[stage].forward, full.stage[stage].forward);
        EXPECT_EQ(job.costs.bytes[stage].until_weight, full.bytes[stage].until_weight);
    }
    EXPECT_EQ(job.costs.edges[0].forward, full.edges[0].forward);
    EXPECT_EQ(job.costs.last_edges[0].forward, last.edges[0].forward);
    EXPECT_LT(last.edges[0].forward, full.edges[0].forward);
}

TEST(Uneven, TracesKeepTheSamples) {
    const TemporaryFolder folder;
    const Trace trace = predicted(uniform_config({"pipeline.mini_batch=17"}));
    const std::string file = (folder.path() / "trace.json").string();
    write_trace(trace, file);
    EXPECT_EQ(read_trace(file), trace);
    Trace wrong = trace;
    wrong.mini_batch = 21;
    write_trace(wrong, file);
    expect_says(refusal([&] { read_trace(file); }), {"mini_batch", "not between 17 and 20"});
}

// Refused configs

TEST(Uneven, AMiniBatchOfOneMicroBatchCannotEndWithASmallerOne) {
    const Config config = uniform_config({"pipeline.schedule=pipedream", "pipeline.mini_batch=17"});
    expect_says(refusal([&] { make_plan(config, {}, 1); }),
                {"pipedream updates after every micro-batch", "1 samples instead of 4", "mini_batch: 20"});
    const Config even = uniform_config({"pipeline.schedule=pipedream", "pipeline.mini_batch=20"});
    EXPECT_EQ(make_plan(even, {}, 1).shape.microbatches, 5);
}

TEST(Uneven, APlanInAFileHasItsNumberOfMicroBatches) {
    const TemporaryFolder folder;
    const Execution gpipe(kMlp, {"pipeline.schedule=gpipe", "pipeline.split=[fc2]", "pipeline.mini_batch=11"});
    const std::string plan = folder.write("plan.csv", print_csv(gpipe.job().plan, true));
    const Execution file(kMlp,
                         {"pipeline={schedule: " + plan + ", micro_batch_size: 3, mini_batch: 11, split: [fc2]}"});
    expect_equal(file.run(), gpipe.run(), "plan in a file");
    const std::string config = folder.write("config.yaml", kMlp);
    expect_says(refusal([&] {
                    load_config(config, {"pipeline={schedule: " + plan + ", micro_batch_size: 3, mini_batch: 13}"});
                }),
                {"13 samples are 5 micro-batches of 3, but the plan has 4", "write 10 to 12 samples"});
}

// Execution

Settings on_two_devices(const Schedule& schedule, const Settings& more) {
    return with({"pipeline.schedule=" + std::string(schedule.name), "cluster.devices=2", "pipeline.split=even"}, more);
}

TEST(Uneven, EveryScheduleEqualsItsOracle) {
    OneIn some(3);
    for (const Schedule& schedule : schedules()) {
        if (!takes_uneven(schedule))
            continue;
        for (const Settings& more : {Settings{"pipeline.mini_batch=11"},
                                     Settings{"pipeline.mini_batch=10", "run.backend=cpu", "transfer.receive=deferred"},
                                     Settings{"pipeline.mini_batch=10", "run.backend=emulated"},
                                     Settings{"pipeline.mini_batch=11", "run.backend=cpu", "pipeline.recompute=all"}}) {
            if (!some.picks())
                continue;
            const Execution execution(kMlp, on_two_devices(schedule, more));
            expect_equal(execution.run(), execution.oracle(),
                         fmt::format("{} {}", schedule.name, fmt::join(more, " ")));
        }
    }
}

TEST(Uneven, SchedulesWithOneGroupingGiveTheNumbersOfOneDevice) {
    for (const char* backend : {"run.backend=reference", "run.backend=cpu"}) {
        const RunResult whole = Execution(kMlp, {"cluster.devices=1", "pipeline.mini_batch=11", backend}).run();
        for (const char* name : {"naive", "gpipe", "1f1b", "interleaved", "zb-h1", "zb-v"})
            expect_equal(
                Execution(kMlp, on_two_devices(schedule_named(name), {"pipeline.mini_batch=11", backend})).run(), whole,
                name);
    }
}

// Two tensors of different sizes cross the cut; batch norm uses the statistics of each micro-batch.
TEST(Uneven, AResNetGivesTheNumbersOfOneDevice) {
    const Settings small{"training.steps=1", "pipeline.micro_batches=3", "pipeline.mini_batch=5"};
    const RunResult whole = of_small_resnet(with(small, {"cluster.devices=1"})).run();
    for (const char* more : {"pipeline.schedule=zb-h1", "transfer.receive=deferred"})
        expect_equal(of_small_resnet(with(small, {"cluster.devices=2", "pipeline.split=[layer2.1.conv2]", more})).run(),
                     whole, more);
}

TEST(Uneven, AnEvenMiniBatchIsUnchanged) {
    for (const char* schedule : {"1f1b", "pipedream", "pipedream-2bw"}) {
        const Settings set = on_two_devices(schedule_named(schedule), {});
        expect_equal(Execution(kMlp, with(set, {"pipeline.mini_batch=12"})).run(), Execution(kMlp, set).run(),
                     schedule);
    }
}

// The loss is the mean over the samples, and so are the gradients: sums in another order.
TEST(Uneven, OneLargeMicroBatchGivesNearlyTheSameWeights) {
    const RunResult one =
        Execution(kMlp, {"cluster.devices=1", "pipeline.micro_batches=1", "pipeline.micro_batch_size=10"}).run();
    for (const char* set : {"pipeline={micro_batch_size: 3, mini_batch: 10, split: [fc2]}",
                            "pipeline={micro_batch_size: 4, mini_batch: 10, split: [fc2], schedule: zb-h1}",
                            "pipeline={micro_batch_size: 9, mini_batch: 10, split: [fc2]}"}) {
        const RunResult parts = Execution(kMlp, {set}).run();
        ASSERT_EQ(parts.losses.size(), one.losses.size());
        for (std::size_t step = 0; step < one.losses.size(); ++step) {
            EXPECT_NEAR(parts.losses[step], one.losses[step], 1e-6 * one.losses[step]) << set;
            EXPECT_NEAR(parts.gradient_norms[step], one.gradient_norms[step], 1e-5 * one.gradient_norms[step]) << set;
        }
    }
}

TEST(Uneven, EvaluationAveragesOverTheSamples) {
    const Settings set{"pipeline.mini_batch=10", "cluster.devices=2"};
    const RunResult evaluated = Execution(kMlp, with(set, {"pipeline.schedule=forward-only"})).run();
    const RunResult trained = Execution(kMlp, with(set, {"training.steps=1"})).run();
    EXPECT_EQ(evaluated.losses.front(), trained.losses.front());
}

// The profile has both sizes.
TEST(Uneven, CountedPeakIsThePredictedOneByteForByte) {
    const TemporaryFolder folder;
    const Config config = load_config(folder.write("config.yaml", kMlp), {"cluster.devices=1", "run.backend=cpu"});
    const Profile profile = measure_profile(config, build_model(config), {1, 3}, {});
    for (const char* schedule : {"gpipe", "1f1b", "zb-h1", "pipedream-2bw"})
        for (const char* recompute : {"none", "all"}) {
            const Execution execution(kMlp,
                                      on_two_devices(schedule_named(schedule),
                                                     {"pipeline.mini_batch=10", "run.backend=cpu", "training.steps=2",
                                                      std::string("pipeline.recompute=") + recompute}));
            const Job job = execution.job();
            const Costs costs = costs_of(*job.model, job.split, profile, sizes_of(job.setup.pipeline));
            EXPECT_FALSE(costs.interpolated);
            const auto memory = memory_of(job.plan, buffers_of(job.plan, costs, job.versions));
            const RunResult result = pw::run(job, {});
            for (int device = 0; device < 2; ++device)
                EXPECT_EQ(result.peak[device], peak_of(memory[device])) << schedule << " " << recompute;
        }
}

}  // namespace
}  // namespace pw
