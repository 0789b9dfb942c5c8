// Dropout drops the same elements in every backend, layout, split and schedule.
#include "exec/cpu/layers.h"
#include "tests/support/execution.h"
#include "tests/support/layer_case.h"
#include "workloads/random.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

namespace pw {
namespace {

std::vector<float> dropped(LayerRig rig, std::uint64_t seed, bool save = true) {
    rig.fill(1);
    LayerArgs args = rig.args();
    args.seed = seed;
    rig.kernel->forward(args, save);
    return rig.plain_output();
}

std::int64_t zeros(const std::vector<float>& values) { return std::ranges::count(values, 0.0f); }

TEST(Dropout, DropsItsShareAndScalesTheRest) {
    for (const double probability : {0.1, 0.5, 0.9})
        for (const std::uint64_t seed : {0, 1, 12345}) {
            const Layer layer = dropout({16, 32, 32}, probability);
            const std::vector<float> before = dropped({reference_kernels(), layer, 4}, seed, false);
            const std::vector<float> after = dropped({reference_kernels(), layer, 4}, seed);
            const auto count = static_cast<double>(after.size());
            const double deviation = std::sqrt(count * probability * (1 - probability));
            EXPECT_NEAR(static_cast<double>(zeros(after)), count * probability, 4 * deviation) << probability;
            for (std::size_t i = 0; i < after.size(); ++i) {
                const float scaled = after[i] == 0 ? 0 : before[i] / static_cast<float>(1 - probability);
                ASSERT_FLOAT_EQ(after[i], scaled);
            }
        }
}

// Masks differ between samples, layers, training seeds and sample numbers.
TEST(Dropout, EverySampleOfEveryLayerHasAMaskOfItsOwn) {
    std::set<std::vector<float>> seen;
    const Layer layer = dropout({4, 4, 4}, 0.5);
    for (const char* name : {"dropout1", "dropout2"})
        for (const std::int64_t training : {1, 2})
            for (const std::int64_t number : {0, 1, 2, 100}) {
                const std::uint64_t seed = dropout_seed(name, training, number);
                EXPECT_TRUE(seen.insert(dropped({reference_kernels(), layer, 1}, seed)).second);
            }
}

TEST(Dropout, MasksBelongToSamplesNotToMicroBatches) {
    const Layer layer = dropout({3, 5, 2}, 0.5);
    const auto mask = [&](int samples, std::int64_t first) {
        LayerRig rig(reference_kernels(), layer, samples);
        rig.kernel->fill_input(std::vector<float>(static_cast<std::size_t>(rig.input_elements(0)), 1),
                               rig.inputs[0].get());
        LayerArgs args = rig.args();
        args.seed = dropout_seed("here", 1, first);
        rig.kernel->forward(args, true);
        return rig.plain_output();
    };
    std::vector<float> parts = mask(1, 10);
    for (const float value : mask(3, 11))
        parts.push_back(value);
    EXPECT_EQ(mask(4, 10), parts);
}

TEST(Dropout, EveryLayoutDropsTheSame) {
    for (const std::int64_t per_block : {8, 16})
        for (const int channels : {1, 5, 8, 16, 24, 48})
            for (const Dims& input : {Dims{channels, 1, 1}, Dims{channels, 5, 3}}) {
                const Layer layer = dropout(input, 0.3);
                LayerRig cpu(cpu_kernels(), layer, 3, cpu::make_dropout(layer, 3, per_block));
                LayerRig reference(reference_kernels(), layer, 3);
                for (LayerRig* rig : {&cpu, &reference}) {
                    rig->fill(1);
                    rig->forward();
                    rig->backward();
                }
                EXPECT_EQ(cpu.plain_output(), reference.plain_output()) << channels << " of " << per_block;
                EXPECT_EQ(cpu.plain_input_gradient(0), reference.plain_input_gradient(0)) << channels;
                EXPECT_EQ(zeros(cpu.plain_output()), zeros(cpu.plain_input_gradient(0)));
            }
}

TEST(Dropout, EvaluationDoesNothing) {
    for (const HostKernels* kernels : {&cpu_kernels(), &reference_kernels()}) {
        LayerRig rig(*kernels, dropout({8, 3, 2}, 0.5), 2);
        rig.fill(1);
        rig.forward(false);
        EXPECT_EQ(rig.plain_output(), rig.kernel->read_input(rig.inputs[0].get()));
    }
}

constexpr const char* kDropped = "workload.dropout=0.4";

TEST(DropoutRuns, GiveTheSameNumbersForEverySplitAndSchedule) {
    for (const char* backend : {"run.backend=reference", "run.backend=cpu"}) {
        const RunResult whole = Execution(kMlp, {"cluster.devices=1", kDropped, backend}).run();
        const RunResult plain = Execution(kMlp, {"cluster.devices=1", backend}).run();
        EXPECT_NE(whole.losses, plain.losses);
        for (const char* schedule : {"gpipe", "1f1b", "zb-h1", "interleaved"})
            for (const char* recompute : {"pipeline.recompute=none", "pipeline.recompute=all"}) {
                const Execution execution(kMlp, {"cluster.devices=2", kDropped, backend, recompute,
                                                 "pipeline.split=even", std::string("pipeline.schedule=") + schedule});
                expect_equal(execution.run(), whole, fmt::format("{} {} {}", backend, schedule, recompute));
            }
    }
}

TEST(DropoutRuns, PipeDreamEqualsItsOracle) {
    for (const char* recompute : {"pipeline.recompute=none", "pipeline.recompute=all"}) {
        const Execution execution(kMlp, {"cluster.devices=3", "pipeline.schedule=pipedream", kDropped, recompute});
        expect_equal(execution.run(), execution.oracle(), recompute);
    }
}

TEST(DropoutRuns, EvaluationIsThatOfTheModelWithout) {
    const std::vector<std::string> set{"pipeline.schedule=forward-only", "cluster.devices=2"};
    EXPECT_EQ(Execution(kMlp, with(set, {kDropped})).run().losses, Execution(kMlp, set).run().losses);
}

}  // namespace
}  // namespace pw
