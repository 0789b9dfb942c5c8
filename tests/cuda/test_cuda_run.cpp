// The guarantees of a run on CUDA devices: every schedule, transport and lane mode equals its oracle bit for bit,
// the memory is the predicted one, and errors name the cause. Built twice: for GPUs, and for the host stand-in of
// the toolkit.
#include "exec/cuda/nccl.h"
#include "exec/measuring/profile.h"
#include "job/build.h"
#include "job/load.h"
#include "schedules/plan/plan_graph.h"
#include "tests/support/bidirectional.h"
#include "tests/support/execution.h"
#include "tests/support/many_readers.h"
#include "tests/support/thoroughness.h"
#include "workloads/error.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <ctime>
#include <map>
#include <set>
#include <tuple>

namespace pw {
namespace {

// Batch norm and skips as in ResNet-50, in a tenth of the time.
constexpr const char* kSmallUNet = R"(
workload: {model: unet, image_size: 16, classes: 4, base_channels: 4, levels: 2}
pipeline: {schedule: gpipe, split: even, micro_batches: 2, micro_batch_size: 1}
training: {steps: 2, learning_rate: 0.01, seed: 3}
)";

constexpr const char* kLlama = R"(
workload: {model: llama, sequence_length: 5, vocabulary: 11, embedding: 12, blocks: 2, heads: 3, key_value_heads: 1}
pipeline: {schedule: gpipe, split: even, micro_batches: 4, micro_batch_size: 2}
training: {steps: 3, learning_rate: 0.1, seed: 3}
)";

const std::vector<std::string> kOnCuda = {"run.backend=cuda", "cluster.devices=2"};

std::string said_by(const Execution& execution, ExitCode code) {
    try {
        (void)execution.run();
    } catch (const Error& error) {
        EXPECT_EQ(error.code(), code) << error.what();
        return error.what();
    }
    ADD_FAILURE() << "nothing was refused";
    return "";
}

class Precisions : public testing::TestWithParam<const char*> {
protected:
    std::vector<std::string> set(const std::vector<std::string>& more) const {
        return with(with(kOnCuda, {std::string("training.precision=") + GetParam()}), more);
    }
};

TEST_P(Precisions, EverySchedule) {
    OneIn some(2);
    for (const Schedule& schedule : schedules()) {
        if (!some.picks())
            continue;
        const std::vector<std::string> way =
            set({"pipeline.schedule=" + std::string(schedule.name), "pipeline.split=even", "pipeline.prediction=none"});
        const RunResult oracle = Execution(kMlp, way).oracle();
        expect_equal(Execution(kMlp, way).run(), oracle, std::string(schedule.name));
        expect_equal(Execution(kMlp, with(way, {"run.graph=none"})).run(), oracle, std::string(schedule.name));
    }
}

TEST_P(Precisions, AResNetCutInTheMiddleOfABlock) {
    const std::vector<std::string> small = {"training.steps=1", "pipeline.micro_batches=2",
                                            "pipeline.micro_batch_size=1"};
    const RunResult whole = of_small_resnet(with(set(small), {"cluster.devices=1"})).run();
    const std::vector<std::string> cut = with(set(small), {"pipeline.split=[layer2.1.conv2]"});
    for (const std::vector<std::string>& way : {std::vector<std::string>{"pipeline.schedule=gpipe"},
                                                {"pipeline.schedule=zb-h1"},
                                                {"pipeline.schedule=1f1b", "pipeline.recompute=all"}})
        expect_equal(of_small_resnet(with(cut, way)).run(), whole, fmt::format("{}", fmt::join(way, " ")));
}

TEST_P(Precisions, RecomputedStagesGiveTheSameNumbers) {
    for (const char* schedule : {"gpipe", "1f1b", "zb-v", "pipedream"}) {
        const std::vector<std::string> plain =
            set({std::string("pipeline.schedule=") + schedule, "pipeline.split=even"});
        const RunResult kept = Execution(kMlp, plain).run();
        for (const char* stages : {"all", "[1]"})
            expect_equal(Execution(kMlp, with(plain, {std::string("pipeline.recompute=") + stages})).run(), kept,
                         std::string(schedule) + " " + stages);
    }
}

// Copies run on streams of their own, in pinned memory, also in graphs.
TEST_P(Precisions, OffloadedStagesGiveTheSameNumbers) {
    OneIn some(2);
    for (const char* schedule : {"gpipe", "1f1b", "zb-h1", "interleaved"})
        for (const char* graph : {"none", "task", "step"}) {
            if (!some.picks())
                continue;
            const std::vector<std::string> plain =
                set({std::string("pipeline.schedule=") + schedule, "pipeline.split=even", "pipeline.micro_batches=8",
                     std::string("run.graph=") + graph});
            const RunResult kept = Execution(kMlp, plain).run();
            for (const char* copies : {"in turn", "both ways"})
                expect_equal(
                    Execution(kMlp, with(plain, {"pipeline.offload=all", std::string("transfer.copies=") + copies,
                                                 "cluster.host_link={bandwidth: 10 GB/s}"}))
                        .run(),
                    kept, fmt::format("{} {} {}", schedule, graph, copies));
        }
}

TEST_P(Precisions, OffloadedStatesGiveTheSameNumbers) {
    OneIn some(2);
    for (const char* schedule : {"gpipe", "1f1b", "interleaved"})
        for (const char* graph : {"none", "task", "step"}) {
            if (!some.picks())
                continue;
            const std::vector<std::string> plain =
                set({std::string("pipeline.schedule=") + schedule, "pipeline.split=even", "pipeline.micro_batches=8",
                     "training.optimizer=adamw", "training.steps=4", std::string("run.graph=") + graph});
            const RunResult kept = Execution(kMlp, plain).run();
            for (const char* stages : {"none", "all"})
                expect_equal(Execution(kMlp, with(plain, {"pipeline.offload_states=all",
                                                          std::string("pipeline.offload=") + stages,
                                                          "cluster.host_link={bandwidth: 10 GB/s}"}))
                                 .run(),
                             kept, fmt::format("{} {} {}", schedule, graph, stages));
        }
}

// The smaller micro-batch has kernels and a layout of its own, in the buffers of the others; skips of its size
// cross a cut.
TEST_P(Precisions, ASmallerLastMicroBatch) {
    for (const char* schedule : {"gpipe", "zb-h1", "interleaved", "pipedream-2bw"}) {
        const Execution execution(
            kMlp, set({"pipeline.mini_batch=10", "pipeline.split=even", std::string("pipeline.schedule=") + schedule}));
        expect_equal(execution.run(), execution.oracle(), schedule);
    }
    const std::vector<std::string> skips = set({"pipeline.micro_batch_size=2", "pipeline.mini_batch=3"});
    expect_equal(Execution(kSmallUNet, skips).run(), Execution(kSmallUNet, with(skips, {"cluster.devices=1"})).run(),
                 "unet");
}

// With both rules, and with a stage on two devices.
TEST_P(Precisions, TensorsWithManyReaders) {
    for (const std::vector<std::string>& way :
         {std::vector<std::string>{"cluster.devices=4", "pipeline.split=[block1.add, block3.bn, block5.add]"},
          {"cluster.devices=3", "pipeline.split=[block3, block5]", "pipeline.schedule=zb-h1",
           "transfer.receive=deferred"},
          {"cluster.devices=4", "pipeline.split=[block3]", "pipeline.replicas=[2,2]"},
          {"cluster.devices=2", "pipeline.split=[block3]", "pipeline.schedule=zb-v", "pipeline.replicas=2"}})
        for (const char* rule : {"stage", "layer"}) {
            const Execution execution(kManyReaders, with(set(way), {std::string("run.fan_out_gradients=") + rule}),
                                      model_of_many_readers());
            expect_equal(execution.run(), execution.oracle(), fmt::format("{} {}", rule, fmt::join(way, " ")));
        }
}

TEST_P(Precisions, ALlamaEqualsItsOracle) {
    const RunResult whole = Execution(kLlama, set({"cluster.devices=1", "run.fan_out_gradients=layer"})).run();
    for (const char* way : {"pipeline.schedule=1f1b", "pipeline.schedule=zb-h1", "run.graph=step", "run.graph=none",
                            "pipeline.recompute=all"}) {
        const Execution execution(kLlama, set({way}));
        expect_equal(execution.run(), execution.oracle(), way);
        expect_equal(Execution(kLlama, set({way, "run.fan_out_gradients=layer"})).run(), whole, way);
    }
}

// U takes the statistics of F into the averages, and evaluation reads these; one graph does the same in every step.
TEST_P(Precisions, RunningAveragesOfBatchNorm) {
    const std::vector<std::string> deferred = set({"training.batch_norm=deferred"});
    const TemporaryFolder folder;
    const Execution trained(kSmallUNet, deferred);
    const RunResult run = trained.run({.dump = "", .save = folder.path().string(), .progress = {}});
    expect_equal(run, trained.oracle(), "gpipe");
    expect_equal(Execution(kSmallUNet, with(deferred, {"run.graph=step"})).run(), run, "a graph");
    const Execution evaluation(kSmallUNet, with(deferred, {"pipeline.schedule=forward-only", "training.steps=1",
                                                           "training.initial=" + folder.path().string()}));
    const RunResult evaluated = evaluation.run();
    expect_equal(evaluated, evaluation.oracle(), "evaluation");
    EXPECT_EQ(evaluated.weights_hash, run.weights_hash);
}

INSTANTIATE_TEST_SUITE_P(Cuda, Precisions, testing::Values("fp32", "tf32", "bf16"),
                         [](const auto& tested) { return std::string(tested.param); });

class Lanes : public testing::TestWithParam<std::tuple<const char*, const char*, const char*>> {};

TEST_P(Lanes, EveryScheduleEqualsOneDevice) {
    const auto [transport, communicator, receive] = GetParam();
    const RunResult whole = Execution(kMlp, with(kOnCuda, {"cluster.devices=1"})).run();
    for (const char* schedule : {"gpipe", "1f1b", "interleaved", "zb-v"}) {
        const std::vector<std::string> more = {"cluster.devices=3",
                                               std::string("run.transport=") + transport,
                                               std::string("transfer.communicator=") + communicator,
                                               std::string("transfer.receive=") + receive,
                                               std::string("pipeline.schedule=") + schedule,
                                               "pipeline.split=even"};
        const bool chunks = schedule_named(schedule).chunks > 1;  // 6 stages would be more than the layers
        const Execution execution(kMlp, with(kOnCuda, chunks ? with(more, {"cluster.devices=2"}) : more));
        expect_equal(execution.run(), whole, schedule);
    }
}

INSTANTIATE_TEST_SUITE_P(Cuda, Lanes,
                         testing::Combine(testing::Values("threads", "nccl"),
                                          testing::Values("edge", "direction", "one"),
                                          testing::Values("early", "deferred")),
                         [](const auto& one) {
                             return fmt::format("{}_{}_{}", std::get<0>(one.param), std::get<1>(one.param),
                                                std::get<2>(one.param));
                         });

TEST(CudaRun, EveryWeightPolicy) {
    for (const char* more : {"pipeline.weights=stash", "pipeline.weights=vertical_sync", "pipeline.weights=latest",
                             "training.optimizer=adamw"}) {
        const Execution execution(kMlp, with(kOnCuda, {"pipeline.schedule=pipedream", "cluster.devices=3", more}));
        expect_equal(execution.run(), execution.oracle(), more);
    }
}

TEST(CudaRun, StepsAsGraphs) {
    const RunResult whole = Execution(kMlp, with(kOnCuda, {"cluster.devices=1", "training.steps=4"})).run();
    for (const char* schedule : {"gpipe", "1f1b", "zb-h1", "interleaved"})
        for (const char* communicator : {"edge", "one"}) {
            const Execution execution(
                kMlp, with(kOnCuda, {"run.graph=step", "training.steps=4", "pipeline.split=even",
                                     "pipeline.recompute=[0]", std::string("pipeline.schedule=") + schedule,
                                     std::string("transfer.communicator=") + communicator}));
            const RunResult run = execution.run();
            expect_equal(run, whole, fmt::format("{} {}", schedule, communicator));
            std::map<int, Ns> first;  // by step
            for (const TraceEvent& event : run.trace.events) {
                EXPECT_LE(event.start, event.end) << print(event.task);
                const auto [found, fresh] = first.try_emplace(event.step, event.start);
                found->second = std::min(found->second, event.start);
            }
            for (int step = 1; step < 4; ++step)
                EXPECT_GT(first.at(step), first.at(step - 1)) << schedule;
        }
}

TEST(CudaRun, ASmallerLastMicroBatchOverEveryTransport) {
    const std::vector<std::string> uneven = with(kOnCuda, {"pipeline.mini_batch=11"});
    const RunResult whole = Execution(kMlp, with(uneven, {"cluster.devices=1"})).run();
    for (const char* way : {"run.graph=step", "run.transport=nccl", "transfer.receive=deferred"})
        expect_equal(Execution(kMlp, with(uneven, {"pipeline.split=even", "pipeline.schedule=1f1b", way})).run(), whole,
                     way);
}

// Holders wait for each other on the GPU; for a norm of all gradients all devices do.
TEST_P(Precisions, ReplicasAndClippingEqualTheirOracle) {
    for (const char* replicas : {"[2]", "[2, 1]", "[1, 2]"})
        for (const char* clip : {"0", "0.5"})
            for (const char* graph : {"none", "task", "step"}) {
                const int devices = std::string(replicas) == "[2]" ? 2 : 3;
                const Execution execution(
                    kMlp, set({"pipeline.schedule=1f1b", "pipeline.split=even", "pipeline.micro_batches=5",
                               fmt::format("cluster.devices={}", devices), std::string("pipeline.replicas=") + replicas,
                               std::string("training.clip_norm=") + clip, std::string("run.graph=") + graph}));
                expect_equal(execution.run(), execution.oracle(), fmt::format("{} {} {}", replicas, clip, graph));
            }
}

// Holders of a stage in opposite directions: they meet for its sum, each with another stage of its own.
TEST_P(Precisions, TwoDirectionsEqualTheirOracle) {
    for (const int devices : {2, 4})
        for (const char* more : {"run.graph=none", "run.graph=task", "run.graph=step", "transfer.receive=deferred",
                                 "run.transport=nccl", "training.clip_norm=0.5", "pipeline.recompute=all"}) {
            const Execution execution(kMlp,
                                      set({fmt::format("cluster.devices={}", devices),
                                           fmt::format("pipeline.stages={}", devices), "pipeline.split=even", more}),
                                      kBidirectional);
            expect_equal(execution.run(), execution.oracle(), fmt::format("{} {}", devices, more));
        }
}

TEST(CudaRun, EveryStepOfAGraphDropsOtherValues) {
    const std::vector<std::string> dropping = with(kOnCuda, {"workload.dropout=0.25", "training.steps=4"});
    const RunResult whole = Execution(kMlp, with(dropping, {"cluster.devices=1", "run.graph=none"})).run();
    for (const char* graph : {"run.graph=task", "run.graph=step"})
        expect_equal(Execution(kMlp, with(dropping, {graph, "pipeline.split=even", "pipeline.schedule=1f1b"})).run(),
                     whole, graph);
    expect_equal(Execution(kMlp, with(dropping, {"pipeline.split=even", "pipeline.recompute=all"})).run(), whole,
                 "recomputed");
}

// The number of an update is that of its step, not of the step that was captured.
TEST(CudaRun, EveryStepOfAGraphCountsItsUpdate) {
    const std::vector<std::string> adamw = with(
        kOnCuda, {"training.optimizer=adamw", "training.steps=5", "pipeline.split=even", "pipeline.schedule=1f1b"});
    const Execution queued(kMlp, with(adamw, {"run.graph=none"}));
    const RunResult each = queued.run();
    expect_equal(each, queued.oracle(), "queued");
    for (const char* graph : {"run.graph=task", "run.graph=step"})
        expect_equal(Execution(kMlp, with(adamw, {graph})).run(), each, graph);
}

TEST(CudaRun, ImpossibleGraphsAreRefused) {
    for (const char* graph : {"run.graph=task", "run.graph=step"})
        EXPECT_NE(said_by(Execution(kMlp, with(kOnCuda, {graph, "pipeline.schedule=pipedream"})), ExitCode::BadInput)
                      .find("no steps that repeat"),
                  std::string::npos)
            << graph;
    EXPECT_NE(said_by(Execution(kMlp, with(kOnCuda, {"run.graph=step", "run.transport=nccl"})), ExitCode::BadInput)
                  .find("transport nccl"),
              std::string::npos);
}

// The numbers of another backend, up to rounding.
TEST(CudaRun, LossesAreThoseOfTheReference) {
    for (const char* yaml : {kMlp, kLlama}) {
        const std::vector<double> expected = Execution(yaml, {"run.backend=reference"}).run().losses;
        for (const auto& [precision, tolerance] : std::map<std::string, double>{{"fp32", 1e-4}, {"bf16", 3e-2}}) {
            const std::vector<double> losses =
                Execution(yaml, with(kOnCuda, {"training.precision=" + precision})).run().losses;
            ASSERT_EQ(losses.size(), expected.size());
            for (std::size_t step = 0; step < losses.size(); ++step)
                EXPECT_NEAR(losses[step], expected[step], tolerance * expected[step]) << precision << " step " << step;
        }
    }
}

TEST(CudaRun, TasksFollowTheListAndTheirInputs) {
    const Execution execution(kMlp, with(kOnCuda, {"cluster.devices=3", "pipeline.schedule=1f1b"}));
    const Job job = execution.job();
    const PlanGraph graph(job.plan);
    const RunResult run = execution.run();
    std::map<int, std::vector<TraceEvent>> by_step;
    for (const TraceEvent& event : run.trace.events)
        by_step[event.step].push_back(event);
    for (const auto& [step, events] : by_step) {
        ASSERT_EQ(static_cast<int>(events.size()), graph.size());
        for (int node = 0; node < graph.size(); ++node) {
            const TraceEvent& event = events[static_cast<std::size_t>(node)];  // by device, then in list order
            EXPECT_EQ(event.task, graph.task(node));
            EXPECT_LE(event.start, event.end);
            if (is_recv(event.task.op))  // a RECV starts with its SEND
                continue;
            for (const int input : graph.inputs(node))
                EXPECT_LE(events[static_cast<std::size_t>(input)].end, event.start)
                    << print(event.task) << " after " << print(graph.task(input));
        }
    }
}

TEST(CudaRun, CountedPeakIsThePredictedOne) {
    TemporaryFolder folder;
    const Config config = load_config(folder.write("config.yaml", kMlp), {"run.backend=cuda", "cluster.devices=1"});
    const Profile profile = measure_profile(config, build_model(config), {3}, {});
    for (const char* schedule : {"gpipe", "1f1b", "zb-h1", "pipedream"})
        for (const auto& [receive, recompute] : std::vector<std::pair<std::string, std::string>>{
                 {"early", "none"}, {"deferred", "none"}, {"early", "all"}, {"deferred", "[1]"}}) {
            const Execution execution(
                kMlp, with(kOnCuda, {std::string("pipeline.schedule=") + schedule, "transfer.receive=" + receive,
                                     "pipeline.recompute=" + recompute}));
            const Job job = execution.job();
            const Costs costs = costs_of(*job.model, job.split, profile, 3);
            const auto memory =
                memory_of(job.plan, buffers_of(job.plan, costs, job.versions, job.setup.transfer.early_receive()));
            const RunResult run = pw::run(job, {});
            for (int device = 0; device < 2; ++device)
                EXPECT_EQ(run.peak[device], peak_of(memory[device])) << schedule << " " << receive << " " << recompute;
        }
}

TEST(CudaRun, ProfileHasATimeForEveryLayer) {
    TemporaryFolder folder;
    const Config config = load_config(folder.write("config.yaml", kMlp), kOnCuda);
    const Model model = build_model(config);
    const Profile profile = measure_profile(config, model, {2, 3}, {});
    EXPECT_EQ(profile.backend, "cuda");
    EXPECT_TRUE(profile.sent_copies);
    EXPECT_GT(profile.link.bandwidth, 0);
    for (const int samples : {2, 3}) {
        Ns forward = 0;  // the time of a layer with few values may be that of its marks
        for (const LayerProfile& layer : profile.layers)
            forward += layer.times.at(samples).forward.median;
        EXPECT_GT(forward, 0) << samples;
    }
    const bool shared = Execution(kMlp, kOnCuda).run().notes.front().find(" of ") != std::string::npos;
    for (const LayerProfile& layer : profile.layers)  // on one GPU they are also measured in parallel with neighbours
        EXPECT_EQ(layer.busy.size(), shared ? 2u : 0u) << layer.name;
}

// The stand-in has 1 GiB of memory and chooses convolutions by running them on the CPU.
TEST(CudaRun, MissingMemoryIsReported) {
#ifdef PIPEWRIGHT_ON_HOST
    const std::string image = "workload.image_size=64";
#else
    const std::string image = "workload.image_size=224";
#endif
    const Execution execution(
        kResNet, with(kOnCuda, {image, "pipeline.schedule=gpipe", "pipeline.micro_batches=16384",
                                "pipeline.micro_batch_size=1", "pipeline.split=[layer3.0]", "training.steps=1"}));
    const std::string said = said_by(execution, ExitCode::RunFailed);
    EXPECT_NE(said.find("(stage "), std::string::npos) << said;
    EXPECT_NE(said.find("cannot reserve"), std::string::npos) << said;
    EXPECT_NE(said.find("are free"), std::string::npos) << said;
}

TEST(CudaRun, SharesThatDoNotFitAreRefused) {
    const std::string said = said_by(Execution(kMlp, with(kOnCuda, {"run.sms=[1024, 64]"})), ExitCode::BadInput);
    EXPECT_NE(said.find("run.sms"), std::string::npos) << said;
    EXPECT_NE(said.find("1024"), std::string::npos) << said;
}

// The wait leaves the core to a late peer that needs the core.
TEST(CudaRun, AMissingPeerIsReportedInTime) {
    const auto time_on_core = [] {
        timespec time{};
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
        return time.tv_sec * Ns{1'000'000'000} + time.tv_nsec;
    };
    const cuda::CurrentGpu first(0);
    const cuda::Communicator lonely(cuda::new_id(), 2, 0, "lonely");
    const Ns before = time_on_core();
    try {
        lonely.wait(300'000'000);
        FAIL() << "connected without a peer";
    } catch (const Error& error) {
        EXPECT_EQ(error.code(), ExitCode::PeerSilent) << error.what();
    }
    EXPECT_LT(time_on_core() - before, 100'000'000);
}

TEST(CudaRun, UnequalSharesEqualTheirOracle) {
    const Execution execution(kMlp, with(kOnCuda, {"run.sms=[16, 64]", "pipeline.schedule=1f1b"}));
    expect_equal(execution.run(), execution.oracle(), "shares");
}

TEST(CudaRun, NotesNameTheDevices) {
    const RunResult run = Execution(kMlp, kOnCuda).run();
    ASSERT_GE(run.notes.size(), 4u);  // two devices, a GPU or two
    EXPECT_NE(run.notes.front().find("device 0: "), std::string::npos) << run.notes.front();
    const auto has_graph_note = [](const RunResult& of) { return of.notes.back().find("graph") != std::string::npos; };
    EXPECT_TRUE(has_graph_note(run));
    EXPECT_FALSE(has_graph_note(Execution(kMlp, with(kOnCuda, {"run.graph=none"})).run()));
}

}  // namespace
}  // namespace pw
