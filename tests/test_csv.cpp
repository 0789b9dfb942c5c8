#include "schedules/csv.h"

#include "schedules/passes.h"
#include "schedules/schedule.h"
#include "workloads/error.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace pw {

namespace {

std::string error_of(const std::string& text) {
    try {
        parse_csv(text, "plan.csv");
    } catch (const Error& error) {
        EXPECT_EQ(error.code(), ExitCode::BadInput);
        return error.what();
    }
    ADD_FAILURE() << "accepted: " << text;
    return {};
}

Plan plan_of(std::string_view schedule, int devices, int microbatches) {
    Shape shape;
    shape.devices = shape.stages = devices;
    shape.microbatches = microbatches;
    return make_plan(schedule_named(schedule), shape);
}

std::vector<std::vector<Task>> compute_of(const Plan& plan) {
    std::vector<std::vector<Task>> compute;
    for (const auto& order : plan.order) {
        compute.emplace_back();
        for (const Task& task : order)
            if (is_compute(task.op))
                compute.back().push_back(task);
    }
    return compute;
}

}  // namespace

// What is printed is read back: the same compute order, and a plan that passes the check.
TEST(Csv, PrintedPlansAreReadBack) {
    for (const std::string_view schedule : {"gpipe", "1f1b"})
        for (const int devices : {1, 2, 4})
            for (const bool transfers : {false, true}) {
                const Plan plan = plan_of(schedule, devices, 5);
                const Plan read = parse_csv(print_csv(plan, transfers), "plan.csv");
                check(read);
                EXPECT_EQ(compute_of(read), compute_of(plan)) << schedule << ' ' << devices;
                EXPECT_EQ(print_csv(read, true), print_csv(plan, true)) << schedule << ' ' << devices;
            }
}

TEST(Csv, CellsAreThoseOfPyTorch) {
    const Plan plan = plan_of("gpipe", 2, 2);
    EXPECT_EQ(print_csv(plan, false), "0F0,0F1,0B0,0B1\n1F0,1F1,1B0,1B1\n");
    EXPECT_EQ(print_csv(plan, true).substr(0, 15), "0F0,0SEND_F0,0F");
}

TEST(Csv, CarriageReturnsBlanksAndShardingAreSkipped) {
    const Plan plan = parse_csv("0UNSHARD,0F0,,, 0B0 ,0REDUCE_GRAD\r\n,1F0,1B0,\r\n\r\n", "plan.csv");
    check(plan);
    EXPECT_EQ(compute_of(plan)[0], (std::vector<Task>{{Op::Forward, 0, 0}, {Op::Backward, 0, 0}}));
    EXPECT_EQ(compute_of(plan)[1], (std::vector<Task>{{Op::Forward, 1, 0}, {Op::Backward, 1, 0}}));
}

TEST(Csv, BackwardLettersOfOldFilesAreRecognised) {
    const Plan split = parse_csv("0F0,0B0,0W0", "plan.csv");
    EXPECT_EQ(compute_of(split)[0][1].op, Op::BackwardInput);
    const Plan mixed = parse_csv("0F0,0F1,0B0,0BW1,0W0", "plan.csv");
    EXPECT_EQ(compute_of(mixed)[0][2].op, Op::BackwardInput);
    EXPECT_EQ(compute_of(mixed)[0][3].op, Op::Backward);
    EXPECT_EQ(compute_of(parse_csv("0F0,0B0", "plan.csv"))[0][1].op, Op::Backward);
}

TEST(Csv, OverlappedPairsSurviveARoundTrip) {
    const std::string text = "0F0,(0F1;0B0)OVERLAP_F_B,0B1\n";
    const Plan plan = parse_csv(text, "plan.csv");
    EXPECT_TRUE(plan.order[0][1].with_next);
    EXPECT_FALSE(plan.order[0][2].with_next);
    EXPECT_EQ(print_csv(plan, false), text);
}

TEST(Csv, StagesLiveWhereTheirForwardIs) {
    const Plan plan = parse_csv("0F0,3F0,3B0,0B0\n1F0,2F0,2B0,1B0\n", "plan.csv");
    EXPECT_EQ(plan.shape.stages, 4);
    EXPECT_EQ(plan.shape.devices_of(3), std::vector<int>{0});
    EXPECT_EQ(plan.shape.devices_of(2), std::vector<int>{1});
    check(plan);
}

TEST(Csv, MistakesNameTheFileRowAndCell) {
    EXPECT_NE(error_of("0F0,0B0\n1F0,1X0").find("'1X0': unknown type 'X'\n --> plan.csv:2, cell 2 (device 1)"),
              std::string::npos);
    EXPECT_NE(error_of("F0").find("does not start with a stage"), std::string::npos);
    EXPECT_NE(error_of("-1F0").find("does not start with a stage"), std::string::npos);
    EXPECT_NE(error_of("0F0xyz").find("'xyz' is left over"), std::string::npos);
    EXPECT_NE(error_of("0F").find("has no micro-batch"), std::string::npos);
    EXPECT_NE(error_of("0UNSHARD3").find("has no micro-batch"), std::string::npos);
    EXPECT_NE(error_of("0F99999999999").find("too large"), std::string::npos);
    EXPECT_NE(error_of("0F0,0F0").find("0F0 is there twice"), std::string::npos);
    EXPECT_NE(error_of("0F0,0B0,7F0").find("number 7 in a plan of 3 tasks"), std::string::npos);
    EXPECT_NE(error_of("0F0,2F0,2B0,0B0").find("stage 1 has no F"), std::string::npos);
    EXPECT_NE(error_of("(0F0;0B0)PAIR").find("no overlapped pair"), std::string::npos);
    EXPECT_NE(error_of("0F0,0RECV_F0").find("has no stage before it"), std::string::npos);
    EXPECT_NE(error_of("0F0\n\n1F0").find("row 2 has no task"), std::string::npos);
    EXPECT_NE(error_of("").find("row 1 has no task"), std::string::npos);
    EXPECT_NE(error_of("\"0F0\"").find("does not start with a stage"), std::string::npos);
}

TEST(Csv, AMissingFileIsNamed) {
    try {
        read_csv("nowhere/plan.csv");
        FAIL();
    } catch (const Error& error) {
        EXPECT_NE(std::string(error.what()).find("nowhere/plan.csv"), std::string::npos);
    }
}

}  // namespace pw
