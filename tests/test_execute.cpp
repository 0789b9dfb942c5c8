// What an execution guarantees: the same numbers for every split, schedule and number of devices,
// the oracle's numbers, and memory as predicted.
#include "exec/execute.h"
#include "schedules/schedule.h"
#include "tests/temporary_folder.h"

#include <gtest/gtest.h>

#include <map>

namespace pw {
namespace {

constexpr const char* kResNet = R"(
workload: {model: resnet50, image_size: 32, classes: 10}
pipeline: {schedule: naive, micro_batches: 8, micro_batch_size: 2}
training: {steps: 2, learning_rate: 0.001, seed: 3}
)";

constexpr const char* kMlp = R"(
workload: {model: mlp}
pipeline: {schedule: naive, micro_batches: 4, micro_batch_size: 3}
training: {steps: 3, seed: 3}
run: {backend: reference}
)";

class Execution {
public:
    Execution(const char* yaml, const std::vector<std::string>& set)
        : config_(load_config(folder_.write("config.yaml", yaml), set)), model_(build_model(config_)) {}

    Job job() const {
        const Profile profile = analytic_profile(model_, config_.pipeline.micro_batch_size, {});
        Job job{config_, model_, make_split(config_, model_, profile), {}, {}, 1};
        std::vector<Edge> edges;
        for (const Boundary& boundary : boundaries_of(model_.layers, job.split))
            edges.push_back({boundary.from, boundary.to});
        job.plan = make_plan(config_, edges, config_.training.steps);
        job.versions = versions_of(job.plan);
        job.steps = job.plan.asynchronous ? 1 : config_.training.steps;
        return job;
    }

    RunResult run() const { return pw::run(job(), {}); }
    RunResult oracle() const { return pw::run(oracle_of(job()), {}); }

private:
    TemporaryFolder folder_;
    Config config_;
    Model model_;
};

void expect_equal(const RunResult& a, const RunResult& b, const std::string& what) {
    EXPECT_EQ(a.weights_hash, b.weights_hash) << what;
    EXPECT_EQ(a.losses, b.losses) << what;
    EXPECT_EQ(a.gradient_norms, b.gradient_norms) << what;
}

// Between blocks, and inside a residual block, where two tensors cross.
TEST(ResNet50, SameNumbersForEverySplitScheduleAndNumberOfDevices) {
    const RunResult whole = Execution(kResNet, {"cluster.devices=1"}).run();
    EXPECT_EQ(whole.losses.size(), 2u);
    for (const char* schedule : {"naive", "gpipe", "1f1b"})
        for (const char* cut : {"layer3.0", "layer2.1.conv2", "layer4.0.downsample.0"}) {
            const std::vector<std::string> set{"cluster.devices=2", std::string("pipeline.schedule=") + schedule,
                                               std::string("pipeline.split=[") + cut + "]"};
            expect_equal(Execution(kResNet, set).run(), whole, std::string(schedule) + " cut at " + cut);
        }
    for (const char* schedule : {"gpipe", "1f1b"})
        expect_equal(Execution(kResNet, {"cluster.devices=1", std::string("pipeline.schedule=") + schedule}).run(),
                     whole, schedule);
}

TEST(ResNet50, PipeDreamEqualsItsOracle) {
    for (const char* cut : {"layer3.0", "layer2.1.conv2"}) {
        const Execution execution(
            kResNet, {"cluster.devices=2", "pipeline.schedule=pipedream", std::string("pipeline.split=[") + cut + "]"});
        const RunResult run = execution.run();
        EXPECT_EQ(run.losses.size(), 16u);
        expect_equal(run, execution.oracle(), cut);
    }
}

TEST(Mlp, EveryScheduleEqualsItsOracle) {
    for (const Schedule& schedule : schedules())
        for (const char* split : {"[fc2]", "[fc2, fc3]", "[relu1, fc2, loss]"}) {
            const Execution execution(
                kMlp, {"pipeline.schedule=" + std::string(schedule.name), std::string("pipeline.split=") + split});
            expect_equal(execution.run(), execution.oracle(), std::string(schedule.name) + " " + split);
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

// Every task of the plan ran once, after its inputs, on every step.
TEST(Mlp, MeasuredOrderIsThePlans) {
    const Execution execution(kMlp, {"pipeline.schedule=1f1b", "pipeline.split=[fc2, fc3]"});
    const Job job = execution.job();
    const Trace trace = execution.run().trace;
    std::map<std::pair<int, int>, std::vector<Task>> order;  // (step, device)
    for (const TraceEvent& event : trace.events) {
        order[{event.step, event.device}].push_back(event.task);
        EXPECT_LE(event.start, event.end);
    }
    ASSERT_EQ(order.size(), 9u);
    for (const auto& [where, tasks] : order)
        EXPECT_EQ(tasks, job.plan.order[where.second]);
}

TEST(Mlp, SamplesFallTogetherWithTheCounters) {
    const RunResult run = Execution(kMlp, {"pipeline.schedule=gpipe", "pipeline.split=[fc2]"}).run();
    for (int device = 0; device < 2; ++device) {
        Bytes most = 0;
        for (const MemorySample& sample : run.trace.memory)
            if (sample.device == device)
                most = std::max(most, total(sample.use));
        EXPECT_EQ(most, total(run.peak[device]));
        EXPECT_GE(run.arena[device], most);
    }
}

// The prediction uses a profile's byte sizes, the run counts what its allocator lent.
TEST(Memory, CountedPeakIsThePredictedOneByteForByte) {
    for (const char* schedule : {"naive", "gpipe", "1f1b", "pipedream"})
        for (const char* cut : {"layer3.0", "layer2.1.conv2"}) {
            TemporaryFolder folder;
            const Config config = load_config(folder.write("config.yaml", kResNet),
                                              {"cluster.devices=2", std::string("pipeline.schedule=") + schedule,
                                               std::string("pipeline.split=[") + cut + "]", "training.steps=1",
                                               "pipeline.micro_batches=4", "workload.image_size=32"});
            const Model model = build_model(config);
            static const Profile profile = measure_profile(config, model, {2}, {});
            Job job{config, model, make_split(config, model, profile), {}, {}, 1};
            std::vector<Edge> edges;
            for (const Boundary& boundary : boundaries_of(model.layers, job.split))
                edges.push_back({boundary.from, boundary.to});
            job.plan = make_plan(config, edges, 1);
            job.versions = versions_of(job.plan);
            const auto memory =
                memory_of(job.plan, buffers_of(job.plan, costs_of(model, job.split, profile, 2), job.versions));
            const RunResult run = pw::run(job, {});
            for (int device = 0; device < 2; ++device)
                EXPECT_EQ(run.peak[device], peak_of(memory[device])) << schedule << " " << cut << " " << device;
        }
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

TEST(Failure, ABackendThatIsNotBuiltSaysSo) {
    try {
        kernels_named("cuda");
        FAIL();
    } catch (const Error& error) {
        EXPECT_EQ(error.code(), ExitCode::RunFailed);
        EXPECT_STREQ(error.what(), "run.backend cuda: not in this build; use cpu or reference");
    }
}

}  // namespace
}  // namespace pw
