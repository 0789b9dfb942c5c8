// Configs that outside oracles found wrong answers for (the folder `core` of the public data). Each README has the
// right value and how it is known: a count by hand, another simulator, an integer program, or PyTorch.
#include "tests/support/public_inputs.h"
#include "tests/support/refusal.h"
#include "workloads/units.h"

namespace pw {
namespace {

class CoreCases : public PublicFolder {
protected:
    Json simulated(const std::string& arguments) const { return run_well("simulate --json " + arguments).json(); }

    // The step of a plan of `auto`, and its span: no bound may exceed them.
    Ns step_of_auto(const std::string& arguments) const {
        const Json json = simulated(arguments);
        const Ns step = json.at("step_time_ns");
        EXPECT_LE(json.at("order").at("least_step_ns").get<Ns>(), step) << arguments;
        EXPECT_LE(json.at("order").at("least_span_ns").get<Ns>(), json.at("span_ns").get<Ns>()) << arguments;
        return step;
    }
};

#define NEED_CASE(name) PIPEWRIGHT_NEED_FOLDER("core/" name)

TEST_F(CoreCases, TheLengthOfTheOnlyMicroBatch) {
    NEED_CASE("01-one-micro-batch-length");
    EXPECT_EQ(simulated("one.yaml").at("step_time_ns"), 6'018'000);
}

TEST_F(CoreCases, DispatchDoesNotDependOnLengths) {
    NEED_CASE("02-bound-dispatch-lengths");
    EXPECT_LE(step_of_auto("bound.yaml"), 660'000);
    EXPECT_LE(step_of_auto("bound.yaml --set 'pipeline.micro_batch_lengths=[1, 1, 1, 1]'"), 260'000);
    step_of_auto("bound.yaml --set 'pipeline.micro_batch_lengths=[0.25, 1, 1, 4]'");
}

TEST_F(CoreCases, ASpanHasNoUpdates) {
    NEED_CASE("03-span-bound-updates");
    step_of_auto("mlp.yaml");
    step_of_auto("span.yaml");
    step_of_auto(
        "span.yaml --set cluster.devices=2 --set 'workload.forward=[100 us, 1 us]' "
        "--set pipeline.micro_batches=6");
}

TEST_F(CoreCases, ReplayKnowsTheDispatcher) {
    NEED_CASE("04-replay-forgets-dispatcher");
    run_well("simulate shared.yaml --trace predicted.json");
    const Json replay = run_well("compare predicted.json --replay --json").json();
    EXPECT_EQ(replay.at("step_time_ns"), 520'000);
    EXPECT_EQ(replay.at("replayed_ns"), 520'000);
}

TEST_F(CoreCases, EveryMessageHasItsLength) {
    NEED_CASE("05-bound-messages-of-first");
    EXPECT_LE(step_of_auto("first.yaml"), 416'000);
    EXPECT_LE(step_of_auto("first.yaml --set pipeline.activations=2"), 351'000);
    EXPECT_LE(step_of_auto("first.yaml --set 'pipeline.micro_batch_lengths=[0.1, 0.1, 0.1, 1]'"), 403'000);
}

TEST_F(CoreCases, EveryMicroBatchHoldsItsLength) {
    NEED_CASE("06-memory-of-longest");
    EXPECT_EQ(step_of_auto("half.yaml"), 125'000);
    EXPECT_EQ(simulated("shorter.yaml").at("step_time_ns"), 500'000);
    EXPECT_LE(step_of_auto("long.yaml"), 500'000);
}

TEST_F(CoreCases, DualPipeIdlesMoreWhereForwardsAreLonger) {
    NEED_CASE("07-dualpipe-bound");
    for (const Json& device : simulated("bound.yaml").at("devices"))
        EXPECT_EQ(device.at("idle_ns"), 156'000);
    EXPECT_TRUE(contains(run_well("list schedules").out, "when F,W<=I")) << "the condition of the bound";
}

TEST_F(CoreCases, SearchOfAClusterKnowsThePlan) {
    NEED_CASE("08-clusters-one-rank-chunks");
    const double plan = simulated("plan.yaml").at("step_time_ns").get<double>();
    EXPECT_NEAR(plan, 8.513e6, 5e3);  // 8.394 ms in the case, before rings had steps within hosts
    EXPECT_LE(run_well("search search.yaml --json").json().at("objective_ns").get<double>(), plan);
}

TEST_F(CoreCases, TheLastBucketDoesNotWaitForTheList) {
    NEED_CASE("09-bucket-waits-for-list");
    EXPECT_EQ(simulated("last.yaml").at("step_time_ns"), 4'310'000);
}

TEST_F(CoreCases, ScheduleOfPyTorchWithReductions) {
    NEED_CASE("10-pytorch-1f1b-reduce-grad");
    run_well("validate torch-1f1b.csv");
}

TEST_F(CoreCases, PairsShortenOrders) {
    NEED_CASE("11-auto-ignores-pairs");
    EXPECT_LE(step_of_auto("pairs.yaml --set pipeline.schedule=auto-bidirectional --set pipeline.activations=100"),
              30'000);
    EXPECT_LE(step_of_auto("pairs.yaml --set workload.stages=8 --set pipeline.schedule=auto-v "
                           "--set pipeline.activations=100"),
              60'000);
}

TEST_F(CoreCases, BoundsAreRoundedAsTasksAre) {
    NEED_CASE("12-bounds-by-rounding");
    step_of_auto("speed.yaml");
}

TEST_F(CoreCases, BalancedStagesDoNotKeepWaits) {
    NEED_CASE("13-balanced-keeps-waits");
    run_well("simulate uneven.yaml --trace t.json");
    EXPECT_TRUE(contains(run_well("compare t.json --replay --explain").out, "2.176 ms"));
}

}  // namespace
}  // namespace pw
