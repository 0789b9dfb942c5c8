// The rules of traces are checked task by task: well-formed nonsense is refused with its place.
#include "schedules/trace/trace.h"
#include "schedules/trace/trace_json.h"
#include "tests/support/refusal.h"
#include "tests/support/sample_traces.h"

#include <gtest/gtest.h>

#include <functional>

namespace pw {
namespace {

TraceEvent& event_of(Trace& trace, Op op, int device, int microbatch) {
    for (TraceEvent& event : trace.events)
        if (event.task.op == op && event.device == device && event.task.microbatch == microbatch)
            return event;
    throw std::out_of_range("no such event");
}

class GoodTrace : public testing::TestWithParam<SampleTrace> {};
TEST_P(GoodTrace, IsAccepted) { EXPECT_NO_THROW(check_trace(sample_trace(GetParam()), "good.json")); }
INSTANTIATE_TEST_SUITE_P(Grid, GoodTrace,
                         testing::Values(SampleTrace{}, SampleTrace{.devices = 1, .microbatches = 1},
                                         SampleTrace{.devices = 3, .jitter = 0.4, .steps = 3},
                                         SampleTrace{.transfer = 0}, SampleTrace{.transfer = 9'000'000},
                                         SampleTrace{.label = "measured"},
                                         SampleTrace{.microbatches = 16, .asynchronous = true}));

// A step of 2 devices and 3 micro-batches after `change`.
void expect_refused(const std::function<void(Trace&)>& change, const std::vector<std::string>& parts) {
    Trace trace = sample_trace({.devices = 2, .microbatches = 3});
    change(trace);
    const std::string message = refusal([&] { check_trace(trace, "bad.json"); });
    expect_says(message, {"trace 'bad.json': ", "help: "});
    expect_says(message, parts);
}

TEST(BadTrace, AStageIsOnNoDevice) {
    expect_refused([](Trace& trace) { trace.stages = 3; }, {"stage 2 is on no device"});
}

TEST(BadTrace, IsEmpty) {
    expect_refused([](Trace& trace) { trace.events.clear(); }, {"it has no tasks"});
    expect_refused([](Trace& trace) { trace.micro_batches = 0; }, {"otherData.micro_batches is 0"});
    expect_refused([](Trace& trace) { trace.label = "made up"; }, {"'predicted' nor 'measured'"});
    EXPECT_TRUE(contains(refusal([] { check_trace(Trace{}, "bad.json"); }), "bad.json"));
}

TEST(BadTrace, ATaskIsOutsideTheShape) {
    expect_refused([](Trace& trace) { event_of(trace, Op::Forward, 0, 2).task.microbatch = 2147483647; },
                   {"0F2147483647 of device 0 in step 0", "3 micro-batches"});
    expect_refused([](Trace& trace) { event_of(trace, Op::Forward, 0, 1).device = 1; },
                   {"0F1 of device 1", "does not hold stage 0"});
    expect_refused([](Trace& trace) { event_of(trace, Op::SendForward, 0, 1).task.peer = 7; }, {"7 is no stage"});
    expect_refused([](Trace& trace) { event_of(trace, Op::Forward, 0, 1).task.peer = 1; }, {"1 is no stage"});
}

TEST(BadTrace, ATaskIsMissingOrRunsTwice) {
    expect_refused(
        [](Trace& trace) {
            std::erase_if(trace.events, [](const TraceEvent& event) {
                return event.task.stage == 1 && event.task.op == Op::Forward && event.task.microbatch == 2;
            });
        },
        {"no device runs 1F2 in step 0"});
    expect_refused(
        [](Trace& trace) {
            std::erase_if(trace.events, [](const TraceEvent& event) { return event.task == Task{Op::Backward, 0, 1}; });
        },
        {"0B1", "neither this task nor both"});
    expect_refused([](Trace& trace) { event_of(trace, Op::Backward, 1, 1).task.op = Op::BackwardInput; },
                   {"1B1", "neither this task nor both"});
    expect_refused([](Trace& trace) { trace.events.push_back(event_of(trace, Op::Forward, 1, 0)); },
                   {"1F0 of device 1", "it runs again"});
    expect_refused([](Trace& trace) { event_of(trace, Op::Update, 1, 2).step = 2; }, {"no device runs 0F0 in step 1"});
}

TEST(BadTrace, TasksOfADeviceRunAtOnce) {
    expect_refused(
        [](Trace& trace) {
            for (TraceEvent& event : trace.events) {
                event.start = 0;
                event.end = std::int64_t{1} << 62;
            }
        },
        {"begins before the end of", "to 4611686018427387904 ns"});
    expect_refused([](Trace& trace) { event_of(trace, Op::Forward, 0, 0).end += 1; }, {"begins before the end of 0F0"});
}

TEST(BadTrace, ATaskRunsBeforeItsInput) {
    expect_refused(
        [](Trace& trace) {
            TraceEvent &first = event_of(trace, Op::Forward, 1, 2), &second = event_of(trace, Op::Backward, 1, 2);
            std::swap(first.start, second.start);
            std::swap(first.end, second.end);
        },
        {"1B2", "before its input is there: 1F2"});
    expect_refused([](Trace& trace) { event_of(trace, Op::RecvForward, 1, 0).end += 1; },
                   {"1F0 of device 1", "before its input is there"});
    expect_refused([](Trace& trace) { event_of(trace, Op::SendForward, 0, 0).start -= 1; },
                   {"of device 0", "before its input is there: 0F0"});
    expect_refused(
        [](Trace& trace) {
            TraceEvent& receive = event_of(trace, Op::RecvForward, 1, 0);
            receive.start = receive.end = 0;
        },
        {"ends before it is sent"});
    expect_refused(
        [](Trace& trace) {
            std::erase_if(trace.events, [](const TraceEvent& event) { return event.task.op == Op::SendForward; });
        },
        {"no device sends it"});
}

// The clocks of devices that measure times themselves are no more exact.
TEST(BadTrace, MeasuredTimesMayOverlapByAMicrosecond) {
    Trace trace = sample_trace({.devices = 2, .microbatches = 3, .label = "measured"});
    event_of(trace, Op::Forward, 0, 0).end += 1000;
    EXPECT_NO_THROW(check_trace(trace, "good.json"));
    event_of(trace, Op::Forward, 0, 0).end += 100'000;
    EXPECT_THROW(check_trace(trace, "bad.json"), Error);
}

}  // namespace
}  // namespace pw
