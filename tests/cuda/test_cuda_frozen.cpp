// Frozen layers on CUDA devices: the numbers of one device, the trained layers as if all were trained, and the
// predicted memory. Built twice: for GPUs, and for the host stand-in of the toolkit.
#include "tests/support/frozen_models.h"
#include "tests/support/predicted_memory.h"
#include "tests/support/thoroughness.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace pw {
namespace {

class FrozenOnCuda : public testing::TestWithParam<const char*> {
protected:
    Names set(const Names& more) const {
        return with({"run.backend=cuda", "cluster.devices=2", std::string("training.precision=") + GetParam(),
                     "pipeline.micro_batches=2"},
                    more);
    }
};

TEST_P(FrozenOnCuda, HasTheNumbersOfOneDevice) {
    OneIn some(19);
    for (const FrozenModels& subject : frozen_models())
        for (const Names& frozen : subject.frozen) {
            const Model model = with_frozen(subject.whole, frozen);
            const RunResult whole = Execution(subject.yaml, set({"cluster.devices=1"}), model).run();
            for (const char* schedule : {"gpipe", "1f1b", "zb-h1"})
                for (const char* split : subject.splits)
                    for (const char* more : {"pipeline.recompute=all", "run.graph=none", "run.graph=step"})
                        if (some.picks())
                            expect_equal(Execution(subject.yaml,
                                                   set({std::string("pipeline.schedule=") + schedule,
                                                        std::string("pipeline.split=") + split, more}),
                                                   model)
                                             .run(),
                                         whole,
                                         fmt::format("{} {} {} {} {}", subject.name, fmt::join(frozen, " "), schedule,
                                                     split, more));
        }
}

TEST_P(FrozenOnCuda, MovesTheTrainedLayersAsIfAllWereTrained) {
    OneIn some(2);
    for (const FrozenModels& subject : frozen_models()) {
        const Names one_step = set({"training.steps=1", std::string("pipeline.split=") + subject.splits[0]});
        const TemporaryFolder all;
        RunOptions of_all;
        of_all.dump = (all.path() / "all").string();
        (void)Execution(subject.yaml, one_step, subject.whole).run(of_all);
        const Values before = values_in(all.path() / "all/initial"), after = values_in(all.path() / "all/updated");
        for (const Names& frozen : subject.frozen) {
            if (!some.picks())
                continue;
            const Model model = with_frozen(subject.whole, frozen);
            const TemporaryFolder folder;
            RunOptions of_some;
            of_some.save = folder.path().string();
            (void)Execution(subject.yaml, one_step, model).run(of_some);
            for (const auto& [name, values] : values_in(folder.path()))
                EXPECT_EQ(values, (is_frozen_parameter(model, name) ? before : after).at(name))
                    << subject.name << " " << name << " " << fmt::format("{}", fmt::join(frozen, " "));
        }
    }
}

TEST_P(FrozenOnCuda, TakesThePredictedMemory) {
    OneIn some(3);
    for (const FrozenModels& subject : frozen_models()) {
        const Execution whole(subject.yaml, set({"cluster.devices=1"}), subject.whole);
        const Profile profile = measured(whole, whole.job().setup.pipeline.micro_batch_size);
        for (const Names& frozen : subject.frozen) {
            if (!some.picks())
                continue;
            const Execution execution(subject.yaml,
                                      set({"training.steps=1", "pipeline.schedule=zb-h1",
                                           std::string("pipeline.split=") + subject.splits[1]}),
                                      with_frozen(subject.whole, frozen));
            const Job job = execution.job();
            const Costs costs = costs_of(*job.model, job.split, profile, job.setup.pipeline.micro_batch_size);
            const auto memory =
                memory_of(job.plan, buffers_of(job.plan, costs, job.versions, job.setup.transfer.early_receive()));
            const RunResult run = pw::run(job, {});
            for (int device = 0; device < 2; ++device)
                EXPECT_EQ(run.peak[device], peak_of(memory[device]))
                    << subject.name << " " << fmt::format("{}", fmt::join(frozen, " "));
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Cuda, FrozenOnCuda, testing::Values("fp32", "bf16"),
                         [](const auto& tested) { return std::string(tested.param); });

}  // namespace
}  // namespace pw
