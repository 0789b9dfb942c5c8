// What the replicas of a stage divide (training.zero): which plans take it, and where refusals point.
#include "job/config/config.h"
#include "job/job.h"
#include "schedules/plan/gradient_sums.h"
#include "tests/support/config_text.h"
#include "tests/support/refusal.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace pw {
namespace {

constexpr const char* kTwoReplicas = R"(
workload: {model: mlp}
cluster: {devices: 4}
pipeline: {stages: 2, replicas: 2, micro_batches: 8}
training: {optimizer: adamw}
)";

Job job_with(const std::vector<std::string>& set) {
    Notices notices;
    return make_job(pw::load(kTwoReplicas, set), notices);
}

std::string refusal_with(std::vector<std::string> set, const std::string& zero = "training.zero=2") {
    set.push_back(zero);
    return refusal([&] { job_with(set); });
}

}  // namespace

TEST(Zero, IsForReplicasThatRunTheSamePassesTogether) {
    for (const char* zero : {"training.zero=2", "training.zero=3"})
        for (const std::vector<std::string>& set : {std::vector<std::string>{},
                                                    {"pipeline.replicas=[2,2]"},
                                                    {"pipeline.schedule=zb-h1"},
                                                    {"pipeline.schedule=interleaved", "pipeline.stages=4"}}) {
            std::vector<std::string> with = set;
            with.emplace_back(zero);
            EXPECT_EQ(job_with(with).costs.zero, zero[14] - '0');
        }
    expect_says(refusal_with({"pipeline.replicas=[3,1]"}), {"stage 0 is on 3 devices, stage 1 on 1", "zero: 1"});
    expect_says(refusal_with({"pipeline.micro_batches=7"}), {"7 micro-batches are not the same number"});
    expect_says(refusal_with({"pipeline.schedule=pipedream"}), {"schedule pipedream updates without a flush"});
    for (const std::vector<std::string>& set :
         {std::vector<std::string>{"pipeline.replicas=1", "pipeline.stages=4"}, {"pipeline.replicas=2"}}) {
        std::vector<std::string> with = set;
        with.emplace_back("pipeline.schedule=chimera");
        expect_says(refusal_with(with), {"run theirs at other times in schedule chimera"});
    }
    expect_says(refusal_with({}, "training.zero=4"), {"training.zero"});
}

TEST(Zero, IsAlsoWrittenAsAShardedOptimizer) {
    EXPECT_EQ(job_with({"training.shard_optimizer=true"}).costs.zero, 1);
    EXPECT_EQ(job_with({"training.shard_optimizer=true", "training.zero=3"}).costs.zero, 3);
    EXPECT_EQ(job_with({"training.shard_optimizer=false"}).costs.zero, 0);
}

// Replicas add to the gradients that they keep: three replicas to a third each with ZeRO-2 and 3.
TEST(Zero, DividesTheTimeOfAccumulation) {
    const Job job = job_with({"cluster.devices=6", "pipeline.replicas=3"});
    for (const auto& [zero, accumulate] : {std::pair{0, 100}, {1, 100}, {2, 34}, {3, 34}}) {
        Costs costs = job.costs;
        costs.zero = zero;
        costs.stage[0].accumulate = 100;
        add_gradient_sums(costs, job.plan.shape, {}, SumAlgorithm::Ring);
        EXPECT_EQ(costs.stage[0].accumulate, accumulate) << zero;
    }
}

}  // namespace pw
