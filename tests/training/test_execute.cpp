// The guarantees of a run: the same numbers for every split, schedule and number of devices, the oracle's numbers,
// and the predicted memory.
#include "exec/backends.h"
#include "exec/engine/machine.h"
#include "exec/measuring/profile.h"
#include "schedules/trace/trace_json.h"
#include "tests/support/predicted_memory.h"
#include "tests/support/refusal.h"
#include "tests/support/thoroughness.h"
#include "workloads/error.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <map>

namespace pw {
namespace {

// The cut is inside a residual block, where two tensors cross.
TEST(ResNet50, SameNumbersOnTwoDevices) {
    const RunResult whole = Execution(kResNet, {"cluster.devices=1"}).run();
    EXPECT_EQ(whole.losses.size(), 2u);
    expect_equal(
        Execution(kResNet, {"cluster.devices=2", "pipeline.schedule=1f1b", "pipeline.split=[layer2.1.conv2]"}).run(),
        whole, "1f1b");
}

// The cuts are between blocks, and inside one.
TEST(ResNet, SameNumbersForEverySplitScheduleAndNumberOfDevices) {
    const RunResult whole = of_small_resnet({"cluster.devices=1"}).run();
    for (const char* schedule : {"naive", "gpipe", "1f1b"})
        for (const char* cut : {"layer3.0", "layer2.1.conv2", "layer4.0.downsample.0"}) {
            const std::vector<std::string> set{"cluster.devices=2", std::string("pipeline.schedule=") + schedule,
                                               std::string("pipeline.split=[") + cut + "]"};
            expect_equal(of_small_resnet(set).run(), whole, std::string(schedule) + " cut at " + cut);
        }
    for (const char* schedule : {"gpipe", "1f1b"})
        expect_equal(of_small_resnet({"cluster.devices=1", std::string("pipeline.schedule=") + schedule}).run(), whole,
                     schedule);
}

// Two tensors cross each cut of a block, and the readers of a landing buffer are F, I and W.
TEST(Emulated, ModelsWithBlocksCutInTheMiddle) {
    for (const char* schedule : {"1f1b", "zb-h1", "pipedream-2bw"})
        for (const char* receive : {"early", "deferred"}) {
            const Execution execution = of_small_resnet(
                {"run.backend=emulated", "training.steps=1", "cluster.devices=3", "pipeline.micro_batches=4",
                 std::string("pipeline.schedule=") + schedule, std::string("transfer.receive=") + receive,
                 "pipeline.split=[layer2.1.conv2, layer3.0.conv3]"});
            expect_equal(execution.run(), execution.oracle(), std::string(schedule) + " " + receive);
        }
}

TEST(ResNet, PipeDreamEqualsItsOracle) {
    for (const char* cut : {"layer3.0", "layer2.1.conv2"}) {
        const Execution execution = of_small_resnet(
            {"cluster.devices=2", "pipeline.schedule=pipedream", std::string("pipeline.split=[") + cut + "]"});
        const RunResult run = execution.run();
        EXPECT_EQ(run.losses.size(), 16u);
        expect_equal(run, execution.oracle(), cut);
    }
}

std::vector<std::string> on_two_devices(const Schedule& schedule) {
    return {"pipeline.schedule=" + std::string(schedule.name), "cluster.devices=2", "pipeline.split=even"};
}

TEST(Mlp, EveryScheduleEqualsItsOracle) {
    for (const Schedule& schedule : schedules())
        for (const char* more : {"transfer.receive=early", "transfer.receive=deferred", "training.optimizer=adamw"}) {
            const Execution execution(kMlp, with(on_two_devices(schedule), {more}));
            expect_equal(execution.run(), execution.oracle(), std::string(schedule.name) + " " + more);
        }
}

// The same numbers as stages that keep the saved data of F, and as the oracle, which recomputes nothing.
TEST(Mlp, RecomputedStagesGiveTheSameNumbers) {
    for (const Schedule& schedule : schedules()) {
        const RunResult kept = Execution(kMlp, on_two_devices(schedule)).run();
        for (const auto& [stages, receive] :
             std::map<std::string, std::string>{{"all", "early"}, {"[0]", "deferred"}}) {
            const Execution execution(
                kMlp, with(on_two_devices(schedule), {"pipeline.recompute=" + stages, "transfer.receive=" + receive}));
            expect_equal(execution.run(), kept, fmt::format("{} {} {}", schedule.name, stages, receive));
        }
        const Execution all(kMlp, with(on_two_devices(schedule), {"pipeline.recompute=all"}));
        expect_equal(all.oracle(), kept, fmt::format("oracle of {}", schedule.name));
    }
}

TEST(ResNet, RecomputedStagesGiveTheSameNumbers) {
    for (const char* schedule : {"1f1b", "zb-h1", "pipedream"}) {
        const std::vector<std::string> set{"cluster.devices=2", "training.steps=1", "pipeline.micro_batches=4",
                                           std::string("pipeline.schedule=") + schedule,
                                           "pipeline.split=[layer2.1.conv2]"};
        const RunResult kept = of_small_resnet(set).run();
        for (const char* stages : {"all", "[0]"}) {
            const RunResult run = of_small_resnet(with(set, {std::string("pipeline.recompute=") + stages})).run();
            expect_equal(run, kept, fmt::format("{} {}", schedule, stages));
            EXPECT_LT(total(run.peak[0]), total(kept.peak[0])) << schedule << " " << stages;
        }
    }
}

TEST(Mlp, EveryWeightPolicyEqualsItsOracle) {
    std::map<std::string, std::string> hash;
    for (const char* policy : {"stash", "vertical_sync", "latest"})
        for (const char* backend : {"reference", "emulated"}) {
            const Execution execution(
                kMlp, {"pipeline.schedule=pipedream", "cluster.devices=3", std::string("pipeline.weights=") + policy,
                       std::string("run.backend=") + backend});
            const RunResult run = execution.run();
            expect_equal(run, execution.oracle(), std::string(policy) + " " + backend);
            const Execution again(
                kMlp, {"pipeline.schedule=pipedream", "cluster.devices=3", std::string("pipeline.weights=") + policy,
                       std::string("run.backend=") + backend, "pipeline.recompute=all"});
            expect_equal(again.run(), run, std::string(policy) + " " + backend + " recomputed");
            EXPECT_TRUE(hash.try_emplace(run.weights_hash, policy).second) << policy << " " << backend;
        }
}

TEST(Mlp, UnevenSplitsEqualTheirOracles) {
    for (const char* schedule : {"naive", "gpipe", "1f1b", "eager-1f1b", "zb-h1", "zb-h2", "pipedream"})
        for (const char* split : {"[fc2, fc3]", "[relu1, fc2, loss]"}) {
            const Execution execution(
                kMlp, {"pipeline.schedule=" + std::string(schedule), std::string("pipeline.split=") + split});
            expect_equal(execution.run(), execution.oracle(), std::string(schedule) + " " + split);
        }
}

// Schedules that add up gradients in micro-batch order in every stage.
TEST(Mlp, OneGroupingGivesTheNumbersOfOneDevice) {
    for (const char* optimizer : {"training.optimizer=sgd", "training.optimizer=adamw"}) {
        const RunResult whole = Execution(kMlp, {"cluster.devices=1", optimizer}).run();
        for (const char* name : {"naive", "gpipe", "1f1b", "eager-1f1b", "interleaved", "zb-h1", "zb-h2", "zb1p",
                                 "zb-v", "v-half", "v-min", "hanayo"})
            for (const char* communicator : {"edge", "direction", "one"}) {
                const std::string lanes = std::string("transfer.communicator=") + communicator;
                expect_equal(Execution(kMlp, with(on_two_devices(schedule_named(name)), {lanes, optimizer})).run(),
                             whole, fmt::format("{} {} {}", name, communicator, optimizer));
            }
    }
}

TEST(Mlp, EvaluationDoesNotChangeTheWeights) {
    const RunResult run = Execution(kMlp, {"pipeline.schedule=forward-only", "cluster.devices=2"}).run();
    const RunResult trained = Execution(kMlp, {"training.steps=1", "cluster.devices=2"}).run();
    const RunResult still = Execution(kMlp, {"training.learning_rate=0", "cluster.devices=2"}).run();
    EXPECT_EQ(run.losses.size(), 3u);
    EXPECT_EQ(run.losses.front(), trained.losses.front());
    EXPECT_TRUE(run.gradient_norms.empty());
    EXPECT_EQ(run.weights_hash, still.weights_hash);
    for (const MemoryUse& use : run.peak) {
        EXPECT_EQ(use[static_cast<int>(MemoryKind::Gradients)], 0);
        EXPECT_EQ(use[static_cast<int>(MemoryKind::Optimizer)], 0);
    }
}

TEST(Mlp, DrainingInReverseEqualsItsOracleToo) {
    const Execution execution(kMlp, {"pipeline.schedule=gpipe", "pipeline.drain=lifo", "pipeline.split=[fc2]"});
    expect_equal(execution.run(), execution.oracle(), "lifo");
}

TEST(Mlp, SeveralStagesOnOneDevice) {
    const RunResult whole = Execution(kMlp, {"cluster.devices=1"}).run();
    for (const char* schedule : {"naive", "gpipe"})
        expect_equal(Execution(kMlp, {"cluster.devices=1", "pipeline.stages=3", "pipeline.split=[fc2, fc3]",
                                      std::string("pipeline.schedule=") + schedule})
                         .run(),
                     whole, schedule);
}

// In every step every task of the plan has run once, after its inputs.
// The order of the tasks, and their times.
TEST(Mlp, TasksRunInTheOrderOfThePlanAfterTheirInputs) {
    const Execution execution(kMlp, {"pipeline.schedule=1f1b", "pipeline.split=[fc2, fc3]"});
    std::vector<std::vector<Task>> ran(3);
    RunOptions options;
    options.before_task = [&](int device, const Task& task) { ran[device].push_back(task); };
    const Trace trace = execution.run(options).trace;
    for (int device = 0; device < 3; ++device) {
        std::vector<Task> steps;
        for (int step = 0; step < 3; ++step)
            steps.insert(steps.end(), execution.job().plan.order[device].begin(),
                         execution.job().plan.order[device].end());
        EXPECT_EQ(ran[device], steps) << device;
    }
    EXPECT_NO_THROW(check_trace(trace, "the run"));
}

// The samples are compared at each position of every device's list, in every step.
TEST(Mlp, MemoryIsSampledAsItIsPredicted) {
    const Execution execution(kMlp, {"pipeline.schedule=gpipe", "pipeline.split=[fc2]"});
    const Job& job = execution.job();
    const Costs costs = costs_of(*job.model, job.split, measured(execution, 3), 3);
    const auto predicted = memory_of(job.plan, buffers_of(job.plan, costs, job.versions));
    const RunResult run = execution.run();
    for (int device = 0; device < 2; ++device) {
        std::vector<MemoryUse> changes;  // there is a sample where the use changes
        for (int step = 0; step < 3; ++step)
            for (const MemoryUse& use : predicted[device])
                if (changes.empty() || changes.back() != use)
                    changes.push_back(use);
        std::vector<MemoryUse> sampled;
        for (const MemorySample& sample : run.trace.memory)
            if (sample.device == device && (sampled.empty() || sampled.back() != sample.use))
                sampled.push_back(sample.use);
        EXPECT_EQ(sampled, changes) << device;
    }
}

TEST(Memory, CountedPeakIsThePredictedOneByteForByte) {
    const Profile profile = measured(of_small_resnet({"cluster.devices=1"}), 2);
    const auto check = [&](const std::string& schedule, const std::string& cut, const std::string& receive,
                           const std::string& recompute) {
        expect_predicted_memory(
            of_small_resnet({"cluster.devices=2", "pipeline.schedule=" + schedule, "pipeline.split=[" + cut + "]",
                             "training.steps=1", "pipeline.micro_batches=4", "transfer.receive=" + receive,
                             "pipeline.recompute=" + recompute}),
            fmt::format("{} {} {} {}", schedule, cut, receive, recompute), profile);
    };
    for (const char* schedule : {"naive", "gpipe", "1f1b", "zb-h1", "pipedream"})
        check(schedule, "layer2.1.conv2", "early", "none");
    for (const char* schedule : {"gpipe", "1f1b"})
        check(schedule, "layer3.0", "deferred", "none");
    for (const char* schedule : {"1f1b", "zb-h1"})
        check(schedule, "layer2.1.conv2", "early", "all");
    check("gpipe", "layer3.0", "deferred", "[1]");
}

// Tensors are passed by pointer; sums of gradients use the memory bandwidth.
TEST(Mlp, ProfileHasTheCostsOfTransfersAndSums) {
    const Profile profile = measured(kMlp, 3);
    EXPECT_EQ(profile.link.bandwidth, std::numeric_limits<double>::infinity());
    EXPECT_GT(profile.link.latency, 0);
    EXPECT_GT(profile.sums.latency, 0);
    EXPECT_GT(profile.sums.bandwidth, 0);
    EXPECT_GT(profile.dispatch.median, 0);
    EXPECT_TRUE(profile.layers.front().busy.empty());  // one device has no neighbours
    EXPECT_LT(profile.sums.bandwidth, 1e12);
    EXPECT_FALSE(profile.sent_copies);
}

TEST(Mlp, ProfileOfTwoDevicesHasTheirTimesInParallel) {
    if (usable_cores().size() < 2)
        GTEST_SKIP() << "two devices need two cores";
    const Execution execution(kMlp, {"cluster.devices=2"});
    const Job job = execution.job();
    const Profile profile = measure_profile(job.setup, *job.model, {3, 5}, {});
    for (const LayerProfile& layer : profile.layers) {
        ASSERT_EQ(layer.busy.size(), 2u) << layer.name;
        for (const int samples : {3, 5})
            EXPECT_EQ(layer.busy.at(samples).forward.median > 0, layer.times.at(samples).forward.median > 0)
                << layer.name;
    }
    EXPECT_EQ(costs_of(*job.model, job.split, profile, 3).busy.size(), 2u);
    EXPECT_TRUE(profile.notes.empty());
    EXPECT_EQ(profile.neighbours, 1);
    TemporaryFolder folder;
    const std::string path = folder.write("profile.yaml", "");
    write_profile(profile, path);
    EXPECT_EQ(read_profile(path), profile);
}

TEST(Mlp, CountedPeakIsThePredictedOneForEverySchedule) {
    const Profile profile = measured(kMlp, 3);
    OneIn some(5);
    for (const Schedule& schedule : schedules())
        for (const char* receive : {"early", "deferred"})
            for (const char* communicator : {"edge", "one"}) {
                std::vector<std::string> set = on_two_devices(schedule);
                set.push_back("training.steps=1");
                set.push_back(std::string("transfer.receive=") + receive);
                set.push_back(std::string("transfer.communicator=") + communicator);
                for (const char* stages : {"none", "all", "[0]"})
                    if (some.picks())
                        expect_predicted_memory(kMlp, with(set, {std::string("pipeline.recompute=") + stages}),
                                                profile);
            }
}

const std::vector<std::string> kOverALink{"run.transport=link", "cluster.link={bandwidth: 2 MB/s, latency: 1 ms}"};

TEST(Mlp, EveryScheduleEqualsItsOracleOverALink) {
    const Profile profile = measured(kMlp, 3);
    OneIn some(3);
    for (const Schedule& schedule : schedules())
        for (const char* receive : {"early", "deferred"}) {
            if (!some.picks() || schedule.placement.name == kBothDirections.name)
                continue;  // a link emulates no sums
            const std::vector<std::string> set =
                with(on_two_devices(schedule),
                     with(kOverALink, {"cluster.link={bandwidth: 1 GB/s, latency: 20 us}", "training.steps=1",
                                       std::string("transfer.receive=") + receive}));
            const Execution execution(kMlp, set);
            expect_equal(execution.run(), execution.oracle(), std::string(schedule.name) + " " + receive);
            expect_predicted_memory(kMlp, set, profile);
        }
}

TEST(Mlp, ALinkCarriesOneMessageAtATime) {
    const Execution execution(kMlp, with(kOverALink, {"cluster.devices=2", "pipeline.schedule=gpipe",
                                                      "pipeline.split=[fc2]", "training.steps=1"}));
    std::map<Op, Ns> free;
    int messages = 0;
    for (const TraceEvent& event : execution.run().trace.events) {
        const Ns time = event.end - event.start, occupation = event.bytes * 500;  // 2 MB/s
        if (is_send(event.task.op)) {
            EXPECT_GE(time, occupation);
            EXPECT_GE(event.start, free[event.task.op]);
            free[event.task.op] = event.end;
            ++messages;
        }
        if (is_recv(event.task.op)) {
            EXPECT_GE(time, occupation + 1'000'000);
        }
    }
    EXPECT_EQ(messages, 8);
}

TEST(Mlp, ALinkDoesNotCarrySums) {
    const Execution execution(kMlp,
                              with(kOverALink, {"cluster.devices=2", "pipeline.stages=1", "pipeline.replicas=[2]"}));
    expect_says(refusal([&] { execution.run(); }), {"run.transport", "gradients of stage 0", "not emulated"});
    expect_says(refusal([] {
                    Execution(kMlp, {"cluster.devices=2", "run.transport=link"});
                }),
                {"run.transport", "no cluster.link to emulate"});
}

TEST(Training, LossFallsOnTheSyntheticSet) {
    const RunResult run =
        Execution(kMlp, {"training.steps=120", "pipeline.split=[fc2]", "pipeline.schedule=1f1b",
                         "training.learning_rate=0.01", "pipeline.micro_batch_size=8", "run.backend=cpu"})
            .run();
    double first = 0, last = 0;
    for (int step = 0; step < 5; ++step) {
        first += run.losses[step];
        last += run.losses[run.losses.size() - 1 - step];
    }
    EXPECT_LT(last, 0.7 * first);
}

TEST(Failure, AMissingBackendIsReported) {
    const std::vector<BackendRow> rows = backends();
    const auto cuda = std::ranges::find(rows, "cuda", &BackendRow::name);
    ASSERT_NE(cuda, rows.end());
    if (cuda->status == "ready")
        GTEST_SKIP() << "this machine has a GPU";
    const Execution execution(kMlp, {"run.backend=cuda"});
    try {
        (void)execution.run();
        FAIL();
    } catch (const Error& error) {
        const bool installed = cuda->status != "not installed";
        EXPECT_EQ(error.code(), installed ? ExitCode::RunFailed : ExitCode::BadInput);
        const std::string said = error.what();
        EXPECT_NE(said.find(installed ? "run.backend cuda: " + cuda->status : "run.backend cuda is not installed"),
                  std::string::npos)
            << said;
        EXPECT_NE(said.find("cpu, reference or emulated"), std::string::npos) << said;
    }
}

}  // namespace
}  // namespace pw
