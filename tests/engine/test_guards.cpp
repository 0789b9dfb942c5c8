// In no schedule does a task write outside its buffers, or read memory that is no longer its own.
#include "exec/engine/guards.h"
#include "exec/engine/machine.h"
#include "tests/support/execution.h"
#include "tests/support/refusal.h"
#include "tests/support/thoroughness.h"

#include <gtest/gtest.h>

#include <cstring>

namespace pw {
namespace {

// Freed memory is NaN, so that a run that reads it does not have the results of a run without guards.
void expect_same(const Execution& execution, const std::vector<std::string>& set) {
    expect_equal(execution.run(guarded()), execution.run(), fmt::format("{}", fmt::join(set, " ")));
}
void expect_same(const char* yaml, const std::vector<std::string>& set) { expect_same(Execution(yaml, set), set); }

TEST(GuardedRuns, OfAnMlpEqualUnguardedOnesInEverySchedule) {
    OneIn some(3);
    for (const Schedule& schedule : schedules())
        for (const char* backend : {"reference", "cpu"})
            for (const char* receive : {"early", "deferred"})
                for (const char* recompute : {"none", "[0]"})
                    if (some.picks())
                        expect_same(
                            kMlp, {"cluster.devices=2", "pipeline.split=even", "training.steps=2",
                                   fmt::format("pipeline.schedule={}", schedule.name),
                                   fmt::format("run.backend={}", backend), fmt::format("transfer.receive={}", receive),
                                   fmt::format("pipeline.recompute={}", recompute)});
}

TEST(GuardedRuns, OfAGptEqualUnguardedOnes) {
    for (const char* schedule : {"gpipe", "1f1b", "zb-h1", "zb-v", "interleaved"})
        for (const char* backend : {"reference", "cpu"})
            for (const char* recompute : {"none", "all"})
                expect_same(kSmallGpt,
                            {"cluster.devices=2", fmt::format("pipeline.schedule={}", schedule),
                             fmt::format("run.backend={}", backend), fmt::format("pipeline.recompute={}", recompute)});
}

TEST(GuardedRuns, OfAUNetEqualUnguardedOnes) {
    OneIn some(3);
    for (const char* schedule : {"1f1b", "zb-h1", "pipedream"})
        for (const char* backend : {"reference", "cpu"})
            for (const char* receive : {"early", "deferred"})
                if (some.picks())
                    expect_same(kSmallUNet,
                                {"cluster.devices=3", "pipeline.split=[down1.pool, bottom.bn1]",
                                 fmt::format("pipeline.schedule={}", schedule), fmt::format("run.backend={}", backend),
                                 fmt::format("transfer.receive={}", receive)});
}

TEST(GuardedRuns, OfAResNetEqualUnguardedOnes) {
    for (const char* schedule : {"1f1b", "zb-h1"}) {
        const std::vector<std::string> set{"cluster.devices=2",        "pipeline.split=[layer2.1.conv2]",
                                           "pipeline.micro_batches=4", "pipeline.micro_batch_size=1",
                                           "training.steps=1",         fmt::format("pipeline.schedule={}", schedule)};
        expect_same(of_small_resnet(set), set);
    }
}

TEST(GuardedRuns, OfReplicasEqualUnguardedOnes) {
    for (const char* backend : {"reference", "cpu"})
        expect_same(kMlp, {"cluster.devices=3", "pipeline.stages=2", "pipeline.replicas=[2, 1]",
                           "pipeline.schedule=1f1b", fmt::format("run.backend={}", backend)});
}

// Two buffers, one after the other in the same memory, and one for the whole list.
TEST(Guards, NameTheTaskThatWroteOutsideABuffer) {
    Plan plan;
    plan.order = {{{Op::Forward, 0, 0}, {Op::Backward, 0, 0}, {Op::Update, 0, 0}}};
    const std::vector<Buffer> buffers{{BufferUse::UntilInput, MemoryKind::Activations, 128, 0, 0, 0, -1, -1, 0, 0},
                                      {BufferUse::UntilInput, MemoryKind::Activations, 128, 0, 0, 0, -1, -1, 1, 1},
                                      {BufferUse::Weights, MemoryKind::Weights, 64, 0, 0, -1, -1, 0, 0, 2}};
    const Packing packing = Guards::pack(buffers, 1);
    EXPECT_EQ(packing.arena[0], 128 + 64 + 4 * Guards::kBytes);
    const Arena arena(host_memory(packing.arena[0], "test", true));
    const Guards guards(buffers, packing, arena, plan, 0);
    const auto bytes = [&](int buffer) { return arena.address(packing.offset[buffer]); };
    EXPECT_EQ(*bytes(2), std::byte{0});
    std::memset(bytes(0), 1, 128);
    guards.after(0);
    EXPECT_EQ(*bytes(1), std::byte{Guards::kFree});  // the second cannot read values of the first
    bytes(1)[128] = std::byte{1};
    expect_says(refusal([&] { guards.after(1); }, ExitCode::RunFailed), {"0B0 wrote after a buffer of 128"});
    bytes(1)[128] = std::byte{Guards::kFree};
    bytes(2)[-1] = std::byte{1};
    expect_says(refusal([&] { guards.after(2); }, ExitCode::RunFailed), {"0U0 wrote before a buffer of 64"});
}

}  // namespace
}  // namespace pw
