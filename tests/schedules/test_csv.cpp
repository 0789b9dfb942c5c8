// PyTorch's schedule CSV: printed plans are read back, and every mistake is reported at its cell.
#include "schedules/csv/csv.h"

#include "schedules/orders/schedule.h"
#include "schedules/passes/passes.h"
#include "tests/support/refusal.h"
#include "tests/support/temporary_folder.h"
#include "workloads/error.h"

#include <gtest/gtest.h>

namespace pw {

namespace {

// The two rows of the overlapped V schedule on 2 devices, with 4 stages and 4 micro-batches.
constexpr const char* kOverlapped =
    "0F0,0F1,0F2,3F0,3I0,3W0,3F1,(0F3;3B1)OVERLAP_F_B,(3F2;0B0)OVERLAP_F_B,3B2,(3F3;0B1)OVERLAP_F_B,3B3,0I2,0W2,0I3,"
    "0W3\n"
    "1F0,2F0,1F1,2F1,1F2,2B0,(2F2;1B0)OVERLAP_F_B,(1F3;2B1)OVERLAP_F_B,(2F3;1B1)OVERLAP_F_B,2B2,1B2,2I3,1I3,2W3,1W3\n";

// PyTorch's test of its lowering, `simple_2_rank_2_stage`.
constexpr const char* kLowered =
    "0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1\n"
    "1RECV_F0,1RECV_F1,1F0,1B0,1SEND_B0,1F1,1B1,1SEND_B1\n";

// PyTorch's test of REDUCE_GRAD: both stages on one rank.
constexpr const char* kSummed =
    "0F0,0F1,1F0,1F1,1B0,1B1,1REDUCE_GRAD,1WAIT_REDUCE_GRAD,0B0,0B1,0REDUCE_GRAD,0WAIT_REDUCE_GRAD\n";

Plan plan_in(const std::string& text) { return parse_csv(text, "plan.csv").plan; }

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

Plan plan_to_write(std::string_view schedule, int devices, int microbatches) {
    Shape shape;
    shape.devices = shape.stages = devices;
    shape.microbatches = microbatches;
    return make_plan(schedule_named(schedule), shape);
}

// A device's list with the marks of overlapped pairs, which comparisons of tasks ignore.
std::string marked(const Plan& plan) {
    std::string text;
    for (const auto& order : plan.order) {
        for (const Task& task : order)
            text += print(task) + (task.with_next ? "&" : " ");
        text += '\n';
    }
    return text;
}

std::string row_of(const std::string& text, int device = 0) {
    const Plan plan = plan_in(text);
    std::string row;
    for (const Task& task : plan.order[static_cast<std::size_t>(device)])
        row += (row.empty() ? "" : " ") + print(task);
    return row;
}

}  // namespace

TEST(Csv, PrintedPlansAreReadBack) {
    for (const std::string_view schedule : {"naive", "gpipe", "1f1b"})
        for (const int devices : {1, 2, 4})
            for (const bool transfers : {false, true}) {
                const Plan plan = plan_to_write(schedule, devices, 5);
                const Plan read = plan_in(print_csv(plan, transfers));
                check(read);
                EXPECT_EQ(marked(read), marked(plan)) << schedule << ' ' << devices;
            }
}

// Two devices hold both stages and sum their gradients.
TEST(Csv, PlansOfReplicasAreReadBack) {
    Plan plan;
    plan.shape.devices = plan.shape.stages = 2;
    plan.shape.microbatches = 4;
    plan.shape.placement = {{0, 1}, {0, 1}};
    for (const int device : {0, 1}) {
        plan.order.emplace_back();
        for (const int mb : {device, device + 2})
            for (const Task& task : {Task{Op::Forward, 0, mb}, Task{Op::Forward, 1, mb}, Task{Op::Backward, 1, mb},
                                     Task{Op::Backward, 0, mb}})
                plan.order.back().push_back(task);
    }
    add_updates(plan);
    const std::string text = print_csv(plan, true);
    EXPECT_EQ(text.substr(0, text.find('\n')),
              "0F0,1F0,1B0,0B0,0F2,1F2,1B2,1REDUCE_GRAD,1WAIT_REDUCE_GRAD,0B2,0REDUCE_GRAD,0WAIT_REDUCE_GRAD");
    EXPECT_EQ(marked(plan_in(text)), marked(plan));
    EXPECT_EQ(print_csv(plan_in(text), true), text);
}

TEST(Csv, FilesArePrintedAsTheyWere) {
    for (const char* text :
         {"0F0,0B0\n", kOverlapped, "0F0,0F1\n1F0,1F1\n", "0F0,0I0,0W0\n", "0F0,3F0,3B0,0B0\n1F0,2F0,2B0,1B0\n",
          "0F0,0F1,0I0,0B1,0W0\n", "0F0,1F0,1B0,0B0\n0F1,1F1,1B1,0B1\n"})
        EXPECT_EQ(print_csv(plan_in(text), false), text);
    for (const char* text :
         {kSummed, "0F0,0SEND_F0,0WAIT_SEND_F0\n1RECV_F0,1F0\n",
          "0F0,0SEND_F0,0RECV_B0,0B0,0WAIT_SEND_F0,0REDUCE_GRAD,0WAIT_REDUCE_GRAD\n"
          "1RECV_F0,1F0,1I0,1SEND_B0,1W0,1REDUCE_GRAD,1WAIT_REDUCE_GRAD,1WAIT_SEND_B0\n",
          "0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0WAIT_SEND_F0,0RECV_B1,0B1,0WAIT_SEND_F1,0REDUCE_GRAD,0WAIT_REDUCE_"
          "GRAD\n"
          "1RECV_F0,1F0,1RECV_F1,(1F1;1B0)OVERLAP_F_B,1SEND_B0,1B1,1SEND_B1,1REDUCE_GRAD,1WAIT_REDUCE_GRAD,"
          "1WAIT_SEND_B0,1WAIT_SEND_B1\n"})
        EXPECT_EQ(print_csv(plan_in(text), true), text);
}

TEST(Csv, CellsAreThoseOfPyTorch) {
    const Plan plan = plan_to_write("gpipe", 2, 2);
    EXPECT_EQ(print_csv(plan, false), "0F0,0F1,0B0,0B1\n1F0,1F1,1B0,1B1\n");
    EXPECT_EQ(print_csv(plan, true),
              "0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0WAIT_SEND_F0,0RECV_B1,0B1,0WAIT_SEND_F1,0REDUCE_GRAD,"
              "0WAIT_REDUCE_GRAD\n"
              "1RECV_F0,1F0,1RECV_F1,1F1,1B0,1SEND_B0,1B1,1SEND_B1,1REDUCE_GRAD,1WAIT_REDUCE_GRAD,1WAIT_SEND_B0,"
              "1WAIT_SEND_B1\n");
}

TEST(Csv, LoweredRowsArePlans) {
    check(plan_in(kLowered));
    EXPECT_EQ(row_of(kLowered, 1), "1RECV_F0<0 1RECV_F1<0 1F0 1B0 1SEND_B0>0 1F1 1B1 1SEND_B1>0 1U1");
}

TEST(Csv, CarriageReturnsAndBlanksAreIdleSlots) {
    EXPECT_EQ(row_of("0F0,,, 0B0 \t,\r\n,1F0,1B0,\r\n\r\n", 1), "1RECV_F0<0 1F0 1B0 1SEND_B0>0 1U0");
    EXPECT_EQ(row_of("0F0,0SEND_F0,  \r\n,,1RECV_F0,1F0", 1), "1RECV_F0<0 1F0");
}

// A stage on one device needs no sum: it is updated there.
TEST(Csv, ReduceGradIsTheUpdateOfAStageOnOneDevice) {
    EXPECT_EQ(row_of(kSummed), "0F0 0F1 1F0 1F1 1B0 1B1 1U1 0B0 0B1 0U1");
    EXPECT_EQ(row_of("0F0,0F1,1F0,1F1,1B0,1B1,1REDUCE_GRAD,0B0,0B1,0REDUCE_GRAD"), row_of(kSummed));
    EXPECT_EQ(row_of("0F0,0F1,0I0,0I1,0W1,0W0,,0REDUCE_GRAD"), "0F0 0F1 0I0 0I1 0W1 0W0 0U1");
    EXPECT_EQ(row_of("0F0,1F0,1B0,0B0,1REDUCE_GRAD"), "0F0 1F0 1B0 0B0 0U0 1U0");
}

TEST(Csv, ReduceGradSumsTheGradientsOfAStageOnSeveralDevices) {
    const std::string text = "0F0,0B0,0REDUCE_GRAD,0WAIT_REDUCE_GRAD\n0F1,0B1,,0REDUCE_GRAD,,0WAIT_REDUCE_GRAD\n";
    EXPECT_EQ(row_of(text, 0), "0F0 0B0 0S1 0U1");
    EXPECT_EQ(row_of(text, 1), "0F1 0B1 0S1 0U1");
}

TEST(Csv, ShardingIsLeftOutWithANotice) {
    const CsvPlan read = parse_csv("0UNSHARD,1UNSHARD,0F0,0F1,1F0,1F1,1B0,1B1,1RESHARD,0B0,0B1,0RESHARD", "plan.csv");
    EXPECT_EQ(
        read.notices,
        (std::vector<std::string>{"plan.csv: 2 UNSHARD and 2 RESHARD left out: parameters are never sharded here"}));
    EXPECT_EQ(print_csv(read.plan, false), "0F0,0F1,1F0,1F1,1B0,1B1,0B0,0B1\n");
    EXPECT_TRUE(parse_csv(kSummed, "plan.csv").notices.empty());
}

TEST(Csv, CellsOfTasksAreKept) {
    const CsvPlan read = parse_csv("0F0,,0F1,(0B0;0F2)OVERLAP_F_B,0B1,0B2", "plan.csv");
    EXPECT_EQ(print(read.cells.at({Op::Forward, 0, 1})), "plan.csv:1, cell 3");
    EXPECT_EQ(print(read.cells.at({Op::Forward, 0, 2})), "plan.csv:1, cell 4");
    EXPECT_FALSE(read.cells.contains({Op::Update, 0, 2}));
}

TEST(Csv, OverlappedPairsAreMarkedAndLeftWhole) {
    check(plan_in(kOverlapped));
    const Plan plan = plan_in("0F0,0F1,(0B0;0F2)OVERLAP_F_B,0B1,(0B2;0F3)OVERLAP_F_B,0B3\n");
    EXPECT_EQ(marked(plan), "0F0 0F1 0B0&0F2 0B1 0B2&0F3 0B3 0U3 \n");
    EXPECT_EQ(marked(plan_in("0F0,1F0,1B0,0F1,1F1,(1B1;0B0)OVERLAP_F_B,0B1\n")),
              "0F0 1F0 1B0 0F1 1F1 1B1&0B0 1U1 0B1 0U1 \n");
}

// The tasks that a plan has inside a pair are around it in the file.
TEST(Csv, TransfersGoAroundOverlappedPairs) {
    const std::string text =
        "0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0WAIT_SEND_F0,0RECV_B1,0B1,0WAIT_SEND_F1,0REDUCE_GRAD,0WAIT_REDUCE_"
        "GRAD\n"
        "1RECV_F0,1F0,1RECV_F1,(1F1;1B0)OVERLAP_F_B,1SEND_B0,1B1,1SEND_B1,1REDUCE_GRAD,1WAIT_REDUCE_GRAD,1WAIT_SEND_B0,"
        "1WAIT_SEND_B1\n";
    Plan plan = plan_in(text);
    std::vector<Task>& order = plan.order[1];
    std::swap(order[2], order[3]);  // 1F1 & 1RECV_F1 1B0
    EXPECT_EQ(print_csv(plan, true), text);
}

TEST(Csv, FilesWithoutBackwardPassAreForwardOnly) {
    EXPECT_EQ(row_of("0F0,0F1\n1F0,1F1\n", 1), "1RECV_F0<0 1F0 1RECV_F1<0 1F1");
}

TEST(Csv, BackwardLettersOfOldFilesAreRecognised) {
    EXPECT_EQ(row_of("0F0,0B0,0W0"), "0F0 0I0 0W0 0U0");
    EXPECT_EQ(row_of("0F0,0F1,0B0,0BW1,0W0"), "0F0 0F1 0I0 0B1 0W0 0U1");
    EXPECT_EQ(row_of("0F0,0BW0"), "0F0 0B0 0U0");
    EXPECT_EQ(row_of("0F0,0B0"), "0F0 0B0 0U0");
    EXPECT_EQ(row_of("F0_s0,F0_s1,,B0_s1,B0_s0"), "0F0 1F0 1B0 1U0 0B0 0U0");
    EXPECT_EQ(row_of("F0_s0,B0_s0\nF0_s1,B0_s1", 1), "1RECV_F0<0 1F0 1B0 1SEND_B0>0 1U0");
}

TEST(Csv, StagesAreOnTheDevicesOfTheirForwards) {
    const Plan plan = plan_in("0F0,3F0,3B0,0B0\n1F0,2F0,2B0,1B0\n");
    EXPECT_EQ(plan.shape.stages, 4);
    EXPECT_EQ(plan.shape.devices_of(3), std::vector<int>{0});
    EXPECT_EQ(plan.shape.devices_of(2), std::vector<int>{1});
    check(plan);
}

namespace {

struct Malformed {
    std::string text;
    std::string_view place, fact, way_out;
};

const Malformed kMalformed[] = {
    // one cell
    {"0F0,0B0\n1F0,1X0", "plan.csv:2, cell 2 (device 1)", "'1X0': unknown type 'X'", "types: F B I W"},
    {"0F0,,F0", ":1, cell 3 ", "'F0' does not start with a stage", "as in 0F3"},
    {"-1F0", ":1, cell 1 ", "'-1F0' does not start with a stage", "as in 0F3"},
    {"0F0,0F-1", ":1, cell 2 ", "unexpected '-1' at the end", "as in 0F3"},
    {"\"0F0\"", ":1, cell 1 ", "does not start with a stage", "as in 0F3"},
    {"\x1b[31m0F0", ":1, cell 1 ", "'?[31m0F0' does not start", "as in 0F3"},
    {std::string(5000, 'Q'), ":1, cell 1 ", "QQ...' does not start", "as in 0F3"},
    {"0F0xyz", ":1, cell 1 ", "unexpected 'xyz' at the end", "as in 0F3"},
    {"0F0 1F0", ":1, cell 1 ", "unexpected ' 1F0' at the end", "as in 0F3"},
    {"0F0,0B", ":1, cell 2 ", "'0B' has no micro-batch", "as in 0F3"},
    {"0F0,0", ":1, cell 2 ", "unknown type ''", "types: F B I W"},
    {"0F0,0U0", ":1, cell 2 ", "unknown type 'U'", "types: F B I W"},
    {"0F0,0S0", ":1, cell 2 ", "unknown type 'S'", "REDUCE_GRAD"},
    {"0F0,0OVERLAP_F_B", ":1, cell 2 ", "unknown type 'OVERLAP_F_B'", "types: F B I W"},
    {"0f0,0B0", ":1, cell 1 ", "'0f0': types are written in capital letters", "write 0F0"},
    {"0F0\t0B0", ":1, cell 1 ", "'0F0 0B0': unexpected ' 0B0' at the end", "as in 0F3"},
    {"0UNSHARD3,0F0", ":1, cell 1 ", "UNSHARD has no micro-batch", "write 0UNSHARD"},
    {"0F0,0B0,0REDUCE_GRAD0", ":1, cell 3 ", "REDUCE_GRAD has no micro-batch", "write 0REDUCE_GRAD"},
    {"0F0,0B0\n0UNSHARD,1F0,1B0", ":2, cell 1 ", "no task of stage 0 is in this row", "remove 0UNSHARD"},
    {"0F99999999999", ":1, cell 1 ", "too large", "as in 0F3"},
    {"0F0,0B0,7F0", ":1, cell 3 ", "number 7 in a plan of 3 tasks", "without gaps"},
    // pairs
    {"0F0,(0F1;0B0)PAIR", ":1, cell 2 ", "does not end in )OVERLAP_F_B", "(0F4;1B0)OVERLAP_F_B"},
    {"(0F1;0B0)", ":1, cell 1 ", "does not end in )OVERLAP_F_B", "(0F4;1B0)OVERLAP_F_B"},
    {"(0F1;0B0)OVERLAP_F_Bx", ":1, cell 1 ", "does not end in )OVERLAP_F_B", "(0F4;1B0)OVERLAP_F_B"},
    {"0F0,(0F1,0B0)OVERLAP_F_B", ":1, cell 2 ", "'(0F1' has no )", "(0F4;1B0)OVERLAP_F_B"},
    {"()OVERLAP_F_B", ":1, cell 1 ", "is not a pair of tasks", "(0F4;1B0)OVERLAP_F_B"},
    {"(0F0)OVERLAP_F_B", ":1, cell 1 ", "is not a pair of tasks", "(0F4;1B0)OVERLAP_F_B"},
    {"(0F0;0F1;0F2)OVERLAP_F_B", ":1, cell 1 ", "is not a pair of tasks", "(0F4;1B0)OVERLAP_F_B"},
    {"((0F0;0B0)OVERLAP_F_B;0F1)OVERLAP_F_B", ":1, cell 1 ", "a pair within a pair", "(0F4;1B0)OVERLAP_F_B"},
    {"0F0,(0F1;)OVERLAP_F_B", ":1, cell 2 ", "'' does not start with a stage", "as in 0F3"},
    {"0F0,(0F1;0Bx)OVERLAP_F_B", ":1, cell 2 ", "unexpected 'x' at the end", "as in 0F3"},
    {"0F0,(0F1;0REDUCE_GRAD)OVERLAP_F_B", ":1, cell 2 ", "overlaps 0REDUCE_GRAD", "two of F, B, I and W"},
    {"0F0,0F1,(0F2;0F1)OVERLAP_F_B", ":1, cell 3 ", "0F1 is listed twice, first at plan.csv:1, cell 2", "remove one"},
    {"(0F0;0B0)OVERLAP_F_B", ":1, cell 1 ", "0B0 needs 0F0, which runs overlapped with it", "two cells"},
    // rows
    {"", "plan.csv:1\n", "row 1 has no task", "one row per device"},
    {"0F0\n\n1F0", "plan.csv:2\n", "row 2 has no task", "one row per device"},
    {"0F0\n,, ,\n1F0", "plan.csv:2\n", "row 2 has no task", "one row per device"},
    {"0F0\n0UNSHARD", "plan.csv:2\n", "row 2 has no task", "one row per device"},
    // tasks listed twice or missing
    {"0F0,0F0", ":1, cell 2 ", "0F0 is listed twice, first at plan.csv:1, cell 1", "remove one"},
    {"0F0,0B0\n1F0,1B0,0F0", ":2, cell 3 ", "0F0 is listed twice, first at plan.csv:1, cell 1", "remove one"},
    {"0F0,2F0,2B0,0B0", ":1, cell 1 ", "micro-batch 0 has no F on stage 1, but 0F0 is here", "add 1F0"},
    {"0F0,0F1,0F2\n1F0,1F1", ":1, cell 3 ", "micro-batch 2 has no F on stage 1, but 0F2 is here", "add 1F2"},
    {"0F0,0B0,0B1", ":1, cell 3 ", "micro-batch 1 has no F on stage 0, but 0B1 is here", "add 0F1"},
    {"0F0,0F2,0B0,0B2", ":1, cell 2 ", "micro-batch 1 has no F on stage 0, but 0F2 is here", "without gaps"},
    {"0F0,0F1,0B0", ":1, cell 2 ", "micro-batch 1 has no backward pass on stage 0", "add 0B1, or 0I1 and 0W1"},
    {"0F0,0I0", ":1, cell 2 ", "0I0 has no 0W0", "add 0W0"},
    {"0F0,0W0", ":1, cell 2 ", "0W0 has no 0I0", "add 0I0"},
    {"0F0,0I0,0W0,0B0", ":1, cell 2 ", "0I0 and 0B0 at plan.csv:1, cell 4 do the same work",
     "keep 0B0, or 0I0 and 0W0"},
    {"0F0,0B0,0W0,0F1,0I1,0W1", ":1, cell 3 ", "0W0 and 0B0 at plan.csv:1, cell 2 do the same work", "keep 0B0"},
    {"0F0,0B0\n1F0\n1B0", ":3, cell 1 ", "1B0 is in row 3, but 1F0 at plan.csv:2, cell 1", "move it to row 2"},
    // dialects
    {"F0_s0,0B0", ":1, cell 2 ", "'0B0' is written differently from 'F0_s0' at plan.csv:1, cell 1", "PyTorch 2.4"},
    {"0F0,0B0\nF0_s1,B0_s1", ":2, cell 1 ", "'F0_s1' is written differently from '0F0'", "PyTorch 2.4"},
    {"F0_s0,B0_s0,0REDUCE_GRAD", ":1, cell 3 ", "is written differently from 'F0_s0'", "PyTorch 2.4"},
    {"F0_s0,W0_s0", ":1, cell 2 ", "the types F and B only", "write F0_s1 or B0_s1"},
    {"F_s0", ":1, cell 1 ", "'F_s0' has no micro-batch", "write F0_s1"},
    {"F0_s", ":1, cell 1 ", "'F0_s' has no stage", "write F0_s1"},
    {"F0_s0;", ":1, cell 1 ", "unexpected ';' at the end", "as in 0F3"},
    {"F0_s0,F1_s0,B0_s0", ":1, cell 2 ", "micro-batch 1 has no backward pass", "add B1_s0;"},
    {"0F0,0F1,0BW0,0I1,0W1", ":1, cell 3 ", "no I, unlike '0I1' at plan.csv:1, cell 4", "write 0B0"},
    {"0F0,0F1,0BW0,0B1", ":1, cell 4 ", "0B1 has no 0W1", "a backward pass is 0BW1, or 0B1 and 0W1"},
    {"0F0,0BW0,0W0,0B0", ":1, cell 4 ", "0B0 and 0BW0 at plan.csv:1, cell 2 do the same work",
     "keep 0BW0, or 0B0 and 0W0"},
    // the sum of the gradients
    {"0F0,0REDUCE_GRAD,0B0", ":1, cell 2 ", "has no gradient of stage 0 before it", "after the stage's last B or W"},
    {"0F0,0I0,0REDUCE_GRAD,0W0", ":1, cell 3 ", "has no gradient of stage 0 before it", "last B or W"},
    {"0F0,0REDUCE_GRAD", ":1, cell 2 ", "has no gradient of stage 0 before it", "remove it"},
    {"0F0,0F1,0B0,0REDUCE_GRAD,0B1", ":1, cell 4 ", "0REDUCE_GRAD comes before 0B1 at plan.csv:1, cell 5", "one mini"},
    {"0F0,0B0,0REDUCE_GRAD,0REDUCE_GRAD", ":1, cell 4 ", "twice, first at plan.csv:1, cell 3", "remove one"},
    {"0F0,0B0,0WAIT_REDUCE_GRAD,0REDUCE_GRAD", ":1, cell 3 ",
     "0WAIT_REDUCE_GRAD has no 0REDUCE_GRAD before it in its row to wait for", "put it after 0REDUCE_GRAD, once"},
    {"0F0,1F0,1B0,1REDUCE_GRAD,0B0,0WAIT_REDUCE_GRAD", ":1, cell 6 ", "has no 0REDUCE_GRAD before it", "or remove it"},
    {"0F0,0B0,0REDUCE_GRAD,0WAIT_REDUCE_GRAD,0WAIT_REDUCE_GRAD", ":1, cell 5 ", "no 0REDUCE_GRAD before it", "once"},
    {"0F0,1F0,1B0,1REDUCE_GRAD,0B0,0REDUCE_GRAD,0WAIT_REDUCE_GRAD", ":1, cell 4 ",
     "1REDUCE_GRAD has no 1WAIT_REDUCE_GRAD in its row, but others", "add 1WAIT_REDUCE_GRAD after it"},
    {"0F0,0B0,0REDUCE_GRAD,0WAIT_REDUCE_GRAD0", ":1, cell 4 ", "has no micro-batch", "write 0WAIT_REDUCE_GRAD"},
    // waits for sends
    {"0F0,0SEND_F0,0WAIT_SEND_F0,0WAIT_SEND_F1\n1RECV_F0,1F0", ":1, cell 4 ",
     "0WAIT_SEND_F1 has no 0SEND_F1 before it in its row to wait for", "put it after 0SEND_F1, once, or remove it"},
    {"0F0,0WAIT_SEND_F0,0SEND_F0\n1RECV_F0,1F0", ":1, cell 2 ", "no 0SEND_F0 before it", "put it after 0SEND_F0"},
    {"0F0,0SEND_F0,0WAIT_SEND_F0\n1RECV_F0,1F0,0WAIT_SEND_F0", ":2, cell 3 ", "no 0SEND_F0 before it", "or remove it"},
    {"0F0,0SEND_F0,0WAIT_SEND_B0\n1RECV_F0,1F0", ":1, cell 3 ", "no 0SEND_B0 before it", "or remove it"},
    {"0F0,0WAIT_SEND_F7,0B0", ":1, cell 2 ", "no 0SEND_F7 before it", "or remove it"},
    {"0F0,0SEND_F0,0WAIT_SEND_F0,0F1,0SEND_F1\n1RECV_F0,1F0,1RECV_F1,1F1", ":1, cell 5 ",
     "0SEND_F1 has no 0WAIT_SEND_F1 in its row", "add 0WAIT_SEND_F1 after it, or remove all of them"},
    {"0F0,0WAIT_SEND_F", ":1, cell 2 ", "'0WAIT_SEND_F' has no micro-batch", "as in 0F3"},
    {"0F0\n0WAIT_SEND_F0", "plan.csv:2\n", "row 2 has no task", "one row per device"},
    // order in a row
    {"0B0,0F0", ":1, cell 1 ", "0B0 needs 0F0, which comes later: plan.csv:1, cell 2", "move 0F0 before 0B0"},
    {"0F0,0W0,0I0", ":1, cell 2 ", "0W0 needs 0I0, which comes later: plan.csv:1, cell 3", "move 0I0 before 0W0"},
    {"0I0,0F0,0W0", ":1, cell 1 ", "0I0 needs 0F0, which comes later", "move 0F0"},
    {"1F0,0F0,1B0,0B0", ":1, cell 1 ", "1F0 needs 0F0, which comes later", "move 0F0"},
    {"0SEND_F0,0F0\n1RECV_F0,1F0", ":1, cell 1 ", "0SEND_F0 needs 0F0, which comes later", "move 0F0"},
    {"0F0,0SEND_F0\n1F0,1RECV_F0", ":2, cell 1 ", "1F0 needs 1RECV_F0, which comes later", "move 1RECV_F0"},
    // transfers
    {"0F0,0RECV_F0", ":1, cell 2 ", "stage 0 of 1 has no stage before it", "remove 0RECV_F0"},
    {"0F0,0SEND_F0\n1F0", ":1, cell 2 ", "0SEND_F0 has no 1RECV_F0 in row 2", "add 1RECV_F0 in row 2"},
    {"0F0\n1RECV_F0,1F0", ":2, cell 1 ", "1RECV_F0 has no 0SEND_F0 in row 1", "add 0SEND_F0 in row 1"},
    {"0F0,0SEND_F0,1RECV_F0\n1F0", ":1, cell 3 ", "1RECV_F0 is in row 1, but stage 1 runs micro-batch 0 in row 2",
     "move it to row 2"},
    {"0F0,0SEND_F0,1RECV_F0,1F0", ":1, cell 2 ", "stages 0 and 1 both run micro-batch 0 in row 1", "remove 0SEND_F0"},
    {"0F0,0SEND_F0,0RECV_B0\n1RECV_F0,1F0,1SEND_B0", ":2, cell 3 ", "no row runs a backward pass", "remove 1SEND_B0"},
    {"0F0,0SEND_F0,0F1\n1RECV_F0,1F0,1F1", ":2, cell 3 ", "1F1 has no 1RECV_F1, and its input is made in row 1",
     "add 0SEND_F1 in row 1 and 1RECV_F1 in row 2"},
    {"0F0,0SEND_F0,0B0\n1RECV_F0,1F0,1B0", ":1, cell 3 ", "0B0 has no 0RECV_B0, and its input is made in row 2",
     "add 1SEND_B0 in row 2 and 0RECV_B0 in row 1"},
};

}  // namespace

TEST(Csv, MistakesNameTheFileRowAndCell) {
    for (const Malformed& malformed : kMalformed) {
        const std::string message = error_of(malformed.text);
        const std::string place =
            std::string(malformed.place.starts_with(':') ? "plan.csv" : "") + malformed.place.data();
        EXPECT_TRUE(contains(message, "\n --> " + place)) << malformed.text << '\n' << message;
        EXPECT_TRUE(contains(message, malformed.fact)) << malformed.text << '\n' << message;
        const std::size_t help = message.find("\n  help: ");
        ASSERT_NE(help, std::string::npos) << message;
        EXPECT_TRUE(contains(message.substr(help), malformed.way_out)) << malformed.text << '\n' << message;
    }
}

TEST(Csv, AMissingFileIsNamed) {
    try {
        read_csv("nowhere/plan.csv");
        FAIL();
    } catch (const Error& error) {
        EXPECT_TRUE(contains(error.what(), "nowhere/plan.csv"));
    }
}

TEST(Csv, FilesAreRead) {
    const TemporaryFolder folder;
    const CsvPlan read = read_csv(folder.write("mine.csv", kSummed));
    EXPECT_EQ(read.plan.schedule, "mine.csv");
    EXPECT_EQ(print_csv(read.plan, true), kSummed);
}

// Schedule1F1B._get_pipeline_order writes the last rank's forwards one too high.
TEST(Csv, ForwardsOfTheLastRankAreCorrected) {
    const CsvPlan read = parse_csv("0F0,0F1,,0B0,0F2,0B1,,0B2\n,1F1,1B0,1F2,1B1,1F3,1B2\n", "plan.csv");
    const CsvPlan meant = parse_csv("0F0,0F1,,0B0,0F2,0B1,,0B2\n,1F0,1B0,1F1,1B1,1F2,1B2\n", "plan.csv");
    EXPECT_EQ(read.plan.order, meant.plan.order);
    ASSERT_EQ(read.notices.size(), 1u);
    EXPECT_EQ(read.notices.front(),
              "plan.csv: row 2 has the forwards 1 to 3 of stage 1, as PyTorch's Schedule1F1B writes them for the last "
              "rank; they are read as 0 to 2");
    EXPECT_TRUE(meant.notices.empty());
    for (const char* other :
         {"0F0,0F1,0B0,0B1\n1F1,1B0,1F3,1B1", "0F1,0B0,0F2,0B1\n1F1,1B0,1F2,1B1", "0F1,0B0,0F2,0B1\n1F0,1B0,1F1,1B1"})
        EXPECT_THROW(parse_csv(other, "plan.csv"), Error) << other;
}

// PyTorch 2.15, Schedule1F1B on two ranks with its own pass for reductions.
TEST(Csv, ForwardsOfTheLastRankAreCorrectedWithReductions) {
    const CsvPlan read = parse_csv(
        "0F0,0F1,0B0,0F2,0B1,0F3,0B2,0B3,0REDUCE_GRAD,0WAIT_REDUCE_GRAD\n"
        "1F1,1B0,1F2,1B1,1F3,1B2,1F4,1B3,1REDUCE_GRAD,1WAIT_REDUCE_GRAD\n",
        "plan.csv");
    EXPECT_EQ(read.plan.order, parse_csv("0F0,0F1,0B0,0F2,0B1,0F3,0B2,0B3,0REDUCE_GRAD\n"
                                         "1F0,1B0,1F1,1B1,1F2,1B2,1F3,1B3,1REDUCE_GRAD\n",
                                         "plan.csv")
                                   .plan.order);
    ASSERT_EQ(read.notices.size(), 1u);
}

}  // namespace pw
