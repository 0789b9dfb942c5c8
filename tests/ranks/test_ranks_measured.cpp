// Measurements of several ranks together: one trace on one clock, profiles, comparisons.
#include "tests/ranks/under_mpi.h"

#include <cstdint>
#include <cstdlib>
#include <map>
#include <set>
#include <string>
#include <thread>
#include <tuple>
#include <utility>

namespace pw {

// The trace has one clock, every device, and the rank of each.
TEST_P(UnderEveryMpi, OneTraceOfAllRanks) {
    const Said said = on_ranks(2, "run four.yaml --trace trace.json");
    ASSERT_EQ(said.code, 0) << said.err;
    EXPECT_NE(said.err.find("2 ranks on 1 host"), std::string::npos) << said.err;
    EXPECT_NE(said.err.find("they read one clock"), std::string::npos) << said.err;
    EXPECT_EQ(run("validate trace.json").code, 0) << run("validate trace.json").err;
    const Json trace = Json::parse(read("trace.json"));
    std::set<std::pair<int, int>> homes;
    for (const Json& event : trace["traceEvents"])
        if (event["ph"] == "X")
            homes.insert({event["args"]["device"].get<int>(), event["args"]["rank"].get<int>()});
    EXPECT_EQ(homes, (std::set<std::pair<int, int>>{{0, 0}, {1, 0}, {2, 1}, {3, 1}}));
}

TEST_P(UnderEveryMpi, OnlyTheFirstRankPrints) {
    const Said said = on_ranks(4, "run four.yaml");
    EXPECT_EQ(said.code, 0);
    EXPECT_EQ(said.out.find("weights"), said.out.rfind("weights")) << said.out;
    EXPECT_EQ(on_ranks(2, "simulate four.yaml").out, run("simulate four.yaml --set run.transport=mpi").out);
}

// Hosts have the names that the system reports; in this test each group of ranks gets another name.
TEST_P(UnderMpi, ProfilesMeasureLinksInsideHostsAndBetweenThem) {
    const Said alone = on_ranks(2, "profile four.yaml -o alone.yaml");
    ASSERT_EQ(alone.code, 0) << alone.err;
    EXPECT_EQ(alone.out.find("hand-over"), alone.out.rfind("hand-over")) << alone.out;
    EXPECT_EQ(read("alone.yaml").find("between:"), std::string::npos);
    EXPECT_EQ(run("simulate four.yaml --set cluster.profile=alone.yaml").code, 0);
    if (std::system("unshare -u true 2>/dev/null") != 0)
        GTEST_SKIP() << "this process may not set another host name for ranks (unshare -u)";
    write("host.sh", R"sh(each=$1; shift
exec unshare -u sh -c 'hostname host$((${OMPI_COMM_WORLD_RANK:-$PMI_RANK} / '$each')) && exec "$@"' sh "$@"
)sh");
    for (const auto& [ranks, each] : {std::pair(2, 1), std::pair(4, 2)}) {
        const Said said = launch(
            fmt::format("-n {} sh ./host.sh {} '{}' profile four.yaml -o hosts.yaml", ranks, each, GetParam().binary));
        ASSERT_EQ(said.code, 0) << said.err;
        EXPECT_NE(said.out.find("between hosts"), std::string::npos) << said.out;
        EXPECT_NE(read("hosts.yaml").find("between:"), std::string::npos);
        const Said nowhere = run("simulate four.yaml --set cluster.profile=hosts.yaml");
        EXPECT_EQ(nowhere.code, 2);
        EXPECT_NE(nowhere.err.find("cluster.devices_per_host"), std::string::npos) << nowhere.err;
        EXPECT_EQ(run("simulate four.yaml --set cluster.profile=hosts.yaml --set cluster.devices_per_host=2").code, 0);
    }
}

// This also holds if the launcher has bound each rank to a core.
TEST_P(UnderMpi, ProfilesCountTheDevicesOfOtherRanksOnTheHost) {
    const std::string two = "profile four.yaml --set cluster.devices=2 -o two.yaml";
    const Said said =
        launch(fmt::format("-n 2 {}-bind-to core '{}' {}", is_mpich() ? "" : "-", GetParam().binary, two));
    ASSERT_EQ(said.code, 0) << said.err;
    if (std::thread::hardware_concurrency() < 2)
        EXPECT_NE(said.err.find("fewer cores here than 2 devices need"), std::string::npos) << said.err;
    else
        EXPECT_NE(read("two.yaml").find("busy:"), std::string::npos) << said.err;
}

// All ranks predict, probe and run the plan; the first one prints the results.
TEST_P(UnderMpi, ComparesAPlanOnItsRanks) {
    for (const std::string schedule : {"1f1b", "pipedream"}) {
        const std::string arguments = fmt::format(
            "four.yaml --set pipeline.schedule={} --set pipeline.split=even --set training.steps=8 --json", schedule);
        const Json alone = run_well("run " + arguments).json();
        for (const int ranks : tried({2, 4})) {
            const Said said = on_ranks(ranks, fmt::format("compare {} --interleave 3", arguments));
            ASSERT_EQ(said.code, 0) << schedule << said.err;
            const Json json = said.json();
            EXPECT_EQ(json["schedule"], schedule);
            EXPECT_EQ(json["slices"], 3);
            for (const char* key : {"weights_hash", "losses", "gradient_norms"})
                EXPECT_EQ(json["measured"][key], alone[key]) << schedule << " on " << ranks << ": " << key;
            EXPECT_EQ(json["predicted"]["devices"].size(), json["measured"]["devices"].size());
            EXPECT_EQ(json["peak_memory_error"], 0);
            const Json& parts = json["error_parts"];
            EXPECT_EQ(parts["mechanics_ns"].get<std::int64_t>() + parts["jitter_ns"].get<std::int64_t>() +
                          parts["costs_ns"].get<std::int64_t>(),
                      json["predicted"]["step_time_ns"].get<std::int64_t>() -
                          json["measured"]["step_time_ns"].get<std::int64_t>());
            EXPECT_GT(json["reference"]["median_ns"].get<std::int64_t>(), 0);
            EXPECT_NE(said.err.find(fmt::format("{} ranks on 1 host", ranks)), std::string::npos) << said.err;
        }
    }
}

// With a profile, with plots, and for several schedules.
TEST_P(UnderMpi, ComparesByAProfileAndWritesOnce) {
    ASSERT_EQ(on_ranks(2, "profile four.yaml -o profile.yaml").code, 0);
    const std::string profiled = "compare four.yaml --set cluster.profile=profile.yaml --set training.steps=4";
    const Said plain = on_ranks(2, profiled + " --plot both.html --why");
    ASSERT_EQ(plain.code, 0) << plain.err;
    EXPECT_EQ(plain.out.find("step time"), plain.out.rfind("\nstep time") + 1) << plain.out;
    EXPECT_NE(plain.out.find("\nPredicted "), std::string::npos) << plain.out;
    EXPECT_EQ(plain.out.find("calibrated during"), std::string::npos);
    EXPECT_NE(read("both.html").find("</html>"), std::string::npos);
    const Said probed = on_ranks(2, profiled + " --interleave 2 --json");
    ASSERT_EQ(probed.code, 0) << probed.err;
    EXPECT_TRUE(probed.json()["error_parts"]["drift_ns"].is_number_integer());
    const Said study = on_ranks(2, "compare four.yaml --set training.steps=4 --schedules gpipe,zb-h1 -o study");
    ASSERT_EQ(study.code, 0) << study.err;
    const Json points = Json::parse(read("study/accuracy.json"))["points"];
    ASSERT_EQ(points.size(), 2);
    EXPECT_EQ(points[0]["measured"]["weights_hash"], points[1]["measured"]["weights_hash"]);
    // Only the first rank compares traces.
    ASSERT_EQ(run("simulate four.yaml --set run.transport=mpi --trace predicted.json").code, 0);
    ASSERT_EQ(on_ranks(2, "run four.yaml --trace measured.json").code, 0);
    const Said traces = on_ranks(2, "compare predicted.json measured.json --json");
    ASSERT_EQ(traces.code, 0) << traces.err;
    EXPECT_EQ(traces.json()["schedule"], "1f1b");
}

// The clock of rank 1 is a day ahead. On the clock of rank 0 no task begins before its inputs have ended.
TEST_P(UnderMpi, ClocksMayBeFarApart) {
    if (std::system("unshare -T --monotonic 86400 true 2>/dev/null") != 0)
        GTEST_SKIP() << "this system cannot give a process another clock";
    write("a_day_ahead.sh", R"(if [ "${OMPI_COMM_WORLD_RANK:-$PMI_RANK}" = 1 ]; then
    exec unshare -T --monotonic 86400 "$@"
fi
exec "$@"
)");
    const Said said = launch(
        fmt::format("-n 2 sh ./a_day_ahead.sh '{}' run four.yaml --trace apart.json --steps 20", GetParam().binary));
    ASSERT_EQ(said.code, 0) << said.err;
    const std::string agree = "their clocks agree within ";
    const std::size_t at = said.err.find(agree);
    ASSERT_NE(at, std::string::npos) << said.err;
    const double error_us =
        std::stod(said.err.substr(at + agree.size())) * (said.err.find(" ms", at) != std::string::npos ? 1000 : 1);
    std::map<std::tuple<int, std::string, int, int>, Json> events;  // by step, operation, stage, micro-batch
    const Json trace = Json::parse(read("apart.json"));
    for (const Json& event : trace["traceEvents"])
        if (event["ph"] == "X")
            events[{event["args"]["step"], event["args"]["op"], event["args"]["stage"], event["args"]["microbatch"]}] =
                event;
    int compared = 0;
    for (const auto& [key, event] : events) {
        const auto& [step, op, stage, microbatch] = key;
        const auto before = op == "F"   ? events.find({step, op, stage - 1, microbatch})
                            : op == "B" ? events.find({step, op, stage + 1, microbatch})
                                        : events.end();
        if (before == events.end())
            continue;
        ++compared;
        const double ended = before->second["ts"].get<double>() + before->second["dur"].get<double>();
        EXPECT_GE(event["ts"].get<double>() + error_us, ended) << event.dump();
    }
    EXPECT_EQ(compared, 20 * 8 * 3 * 2);
    run_well("validate apart.json");
}

}  // namespace pw
