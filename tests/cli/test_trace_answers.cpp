// What a measured trace answers: its bubble by cause, what would shorten its step, and which steps were slow.
#include "tests/support/cli_rig.h"
#include "tests/support/refusal.h"

#include <fmt/format.h>

#include <string>

namespace pw {

namespace {

constexpr int kMillisecond = 1'000'000;

class AnswersOfTraces : public Cli {
protected:
    using Ns = std::int64_t;

    // Two micro-batches on two devices, F 10 ms, B 20 ms, `hop` ms for a message. In step `slow` the second forward of
    // device 1 takes 15 ms longer. Steps begin every 200 ms.
    void write_trace(int hop = 0, int steps = 1, int slow = -1) const {
        Json events = Json::array();
        for (int step = 0; step < steps; ++step) {
            const int more = step == slow ? 15 : 0;
            const auto add = [&](const char* name, int device, int start, int duration) {
                events.push_back({{"ph", "X"},
                                  {"name", name},
                                  {"pid", device},
                                  {"ts", (start + 200 * step) * 1000},
                                  {"dur", duration * 1000}});
            };
            add("F0", 0, 0, 10);
            add("F1", 0, 10, 10);
            add("F0", 1, 10 + hop, 10);
            add("B0", 1, 20 + hop, 20);
            add("F1", 1, 40 + hop, 10 + more);
            add("B1", 1, 50 + hop + more, 20);
            add("B0", 0, 40 + 2 * hop, 20);
            add("B1", 0, 70 + 2 * hop + more, 20);
        }
        write("foreign.json", events.dump());
    }
    Json answers() const {
        return run_well("compare foreign.json --replay --explain --json").json()["explanation"]["answers"];
    }
    static Ns saved_by(const Json& answers, const std::string& what) {
        for (const Json& change : answers["changes"])
            if (change["with"] == what)
                return change["saved_ns"].get<Ns>();
        return 0;
    }
};

}  // namespace

// Device 1 waits 10 ms for its first task and 20 ms after its last. Device 0 waits from 20 to 40 and from 60 to 70.
TEST_F(AnswersOfTraces, TheBubbleHasCauses) {
    write_trace();
    const Json json = answers();
    EXPECT_EQ(json["device_time_ns"], 180 * kMillisecond);
    EXPECT_EQ(json["bubble"], (Json{{"warm_up_ns", 10 * kMillisecond},
                                    {"cool_down_ns", 20 * kMillisecond},
                                    {"dependency_ns", 30 * kMillisecond}}));
    EXPECT_EQ(json["steps"], 1);
    EXPECT_EQ(json["slow_steps"], Json::array());
    expect_says(run_well("compare foreign.json --replay --explain").out,
                {"bubble by cause", "warm-up                10.00 ms          5.6 %",
                 "all                    60.00 ms         33.3 %"});
}

// 92 ms, of which the two messages before the last task take 2. The rest of the idle time is 4 ms: 1 before 1F0 (which
// begins later), 2 before 0B0 and 1 after 1B1.
TEST_F(AnswersOfTraces, MessagesTakeTime) {
    write_trace(1);
    const Json json = answers();
    EXPECT_EQ(json["device_time_ns"], 184 * kMillisecond);
    EXPECT_EQ(json["bubble"]["mechanics_ns"], 4 * kMillisecond);
    EXPECT_EQ(saved_by(json, "messages that take no time"), 2 * kMillisecond);
    EXPECT_EQ(saved_by(json, "equal stages"), 0);
}

// As measured, device 0 waits from 20 to 41 and from 62 to 71 for device 1, and each time 1 ms more for the message.
// The page has the same table, and the table of the replay.
TEST_F(AnswersOfTraces, IdleTimeIsAsMeasuredToo) {
    write_trace(1);
    const Json idle = run_well("compare foreign.json --replay --explain --json").json()["explanation"]["measured_idle"];
    const Json devices = run_well("validate foreign.json --json").json()["devices"];
    ASSERT_EQ(idle.size(), 2u);
    EXPECT_EQ(idle[0]["dependency_ns"], 30 * kMillisecond);
    EXPECT_EQ(idle[0]["hand_over_ns"], 2 * kMillisecond);
    EXPECT_EQ(idle[1]["warm_up_ns"], 11 * kMillisecond);
    EXPECT_EQ(idle[1]["cool_down_ns"], 21 * kMillisecond);
    for (std::size_t device = 0; device < idle.size(); ++device) {
        Ns sum = 0;
        for (const auto& [cause, time] : idle[device].items())
            sum += time.get<Ns>();
        EXPECT_EQ(sum, devices[device]["idle_ns"]) << device;
    }
    expect_says(run_well("compare foreign.json --replay --explain").out,
                {"In the replay:", "As measured, as pages draw it:", "hand-over"});
    run_well("plot foreign.json -o x.html");
    expect_says(
        read("x.html"),
        {"<summary>Idle time by cause, as measured</summary>", "<summary>Idle time by cause, in the replay</summary>",
         "<td>0</td><td>32.00 ms</td><td>0 ns</td><td>0 ns</td><td>30.00 ms</td><td>2.000 ms</td>"});
}

// The same numbers as of the config that import writes: a schedule's step, less the step in the measured order.
TEST_F(AnswersOfTraces, OtherSchedulesAreThoseOfTheConfig) {
    write_trace();
    const Json json = answers();
    run_well("import foreign.json -o model.yaml");
    const auto step_of = [&](const std::string& options) {
        return run_well("simulate model.yaml --json" + options).json()["step_time_ns"].get<Ns>();
    };
    int schedules = 0;
    for (const Json& change : json["changes"])
        if (change.contains("schedule")) {
            ++schedules;
            const std::string name = change["schedule"];
            EXPECT_EQ(change["saved_ns"], step_of("") - step_of(" --set pipeline.schedule=" + name)) << name;
            EXPECT_EQ(change["step_time_ns"], 90 * kMillisecond - change["saved_ns"].get<Ns>());
        }
    EXPECT_GE(schedules, 1);  // with parts of backwards, of which each takes half of the time
}

TEST_F(AnswersOfTraces, SlowStepsNameTheirDevice) {
    write_trace(0, 5, 3);
    const Json json = answers();
    EXPECT_EQ(json["steps"], 5);
    EXPECT_EQ(json["median_step_ns"], 90 * kMillisecond);
    ASSERT_EQ(json["slow_steps"].size(), 1u);
    EXPECT_EQ(
        json["slow_steps"][0],
        (Json{
            {"step", 3}, {"step_time_ns", 105 * kMillisecond}, {"device", 1}, {"over_median_ns", 15 * kMillisecond}}));
    expect_says(run_well("compare foreign.json --replay --explain").out,
                {"Steps after the first: 4, in the median 90.00 ms.", "105.0 ms"});
    write_trace(0, 5);
    expect_says(run_well("compare foreign.json --replay --explain").out,
                {"No step after the first of 5 takes 5 % more than the median, 90.00 ms."});
}

TEST_F(AnswersOfTraces, AreOnThePage) {
    write_trace(1, 5, 3);
    run_well("plot foreign.json -o x.html");
    const std::string page = read("x.html");
    for (const char* title : {"What would shorten the step", "Slow steps"})
        EXPECT_NE(page.find(title), std::string::npos) << title;
    run_well("simulate uniform.yaml --plot y.html");
    EXPECT_EQ(read("y.html").find("What would shorten the step"), std::string::npos);
}

}  // namespace pw
