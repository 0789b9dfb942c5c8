// Golden orders: the tasks that each schedule writes on each device. They follow from the published rules. Those of
// interleaved zero bubble and ZB-V equal PyTorch's tables (pytorch 00722e648b74,
// torch/distributed/pipelining/schedules.py and test/distributed/pipelining/artifacts).
#include "tests/support/refusal.h"
#include "tests/support/shapes.h"
#include "workloads/error.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <utility>

namespace pw {
namespace {

std::string computed_row_of(const Plan& plan, int device) {
    std::string text;
    for (const Task& task : plan.order[device])
        if (is_compute(task.op))
            text += (text.empty() ? "" : " ") + print(task);
    return text;
}

struct Golden {
    const char* schedule;
    int p, m, chunks;
    std::vector<std::string> rows;
};

TEST(Orders, AreThePublishedOnes) {
    const Golden goldens[] = {
        {"1f1b",
         4,
         8,
         1,
         {"0F0 0F1 0F2 0F3 0B0 0F4 0B1 0F5 0B2 0F6 0B3 0F7 0B4 0B5 0B6 0B7",
          "1F0 1F1 1F2 1B0 1F3 1B1 1F4 1B2 1F5 1B3 1F6 1B4 1F7 1B5 1B6 1B7",
          "2F0 2F1 2B0 2F2 2B1 2F3 2B2 2F4 2B3 2F5 2B4 2F6 2B5 2F7 2B6 2B7",
          "3F0 3B0 3F1 3B1 3F2 3B2 3F3 3B3 3F4 3B4 3F5 3B5 3F6 3B6 3F7 3B7"}},
        {"interleaved",
         2,
         4,
         2,
         {"0F0 0F1 2F0 2F1 0F2 2B0 0F3 2B1 2F2 0B0 2F3 0B1 2B2 2B3 0B2 0B3",
          "1F0 1F1 3F0 3B0 3F1 3B1 1F2 1B0 1F3 1B1 3F2 3B2 3F3 3B3 1B2 1B3"}},
        {"bfs", 2, 2, 2, {"0F0 0F1 2F0 2F1 2B1 2B0 0B1 0B0", "1F0 1F1 3F0 3F1 3B1 3B0 1B1 1B0"}},
        {"zb-h1",
         4,
         6,
         1,
         {"0F0 0F1 0F2 0F3 0I0 0W0 0F4 0I1 0W1 0F5 0I2 0W2 0I3 0W3 0I4 0W4 0I5 0W5",
          "1F0 1F1 1F2 1I0 1F3 1I1 1W0 1F4 1I2 1W1 1F5 1I3 1W2 1I4 1W3 1I5 1W4 1W5",
          "2F0 2F1 2I0 2F2 2I1 2F3 2I2 2W0 2F4 2I3 2W1 2F5 2I4 2W2 2I5 2W3 2W4 2W5",
          "3F0 3I0 3F1 3I1 3F2 3I2 3F3 3I3 3W0 3F4 3I4 3W1 3F5 3I5 3W2 3W3 3W4 3W5"}},
        {"zb-h2",
         3,
         6,
         1,
         {"0F0 0F1 0F2 0F3 0F4 0I0 0W0 0F5 0I1 0W1 0I2 0W2 0I3 0W3 0I4 0W4 0I5 0W5",
          "1F0 1F1 1F2 1I0 1F3 1I1 1F4 1I2 1W0 1F5 1I3 1W1 1I4 1W2 1I5 1W3 1W4 1W5",
          "2F0 2I0 2F1 2I1 2F2 2I2 2F3 2I3 2F4 2I4 2W0 2F5 2I5 2W1 2W2 2W3 2W4 2W5"}},
        {"zb1p",
         2,
         4,
         2,
         {"0F0 0F1 2F0 2F1 2I0 2W0 0F2 2I1 2W1 0F3 0I0 0W0 2F2 0I1 0W1 2F3 2I2 2W2 2I3 2W3 0I2 0W2 0I3 0W3",
          "1F0 1F1 3F0 3I0 3F1 3I1 3W0 1F2 1I0 3W1 1F3 1I1 1W0 3F2 3I2 1W1 3F3 3I3 3W2 1I2 3W3 1I3 1W2 1W3"}},
        {"zb-v",
         2,
         4,
         2,
         {"0F0 0F1 0F2 3F0 3I0 3W0 3F1 3I1 3W1 0F3 0I0 0W0 3F2 3I2 3W2 0I1 0W1 3F3 3I3 3W3 0I2 0W2 0I3 0W3",
          "1F0 2F0 1F1 2F1 2I0 2W0 1F2 1I0 1W0 2F2 2I1 2W1 1F3 1I1 1W1 2F3 2I2 2W2 1I2 2I3 1I3 1W2 2W3 1W3"}},
        {"v-half",
         2,
         3,
         2,
         {"0F0 0F1 0F2 3F0 3I0 3W0 3F1 3I1 0I0 3W1 0W0 3F2 3I2 0I1 3W2 0I2 0W1 0W2",
          "1F0 2F0 1F1 2F1 2I0 1I0 2W0 1F2 1W0 2F2 2I1 1I1 2I2 1I2 2W1 1W1 2W2 1W2"}},
        {"v-min",
         3,
         4,
         2,
         {"0F0 0F1 0F2 5F0 5I0 5W0 5F1 5I1 5W1 0F3 0I0 0W0 5F2 5I2 0I1 5W2 0W1 5F3 5I3 0I2 5W3 0W2 0I3 0W3",
          "1F0 1F1 4F0 4F1 4I0 4W0 1F2 4I1 1I0 4W1 1F3 1W0 4F2 1I1 1W1 4I2 4W2 4F3 1I2 4I3 1W2 4W3 1I3 1W3",
          "2F0 3F0 2F1 3F1 3I0 2I0 3W0 2F2 2W0 3F2 3I1 2I1 3W1 2F3 2W1 3F3 3I2 2I2 3W2 2W2 3I3 2I3 3W3 2W3"}},
        {"hanayo",
         3,
         3,
         2,
         {"0F0 0F1 0F2 5F0 5B0 5F1 5B1 5F2 5B2 0B0 0B1 0B2", "1F0 1F1 1F2 4F0 4F1 4B0 4F2 4B1 1B0 4B2 1B1 1B2",
          "2F0 3F0 2F1 3F1 2F2 3F2 3B0 2B0 3B1 2B1 3B2 2B2"}},
        {"hanayo", 2, 1, 4, {"0F0 3F0 4F0 7F0 7B0 4B0 3B0 0B0", "1F0 2F0 5F0 6F0 6B0 5B0 2B0 1B0"}},
        {"dualpipe-v",
         2,
         4,
         2,
         {"0F0 0F1 0F2 3F0 3I0 3W0 3F1 0F3 3B1 3F2 0B0 3B2 3F3 0B1 3B3 0I2 0W2 0I3 0W3",
          "1F0 2F0 1F1 2F1 1F2 2B0 2F2 1B0 1F3 2B1 2F3 1B1 2B2 1B2 2I3 1I3 2W3 1W3"}},
        {"chimera",
         4,
         4,
         1,
         {"0F0 0F2 3F1 3B1 3F3 3B3 0B0 0B2", "1F0 2F1 1F2 2F3 2B1 1B0 2B3 1B2", "1F1 2F0 1F3 2F2 2B0 1B1 2B2 1B3",
          "0F1 0F3 3F0 3B0 3F2 3B2 0B1 0B3"}},
        {"dualpipe",
         4,
         8,
         1,
         {"0F0 0F2 0F4 3F1 3I1 3W1 3F3 0F6 3B3 3F5 0B0 3B5 3F7 0B2 3B7 0I4 0W4 0I6 0W6",
          "1F0 2F1 1F2 2F3 1F4 2B1 2F5 1B0 1F6 2B3 2F7 1B2 2B5 1B4 2I7 1I6 2W7 1W6",
          "1F1 2F0 1F3 2F2 1F5 2B0 2F4 1B1 1F7 2B2 2F6 1B3 2B4 1B5 2I6 1I7 2W6 1W7",
          "0F1 0F3 0F5 3F0 3I0 3W0 3F2 0F7 3B2 3F4 0B1 3B4 3F6 0B3 3B6 0I5 0W5 0I7 0W7"}},
        {"eager-1f1b", 2, 4, 1, {"0F0 0F1 0F2 0B0 0F3 0B1 0B2 0B3", "1F0 1B0 1F1 1B1 1F2 1B2 1F3 1B3"}},
        {"forward-only", 2, 3, 2, {"0F0 0F1 2F0 2F1 0F2 2F2", "1F0 1F1 3F0 3F1 1F2 3F2"}},
    };
    for (const Golden& golden : goldens) {
        const Plan plan = plan_of(golden.schedule, golden.p, golden.m, golden.chunks);
        for (int device = 0; device < golden.p; ++device)
            EXPECT_EQ(computed_row_of(plan, device), golden.rows[static_cast<std::size_t>(device)])
                << golden.schedule << " on device " << device;
    }
}

TEST(Orders, DrainsAreAnOption) {
    PlanOptions lifo, fifo;
    lifo.schedule.drain = ScheduleOptions::Drain::Lifo;
    fifo.schedule.drain = ScheduleOptions::Drain::Fifo;
    EXPECT_EQ(computed_row_of(plan_of("gpipe", 1, 3), 0), "0F0 0F1 0F2 0B0 0B1 0B2");
    EXPECT_EQ(computed_row_of(plan_of("gpipe", 1, 3, 1, lifo), 0), "0F0 0F1 0F2 0B2 0B1 0B0");
    EXPECT_EQ(computed_row_of(plan_of("bfs", 1, 2, 2, fifo), 0), "0F0 0F1 1F0 1F1 1B0 1B1 0B0 0B1");
}

// With one stage on each device, a looped schedule equals one for single stages, and same_orders_as() returns its name.
TEST(Orders, LoopedSchedulesOfOneStageEqualOthersTaskByTask) {
    const std::pair<const char*, const char*> twins[] = {
        {"interleaved", "eager-1f1b"}, {"bfs", "gpipe with drain: lifo"}, {"zb1p", "zb-h1"}};
    for (const auto& [looped, other] : twins)
        for (int p = 1; p <= 6; ++p)
            for (int m = 1; m <= 3 * p; ++m) {
                if (m > p && m % p != 0)
                    continue;  // rounds of unequal length
                const Plan plan = plan_of(looped, p, m);
                const std::string said = same_orders_as(schedule_named(looped), plan.shape, {});
                EXPECT_EQ(said, m == 1 && looped == std::string("bfs") ? "gpipe" : other) << p << ' ' << m;
            }
    for (const char* looped : {"interleaved", "bfs", "zb1p"})
        EXPECT_EQ(same_orders_as(schedule_named(looped), plan_of(looped, 2, 4, 2).shape, {}), "");
    for (const char* other : {"1f1b", "gpipe", "zb-h1", "naive"})
        EXPECT_EQ(same_orders_as(schedule_named(other), plan_of(other, 2, 4).shape, {}), "");
}

TEST(Orders, ZbVPlacesStagesInAV) {
    for (const char* schedule : {"zb-v", "v-half", "v-min", "hanayo"}) {
        const Shape shape = plan_of(schedule, 2, 4, 2).shape;
        EXPECT_EQ(shape.stages_of(0), (std::vector<int>{0, 3})) << schedule;
        EXPECT_EQ(shape.stages_of(1), (std::vector<int>{1, 2})) << schedule;
    }
}

// Two waves: down the devices and up again, twice.
TEST(Orders, HanayoPlacesStagesInWaves) {
    const Shape shape = plan_of("hanayo", 4, 4, 4).shape;
    std::vector<int> devices;
    for (int stage = 0; stage < 16; ++stage)
        devices.push_back(shape.devices_of(stage).front());
    EXPECT_EQ(devices, (std::vector<int>{0, 1, 2, 3, 3, 2, 1, 0, 0, 1, 2, 3, 3, 2, 1, 0}));
}

// The sums of gradients then have the order of all other schedules.
TEST(Orders, PassesOfAStageKeepTheOrderOfMicroBatches) {
    for (const char* schedule : {"v-half", "v-min", "hanayo"})
        for (int p = 1; p <= 9; ++p)
            for (const int m : {1, 2, 3, p + 1, 3 * p + 2})
                for (const auto& order : plan_of(schedule, p, m, 2).order) {
                    std::map<std::pair<Op, int>, int> next;
                    for (const Task& task : order)
                        if (is_compute(task.op)) {
                            const int expected = next[{task.op, task.stage}]++;
                            EXPECT_EQ(task.microbatch, expected) << schedule << ' ' << p << ' ' << m << print(task);
                        }
                }
}

// With fewer micro-batches than the order is made for, those beyond are left out and no other is dropped.
TEST(Orders, ZbVRunsAnyNumberOfMicroBatches) {
    for (int p = 1; p <= 6; ++p)
        for (int m = 1; m <= 2 * p + 1; ++m)
            for (const auto& order : plan_of("zb-v", p, m, 2).order)
                EXPECT_EQ(
                    std::count_if(order.begin(), order.end(), [](const Task& task) { return is_compute(task.op); }),
                    6 * m);
}

// The cells of each row of PyTorch's dualpipev_4rank_10mb.csv, where a pair is one.
TEST(Orders, DualPipeVPairsAForwardWithABackward) {
    const Plan plan = plan_of("dualpipe-v", 4, 10, 2);
    const int cells[] = {38, 36, 34, 33}, first_pair[] = {0, 0, 0, 1};
    for (int device = 0; device < 4; ++device) {
        int compute = 0, pairs = 0;
        const Tasks& order = plan.order[static_cast<std::size_t>(device)];
        for (std::size_t at = 0; at < order.size(); ++at) {
            compute += is_compute(order[at].op);
            if (!order[at].with_next)
                continue;
            ++pairs;
            const auto next = std::find_if(order.begin() + static_cast<std::ptrdiff_t>(at) + 1, order.end(),
                                           [](const Task& task) { return is_compute(task.op); });
            EXPECT_EQ(order[at].op, Op::Forward);
            EXPECT_EQ(next->op, Op::Backward);
            EXPECT_NE(next->stage, order[at].stage);
        }
        EXPECT_EQ(compute - pairs, cells[device]);
        EXPECT_EQ(pairs, 2 * (10 - 2 * 4 + device + 1) - first_pair[device] + (4 - device - 1));
    }
}

// Where F and B take one slot each, units of p micro-batches follow each other without more idle slots.
TEST(Orders, ChimeraBeginsAUnitInTheSlotsOfThePreviousOne) {
    EXPECT_EQ(computed_row_of(plan_of("chimera", 4, 8), 0),
              "0F0 0F2 3F1 3B1 3F3 3B3 0B0 0F4 0B2 0F6 3F5 3B5 3F7 3B7 0B4 0B6");
    EXPECT_EQ(computed_row_of(plan_of("chimera", 2, 4), 1), "0F1 1F0 1B0 0B1 0F3 1F2 1B2 0B3");
    EXPECT_EQ(computed_row_of(plan_of("chimera", 4, 5), 3), "0F1 0F3 3F0 3B0 3F2 3B2 0B1 0B3 3F4 3B4");
}

// The loops of the authors' training program (chimera_bert, forward doubling), written out for four devices.
TEST(Orders, ChimeraDoublesForwards) {
    const PlanOptions doubling{.schedule = {.concatenation = ScheduleOptions::Concatenation::ForwardDoubling}};
    const Plan plan = plan_of("chimera", 4, 8, 1, doubling);
    EXPECT_EQ(computed_row_of(plan, 0), "0F0 0F2 0F4 0F6 3F1 3F3 3B1 3F5 3F7 3B3 0B0 3B5 0B2 3B7 0B4 0B6");
    EXPECT_EQ(computed_row_of(plan, 1), "1F0 1F2 2F1 2F3 1F4 1F6 2F5 2F7 2B1 1B0 2B3 1B2 2B5 1B4 2B7 1B6");
    EXPECT_EQ(computed_row_of(plan, 3), "0F1 0F3 0F5 0F7 3F0 3F2 3B0 3F4 3F6 3B2 0B1 3B4 0B3 3B6 0B5 0B7");
    EXPECT_EQ(computed_row_of(plan_of("chimera", 2, 8, 1, doubling), 0),
              "0F0 0F2 1F1 1F3 1B1 0B0 1B3 0B2 0F4 0F6 1F5 1F7 1B5 0B4 1B7 0B6");
    EXPECT_NE(refusal([&] { plan_of("chimera", 4, 12, 1, doubling); }).find("has units of 8 micro-batches: this is 12"),
              std::string::npos);
}

TEST(Orders, NamesOfOtherToolsAreAccepted) {
    const std::pair<const char*, const char*> names[] = {
        {"GPipe", "gpipe"},         {"1F1B", "1f1b"},          {"Interleaved1F1B", "interleaved"},
        {"LoopedBFS", "bfs"},       {"ZBVZeroBubble", "zb-v"}, {"InterleavedZeroBubble", "zb1p"},
        {"basic_1f1b", "1f1b"},     {"zbv-formatted", "zb-v"}, {"interleave", "interleaved"},
        {"VHalf", "v-half"},        {"V_Min", "v-min"},        {"Hanayo", "hanayo"},
        {"zb1p", "zb1p"},           {"ZB_H1", "zb-h1"},        {"PipeDream-2BW", "pipedream-2bw"},
        {"PIPEDREAM", "pipedream"}, {"VPP", "interleaved"},    {"DualPipeV", "dualpipe-v"},
        {"Seq1F1B", "seq1f1b"},     {"seq_1f1b", "seq1f1b"}};
    for (const auto& [alias, name] : names)
        EXPECT_EQ(schedule_named(alias).name, name);
    for (const char* wrong : {"", " ", "2f2b", "zbv zbvzerobubble"})
        EXPECT_THROW(schedule_named(wrong), Error) << wrong;
}

std::string error_of(const char* schedule, int p, int m, int chunks, int group = 0) {
    PlanOptions options;
    options.schedule.group = group;
    try {
        plan_of(schedule, p, m, chunks, options);
    } catch (const Error& error) {
        EXPECT_EQ(error.code(), ExitCode::BadInput);
        return error.what();
    }
    return "accepted";
}

// If a rule forbids a shape, the error has the rule and the nearest legal values.
TEST(Orders, ErrorsHaveTheNearestLegalValues) {
    EXPECT_EQ(error_of("interleaved", 4, 10, 2), "accepted");  // two rounds of 5
    EXPECT_EQ(error_of("interleaved", 4, 3, 2), "accepted");
    EXPECT_EQ(error_of("zb1p", 4, 7, 2), "accepted");
    EXPECT_EQ(error_of("zb1p", 4, 9, 2),
              "9 micro-batches on 4 devices make 2 rounds, which must be equally long\n  help: take 8 or 10 "
              "micro-batches, or groups of 5");
    EXPECT_EQ(error_of("interleaved", 4, 9, 2, 5), "accepted");  // a last group of 4
    EXPECT_NE(error_of("interleaved", 4, 9, 2, 4).find("take groups of 5"), std::string::npos);
    EXPECT_NE(error_of("interleaved", 4, 8, 2, 3).find("take groups of 4"), std::string::npos);
    EXPECT_EQ(error_of("interleaved", 6, 3, 2, 6),
              "a group of 6 micro-batches for 3 micro-batches on 6 devices: a group has at least as many as there are "
              "devices\n  help: leave the group out, or take 6 micro-batches or more");
    EXPECT_NE(error_of("interleaved", 4, 3, 2, 3).find("leave the group out"), std::string::npos);
    EXPECT_NE(error_of("1f1b", 4, 8, 2).find("set the number of stages to 4"), std::string::npos);
    EXPECT_NE(error_of("v-half", 4, 8, 1).find("set the number of stages to 8"), std::string::npos);
    EXPECT_NE(error_of("v-min", 4, 8, 4).find("set the number of stages to 8"), std::string::npos);
    EXPECT_EQ(
        error_of("hanayo", 4, 8, 1),
        "schedule hanayo places an even number of stages on each device: 4 stages on 4 devices do not fit\n  help: "
        "set the number of stages to 8");
    EXPECT_NE(error_of("hanayo", 4, 8, 5).find("set the number of stages to 24"), std::string::npos);
    EXPECT_EQ(error_of("hanayo", 4, 7, 6), "accepted");
    EXPECT_NE(error_of("zb-v", 4, 8, 3).find("set the number of stages to 8"), std::string::npos);
    EXPECT_NE(error_of("pipedream-2bw", 4, 3, 1).find("take 4 micro-batches or more"), std::string::npos);
    EXPECT_EQ(error_of("dualpipe-v", 4, 8, 2), "accepted");
    EXPECT_EQ(error_of("dualpipe-v", 4, 7, 2),
              "a V of 8 stages is filled by at least as many micro-batches: this is 7\n  help: take 8 micro-batches or "
              "more");
    EXPECT_EQ(error_of("chimera", 4, 2, 1), "accepted");
    EXPECT_NE(error_of("chimera", 4, 1, 1).find("take 2 micro-batches or more"), std::string::npos);
    for (const char* name : {"chimera", "dualpipe"}) {
        EXPECT_EQ(error_of(name, 3, 8, 1),
                  "two copies of the model in opposite directions need an even number of devices: this is 3\n  help: "
                  "take 2 or 4 devices");
        EXPECT_NE(error_of(name, 1, 8, 1).find("take 2 devices"), std::string::npos);
        EXPECT_NE(error_of(name, 4, 8, 2).find("set the number of stages to 4"), std::string::npos);
    }
    EXPECT_EQ(error_of("dualpipe", 4, 8, 1), "accepted");
    EXPECT_NE(error_of("dualpipe", 4, 6, 1).find("this is 6\n  help: take 8 micro-batches"), std::string::npos);
    EXPECT_NE(error_of("dualpipe", 4, 9, 1).find("this is 9\n  help: take 8 or 10 micro-batches"), std::string::npos);
    Shape shape;
    shape.devices = 3;
    shape.stages = 8;
    shape.microbatches = 3;
    try {
        make_plan(schedule_named("bfs"), shape);
        FAIL();
    } catch (const Error& error) {
        EXPECT_NE(std::string(error.what()).find("set the number of stages to 9"), std::string::npos) << error.what();
    }
}

}  // namespace
}  // namespace pw
