// Laws that every schedule satisfies, and the errors of broken plans.
#include "schedules/memory/buffers.h"
#include "schedules/orders/schedule.h"
#include "schedules/passes/passes.h"
#include "workloads/error.h"

#include <gtest/gtest.h>

namespace pw {
namespace {

Shape chain(int p, int m) {
    Shape shape;
    shape.devices = shape.stages = p;
    shape.microbatches = m;
    return shape;
}

std::string error_of(const Plan& plan, ExitCode code) {
    try {
        check(plan);
    } catch (const Error& error) {
        EXPECT_EQ(error.code(), code) << error.what();
        return error.what();
    }
    ADD_FAILURE() << "accepted:\n" << print(plan);
    return "";
}

TEST(Schedules, UnknownNameListsTheLegalOnes) {
    try {
        schedule_named("2f2b");
        FAIL();
    } catch (const Error& error) {
        EXPECT_NE(std::string(error.what()).find("gpipe, 1f1b, eager-1f1b"), std::string::npos);
    }
}

// A row with data: its lists, and the device of each stage.
struct Listed : Schedule {
    std::vector<Tasks> lists;
    std::vector<int> of_stages;
};

// Two copies of a pipeline: device d of copy k is device 2 d + k, and micro-batch i of copy k is 2 i + k.
TEST(Schedules, MayHaveDataOfTheirOwn) {
    Listed own;
    own.name = "listed";
    own.of_stages = {0, 1, 0};
    own.lists = {{{Op::Forward, 0, 0}, {Op::Forward, 2, 0}, {Op::Backward, 2, 0}, {Op::Backward, 0, 0}},
                 {{Op::Forward, 1, 0}, {Op::Backward, 1, 0}}};
    own.placement = {"listed", "its stages", any_stages};
    own.placement.devices = own.of_stages;
    own.orders = [](const Request& request) { return static_cast<const Listed&>(*request.schedule).lists; };
    Shape shape;
    shape.devices = 4;
    shape.stages = 3;
    shape.microbatches = shape.copies = 2;
    Plan plan = make_plan(own, shape);
    EXPECT_EQ(plan.shape.placement, (std::vector<std::vector<int>>{{0, 1}, {2, 3}, {0, 1}}));
    for (Tasks& tasks : plan.order)
        std::erase_if(tasks, [](const Task& task) { return task.op != Op::Forward && !is_backward(task.op); });
    EXPECT_EQ(plan.order[1],
              (Tasks{{Op::Forward, 0, 1}, {Op::Forward, 2, 1}, {Op::Backward, 2, 1}, {Op::Backward, 0, 1}}));
    EXPECT_EQ(plan.order[2], (Tasks{{Op::Forward, 1, 0}, {Op::Backward, 1, 0}}));
    shape.devices = 6;
    try {
        make_plan(own, shape);
        FAIL();
    } catch (const Error& error) {
        EXPECT_EQ(error.fact(), "schedule listed places its stages on 2 devices: 3 devices of each replica do not fit");
        EXPECT_EQ(error.help(), "set the number of devices to 4");
    }
}

TEST(Schedules, SkipsAreSentDirectly) {
    Shape shape = chain(3, 2);
    shape.edges = std::vector<Edge>{{0, 1}, {0, 2}, {1, 2}};
    const Plan plan = make_plan(schedule_named("1f1b"), shape);
    const std::vector<Task> inputs = inputs_of({Op::Forward, 2, 1}, plan);
    ASSERT_EQ(inputs.size(), 2u);
    EXPECT_EQ(print(inputs[0]), "2RECV_F1<0");
    EXPECT_EQ(print(inputs[1]), "2RECV_F1<1");
}

TEST(Schedules, SeveralStagesOnOneDeviceExchangeNothing) {
    Shape shape = chain(4, 3);
    shape.devices = 1;
    const Plan plan = make_plan(schedule_named("gpipe"), shape);
    for (const Task& task : plan.order[0])
        EXPECT_FALSE(is_transfer(task.op)) << print(task);
}

TEST(Check, NamesDeviceStepTaskAndMissingInput) {
    Plan plan = make_plan(schedule_named("1f1b"), chain(2, 8));
    std::vector<Task>& order = plan.order[0];
    const auto find = [&](const Task& task) { return std::find(order.begin(), order.end(), task); };
    std::rotate(order.begin(), find({Op::Backward, 0, 7}), find({Op::Backward, 0, 7}) + 1);
    EXPECT_EQ(error_of(plan, ExitCode::BadInput),
              "plan '1f1b': device 0 waits forever at step 0: 0B7 needs 0F7, which no device runs before it");
}

TEST(Check, NamesAMissingTask) {
    Plan plan = make_plan(schedule_named("gpipe"), chain(2, 2));
    std::erase(plan.order[1], Task{Op::Backward, 1, 1});
    std::erase(plan.order[1], Task{Op::SendBackward, 1, 1, 0, 0});
    EXPECT_NE(error_of(plan, ExitCode::BadInput).find("0RECV_B1<1 needs 1SEND_B1>0, which no device runs"),
              std::string::npos);
}

TEST(Check, NamesATaskListedTwice) {
    Plan plan = make_plan(schedule_named("gpipe"), chain(2, 2));
    plan.order[0].push_back({Op::Forward, 0, 1});
    EXPECT_NE(error_of(plan, ExitCode::BadInput).find("0F1 is listed twice"), std::string::npos);
}

TEST(Check, NamesAnUnpairedSend) {
    Plan plan = make_plan(schedule_named("gpipe"), chain(2, 2));
    std::erase(plan.order[1], Task{Op::RecvForward, 1, 1, 0, 0});
    EXPECT_NE(error_of(plan, ExitCode::BadInput).find("1RECV_F1<0"), std::string::npos);
}

TEST(Check, NamesATaskOutsideTheShape) {
    Plan plan = make_plan(schedule_named("gpipe"), chain(2, 2));
    plan.order[1].push_back({Op::Forward, 1, 2});
    EXPECT_NE(error_of(plan, ExitCode::BadInput).find("1F2 is not a task of this device"), std::string::npos);
}

// Receives in another order than the sends: under rendezvous neither end can go first.
TEST(Check, ProvesADeadlockOfCrossedReceives) {
    Plan plan = make_plan(schedule_named("gpipe"), chain(2, 2));
    std::vector<Task>& order = plan.order[1];
    const Task second{Op::RecvForward, 1, 1, 0, 0};
    std::erase(order, second);
    order.insert(order.begin(), second);
    const std::string message = error_of(plan, ExitCode::Infeasible);
    EXPECT_NE(message.find("deadlocks (communicator edge, receive early, rendezvous): "), std::string::npos);
    EXPECT_NE(message.find("SEND_F"), std::string::npos);
}

Costs some_costs(int stages) {
    Costs costs;
    costs.stage.resize(static_cast<std::size_t>(stages));
    for (int stage = 0; stage < stages; ++stage) {
        costs.bytes.push_back({1024, 64, 0, 256, 128, 0, 512});
        if (stage > 0)
            costs.edges.push_back({stage - 1, stage, 192, 192, stage % 2 == 0, true, false});
    }
    costs.sent_copies = true;
    return costs;
}

// No two buffers that live at the same time share a byte, and the arena holds the peak.
TEST(Buffers, PackWithoutOverlap) {
    for (const char* name :
         {"naive", "gpipe", "1f1b", "pipedream", "zb-h1", "zb-h2", "interleaved", "zb-v", "v-half", "v-min", "hanayo"})
        for (int p : {1, 2, 5})
            for (int m : {1, 4, 10}) {
                Shape shape = chain(p, m);
                shape.stages = p * schedule_named(name).chunks;
                const Plan plan = make_plan(schedule_named(name), shape);
                const auto buffers = buffers_of(plan, some_costs(plan.shape.stages), versions_of(plan));
                const Packing packing = pack(buffers, p);
                for (std::size_t a = 0; a < buffers.size(); ++a)
                    for (std::size_t b = a + 1; b < buffers.size(); ++b) {
                        const Buffer &x = buffers[a], &y = buffers[b];
                        if (x.device != y.device || x.last < y.first || y.last < x.first)
                            continue;
                        EXPECT_TRUE(packing.offset[a] + x.bytes <= packing.offset[b] ||
                                    packing.offset[b] + y.bytes <= packing.offset[a]);
                    }
                for (int device = 0; device < p; ++device)
                    EXPECT_GE(packing.arena[device], total(peak_of(memory_of(plan, buffers)[device])));
            }
}

TEST(Buffers, StashedWeightsAreCharged) {
    const Plan plan = make_plan(schedule_named("pipedream"), chain(4, 20));
    const auto memory = memory_of(plan, buffers_of(plan, some_costs(4), versions_of(plan)));
    for (int device = 0; device < 4; ++device)
        EXPECT_EQ(peak_of(memory[device])[static_cast<int>(MemoryKind::StashedWeights)], 1024 * (3 - device));
}

TEST(Buffers, MemoryReturnsToTheBaseline) {
    const Plan plan = make_plan(schedule_named("1f1b"), chain(3, 6));
    const auto memory = memory_of(plan, buffers_of(plan, some_costs(3), versions_of(plan)));
    const Bytes left = 6 * some_costs(3).bytes[0].statistics;  // U reads those of every micro-batch
    for (const auto& device : memory)
        EXPECT_EQ(device.back()[static_cast<int>(MemoryKind::Activations)], left);
}

}  // namespace
}  // namespace pw
