// Runs with stages on several devices: every plan equals its oracle, which first adds up the gradients of each
// holder.
#include "exec/engine/barriers.h"
#include "exec/oracle.h"
#include "exec/training/training.h"
#include "schedules/orders/schedule.h"
#include "schedules/passes/passes.h"
#include "schedules/plan/plan_graph.h"
#include "tests/support/execution.h"
#include "tests/support/thoroughness.h"
#include "workloads/error.h"

#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <random>
#include <thread>

namespace pw {
namespace {

using Replicas = std::vector<int>;

std::vector<std::string> on(const std::string& schedule, const Replicas& replicas,
                            const std::vector<std::string>& more = {}) {
    return with({"pipeline.schedule=" + schedule, "pipeline.split=even",
                 fmt::format("pipeline.replicas=[{}]", fmt::join(replicas, ", "))},
                more);
}

std::string name_of_case(const std::vector<std::string>& set) { return fmt::format("{}", fmt::join(set, " ")); }

void expect_oracle(const char* yaml, const std::vector<std::string>& set) {
    const Execution execution(yaml, set);
    expect_equal(execution.run(), execution.oracle(), name_of_case(set));
}

TEST(ExecutedReplicas, EqualTheirOracleInEverySchedule) {
    OneIn some(3);
    for (const Schedule& schedule : schedules())
        if (schedule.takes_replicas())
            for (const Replicas& replicas :
                 {Replicas{2}, Replicas{3}, Replicas{2, 1}, Replicas{1, 2}, Replicas{3, 1, 2}})
                for (const char* backend : {"reference", "emulated"})
                    if (some.picks())
                        expect_oracle(kMlp,
                                      on(std::string(schedule.name), replicas,
                                         {std::string("run.backend=") + backend, "training.steps=2",
                                          // without a flush the replicas of every stage share them out evenly
                                          fmt::format("pipeline.micro_batches={}", schedule.asynchronous() ? 6 : 5)}));
}

TEST(ExecutedReplicas, EqualTheirOracleForAnySizes) {
    std::mt19937 random(7);
    const auto up_to = [&](unsigned most) { return static_cast<int>(random() % most) + 1; };
    const char* schedules[] = {"naive", "gpipe", "1f1b", "eager-1f1b", "zb-h1", "zb-h2"};
    for (int k = 0; k < 24; ++k) {
        Replicas replicas;
        for (int stage = up_to(3); stage > 0; --stage)
            replicas.push_back(up_to(3));
        expect_oracle(kMlp, on(schedules[random() % 6], replicas,
                               {random() % 2 != 0 ? "run.backend=cpu" : "run.backend=reference",
                                random() % 2 != 0 ? "transfer.receive=early" : "transfer.receive=deferred",
                                random() % 2 != 0 ? "pipeline.recompute=all" : "pipeline.recompute=none",
                                fmt::format("pipeline.micro_batches={}", up_to(7)),
                                fmt::format("pipeline.micro_batch_size={}", up_to(4)), "training.steps=2"}));
    }
}

// Holders without a micro-batch contribute nothing.
TEST(ExecutedReplicas, OfOneMicroBatchGiveTheNumbersOfOneDevice) {
    for (const char* backend : {"reference", "cpu"}) {
        const std::vector<std::string> few = {"pipeline.micro_batches=1", std::string("run.backend=") + backend};
        const RunResult whole = Execution(kMlp, with(few, {"cluster.devices=1"})).run();
        for (const Replicas& replicas : {Replicas{3}, Replicas{3, 1}, Replicas{1, 2}, Replicas{2, 3}})
            for (const char* schedule : {"gpipe", "1f1b", "zb-h1"}) {
                const std::vector<std::string> set = on(schedule, replicas, few);
                expect_equal(Execution(kMlp, set).run(), whole, name_of_case(set));
            }
    }
}

TEST(ExecutedReplicas, OnlyEvaluateWithoutSums) {
    const RunResult alone = Execution(kMlp, {"pipeline.schedule=forward-only", "cluster.devices=1"}).run();
    for (const Replicas& replicas : {Replicas{2}, Replicas{3, 1}, Replicas{1, 2}})
        expect_equal(Execution(kMlp, on("forward-only", replicas)).run(), alone, fmt::format("{}", replicas.size()));
}

TEST(ExecutedReplicas, OfAResNetHaveTheLossesOfTheirOracle) {
    const Execution execution = of_small_resnet({"pipeline.schedule=1f1b", "pipeline.split=[layer3.0]",
                                                 "pipeline.replicas=[2, 1]", "pipeline.micro_batches=4"});
    const RunResult run = execution.run(), oracle = execution.oracle();
    EXPECT_EQ(run.losses, oracle.losses);
    EXPECT_EQ(run.gradient_norms, oracle.gradient_norms);
}

// Every micro-batch is a mini-batch: a plan has many S and U.
Job never_flushed(const Execution& execution, const Schedule& schedule) {
    Job job = execution.job();
    Plan& plan = job.plan;
    plan.asynchronous = true;
    plan.weights = WeightPolicy::Stash;
    plan.shape.per_update = 1;
    plan.order = schedule.orders({plan.shape});
    add_updates(plan);
    add_transfers(plan);
    check(plan);
    job.versions = versions_of(plan);
    job.setup.training.steps = 1;
    return job;
}

TEST(ExecutedReplicas, ThatNeverFlushEqualTheirOracle) {
    for (const Replicas& replicas : {Replicas{2}, Replicas{2, 1}, Replicas{1, 2}, Replicas{3, 2}})
        for (const char* backend : {"reference", "emulated"})
            for (const char* schedule : {"naive", "1f1b"}) {
                const Execution execution(
                    kMlp, on("naive", replicas, {std::string("run.backend=") + backend, "pipeline.micro_batches=7"}));
                const Job job = never_flushed(execution, schedule_named(schedule));
                const RunResult result = run(job, {});
                EXPECT_EQ(result.losses.size(), 7u);
                expect_equal(result, run(oracle_of(job), {}), fmt::format("{} {}", fmt::join(replicas, " "), backend));
            }
}

TEST(ExecutedReplicas, CountThePredictedMemory) {
    for (const char* schedule : {"gpipe", "1f1b", "zb-h1"})
        for (const Replicas& replicas : {Replicas{2, 1}, Replicas{1, 3}}) {
            const Execution execution(
                kMlp, on(schedule, replicas, {"run.backend=emulated", "training.steps=1", "pipeline.micro_batches=5"}));
            const Job job = execution.job();
            const auto memory = memory_of(job.plan, buffers_of(job.plan, job.costs, job.versions));
            const RunResult result = run(job, {});
            for (std::size_t device = 0; device < memory.size(); ++device)
                EXPECT_EQ(result.peak[device], peak_of(memory[device])) << schedule << " device " << device;
        }
}

TEST(ExecutedReplicas, DumpEveryParameterOnce) {
    const TemporaryFolder folder;
    const auto files_of = [&](const std::vector<std::string>& set, const std::string& name) {
        const std::string dump = folder.write(name, "") + ".d";
        RunOptions options;
        options.dump = dump;
        (void)run(Execution(kMlp, set).job(), options);
        std::vector<std::string> files;
        for (const auto& entry : std::filesystem::recursive_directory_iterator(dump))
            files.push_back(std::filesystem::relative(entry.path(), dump).string());
        std::sort(files.begin(), files.end());
        return files;
    };
    EXPECT_EQ(files_of(on("1f1b", {2, 1}), "replicas"), files_of({"cluster.devices=1"}, "alone"));
}

TEST(ExecutedReplicas, WithDifferentWeightsAreReported) {
    const std::vector<NamedTensor> one{{"fc1.weight", {2}, {1, 2}}}, same = one, other{{"fc1.weight", {2}, {1, 3}}};
    EXPECT_EQ(without_copies({one, same, {{"fc2.weight", {1}, {1}}}}).size(), 2u);
    try {
        (void)without_copies({one, other});
        FAIL();
    } catch (const Error& error) {
        EXPECT_STREQ(error.what(), "the copies of fc1.weight differ");
    }
}

TEST(Sums, AddBlocksFromLeftToRight) {
    constexpr Bytes kBytes = 64 * 5;
    constexpr std::size_t kCount = kBytes / sizeof(float);
    std::mt19937 random(3);
    std::normal_distribution<float> normal;
    for (const HostKernels* kernels : {&reference_kernels(), &cpu_kernels()})
        for (const std::size_t many : {1, 2, 3, 7}) {
            std::vector<std::unique_ptr<Memory>> blocks;
            std::vector<const std::byte*> from;
            std::vector<float> sums(kCount, 0);
            for (std::size_t k = 0; k < many; ++k) {
                blocks.push_back(kernels->reserve(kBytes, "block"));
                from.push_back(blocks.back()->data());
                auto* values = reinterpret_cast<float*>(blocks.back()->data());
                for (std::size_t i = 0; i < kCount; ++i) {
                    values[i] = normal(random);
                    sums[i] = k == 0 ? values[i] : sums[i] + values[i];
                }
            }
            std::byte* to = blocks[many / 2]->data();
            const float before = reinterpret_cast<float*>(to)[0];
            kernels->sum(from, 64, kBytes - 64, to);
            EXPECT_EQ(reinterpret_cast<float*>(to)[0], before);
            for (std::size_t i = 16; i < kCount; ++i)
                EXPECT_EQ(reinterpret_cast<float*>(to)[i], sums[i]);
        }
}

struct ThreeHolders {
    static Plan data_parallel() {
        Shape shape;
        shape.devices = 3;
        shape.microbatches = 3;
        shape.placement = placement_of({3});
        return make_plan(schedule_named("gpipe"), shape);
    }
    int sum_of(int device) const { return graph.node(device, 2); }

    const Plan plan = data_parallel();
    const PlanGraph graph{plan};
};

TEST(Barriers, ReleaseAllWhenTheLastArrives) {
    const ThreeHolders on;
    Barriers barriers(on.graph, on.plan.shape, 60'000'000'000);
    std::atomic<int> arrived{0};
    const auto arrive_often = [&](int device) {
        for (int round = 1; round <= 50; ++round) {
            ++arrived;
            barriers.arrive(on.sum_of(device));
            EXPECT_EQ(arrived, 3 * round);
            barriers.arrive(on.sum_of(device));
        }
    };
    std::thread first(arrive_often, 1), second(arrive_often, 2);
    arrive_often(0);
    first.join();
    second.join();
}

TEST(Barriers, NameTheSilentDevice) {
    const ThreeHolders on;
    Barriers barriers(on.graph, on.plan.shape, 20'000'000);
    std::thread other([&] { EXPECT_THROW(barriers.arrive(on.sum_of(2)), Error); });
    try {
        barriers.arrive(on.sum_of(0));
        ADD_FAILURE();
    } catch (const Error& error) {
        EXPECT_EQ(error.code(), ExitCode::PeerSilent);
        EXPECT_NE(std::string(error.what()).find("device 0 has waited at 0S2 for device "), std::string::npos);
        EXPECT_NE(std::string(error.what()).find("1"), std::string::npos) << error.what();
    }
    other.join();
}

TEST(Barriers, ReleaseWaitsWhenADeviceFails) {
    const ThreeHolders on;
    Barriers barriers(on.graph, on.plan.shape, 60'000'000'000);
    std::thread failing([&] { barriers.abort(); });
    EXPECT_THROW(barriers.arrive(on.sum_of(1)), Error);
    failing.join();
    EXPECT_THROW(barriers.arrive(on.sum_of(0)), Error);
}

}  // namespace
}  // namespace pw
