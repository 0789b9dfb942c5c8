// Traces that another program wrote, with our args and little else.
#include "schedules/trace/trace_json.h"
#include "schedules/trace/trace_plan.h"
#include "tests/support/refusal.h"
#include "tests/support/shapes.h"
#include "tests/support/temporary_folder.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

namespace pw {
namespace {

using nlohmann::json;

json event_of(int device, double ts, double dur, const char* op, int stage, int peer = -1) {
    json event = {{"ph", "X"},
                  {"pid", device},
                  {"ts", ts},
                  {"dur", dur},
                  {"args", {{"op", op}, {"stage", stage}, {"microbatch", 0}}}};
    if (peer >= 0)
        event["args"]["peer"] = peer;
    return event;
}

// One micro-batch on two devices: events in no particular order, with others that are no tasks.
json foreign() {
    return {{"traceEvents",
             {event_of(1, 5.5, 1, "U", 1),
              event_of(0, 8, 1, "U", 0),
              event_of(0, 6, 2, "B", 0),
              event_of(0, 5.5, 0, "RECV_B", 0, 1),
              event_of(1, 5.5, 0, "SEND_B", 1, 0),
              event_of(1, 3.5, 2, "B", 1),
              event_of(1, 2.5, 1, "F", 1),
              event_of(1, 1.5, 0.75, "RECV_F", 1, 0),
              event_of(0, 1.5, 0.5, "SEND_F", 0, 1),
              event_of(0, 0, 1.5, "F", 0),
              {{"ph", "X"}, {"pid", 0}, {"ts", 0}, {"dur", 9}, {"name", "kernel"}},
              {{"ph", "M"}, {"pid", 0}, {"name", "process_name"}}}}};
}

class ForeignTrace : public testing::Test {
protected:
    Trace read(const json& file) const { return read_foreign_trace(folder_.write("foreign.json", file.dump())); }

    void expect_refused(const std::function<void(json&)>& change, const std::vector<std::string>& says) const {
        json file = foreign();
        change(file);
        expect_says(refusal([&] {
                        const Trace trace = read(file);
                        check_trace(trace, "foreign.json");
                    }),
                    says);
    }

    TemporaryFolder folder_;
};

TEST_F(ForeignTrace, IsReadFromItsTasksAlone) {
    const Trace trace = read(foreign());
    check_trace(trace, "foreign.json");
    EXPECT_EQ(trace.devices, 2);
    EXPECT_EQ(trace.stages, 2);
    EXPECT_EQ(trace.micro_batches, 1);
    EXPECT_EQ(trace.stages_of, (std::vector<std::vector<int>>{{0}, {1}}));
    EXPECT_EQ(print(plan_of(trace)),
              "0: 0F0 0SEND_F0>1 0RECV_B0<1 0B0 0U0\n"
              "1: 1RECV_F0<0 1F0 1B0 1SEND_B0>0 1U0\n");
    EXPECT_EQ(trace.events.front().end, 1500);
    EXPECT_EQ(trace.events[5].end, 2250);
}

TEST_F(ForeignTrace, NeedsNoTransfers) {
    json file = foreign();
    json tasks = json::array();
    for (const json& event : file["traceEvents"])
        if (!event.contains("args") || !event["args"].contains("peer"))
            tasks.push_back(event);
    file["traceEvents"] = tasks;
    EXPECT_EQ(print(plan_of(read(file))), "0: 0F0 0B0 0U0\n1: 1F0 1B0 1U0\n");
}

// A trace that write_trace wrote stays as it is.
TEST_F(ForeignTrace, ReadsOwnTracesUnchanged) {
    const Plan plan = plan_of("gpipe", 2, 3);
    Trace trace = trace_of(plan);
    trace.label = "predicted";
    for (int device = 0; device < 2; ++device)
        for (const Task& task : plan.order[static_cast<std::size_t>(device)])
            trace.events.push_back({0, device, 0, task, 0, 0, 0, -1});
    const std::string path = (folder_.path() / "ours.json").string();
    write_trace(trace, path);
    EXPECT_EQ(read_foreign_trace(path), read_trace(path));
    EXPECT_EQ(plan_of(read_trace(path)).order, plan.order);
}

TEST_F(ForeignTrace, ReportsWhatIsMissing) {
    expect_refused([](json& file) { file["traceEvents"] = json::array(); },
                   {"none of its events is a task", "args op"});
    expect_refused([](json& file) { file.erase("traceEvents"); }, {"no key 'traceEvents'"});
    for (const char* key : {"microbatch", "peer"})
        expect_refused([&](json& file) { file["traceEvents"][3]["args"].erase(key); }, {"traceEvents[3].args", key});
    expect_refused([](json& file) { file["traceEvents"][3].erase("dur"); }, {"traceEvents[3]", "'dur'", "start_ns"});
    expect_refused([](json& file) { file["traceEvents"][3].erase("ts"); },
                   {"traceEvents[3]", "start_ns", "ts and dur"});
    expect_refused([](json& file) { file["traceEvents"][3].erase("pid"); }, {"traceEvents[3]", "'pid'"});
    expect_refused([](json& file) { file["traceEvents"][3]["ts"] = -1; }, {"traceEvents[3]", "microseconds"});
    expect_refused([](json& file) { file["traceEvents"][2]["args"]["op"] = "aten::mm"; },
                   {"traceEvents[2].args.op", "unknown operation 'aten::mm'"});
    expect_refused([](json& file) { file["traceEvents"][2]["args"]["microbatch"] = 2'000'000'000; },
                   {"10 tasks are not all of 2000000001 micro-batches"});
    expect_refused([](json& file) { file["traceEvents"][2]["args"]["stage"] = 2'000'000'000; }, {"traceEvents[2]"});
    for (const int peer : {-1, 0, 2, 2'000'000'000})
        expect_refused([&](json& file) { file["traceEvents"][3]["args"]["peer"] = peer; },
                       {"traceEvents[3].args.peer", "0RECV_B0", "2 stages"});
    expect_refused([](json& file) { file["traceEvents"].erase(4); }, {"step 0 of device 1 has no 1SEND_B0>0"});
    expect_refused([](json& file) { file["traceEvents"].erase(6); }, {"0SEND_F0>1", "is missing"});
    expect_refused([](json& file) { file["traceEvents"].push_back(file["traceEvents"][9]); }, {"runs 0F0 twice"});
    expect_refused([](json& file) { file["traceEvents"][2]["ts"] = 0.5; }, {"begins before"});
}

TEST_F(ForeignTrace, LaterStepsRunTheTasksOfTheFirst) {
    const auto add_step = [](json& file, std::size_t without) {
        const json events = file["traceEvents"];
        for (std::size_t k = 0; k < 10; ++k) {
            json event = events[k];
            event["args"]["step"] = 1;
            event["ts"] = event["ts"].get<double>() + 20;
            if (k != without)
                file["traceEvents"].push_back(event);
        }
    };
    json file = foreign();
    add_step(file, 99);
    EXPECT_EQ(read(file).events.size(), 20u);
    expect_refused([&](json& changed) { add_step(changed, 6); }, {"step 1 of device 1 has no 1F0"});
}

}  // namespace
}  // namespace pw
