// Runs with frozen layers. Every schedule and split gives the numbers of one device. The trained layers move as
// if all layers were trained, and the frozen layers stay. The memory is the predicted memory.
#include "exec/checkpoint/checkpoint.h"
#include "exec/checkpoint/checkpoint_folder.h"
#include "schedules/orders/schedule.h"
#include "tests/support/frozen_models.h"
#include "tests/support/predicted_memory.h"
#include "tests/support/refusal.h"
#include "tests/support/thoroughness.h"
#include "tests/support/whole_model.h"
#include "workloads/models/gpt.h"
#include "workloads/models/llama.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace pw {
namespace {

TEST(Frozen, EveryScheduleEqualsItsOracle) {
    OneIn some(7);
    for (const Schedule& schedule : schedules())
        for (const char* frozen : {"[fc1]", "[fc2]", "[fc3]", "[fc1, fc2]"})
            for (const char* more : {"transfer.receive=deferred", "training.optimizer=adamw", "pipeline.recompute=all",
                                     "training.clip_norm=0.05"}) {
                if (schedule.asynchronous() || !some.picks())
                    continue;
                const Execution execution(kMlp,
                                          {"pipeline.schedule=" + std::string(schedule.name), "cluster.devices=2",
                                           "pipeline.split=even", std::string("workload.frozen=") + frozen, more});
                expect_equal(execution.run(guarded()), execution.oracle(),
                             fmt::format("{} {} {}", schedule.name, frozen, more));
            }
}

TEST(Frozen, EveryModelHasTheNumbersOfOneDevice) {
    OneIn some(17);
    for (const FrozenModels& subject : frozen_models())
        for (const Names& frozen : subject.frozen)
            for (const char* backend : {"run.backend=reference", "run.backend=cpu"}) {
                const Model model = with_frozen(subject.whole, frozen);
                const RunResult whole = Execution(subject.yaml, {"cluster.devices=1", backend}, model).run(guarded());
                for (const char* schedule : {"gpipe", "1f1b", "zb-h1"})
                    for (const char* split : subject.splits)
                        for (const char* recompute : {"none", "all"})
                            if (some.picks())
                                expect_equal(Execution(subject.yaml,
                                                       {"cluster.devices=2", backend,
                                                        std::string("pipeline.schedule=") + schedule,
                                                        std::string("pipeline.split=") + split,
                                                        "pipeline.recompute=" + std::string(recompute)},
                                                       model)
                                                 .run(guarded()),
                                             whole,
                                             fmt::format("{} {} {} {} {} {}", subject.name, fmt::join(frozen, " "),
                                                         backend, schedule, split, recompute));
            }
}

TEST(Frozen, EmulatedRunsEqualTheirOracles) {
    for (const Schedule& schedule : schedules())
        if (!schedule.asynchronous()) {
            const Execution execution(
                kMlp, {"pipeline.schedule=" + std::string(schedule.name), "cluster.devices=2", "pipeline.split=even",
                       "workload.frozen=[fc1, fc2]", "run.backend=emulated"});
            expect_equal(execution.run(), execution.oracle(), std::string(schedule.name));
        }
}

// One step of a run in which all layers are trained has the gradients, updates and averages that a run with frozen
// layers must have: the same weights of trained layers, and the same running averages of all layers, as PyTorch's
// requires_grad = False has in training mode. The frozen parameters are those before the step.
TEST(Frozen, TrainedLayersMoveAsIfAllWereTrained) {
    OneIn some_of(11);
    for (const FrozenModels& subject : frozen_models())
        for (const char* backend : {"run.backend=reference", "run.backend=cpu"}) {
            const Names set{"cluster.devices=2", std::string("pipeline.split=") + subject.splits[0], backend,
                            "training.steps=1", "training.optimizer=adamw"};
            const TemporaryFolder folder;
            RunOptions some, all;
            some.dump = (folder.path() / "some").string();
            all.dump = (folder.path() / "all").string();
            const auto losses = Execution(subject.yaml, set, subject.whole).run(all).losses;
            const Values before = values_in(folder.path() / "all/initial");
            const Values expected = values_in(folder.path() / "all/updated");
            const Values gradients = values_in(folder.path() / "all/gradients");
            for (const Names& frozen : subject.frozen) {
                if (!some_of.picks())
                    continue;
                const Model model = with_frozen(subject.whole, frozen);
                const std::string what = fmt::format("{} {} {}", subject.name, fmt::join(frozen, " "), backend);
                std::filesystem::remove_all(some.dump);
                EXPECT_EQ(Execution(subject.yaml, set, model).run(some).losses, losses) << what;
                const Values found = values_in(folder.path() / "some/updated");
                EXPECT_EQ(values_in(folder.path() / "some/initial"), before) << what;
                ASSERT_EQ(found.size(), expected.size()) << what;
                for (const auto& [name, values] : found)
                    EXPECT_EQ(values, (is_frozen_parameter(model, name) ? before : expected).at(name))
                        << what << " " << name;
                for (const auto& [name, values] : values_in(folder.path() / "some/gradients")) {
                    EXPECT_FALSE(is_frozen_parameter(model, name)) << what << " " << name;
                    EXPECT_EQ(values, gradients.at(name)) << what << " " << name;
                }
            }
        }
}

// Runs `steps` more steps and returns the checkpoint after them.
std::shared_ptr<FoundCheckpoint> after(int steps, Names set, std::shared_ptr<const FoundCheckpoint> from) {
    const TemporaryFolder folder;
    set.push_back(fmt::format("training.steps={}", steps));
    RunOptions options;
    options.checkpoints = std::make_shared<CheckpointFolder>(folder.path(), 1, 9);
    options.resumed = std::move(from);
    (void)Execution(kMlp, set).run(options);
    std::vector<std::string> left_out;
    return std::make_shared<FoundCheckpoint>(find_checkpoint(folder.path(), left_out));
}

Values values_of(const std::vector<NamedTensor>& tensors) {
    Values values;
    for (const NamedTensor& tensor : tensors)
        values[tensor.name] = tensor.values;
    return values;
}

// Three steps are three runs of a step in which all layers are trained, with the frozen layer put back after each. The
// checkpoints of frozen layers have no states, and runs resume from them.
TEST(Frozen, StepsAreThoseOfATrainingWithTheLayerPutBack) {
    for (const std::string frozen : {"fc1", "fc2", "fc3"})
        for (const char* optimizer : {"sgd", "adamw"}) {
            const Names set{"cluster.devices=2", "pipeline.schedule=1f1b",
                            std::string("training.optimizer=") + optimizer};
            const Names some = with(set, {"workload.frozen=[" + frozen + "]"});
            const auto is_put_back = [&](const std::string& name) { return name.starts_with(frozen + "."); };
            const auto initial = after(1, with(set, {"training.learning_rate=0"}), nullptr);
            std::shared_ptr<FoundCheckpoint> all;
            for (int step = 0; step < 3; ++step) {
                all = after(1, set, all);
                for (std::size_t k = 0; k < all->checkpoint.parameters.size(); ++k)
                    if (is_put_back(all->checkpoint.parameters[k].name))
                        all->checkpoint.parameters[k] = initial->checkpoint.parameters[k];
            }
            std::erase_if(all->checkpoint.states, [&](const NamedTensor& state) { return is_put_back(state.name); });
            for (const auto& found : {after(3, some, nullptr), after(1, some, after(2, some, nullptr))}) {
                const std::string what = fmt::format("{} {}", frozen, optimizer);
                EXPECT_EQ(values_of(found->checkpoint.parameters), values_of(all->checkpoint.parameters)) << what;
                EXPECT_EQ(values_of(found->checkpoint.states), values_of(all->checkpoint.states)) << what;
            }
        }
}

// Layers that are trained from a checkpoint on have states of zero, as if their training began there.
TEST(Frozen, LayersAreTrainedFromACheckpointOn) {
    const auto frozen = after(1, {"cluster.devices=2", "workload.frozen=[fc2]"}, nullptr);
    const auto zeroed = std::make_shared<FoundCheckpoint>(*frozen);
    for (const NamedTensor& tensor : frozen->checkpoint.parameters)
        if (tensor.name.starts_with("fc2."))
            zeroed->checkpoint.states.push_back({tensor.name, tensor.shape, std::vector<float>(tensor.values.size())});
    const Names set{"cluster.devices=2"};
    const auto found = after(1, set, frozen);
    EXPECT_EQ(values_of(found->checkpoint.parameters), values_of(after(1, set, zeroed)->checkpoint.parameters));
    EXPECT_NE(values_of(found->checkpoint.parameters).at("fc2.weight"),
              values_of(frozen->checkpoint.parameters).at("fc2.weight"));
}

TEST(Frozen, GradientsAreDerivatives) {
    const GptShape gpt{.sequence_length = 4, .vocabulary = 5, .width = 4, .blocks = 2, .heads = 2};
    for (const Names& frozen : std::vector<Names>{{"wpe"}, {"h.*.ln_*"}, {"wte", "wpe", "h.0", "lm_head"}}) {
        expect_gradients_are_derivatives(with_frozen(build_gpt(gpt), frozen));
        expect_backward_in_two_is_the_backward(with_frozen(build_gpt(gpt), frozen));
    }
}

TEST(Frozen, TakesThePredictedMemory) {
    OneIn some(11);
    for (const FrozenModels& subject : frozen_models()) {
        const Execution whole(subject.yaml, {"cluster.devices=1"}, subject.whole);
        const Profile profile = measured(whole, whole.job().setup.pipeline.micro_batch_size);
        for (const Names& frozen : subject.frozen)
            for (const char* schedule : {"gpipe", "1f1b", "zb-h1"})
                for (const char* split : subject.splits)
                    if (some.picks())
                        expect_predicted_memory(
                            Execution(
                                subject.yaml,
                                {"cluster.devices=2", "training.steps=1", std::string("pipeline.schedule=") + schedule,
                                 std::string("pipeline.split=") + split},
                                with_frozen(subject.whole, frozen)),
                            fmt::format("{} {} {} {}", subject.name, fmt::join(frozen, " "), schedule, split), profile);
    }
}

// By hand, 64 inputs and 10 classes: fc1 has 64 * 128 + 128 numbers, fc2 128 * 96 + 96, fc3 96 * 10 + 10.
TEST(Frozen, HasNoGradientsAndStatesOfFrozenLayers) {
    const RunResult run =
        Execution(kMlp, {"cluster.devices=1", "workload.frozen=[fc1]", "training.optimizer=adamw"}).run();
    const auto bytes = [&](MemoryKind kind) { return run.peak[0][static_cast<std::size_t>(kind)]; };
    const Bytes trained = aligned(4 * (128 * 96 + 96)) + aligned(4 * (96 * 10 + 10));
    EXPECT_EQ(bytes(MemoryKind::Gradients), trained);
    EXPECT_EQ(bytes(MemoryKind::Optimizer), 2 * trained);
    EXPECT_EQ(bytes(MemoryKind::Weights), trained + 4 * (64 * 128 + 128));
}

// A stage without an update averages the statistics of batch norm at the end of the step, so that each block lives from
// its F to the last task of the device. A stage of an evaluation has no blocks.
TEST(Frozen, StatisticsOfForwardsLiveToTheEndOfTheStep) {
    const Model model = with_frozen(small_resnet(), {"conv1", "bn1", "layer1"});
    for (const auto& [schedule, blocks] : {std::pair{"1f1b", 8}, {"gpipe", 8}, {"forward-only", 0}}) {
        const Job job =
            Execution(kResNet,
                      {"cluster.devices=2", "pipeline.split=[layer2]", std::string("pipeline.schedule=") + schedule},
                      model)
                .job();
        ASSERT_EQ(job.plan.shape.forwards_only, std::vector<int>{0});
        Costs costs;
        costs.bytes.resize(2);
        costs.bytes[0].statistics = 64;
        const auto memory = memory_of(job.plan, buffers_of(job.plan, costs, job.versions, true));
        EXPECT_EQ(memory[0].front()[static_cast<int>(MemoryKind::Activations)], blocks > 0 ? 64 : 0) << schedule;
        EXPECT_EQ(memory[0].back()[static_cast<int>(MemoryKind::Activations)], blocks * 64) << schedule;
    }
}

// The holders of a stage sum and update the trained layers only, in one piece, in parts and in buckets.
TEST(Frozen, ReplicasHaveTheNumbersOfTheirOracle) {
    for (const char* frozen : {"[fc1]", "[fc2]", "[fc3]", "[fc1, fc2]"})
        for (const char* replicas : {"[2, 1]", "[1, 3]", "[2, 2]"})
            for (const char* more : {"training.shard_optimizer=false", "training.shard_optimizer=true",
                                     "transfer.sum_bucket=500 B", "training.clip_norm=0.05"}) {
                const Execution execution(
                    kMlp, {"pipeline.schedule=1f1b", std::string("pipeline.replicas=") + replicas,
                           "pipeline.split=even", std::string("workload.frozen=") + frozen, "run.backend=cpu", more});
                expect_equal(execution.run(guarded()), execution.oracle(),
                             fmt::format("{} {} {}", frozen, replicas, more));
            }
}

TEST(Frozen, SmallerLastMicroBatchesAndSlicesEqualTheirOracles) {
    for (const char* schedule : {"gpipe", "zb-h1"}) {
        const Execution execution(kMlp, {std::string("pipeline.schedule=") + schedule, "pipeline.mini_batch=10",
                                         "cluster.devices=2", "pipeline.split=even", "workload.frozen=[fc1]"});
        expect_equal(execution.run(guarded()), execution.oracle(), schedule);
    }
    for (const char* frozen : {"[wpe]", "['h.*.ln_*']", "[h.2, h.3]"}) {
        const Execution execution(kSmallGpt, {"pipeline.slices=3", "pipeline.schedule=seq1f1b", "cluster.devices=2",
                                              "pipeline.split=even", std::string("workload.frozen=") + frozen});
        expect_equal(execution.run(guarded()), execution.oracle(), frozen);
    }
}

TEST(Frozen, IsRefusedWhereItWouldBeWrong) {
    const Execution slices(kSmallGpt, {"pipeline.slices=3", "pipeline.schedule=seq1f1b", "cluster.devices=2",
                                       "pipeline.split=even", "workload.frozen=[wte, lm_head, wpe, h.0]"});
    expect_says(refusal([&] { (void)slices.run(); }),
                {"workload.frozen", "'h.0.attn.core' has no backward", "pipeline.slices: 1"});
    const Names set{"pipeline.split=[layer2.0]", "pipeline.schedule=1f1b", "pipeline.replicas=[2, 1]"};
    const Execution replicas(kResNet, set, with_frozen(small_resnet(), {"conv1", "bn1", "layer1"}));
    expect_says(refusal([&] { (void)replicas.run(); }),
                {"'bn1' of stage 0, which runs forwards only on 2 devices", "give the stage one"});
}

}  // namespace
}  // namespace pw
