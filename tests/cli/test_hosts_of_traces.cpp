// Hosts of devices in traces: which files name them, and the answer which host is slow.
#include "tests/support/cli_rig.h"
#include "tests/support/refusal.h"

#include <fmt/format.h>

#include <string>

namespace pw {

namespace {

constexpr const char* kOnHosts =
    R"(workload: {model: uniform, forward: 1 ms, backward_input: 1 ms, backward_weight: 1 ms}
cluster: {hosts: 2, devices_per_host: 2, inside: {bandwidth: inf, latency: 1 us}, between: {bandwidth: 10 GB/s, latency: 5 us}}
pipeline: {schedule: 1f1b, micro_batches: 8}
)";

class HostsOfTraces : public Cli {
protected:
    // Four stages on two hosts, 8 micro-batches one after the other, F 10 ms, B 20 ms. Host b takes 30 % longer.
    Json events(bool with_hosts) const {
        Json all = Json::array();
        int start = 0;
        for (int mb = 0; mb < 8; ++mb)
            for (const bool back : {false, true})
                for (int k = 0; k < 4; ++k) {
                    const int device = back ? 3 - k : k;
                    const int duration = (back ? 20'000 : 10'000) * (device > 1 ? 13 : 10) / 10;
                    Json args = {{"op", back ? "B" : "F"}, {"stage", device}, {"microbatch", mb}};
                    if (with_hosts)
                        args["host"] = device > 1 ? "b" : "a";
                    all.push_back({{"ph", "X"},
                                   {"name", "x"},
                                   {"pid", device},
                                   {"ts", start},
                                   {"dur", duration},
                                   {"args", args}});
                    start += duration;
                }
        return all;
    }
    static Json hosts_of(const std::string& trace) { return Json::parse(trace)["otherData"]["hosts"]; }
};

}  // namespace

TEST_F(HostsOfTraces, ASlowHostIsNamed) {
    write("t.json", events(true).dump());
    const Json hosts = run_well("compare t.json --replay --explain --json").json()["explanation"]["answers"]["hosts"];
    ASSERT_EQ(hosts.size(), 2u);
    EXPECT_EQ(hosts[0], (Json{{"host", "a"},
                              {"devices", {0, 1}},
                              {"micro_batch_ns", {{"p25", 30'000'000}, {"p50", 30'000'000}, {"p75", 30'000'000}}},
                              {"slow", false}}));
    EXPECT_EQ(hosts[1]["slow"], true);
    EXPECT_NEAR(hosts[1]["more"].get<double>(), 0.3, 1e-9);
    expect_says(run_well("compare t.json --replay --explain").out,
                {"The host 'b' is slow, or its stages have more layers", "by 30.0 %"});
    run_well("plot t.json -o t.html");
    expect_says(read("t.html"),
                {"<summary>Hosts</summary>", "The host 'b' is slow", R"("kind":"host","names":["a","b"])"});
    write("t.json", events(false).dump());
    EXPECT_EQ(run_well("compare t.json --replay --explain --json").json()["explanation"]["answers"]["hosts"],
              Json::array());
}

// The host stays with the trace that import writes, also of events that are tasks by their names.
TEST_F(HostsOfTraces, ImportKeepsThem) {
    write("t.json", events(true).dump());
    run_well("import t.json -o own.json");
    EXPECT_EQ(hosts_of(read("own.json")), (Json{"a", "a", "b", "b"}));
    run_well("import own.json -o again.json");
    EXPECT_EQ(hosts_of(read("again.json")), (Json{"a", "a", "b", "b"}));
    Json named = events(true);
    for (Json& event : named) {
        event["name"] =
            fmt::format("{}{}", event["args"]["op"].get<std::string>(), event["args"]["microbatch"].get<int>());
        event["args"] = {{"host", event["args"]["host"]}};
    }
    write("named.json", named.dump());
    run_well("import named.json -o own.json");
    EXPECT_EQ(hosts_of(read("own.json")), (Json{"a", "a", "b", "b"}));
}

TEST_F(HostsOfTraces, PredictionsAndRunsHaveThoseOfTheConfig) {
    write("h.yaml", kOnHosts);
    run_well("simulate h.yaml --trace p.json");
    EXPECT_EQ(hosts_of(read("p.json")), (Json{"host 0", "host 0", "host 1", "host 1"}));
    run_well("run h.yaml --set run.backend=emulated --steps 2 --trace m.json");
    EXPECT_EQ(hosts_of(read("m.json")), (Json{"host 0", "host 0", "host 1", "host 1"}));
    run_well("simulate uniform.yaml --trace u.json");
    EXPECT_FALSE(Json::parse(read("u.json"))["otherData"].contains("hosts"));
}

// Replicas share no micro-batch. The two directions of chimera have micro-batches of their own, but the same devices.
TEST_F(HostsOfTraces, PagesKnowTheReplicas) {
    write("h.yaml", kOnHosts);
    run_well("simulate h.yaml --set pipeline.replicas=2 --plot two.html");
    const std::string replicas = R"({"kind":"replica","names":["replica 0","replica 1"],"of":[0,1,0,1]})";
    const std::string hosts = R"({"kind":"host","names":["host 0","host 1"],"of":[0,0,1,1]})";
    expect_says(read("two.html"), {"\"groups\":[" + hosts + "," + replicas + "]"});
    run_well("simulate h.yaml --set pipeline.schedule=chimera --plot both.html");
    expect_says(read("both.html"), {"\"groups\":[" + hosts + "]"});
    run_well("simulate uniform.yaml --plot one.html");
    expect_says(read("one.html"), {"\"groups\":[]"});
}

// torch.profiler of 2026 names the host (host_name), and its handler for TensorBoard in the name of the file.
TEST_F(HostsOfTraces, FilesOfTorchProfilerNameTheirHost) {
    const auto rank_file = [](int rank) {
        Json all = Json::array();
        for (const auto& [name, start, duration] :
             {std::tuple{"F0", rank == 0 ? 0 : 10, 10}, std::tuple{"B0", rank == 0 ? 40 : 20, 20}})
            all.push_back({{"ph", "X"},
                           {"cat", "user_annotation"},
                           {"name", fmt::format("PP:{}{}", rank, name)},
                           {"tid", 1},
                           {"ts", start * 1000},
                           {"dur", duration * 1000}});
        return Json{{"distributedInfo", {{"rank", rank}, {"world_size", 2}}}, {"traceEvents", all}};
    };
    Json first = rank_file(0), second = rank_file(1);
    write("r0.json", first.dump());
    write("gpu_b_71.1796047326748547657.pt.trace.json", second.dump());
    run_well("import r0.json gpu_b_71.1796047326748547657.pt.trace.json -o t.json");
    EXPECT_FALSE(Json::parse(read("t.json"))["otherData"].contains("hosts"));  // of one rank only
    first["host_name"] = "gpu_a";
    write("r0.json", first.dump());
    run_well("import r0.json gpu_b_71.1796047326748547657.pt.trace.json -o t.json");
    EXPECT_EQ(hosts_of(read("t.json")), (Json{"gpu_a", "gpu_b"}));
}

TEST_F(HostsOfTraces, NamesThatAreNoneAreRefused) {
    write("t.json", events(true).dump());
    run_well("import t.json -o own.json");
    Json trace = Json::parse(read("own.json"));
    trace["otherData"]["hosts"] = {"a", "b"};
    write("own.json", trace.dump());
    expect_says(error_of("validate own.json", 2), {"hosts: expected the name of a host for each of 4 devices"});
    trace["otherData"]["hosts"] = {"a", "b", "c", 4};
    write("own.json", trace.dump());
    expect_says(error_of("validate own.json", 2), {"hosts: expected names of hosts, got number"});
}

}  // namespace pw
