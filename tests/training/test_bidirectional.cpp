// Two directions on the same devices, executed: holders serve different micro-batches and sum their gradients.
#include "tests/support/bidirectional.h"
#include "tests/support/execution.h"

#include <gtest/gtest.h>

namespace pw {
namespace {

std::vector<std::string> both_ways(int devices, const std::vector<std::string>& more) {
    return with({"cluster.devices=" + std::to_string(devices), "pipeline.stages=" + std::to_string(devices),
                 "pipeline.split=even"},
                more);
}

TEST(Bidirectional, EqualsItsOracle) {
    for (const int devices : {2, 4})
        for (const char* backend : {"reference", "emulated", "cpu"})
            for (const char* receive : {"early", "deferred"}) {
                const Execution execution(kMlp,
                                          both_ways(devices, {std::string("run.backend=") + backend,
                                                              std::string("transfer.receive=") + receive}),
                                          kBidirectional);
                expect_equal(execution.run(guarded()), execution.oracle(),
                             fmt::format("{} {} {}", devices, backend, receive));
            }
}

// A norm of all gradients is one meeting of all devices; the optimizer's states of a stage are shared out.
TEST(Bidirectional, ClipsAndShardsAsItsOracle) {
    for (const char* set : {"training.clip_norm=0.5", "training.shard_optimizer=true", "pipeline.recompute=all"}) {
        const Execution execution(kMlp, both_ways(4, {set}), kBidirectional);
        expect_equal(execution.run(), execution.oracle(), set);
    }
}

// A table that the first and the last stage share is summed after the sums of the holders.
TEST(Bidirectional, TiesEqualTheirOracle) {
    const Execution execution(kSmallGpt, both_ways(4, {"run.backend=reference"}), kBidirectional);
    ASSERT_FALSE(execution.job().plan.shape.ties.empty());
    expect_equal(execution.run(), execution.oracle(), "gpt");
}

}  // namespace
}  // namespace pw
