// The running averages of batch norm: F writes the statistics of a micro-batch, U updates the averages in
// micro-batch order, and evaluation reads them.
#include "exec/training/npy.h"
#include "job/build.h"
#include "tests/support/execution.h"
#include "tests/support/layer_laws.h"
#include "tests/support/thoroughness.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

namespace pw {
namespace {

const Layer kNorm = make_layer(LayerKind::BatchNorm, {1, 1, 2}, 1);

class Norms : public testing::TestWithParam<const HostKernels*> {
protected:
    static const HostKernels& kernels() { return *GetParam(); }
    // Scale 1, shift 0, running mean 10 and variance 20.
    static LayerRig rig(int samples) {
        LayerRig made(kernels(), kNorm, samples);
        made.kernel->load({{1}, {0}, {10}, {20}}, made.weights.get(), made.statistics.get());
        return made;
    }
};

TEST_P(Norms, WriteTheMomentsOfTheMicroBatch) {
    LayerRig tested = rig(2);
    tested.kernel->fill_input({1, 2, 3, 6}, tested.inputs[0].get());
    tested.forward();
    EXPECT_FLOAT_EQ(tested.parameters()[2][0], 3);
    EXPECT_FLOAT_EQ(tested.parameters()[3][0], 14.0f / 3);  // unbiased
}

TEST_P(Norms, EvaluateByTheRunningAverages) {
    LayerRig tested = rig(2);
    tested.kernel->load({{3}, {0.5f}, {10}, {20}}, tested.weights.get(), tested.statistics.get());
    tested.kernel->fill_input({1, 2, 3, 6}, tested.inputs[0].get());
    tested.forward(false);
    const auto normal = [](double x) { return static_cast<float>((x - 10) / std::sqrt(20 + 1e-5) * 3 + 0.5); };
    expect_close(tested.plain_output(), {normal(1), normal(2), normal(3), normal(6)}, 1e-6, "output");
    EXPECT_EQ(tested.parameters()[2], std::vector<float>{10});
}

TEST_P(Norms, AverageOneMicroBatchAfterTheOther) {
    LayerRig tested = rig(1);
    const auto averages = averaged(kernels(), tested, false, {{1, 3}, {5, 5}, {0, 4}});  // means 2 5 2, variances 2 0 8
    EXPECT_FLOAT_EQ(averages[0][0], ((10 * 0.9f + 0.2f) * 0.9f + 0.5f) * 0.9f + 0.2f);
    EXPECT_FLOAT_EQ(averages[1][0], ((20 * 0.9f + 0.2f) * 0.9f + 0) * 0.9f + 0.8f);
}

TEST_P(Norms, AverageADeferredMiniBatchAsOne) {
    LayerRig tested = rig(1);
    const auto averages = averaged(kernels(), tested, true, {{1, 3}, {5, 5}, {0, 4}});
    EXPECT_FLOAT_EQ(averages[0][0], 10 * 0.9f + 0.1f * 3);
    EXPECT_FLOAT_EQ(averages[1][0], 20 * 0.9f + 0.1f * 22 / 5);  // 4 + 0 + 4 + 4 + 9 + 1
}

TEST_P(Norms, TakeMicroBatchesOfUnequalSize) {
    LayerRig two = rig(2), one = rig(1);
    for (LayerRig* each : {&two, &one}) {
        each->kernel->fill_input(each == &two ? std::vector<float>{1, 2, 3, 6} : std::vector<float>{4, 8},
                                 each->inputs[0].get());
        each->forward();
    }
    const StatisticsTable table(kernels(), {two.statistics.get(), one.statistics.get()}, {2, 1});
    LayerRig tested = rig(2);
    tested.kernel->gather_statistics(table.of(0, 1, true), tested.statistics.get());
    EXPECT_FLOAT_EQ(tested.parameters()[2][0], 9 + 0.4f);
    EXPECT_FLOAT_EQ(tested.parameters()[3][0], 18 + 0.1f * 34 / 5);  // 9 + 4 + 1 + 4 + 0 + 16
}

// The variance of one value is 0, biased or not.
TEST_P(Norms, TakeMicroBatchesOfOneValue) {
    LayerRig tested(kernels(), make_layer(LayerKind::BatchNorm, {1, 1, 1}, 1), 1);
    tested.kernel->load({{1}, {0}, {10}, {20}}, tested.weights.get(), tested.statistics.get());
    const auto averages = averaged(kernels(), tested, true, {{1}, {2}, {6}});
    EXPECT_FLOAT_EQ(averages[0][0], 9 + 0.3f);
    EXPECT_FLOAT_EQ(averages[1][0], 18 + 0.1f * 14 / 2);  // 4 + 1 + 9
}

// With deferred statistics, m micro-batches count as one with all their samples.
TEST_P(Norms, DoNotDependOnMicroBatchesIfDeferred) {
    const Layer layer = make_layer(LayerKind::BatchNorm, {16, 5, 3}, 16);
    const std::int64_t count = 2 * layer.input.elements();
    for (const int microbatches : {1, 2, 5}) {
        std::vector<std::vector<float>> parts;
        std::vector<float> all;
        for (int mb = 0; mb < microbatches; ++mb) {
            parts.push_back(random_values(count, static_cast<unsigned>(mb + 7), 3));
            all.insert(all.end(), parts.back().begin(), parts.back().end());
        }
        LayerRig split(kernels(), layer, 2), whole(kernels(), layer, 2 * microbatches);
        split.fill(1);
        whole.fill(1);
        const auto expected = averaged(kernels(), whole, false, {all});
        expect_close(averaged(kernels(), split, true, parts), expected, 1e-6, fmt::format("{} parts", microbatches));
    }
}

INSTANTIATE_TEST_SUITE_P(Kernels, Norms,
                         testing::Values(&cpu_kernels(), &reference_kernels(), &reference_kernels_double()),
                         [](const auto& kernels) {
                             return kernels.param == &cpu_kernels()         ? "Cpu"
                                    : kernels.param == &reference_kernels() ? "Reference"
                                                                            : "Double";
                         });

// Two batch norms, one on each side of a cut at conv2; the second follows the first without a ReLU.
Model two_norms() {
    Model model{.name = "norms", .input = {3, 6, 6}, .classes = 10, .layers = {}};
    int last = -1;
    const auto add = [&](const std::string& name, Layer layer) {
        layer.name = name;
        last = add_layer(model.layers, layer, last < 0 ? std::vector<int>{} : std::vector{last});
    };
    add("conv1", make_layer(LayerKind::Convolution, {3, 6, 6}, 8, 3, 1, 1));
    add("bn1", make_layer(LayerKind::BatchNorm, {8, 6, 6}, 8, 1, 1, 0, true));
    add("conv2", make_layer(LayerKind::Convolution, {8, 6, 6}, 16, 3, 2, 1));
    add("bn2", make_layer(LayerKind::BatchNorm, {16, 3, 3}, 16));
    add("pool", make_layer(LayerKind::AveragePool, {16, 3, 3}, 16));
    add("fc", make_layer(LayerKind::Linear, {16, 1, 1}, 10));
    add("loss", make_layer(LayerKind::CrossEntropy, {10, 1, 1}, 1));
    return model;
}

constexpr const char* kNorms = R"(
workload: {model: resnet50, image_size: 32, classes: 10}
pipeline: {schedule: naive, micro_batches: 4, micro_batch_size: 3}
training: {steps: 3, learning_rate: 0.05, seed: 3}
run: {backend: reference}
)";

Execution norms(const std::vector<std::string>& set) { return Execution(kNorms, set, two_norms()); }

std::vector<std::string> scheduled(const Schedule& schedule, const std::string& batch_norm = "per_micro_batch") {
    return {"pipeline.schedule=" + std::string(schedule.name), "cluster.devices=2", "pipeline.split=even",
            "training.batch_norm=" + batch_norm};
}

// Each holder of a stage takes the statistics of all holders, in the order of the micro-batches.
TEST(RunningAverages, OfReplicasEqualTheirOracle) {
    for (const char* schedule : {"gpipe", "1f1b", "zb-h1", "pipedream", "pipedream-2bw"})
        for (const char* replicas : {"[2, 1]", "[1, 3]"})
            for (const char* batch_norm : {"per_micro_batch", "deferred"}) {
                const Execution execution =
                    norms({std::string("pipeline.schedule=") + schedule, std::string("pipeline.replicas=") + replicas,
                           "pipeline.split=even", "pipeline.micro_batches=6",
                           std::string("training.batch_norm=") + batch_norm});
                expect_equal(execution.run(), execution.oracle(),
                             fmt::format("{} {} {}", schedule, replicas, batch_norm));
            }
}

TEST(RunningAverages, EveryScheduleEqualsItsOracle) {
    OneIn some(3);
    for (const Schedule& schedule : schedules())
        for (const char* batch_norm : {"per_micro_batch", "deferred"}) {
            if (!some.picks())
                continue;
            const std::vector<std::string> set = scheduled(schedule, batch_norm);
            const RunResult run = norms(set).run();
            expect_equal(run, norms(set).oracle(), std::string(schedule.name) + " " + batch_norm);
            expect_equal(norms(with(set, {"pipeline.recompute=all"})).run(), run,
                         std::string(schedule.name) + " recomputed " + batch_norm);
        }
}

// With constant weights there is one version, so that the averages show the micro-batches and their order.
TEST(RunningAverages, TakeInAllMicroBatchesInTheirOrder) {
    const std::vector<std::string> still{"training.learning_rate=0"};
    const std::string whole = norms(with(still, {"cluster.devices=1"})).run().weights_hash;
    const std::string seeded = norms(with(still, {"pipeline.schedule=forward-only"})).run().weights_hash;
    EXPECT_NE(whole, seeded);
    for (const Schedule& schedule : schedules())
        if (schedule.name != "forward-only") {
            EXPECT_EQ(norms(with(still, scheduled(schedule))).run().weights_hash, whole) << schedule.name;
        }
}

TEST(RunningAverages, DoNotFollowTheOrderOfTheForwards) {
    for (const char* batch_norm : {"per_micro_batch", "deferred"}) {
        const Execution execution =
            norms({"cluster.devices=1", "pipeline.schedule=gpipe", std::string("training.batch_norm=") + batch_norm});
        Job job = execution.job();
        ASSERT_EQ(job.plan.order[0][3].op, Op::Forward);
        std::swap(job.plan.order[0][0], job.plan.order[0][3]);
        expect_equal(run(job, {}), execution.run(), batch_norm);
    }
}

std::vector<float> saved(const TemporaryFolder& folder, const std::string& name) {
    return read_npy((folder.path() / (name + ".npy")).string());
}

RunOptions saving(const TemporaryFolder& folder) {
    return {.dump = "", .save = folder.path().string(), .progress = {}};
}

// Only for the first batch norm: the input of the second one is normalised per micro-batch.
TEST(RunningAverages, DeferredAreThoseOfOneMicroBatch) {
    const TemporaryFolder split, whole, turns;
    const std::vector<std::string> still{"training.learning_rate=0", "cluster.devices=2", "pipeline.split=[conv2]"};
    (void)norms(with(still, {"training.batch_norm=deferred"})).run(saving(split));
    (void)norms(with(still, {"pipeline.micro_batches=1", "pipeline.micro_batch_size=12"})).run(saving(whole));
    (void)norms(still).run(saving(turns));
    for (const char* name : {"bn1.running_mean", "bn1.running_var"}) {
        expect_close(saved(split, name), saved(whole, name), 1e-6, name);
        EXPECT_GT(relative_error(saved(turns, name), saved(whole, name)), 1e-3) << name;
    }
}

TEST(Evaluation, EqualsItsOracleOnAnyNumberOfDevices) {
    const TemporaryFolder trained;
    (void)norms({}).run(saving(trained));
    const std::vector<std::string> set{"pipeline.schedule=forward-only", "training.initial=" + trained.path().string()};
    for (const char* backend : {"run.backend=reference", "run.backend=cpu"}) {
        const RunResult whole = norms(with(set, {"cluster.devices=1", backend})).run();
        for (const char* devices : {"cluster.devices=2", "cluster.devices=3"}) {
            const Execution execution = norms(with(set, {devices, backend}));
            expect_equal(execution.run(), whole, devices);
            expect_equal(execution.oracle(), whole, devices);
        }
    }
}

// The loss of a micro-batch from saved parameters, layer by layer; batch norm by its formula.
double evaluated(const Model& model, const Dataset& data, const TemporaryFolder& folder, int samples) {
    std::vector<float> values;
    std::vector<int> labels;
    for (int sample = 0; sample < samples; ++sample) {
        std::vector<float> image(static_cast<std::size_t>(model.input.elements()));
        data.read(sample, image);
        values.insert(values.end(), image.begin(), image.end());
        labels.push_back(data.label(sample));
    }
    for (std::size_t number = 0; number < boost::num_vertices(model.layers); ++number) {
        const Layer& layer = model.layers[number];
        std::vector<std::vector<float>> parameters;
        for (const ParameterShape& shape : parameters_of(layer))
            parameters.push_back(saved(folder, shape.name));
        if (layer.kind == LayerKind::BatchNorm) {
            const auto pixels = static_cast<std::size_t>(layer.input.height * layer.input.width);
            for (std::size_t k = 0; k < values.size(); ++k) {
                const std::size_t c = k / pixels % parameters[0].size();
                const float deviation = std::sqrt(parameters[3][c] + 1e-5f);
                values[k] = (values[k] - parameters[2][c]) / deviation * parameters[0][c] + parameters[1][c];
                values[k] = layer.relu ? std::max(values[k], 0.0f) : values[k];
            }
            continue;
        }
        LayerRig rig(reference_kernels(), layer, samples);
        if (!parameters.empty())
            rig.kernel->load(parameters, rig.weights.get(), rig.statistics.get());
        rig.kernel->fill_input(values, rig.inputs[0].get());
        LayerArgs args = rig.args();
        args.labels = labels;
        rig.kernel->forward(args, false);
        if (layer.kind == LayerKind::CrossEntropy)
            return rig.loss() / samples;
        values = rig.plain_output();
    }
    return 0;
}

TEST(Evaluation, IsTheFormulaWithTheSavedAverages) {
    const TemporaryFolder trained;
    const RunResult learnt = norms({}).run(saving(trained));
    const Execution execution = norms({"pipeline.schedule=forward-only", "training.initial=" + trained.path().string(),
                                       "cluster.devices=2", "training.steps=1"});
    const Job job = execution.job();
    const RunResult run = execution.run();
    const double expected = evaluated(*job.model, open_dataset(job.setup, *job.model), trained, 12);
    ASSERT_EQ(run.losses.size(), 1u);
    EXPECT_NEAR(run.losses[0], expected, 1e-5 * expected);
    EXPECT_EQ(run.weights_hash, learnt.weights_hash);
    EXPECT_TRUE(run.gradient_norms.empty());
}

// There is a block per micro-batch, from its F to the U that reads it.
TEST(StatisticsBuffers, LiveFromForwardToUpdate) {
    for (const auto& [schedule, blocks] : {std::pair{"gpipe", 4}, {"1f1b", 4}, {"pipedream", 1}, {"forward-only", 0}}) {
        const Execution execution = norms({"cluster.devices=1", std::string("pipeline.schedule=") + schedule});
        const Job job = execution.job();
        Costs costs;
        costs.bytes.resize(1);
        costs.bytes[0].statistics = 64;
        const auto memory = memory_of(job.plan, buffers_of(job.plan, costs, job.versions, true));
        const MemoryUse peak = peak_of(memory[0]);
        EXPECT_EQ(peak[static_cast<int>(MemoryKind::Weights)], 64) << schedule;
        EXPECT_EQ(peak[static_cast<int>(MemoryKind::Activations)], blocks * 64) << schedule;
        EXPECT_EQ(memory[0].back()[static_cast<int>(MemoryKind::Activations)], blocks * 64) << schedule;  // at U
    }
}

}  // namespace
}  // namespace pw
