// Which host of a trace is slow: the rule of report/host_times.h, on times made by hand.
#include "report/host_times.h"
#include "tests/support/refusal.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <string>
#include <vector>

namespace pw {

namespace {

// Devices in turn on hosts, with 8 micro-batches each in steps 0 and 1. `work` is the time of F, B takes as long.
class TraceOfHosts {
public:
    TraceOfHosts(std::vector<std::string> hosts, int stages) {
        trace.devices = static_cast<int>(hosts.size());
        trace.stages = stages;
        trace.micro_batches = 8;
        trace.hosts = std::move(hosts);
        trace.label = "measured";
    }
    // Every fourth micro-batch takes `more` longer. Step 0 takes ten times as long.
    void add(int device, int stage, Ns work, Ns more = 0) {
        for (const int step : {0, 1})
            for (int mb = 0; mb < 8; ++mb) {
                const Ns time = (work + (mb % 4 == 0 ? more : 0)) * (step == 0 ? 10 : 1);
                trace.events.push_back({step, device, 0, {Op::Forward, stage, mb}, 0, time, 0, -1});
                trace.events.push_back({step, device, 0, {Op::Backward, stage, mb}, time, 2 * time, 0, -1});
            }
    }
    std::vector<std::string> slow() const {
        std::vector<std::string> names;
        for (const HostTimes& host : times_of_hosts(trace))
            if (host.is_slow)
                names.push_back(host.host);
        return names;
    }

    Trace trace;
};

using Names = std::vector<std::string>;

}  // namespace

// Two replicas of two stages, of which the second stage has twice the work: host b needs 10 % longer for both stages.
TEST(HostTimes, AHostIsComparedWithTheSameStagesElsewhere) {
    TraceOfHosts all({"a", "a", "b", "b"}, 2);
    all.add(0, 0, 100);
    all.add(1, 1, 200);
    all.add(2, 0, 110);
    all.add(3, 1, 220);
    EXPECT_EQ(all.slow(), Names{"b"});
    const std::vector<HostTimes> hosts = times_of_hosts(all.trace);
    ASSERT_EQ(hosts.size(), 2u);
    EXPECT_TRUE(hosts[1].same_stages);
    EXPECT_EQ(hosts[1].devices, (std::vector<int>{2, 3}));
    EXPECT_EQ(hosts[0].lower, 200);  // the first step is left out
    EXPECT_EQ(hosts[0].upper, 400);
    EXPECT_NEAR(hosts[1].more, 0.1, 1e-9);
    expect_says(words_on_hosts(hosts),
                {"The host 'b' is slow: its stages take 10.0 % longer for a micro-batch than the "
                 "same stages elsewhere."});
}

TEST(HostTimes, LessThanFivePercentIsNoDifference) {
    TraceOfHosts all({"a", "a", "b", "b"}, 2);
    all.add(0, 0, 1000);
    all.add(1, 1, 2000);
    all.add(2, 0, 1049);
    all.add(3, 1, 2098);
    EXPECT_EQ(all.slow(), Names{});
    expect_says(words_on_hosts(times_of_hosts(all.trace)), {"None of 2 hosts is told apart as slow."});
}

// One device that is slow is not a slow host.
TEST(HostTimes, AllDevicesOfTheHostHaveToBeSlow) {
    TraceOfHosts all({"a", "a", "b", "b"}, 2);
    all.add(0, 0, 100);
    all.add(1, 1, 100);
    all.add(2, 0, 150);
    all.add(3, 1, 100);
    EXPECT_EQ(all.slow(), Names{});
}

// Times elsewhere that reach the times of the host in more than a quarter of the micro-batches do not tell it apart; a
// few long tasks do not hide the difference.
TEST(HostTimes, QuartilesTellHostsApart) {
    TraceOfHosts few({"a", "b"}, 1);
    few.add(0, 0, 100, 900);
    few.add(1, 0, 120);
    EXPECT_EQ(few.slow(), Names{"b"});
    TraceOfHosts many({"a", "b"}, 1);
    many.add(0, 0, 100, 900);
    many.add(1, 0, 120);
    for (TraceEvent& event : many.trace.events)
        if (event.device == 0 && event.task.microbatch % 4 == 1)
            event.end += 900;
    EXPECT_EQ(many.slow(), Names{});
}

// A pipeline without replicas: a stage may have more layers, so a host needs two devices, all slower than all others.
TEST(HostTimes, HostsWithUnlikeStagesNeedTwoDevices) {
    TraceOfHosts all({"a", "a", "b", "b", "c", "c"}, 6);
    for (int device = 0; device < 6; ++device)
        all.add(device, device, device / 2 == 1 ? 130 + device : 100 + device);
    EXPECT_EQ(all.slow(), Names{"b"});
    const std::vector<HostTimes> hosts = times_of_hosts(all.trace);
    EXPECT_FALSE(hosts[1].same_stages);
    expect_says(words_on_hosts(hosts), {"The host 'b' is slow, or its stages have more layers"});
    const Json json = to_json(hosts);
    EXPECT_EQ(json[1]["slow"], true);
    EXPECT_EQ(json[1]["same_stages"], false);
    EXPECT_EQ(json[0].contains("more"), false);

    TraceOfHosts alone({"a", "b", "c"}, 3);
    for (int device = 0; device < 3; ++device)
        alone.add(device, device, device == 1 ? 200 : 100);
    EXPECT_EQ(alone.slow(), Names{});
}

// If other hosts have some of its stages and lack some, nothing is said.
TEST(HostTimes, HostsWithSomeSharedStagesAreNotJudged) {
    TraceOfHosts all({"a", "a", "b", "b"}, 3);
    all.add(0, 0, 100);
    all.add(1, 1, 100);
    all.add(2, 1, 200);
    all.add(3, 2, 200);
    EXPECT_EQ(all.slow(), Names{});
}

TEST(HostTimes, OneHostAndUnknownHostsHaveNoAnswer) {
    TraceOfHosts one({"a", "a"}, 2);
    one.add(0, 0, 100);
    one.add(1, 1, 300);
    EXPECT_TRUE(times_of_hosts(one.trace).empty());
    EXPECT_EQ(words_on_hosts({}), "");
    one.trace.hosts.clear();
    EXPECT_TRUE(times_of_hosts(one.trace).empty());
}

// Fewer than four micro-batches say too little.
TEST(HostTimes, FewTimesTellNothing) {
    TraceOfHosts all({"a", "b"}, 1);
    all.add(0, 0, 100);
    all.add(1, 0, 200);
    EXPECT_EQ(all.slow(), Names{"b"});
    std::erase_if(all.trace.events, [](const TraceEvent& event) { return event.task.microbatch > 2; });
    EXPECT_EQ(all.slow(), Names{});
}

}  // namespace pw
