// Changed images in execution: the same numbers whatever the split, the schedule and the backend.
#include "tests/support/execution.h"

namespace pw {
namespace {

constexpr const char* kAugmented = R"(
workload: {model: mlp, image_size: 8, augment: {crop_padding: 2, flip: true}, normalise: {mean: [0.4], std: [0.3]}}
pipeline: {schedule: naive, micro_batches: 4, micro_batch_size: 3}
training: {steps: 3, seed: 3}
run: {backend: reference}
)";

// Plain images by --set.
const std::vector<std::string> kPlain = {"workload.augment={}"};

TEST(DataPipeline, DevicesMakeNoDifference) {
    for (const char* backend : {"reference", "cpu"}) {
        const std::string set = fmt::format("run.backend={}", backend);
        const RunResult one = Execution(kAugmented, {set}).run();
        for (const int devices : {2, 3})
            for (const char* schedule : {"gpipe", "1f1b", "zb-h1"}) {
                const Execution split(kAugmented, {set, fmt::format("pipeline.stages={}", devices),
                                                   fmt::format("pipeline.schedule={}", schedule)});
                const RunResult run = split.run();
                const std::string what = fmt::format("{} {} on {}", backend, schedule, devices);
                expect_equal(run, split.oracle(), what);
                EXPECT_EQ(run.losses[0], one.losses[0]) << what;  // before gradients are added up in another order
            }
    }
}

TEST(DataPipeline, NaiveSplitsHaveTheWeightsOfOneDevice) {
    const RunResult one = Execution(kAugmented, {}).run();
    for (const int devices : {2, 3})
        expect_equal(Execution(kAugmented, {fmt::format("pipeline.stages={}", devices)}).run(), one,
                     fmt::format("{} devices", devices));
}

TEST(DataPipeline, BackendsReadTheSameImages) {
    for (const char* workload : {"mlp, image_size: 8", "mlp, dataset: cifar10"}) {
        const std::vector<std::string> set = {
            fmt::format("workload={{model: {}, augment: {{crop_padding: 4, flip: true}}}}", workload),
            "pipeline.micro_batches=2", "training.steps=1"};
        const RunResult cpu = Execution(kAugmented, with(set, {"run.backend=cpu"})).run();
        const RunResult reference = Execution(kAugmented, set).run();
        EXPECT_NEAR(cpu.losses[0], reference.losses[0], 1e-4 * reference.losses[0]) << workload;
    }
}

TEST(DataPipeline, ChangesReachTheModel) {
    const RunResult changed = Execution(kAugmented, {}).run();
    EXPECT_NE(changed.weights_hash, Execution(kAugmented, kPlain).run().weights_hash);
    EXPECT_NE(changed.weights_hash, Execution(kAugmented, {"workload.augment.flip=false"}).run().weights_hash);
    EXPECT_NE(changed.weights_hash, Execution(kAugmented, {"workload.normalise.std=[0.31]"}).run().weights_hash);
    EXPECT_NE(changed.weights_hash, Execution(kAugmented, {"training.seed=4"}).run().weights_hash);
    EXPECT_EQ(changed.weights_hash, Execution(kAugmented, {}).run().weights_hash);
}

TEST(DataPipeline, EvaluationShowsWholeImages) {
    const std::string evaluate = "pipeline.schedule=forward-only";
    const RunResult changed = Execution(kAugmented, {evaluate}).run();
    EXPECT_EQ(changed.losses, Execution(kAugmented, with(kPlain, {evaluate})).run().losses);
}

}  // namespace
}  // namespace pw
