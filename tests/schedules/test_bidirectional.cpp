// Devices that hold the same stages in opposite directions and serve different micro-batches.
#include "schedules/csv/csv.h"
#include "schedules/orders/holding.h"
#include "schedules/passes/passes.h"
#include "schedules/plan/plan_graph.h"
#include "tests/support/bidirectional.h"
#include "tests/support/dice.h"
#include "tests/support/shapes.h"
#include "tests/support/thoroughness.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>

namespace pw {
namespace {

TEST(Bidirectional, PlacementDeterminesTheServerOfEachMicroBatch) {
    const Shape shape = placed(kBidirectional, shape_both_ways(4));
    EXPECT_EQ(shape.placement, (std::vector<std::vector<int>>{{0, 3}, {1, 2}, {1, 2}, {0, 3}}));
    for (int stage = 0; stage < 4; ++stage)
        for (int mb = 0; mb < 4; ++mb)
            EXPECT_EQ(shape.server_of(stage, mb), mb % 2 == 0 ? stage : 3 - stage);
    EXPECT_EQ(Holdings(shape).of(3).microbatches, (std::vector<int>{0, 1, 2, 3}));
    EXPECT_TRUE(Holdings(shape).of(3).serves(0, 1));
    EXPECT_FALSE(Holdings(shape).of(3).serves(0, 2));
}

TEST(Bidirectional, StagesThatDoNotFitAreRefused) {
    Shape shape = shape_both_ways(4);
    shape.stages = 6;
    try {
        (void)placed(kBidirectional, shape);
        FAIL();
    } catch (const Error& error) {
        EXPECT_STREQ(error.what(),
                     "schedule both-ways places two stages, one of each direction, on each device: 6 stages on 4 "
                     "devices do not fit\n  help: set the number of stages to 4");
    }
}

// The last stage ends first in both directions, so its sum does not wait for the end.
TEST(Bidirectional, SumsFollowTheLastBackwardsOfTheirStages) {
    const Plan two = make_plan(kBidirectional, shape_both_ways(2));
    EXPECT_EQ(row_of(two, 0), "0F0 1F1 1B1 0B0 0F2 1F3 1B3 1S3 1U3 0B2 0S3 0U3");
    EXPECT_EQ(row_of(two, 1), "0F1 1F0 1B0 0B1 0F3 1F2 1B2 1S3 1U3 0B3 0S3 0U3");
    const Plan four = make_plan(kBidirectional, shape_both_ways(4));
    EXPECT_EQ(row_of(four, 0), "0F0 0F2 3F1 3B1 3F3 3B3 3S3 3U3 0B0 0B2 0S3 0U3");
    EXPECT_EQ(row_of(four, 1), "1F0 2F1 1F2 2F3 2B1 1B0 2B3 2S3 2U3 1B2 1S3 1U3");
    EXPECT_EQ(row_of(four, 2), "1F1 2F0 1F3 2F2 2B0 1B1 2B2 2S3 2U3 1B3 1S3 1U3");
    EXPECT_EQ(row_of(four, 3), "0F1 0F3 3F0 3B0 3F2 3B2 3S3 3U3 0B1 0B3 0S3 0U3");
}

TEST(Bidirectional, TensorsGoToTheHolderThatServesTheMicroBatch) {
    const Plan plan = make_plan(kBidirectional, shape_both_ways(4));
    const PlanGraph graph(plan);
    const auto inputs = [&](const Task& task) {
        std::string text = fmt::format("{} on {}:", print(task), graph.device_of(graph.find(task)));
        for (const int input : graph.inputs(graph.find(task)))
            text += fmt::format(" {} on {}", print(graph.task(input)), graph.device_of(input));
        return text;
    };
    EXPECT_EQ(inputs({Op::Forward, 1, 0}), "1F0 on 1: 1RECV_F0<0 on 1");
    EXPECT_EQ(inputs({Op::Forward, 1, 1}), "1F1 on 2: 1RECV_F1<0 on 2");
    EXPECT_EQ(inputs({Op::RecvForward, 1, 1, 0, 0}), "1RECV_F1<0 on 2: 0SEND_F1>1 on 3");
    EXPECT_EQ(inputs({Op::Forward, 2, 0}), "2F0 on 2: 2RECV_F0<1 on 2");
    EXPECT_EQ(inputs({Op::Backward, 2, 1}), "2B1 on 1: 2F1 on 1 2RECV_B1<3 on 1");
    EXPECT_EQ(inputs({Op::RecvBackward, 2, 1, 0, 3}), "2RECV_B1<3 on 1: 3SEND_B1>2 on 0");
    // S of stage 3, on device 0: the backwards of both holders, 3B0 and 3B2 on device 3, 3B1 and 3B3 on device 0.
    const auto sum = std::find(plan.order[0].begin(), plan.order[0].end(), Task{Op::SumGradients, 3, 3});
    std::vector<std::string> summed;
    for (const int input : graph.inputs(graph.node(0, static_cast<int>(sum - plan.order[0].begin()))))
        summed.push_back(print(graph.task(input)));
    EXPECT_EQ(summed, (std::vector<std::string>{"3B1", "3B3", "3B0", "3B2"}));
}

TEST(Bidirectional, PlansAreProvenInAllLanes) {
    for (const int devices : {2, 4})
        for (const auto& communicator : kChoices<TransferMode::Communicator>)
            for (const auto& receive : kChoices<TransferMode::Receive>)
                for (const auto& exchange : kChoices<TransferMode::Exchange>) {
                    PlanOptions options;
                    options.transfers.communicator = communicator.value;
                    options.transfers.receive = receive.value;
                    options.transfers.exchange = exchange.value;
                    EXPECT_NO_THROW((void)make_plan(kBidirectional, shape_both_ways(devices), options))
                        << communicator.name << ' ' << receive.name << ' ' << exchange.name;
                }
}

// With transfers in the file and without.
TEST(Bidirectional, PlansAreReadBackFromFiles) {
    for (const int devices : {2, 4})
        for (const bool transfers : {false, true}) {
            const Plan plan = make_plan(kBidirectional, shape_both_ways(devices));
            const CsvPlan read = parse_csv(print_csv(plan, transfers), "plan.csv");
            EXPECT_NO_THROW((void)prove(read, {}));
            for (int device = 0; device < devices; ++device)
                EXPECT_EQ(row_of(read.plan, device), row_of(plan, device)) << transfers;
            for (int stage = 0; stage < devices; ++stage)
                for (int mb = 0; mb < 4; ++mb)
                    EXPECT_EQ(read.plan.shape.server_of(stage, mb), plan.shape.server_of(stage, mb));
        }
}

TEST(Check, NamesTheDeviceThatServesAMicroBatch) {
    Plan plan = make_plan(kBidirectional, shape_both_ways(2));
    plan.shape.serving = {{1, 0}, {1, 0}};
    try {
        check(plan);
        FAIL();
    } catch (const Error& error) {
        EXPECT_STREQ(error.what(),
                     "plan 'both-ways': device 0 step 0: 0F0 belongs on device 1, which serves micro-batch 0 on stage "
                     "0");
    }
}

Plan plan_of_lists(Shape shape, std::vector<Tasks> lists) {
    Plan plan;
    plan.schedule = "lists";
    plan.shape = std::move(shape);
    plan.order = std::move(lists);
    add_updates(plan);
    add_transfers(plan);
    return plan;
}

// Device 0 ends stage 0 first, device 1 ends stage 1 first: each would wait at its S for the other one.
TEST(Sums, HaveOneOrderWhenStagesEndInOppositeOrders) {
    Shape shape = shape_both_ways(2);
    shape.microbatches = 2;
    place_in_both_directions(shape);
    const Plan plan = plan_of_lists(shape, {tasks_in("0F0 1F1 0B0 1B1"), tasks_in("0F1 1F0 1B0 0B1")});
    EXPECT_EQ(row_of(plan, 0), "0F0 1F1 0B0 1B1 1S1 1U1 0S1 0U1");
    EXPECT_EQ(row_of(plan, 1), "0F1 1F0 1B0 1S1 1U1 0B1 0S1 0U1");
    EXPECT_NO_THROW(check(plan));
}

// A device waits at the S of a stage only when no other holder needs more of its tasks: 0F2 on device 0 goes first,
// since device 1 computes gradients of stage 1 from it.
TEST(Sums, FollowTasksThatOtherHoldersNeed) {
    Shape shape = shape_both_ways(2);
    shape.microbatches = 3;
    place_in_both_directions(shape);
    const Plan plan = plan_of_lists(shape, {tasks_in("1F1 1B1 0F0 0B0 0F2 0B2"), tasks_in("0F1 0B1 1F0 1B0 1F2 1B2")});
    EXPECT_EQ(row_of(plan, 0), "1F1 1B1 0F0 0B0 0F2 1S2 1U2 0B2 0S2 0U2");
    EXPECT_EQ(row_of(plan, 1), "0F1 0B1 1F0 1B0 1F2 1B2 1S2 1U2 0S2 0U2");
    EXPECT_NO_THROW(check(plan));
}

// Draws lists that can run: one task after the other, each after its inputs.
class Draw {
public:
    explicit Draw(unsigned seed) : random_(seed) {
        shape_.devices = pick(random_, 2, 4);
        shape_.stages = pick(random_, 2, 4);
        shape_.microbatches = pick(random_, 1, 7);
        for (int stage = 0; stage < shape_.stages; ++stage) {
            std::vector<int> all(static_cast<std::size_t>(shape_.devices));
            std::iota(all.begin(), all.end(), 0);
            std::shuffle(all.begin(), all.end(), random_);
            all.resize(static_cast<std::size_t>(pick(random_, 1, 3) == 1 ? 1 : pick(random_, 1, shape_.devices)));
            std::vector<int>& turns = shape_.serving.emplace_back();
            for (int turn = pick(random_, 1, 5); turn > 0; --turn)
                turns.push_back(all[static_cast<std::size_t>(pick(random_, 0, static_cast<int>(all.size()) - 1))]);
            std::sort(all.begin(), all.end());
            shape_.placement.push_back(all);
        }
        // A device with one stage sums right after its last backward, which random lists of several mini-batches may
        // not allow.
        if (pick(random_, 0, 1) == 0 && std::ranges::all_of(shape_.placement, [&](const std::vector<int>& holders) {
                return holders.size() == 1 ||
                       std::ranges::any_of(holders, [&](int holder) { return shape_.stages_of(holder).size() > 1; });
            }))
            shape_.per_update = pick(random_, 1, 3);
    }

    Plan plan() {
        std::vector<Tasks> lists(static_cast<std::size_t>(shape_.devices));
        for (std::vector<Task> ready = ready_tasks(); !ready.empty(); ready = ready_tasks()) {
            const Task task = ready[static_cast<std::size_t>(pick(random_, 0, static_cast<int>(ready.size()) - 1))];
            const int device = shape_.server_of(task.stage, task.microbatch);
            Tasks& list = lists[static_cast<std::size_t>(device)];
            done_.insert(task);
            list.push_back(task);
            for (const Task& other : ready)  // a pair of tasks that are both ready
                if (task.op == Op::Forward && other.op == Op::BackwardInput &&
                    shape_.server_of(other.stage, other.microbatch) == device && pick(random_, 0, 1) == 0) {
                    list.back().with_next = true;
                    done_.insert(other);
                    list.push_back(other);
                    break;
                }
        }
        return plan_of_lists(shape_, std::move(lists));
    }

private:
    bool done(Op op, int stage, int mb) const { return done_.contains({op, stage, mb}); }

    std::vector<Task> ready_tasks() const {
        std::vector<Task> ready;
        for (int stage = 0; stage < shape_.stages; ++stage)
            for (int mb = 0; mb < shape_.microbatches; ++mb) {
                const auto add = [&](Op op, bool has_inputs) {
                    if (has_inputs && !done(op, stage, mb))
                        ready.push_back({op, stage, mb});
                };
                const bool last = stage + 1 == shape_.stages;
                add(Op::Forward, stage == 0 || done(Op::Forward, stage - 1, mb));
                add(Op::BackwardInput,
                    done(Op::Forward, stage, mb) && (last || done(Op::BackwardInput, stage + 1, mb)));
                add(Op::BackwardWeight, done(Op::BackwardInput, stage, mb));
            }
        return ready;
    }

    Random random_;
    Shape shape_;
    std::set<Task> done_;
};

// Returns whether S or U is between the two tasks of a pair.
bool splits_a_pair(const Tasks& list) {
    bool in_pair = false;
    for (const Task& task : list) {
        if (is_transfer(task.op))
            continue;
        if (in_pair && !is_compute(task.op))
            return true;
        in_pair = task.with_next;
    }
    return false;
}

// For any placement of stages, and any order in which devices end them.
TEST(Sums, NeverWaitInACycle) {
    const auto all = static_cast<unsigned>(rounds(500));
    for (unsigned seed = 0; seed < all; ++seed) {
        const Plan plan = Draw(seed).plan();
        EXPECT_NO_THROW(check(plan)) << seed << '\n' << print(plan);
        for (int device = 0; device < plan.shape.devices; ++device)
            EXPECT_FALSE(splits_a_pair(plan.order[device])) << seed << '\n' << print(plan);
    }
}

TEST(Servers, AreReadFromTheListsOfAPlan) {
    for (unsigned seed = 0; seed < 100; ++seed) {
        const Plan plan = Draw(seed).plan();
        Plan read = plan;
        read.shape.serving.clear();
        serve_as_listed(read);
        for (int stage = 0; stage < plan.shape.stages; ++stage)
            for (int mb = 0; mb < plan.shape.microbatches; ++mb)
                EXPECT_EQ(read.shape.server_of(stage, mb), plan.shape.server_of(stage, mb)) << seed;
    }
    Plan in_turn = plan_of("gpipe", Replicas{2, 1}, 5);
    serve_as_listed(in_turn);
    EXPECT_TRUE(in_turn.shape.serving.empty());
}

}  // namespace
}  // namespace pw
