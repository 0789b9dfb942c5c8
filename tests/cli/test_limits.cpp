// Well-formed input that needs more than numbers or memory can hold is refused with exit code 2, its place and a help,
// before anything is allocated.
#include "tests/support/cli_rig.h"
#include "tests/support/refusal.h"
#include "tests/support/thoroughness.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <cstdint>
#include <ostream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace pw {
namespace {

struct Beyond {
    const char* name;
    const char* command;
    const char* config;
    std::vector<std::string> said;
};
void PrintTo(const Beyond& beyond, std::ostream* out) { *out << beyond.name; }

constexpr const char* kLayersOfGigabytes = R"(
samples: 8
layers:
  - {name: a, inputs: [], forward: 1 ms, backward: 2 ms, output: 1 GB, weights: 1 GB}
  - {name: b, forward: 1 ms, backward: 2 ms, output: 1 GB, weights: 1 GB}
  - {name: c, forward: 1 ms, backward: 2 ms, output: 1 GB, weights: 1 GB}
)";

// Limits the memory that this process and its children may allocate, for the lifetime of the object.
class MayHave {
public:
    explicit MayHave(rlim_t bytes) {
        getrlimit(RLIMIT_DATA, &before_);
        const rlimit less{bytes, before_.rlim_max};
        EXPECT_EQ(setrlimit(RLIMIT_DATA, &less), 0);
    }
    ~MayHave() { setrlimit(RLIMIT_DATA, &before_); }

private:
    rlimit before_{};
};

class Limits : public Cli, public testing::WithParamInterface<Beyond> {};
TEST_P(Limits, AreReportedWithPlaceAndHelp) {
    write("layers.yaml", kLayersOfGigabytes);
    write("cfg.yaml", GetParam().config);
    const MayHave limit(rlim_t{8} << 30);
    const std::string error = error_of(std::string(GetParam().command) + " cfg.yaml", 2);
    for (const std::string& part : GetParam().said)
        EXPECT_NE(error.find(part), std::string::npos) << "'" << part << "' is not in: " << error;
    EXPECT_NE(error.find("\n  help: "), std::string::npos) << error;
}

INSTANTIATE_TEST_SUITE_P(
    Grid, Limits,
    testing::Values(
        Beyond{"micro-batches of all steps",
               "simulate",
               "workload: {model: uniform, stages: 1}\npipeline: {schedule: pipedream, micro_batches: 65536}\n"
               "training: {steps: 65536}\n",
               {"cfg.yaml:3:19", "4294967296", "fewer steps", "(training.steps)"}},
        Beyond{"tasks",
               "plan",
               "workload: {model: uniform, stages: 60}\npipeline: {micro_batches: 1000000}\n",
               {"cfg.yaml:2:27", "100000000", "fewer stages or micro-batches"}},
        Beyond{"memory of a plan",
               "validate",
               "workload: {model: uniform}\npipeline: {micro_batches: 100, stages: 65536}\n",
               {"cfg.yaml:2:40", "GiB of memory", "fewer stages"}},
        Beyond{"memory of a common norm",
               "simulate",
               "workload: {model: uniform}\npipeline: {micro_batches: 2, stages: 20000}\ntraining: {clip_norm: 1}\n",
               {"cfg.yaml:2:38", "GiB of memory", "fewer stages"}},
        Beyond{"micro-batches of a search",
               "search",
               "workload: {model: mlp}\ncluster: {devices: 2}\nsearch: {mini_batch: 4294967296}\n",
               {"cfg.yaml:3:22", "4294967296 samples", "smaller search.mini_batch"}},
        Beyond{"samples of a profile",
               "search",
               "workload: {model: mlp}\nsearch: {objective: pipedream, profile_batch: 4294967296}\n",
               {"cfg.yaml:2:47", "4294967296 samples", "search.profile_batch"}},
        Beyond{"times",
               "simulate",
               "workload: {model: uniform, stages: 1, forward: 1000000 s, output: 0 B}\n"
               "pipeline: {micro_batches: 4000}\n",
               {"cfg.yaml:1:48", "years", "forward passes", "0F0", "fewer micro-batches"}},
        Beyond{"bandwidth",
               "simulate",
               "workload: {model: uniform, stages: 2, output: 10 GB}\ncluster: {link: {bandwidth: 1 B/s}}\n",
               {"cfg.yaml:2:29", "transfers", "10 GB/s"}},
        Beyond{"latency",
               "simulate",
               "workload: {model: uniform, stages: 2}\ncluster: {link: {latency: 1000000 s}}\n"
               "pipeline: {micro_batches: 2000}\n",
               {"cfg.yaml:2:27", "latencies", "lower the link's latency",
                "(cluster.link.latency, pipeline.micro_batches)"}},
        Beyond{"speed",
               "simulate",
               "workload: {model: uniform, stages: 2, forward: 1000000 s}\n"
               "cluster: {devices: [{speed: 0.000001}, {}]}\n",
               {"cfg.yaml:2:29", "speed of the device", "(cluster.devices[0].speed, pipeline.micro_batches)"}},
        Beyond{"compute",
               "simulate",
               "workload: {model: resnet50}\ncluster: {devices: 2, compute: 1 FLOP/s}\n"
               "pipeline: {micro_batches: 4, micro_batch_size: 1000}\n",
               {"cfg.yaml:2:32", "conv1", "(cluster.compute, cluster.memory_bandwidth, pipeline.micro_batch_size)"}},
        Beyond{"sizes",
               "simulate",
               "workload: {model: uniform, stages: 1, activation: 1000 TiB}\n"
               "pipeline: {schedule: gpipe, micro_batches: 10000}\n",
               {"cfg.yaml:1:51", "activations of stage 0", "1000 TiB", "units"}},
        Beyond{"times of a search",
               "search",
               "workload: {model: layers.yaml}\ncluster: {devices: 2, link: {bandwidth: 1 B/s}}\n"
               "pipeline: {micro_batches: 16, micro_batch_size: 8}\nsearch: {schedules: [gpipe, 1f1b]}\n",
               {"cfg.yaml:2:41", "years", "10 GB/s"}},
        Beyond{"times of a planner",
               "search",
               "workload: {model: layers.yaml}\ncluster: {devices: 2, link: {bandwidth: 1e-20 B/s}}\n"
               "search: {objective: pipedream, straight: true}\n",
               {"cfg.yaml:2:41", "per mini-batch", "raise the bandwidth"}},
        Beyond{"levels",
               "search",
               "workload: {model: layers.yaml}\nsearch: {objective: pipedream, levels: [{devices: 65536, bandwidth: 1 "
               "GB/s}, {devices: 65536, bandwidth: 1 GB/s}]}\n",
               {"cfg.yaml:2:40", "65536 devices", "one group of the level below"}},
        Beyond{"steps of a trace",
               "run --trace x.json",
               "workload: {model: uniform, stages: 1}\nrun: {backend: emulated}\ntraining: {steps: 1000000000}\n",
               {"cfg.yaml:3:19", "1000000000 steps", "fewer training.steps"}}),
    [](const auto& test) { return fmt::format("Nr{}", test.index); });

// 350 kB that need a table of 40 GB and more.
class Files : public Cli {};
std::string plan_of_many_stages(int stages) {
    std::string text;
    for (int stage = 0; stage < stages; ++stage)
        text += fmt::format("{}F0,", stage);
    return text + "\n";
}

TEST_F(Files, MayHaveManyStages) {
    write("plan.csv", plan_of_many_stages(20'000));
    run_well("validate plan.csv");
}

TEST_F(Files, WithLargePlansAreRefused) {
    write("plan.csv", plan_of_many_stages(200'000));
    write("cfg.yaml", "workload: {model: uniform}\npipeline: {schedule: plan.csv}\n");
    const MayHave limit(rlim_t{1} << 30);
    for (const char* command : {"validate plan.csv", "plan cfg.yaml", "validate cfg.yaml"}) {
        const std::string error = error_of(command, 2);
        for (const char* part : {"200000 stages", "of memory", "plan.csv", "help: "})
            EXPECT_NE(error.find(part), std::string::npos) << error;
    }
}

class Profiles : public Cli {
protected:
    void SetUp() override {
        Cli::SetUp();
        write("large.yaml", "workload: {model: mlp, hidden: [1536, 1536, 1536, 1536]}\ncluster: {devices: 2}\n");
    }
};

// Two devices that each hold the whole model take 200 MB each.
TEST_F(Profiles, LeaveOutNeighboursForLargeModels) {
    const MayHave limit(rlim_t{250} << 20);
    const std::string said = run_well("profile large.yaml -o profile.yaml").err;
    const bool has_cores = std::thread::hardware_concurrency() > 1;
    expect_says(said, {"note: layers were timed on one device alone",
                       has_cores ? ": 2 copies of the model take " : ": there are fewer cores here than 2 "});
    EXPECT_EQ(read("profile.yaml").find("busy:"), std::string::npos);
}

TEST_F(Profiles, NoteFewerNeighbours) {
    if (std::thread::hardware_concurrency() < 2)
        GTEST_SKIP() << "two devices need two cores";
    run_well("profile mlp.yaml -o profile.yaml");
    const auto said = [&](const char* more) {
        return run_well(std::string("simulate mlp.yaml --set cluster.profile=profile.yaml ") + more).err;
    };
    const std::string note = "measured with 2 devices computing at once, and a host has 3 here";
    EXPECT_EQ(said("").find("at once"), std::string::npos);
    EXPECT_NE(said("--set cluster.devices=3").find(note), std::string::npos) << said("--set cluster.devices=3");
    EXPECT_EQ(said("--set cluster.devices=4 --set cluster.devices_per_host=2").find("at once"), std::string::npos);
}

// Reference work that shares cores does not measure the machine.
TEST_F(Profiles, AreComparedWithTheMachineOnEquallyManyCores) {
    run_well("profile mlp.yaml --set cluster.devices=1 -o profile.yaml");
    std::string profile = read("profile.yaml");
    const std::size_t reference = profile.find("reference: {median: ");
    ASSERT_NE(reference, std::string::npos);
    // the difference exceeds the scatter of any machine
    profile.replace(reference, profile.find('}', reference) - reference, "reference: {median: 1000 s, spread: 0 ns");
    write("slow.yaml", profile);
    const auto said = [&](const char* more) {
        return run_well(std::string("compare mlp.yaml --set run.backend=emulated --set cluster.devices=1 --set "
                                    "cluster.profile=slow.yaml ") +
                        more)
            .err;
    };
    EXPECT_NE(said("").find("reference work in"), std::string::npos) << said("");
    const std::string shared = said("--set run.threads_per_device=1024");
    EXPECT_EQ(shared.find("reference work in"), std::string::npos) << shared;
}

// Whichever allocation is the first that does not fit, including those for neighbours.
TEST_F(Profiles, EndWithAnErrorWhenMemoryEnds) {
    int refused = 0;
    for (int mib = 226; mib >= 50; mib -= 88) {
        const MayHave limit(static_cast<rlim_t>(mib) << 20);
        const Said said = run("profile large.yaml -o profile.yaml");
        if (said.code == 0)
            continue;
        ++refused;
        EXPECT_EQ(said.code, 1) << mib << " MiB: " << said.err;
        EXPECT_NE(said.err.find("error: "), std::string::npos) << mib << " MiB: " << said.err;
    }
    EXPECT_GT(refused, 0);
}

// Layers that exchange nothing make stages that do not wait for each other.
TEST_F(Files, WithIndependentLayersMakeIndependentStages) {
    write("layers.yaml",
          "layers:\n  - {name: a, inputs: [], forward: 1 ms, backward: 2 ms}\n"
          "  - {name: b, inputs: [], forward: 1 ms, backward: 2 ms}\n");
    write("cfg.yaml", "workload: {model: layers.yaml}\ncluster: {devices: 2}\npipeline: {split: [b]}\n");
    EXPECT_EQ(run_well("simulate cfg.yaml --json").json()["step_time_ns"], 3'000'000);
    write("plan.csv", "0F0,0B0\n1F0,1B0\n");
    const std::string error = error_of("simulate cfg.yaml --set pipeline.schedule=plan.csv", 2);
    EXPECT_NE(error.find("waits for the previous one"), std::string::npos) << error;
}

// A trace of another program may have any number: each number of a trace is made as large as it can be, in one place
// and in all.
class LargeNumbers : public Cli {
protected:
    void SetUp() override {
        Cli::SetUp();
        write("cfg.yaml",
              "workload: {model: uniform, stages: 2, output: 1 MB}\npipeline: {micro_batches: 4}\ncluster: {link: "
              "{bandwidth: 1 GB/s}}\n");
        run_well("simulate cfg.yaml --trace t.json");
        trace_ = Json::parse(read("t.json"));
    }

    // The first event with this phase and operation.
    static Json& event_of(Json& trace, const std::string& phase, const std::string& op = "") {
        for (Json& event : trace["traceEvents"])
            if (event["ph"] == phase && (op.empty() || event["args"]["op"] == op))
                return event;
        throw std::out_of_range(op);
    }

    // Every command reads it within a limit of memory, or refuses it as a mistake of the file.
    void try_commands(const Json& changed, const std::string& what) const {
        write("m.json", changed.dump());
        for (const char* command : {"validate m.json", "compare t.json m.json", "plot m.json -o m.html",
                                    "plot m.json -o m.txt", "compare m.json --replay"}) {
            const Said said = run(command);
            EXPECT_TRUE(said.code == 0 || said.code == 2 || said.code == 3) << what << command << said.err;
            EXPECT_EQ(said.err.find("out of memory"), std::string::npos) << what << command;
        }
    }

    Json trace_;
};

TEST_F(LargeNumbers, TakeNoMemoryInATrace) {
    const MayHave limit(rlim_t{256} << 20);
    OneIn some(5);
    for (const std::int64_t number : {std::int64_t{2'147'483'647}, std::int64_t{1} << 61}) {
        const auto enlarge = [&](Json& object, const char* where, auto place) {
            for (const auto& [key, value] : object.items()) {
                if (!value.is_number_integer() || !some.picks())
                    continue;
                Json changed = trace_;
                place(changed)[key] = number;
                try_commands(changed, fmt::format("{} {} {}: ", where, key, number));
            }
        };
        enlarge(trace_["otherData"], "header", [](Json& trace) -> Json& { return trace["otherData"]; });
        for (const char* op : {"F", "U", "SEND_F", "RECV_B"}) {
            const auto args = [op](Json& trace) -> Json& { return event_of(trace, "X", op)["args"]; };
            enlarge(args(trace_), op, args);
        }
        const auto counter = [](Json& trace) -> Json& { return event_of(trace, "C"); };
        enlarge(counter(trace_), "counter", counter);
        enlarge(counter(trace_)["args"], "counter", [&](Json& trace) -> Json& { return counter(trace)["args"]; });
        for (const auto& [key, value] : event_of(trace_, "X")["args"].items()) {
            Json changed = trace_;
            for (Json& event : changed["traceEvents"])
                if (event["ph"] == "X" && value.is_number_integer())
                    event["args"][key] = number;
            try_commands(changed, fmt::format("all {} {}: ", key, number));
        }
    }
}

// A version counts the updates before it.
TEST_F(LargeNumbers, AreRefusedInVersionsByAllCommands) {
    Json changed = trace_;
    event_of(changed, "X", "F")["args"]["version"] = 1000;
    write("m.json", changed.dump());
    const std::string error = error_of("validate m.json", 2);
    EXPECT_NE(error.find(".args.version: 1000 in step 0, but the "), std::string::npos) << error;
    EXPECT_NE(error.find("\n  help: versions are counted from 0"), std::string::npos) << error;
    for (const char* command : {"compare m.json m.json", "plot m.json -o m.html", "compare m.json --replay"})
        EXPECT_EQ(error_of(command, 2), error) << command;
    event_of(changed, "X", "F")["args"]["version"] = 3;
    write("m.json", changed.dump());
    run_well("compare m.json m.json");
}

}  // namespace
}  // namespace pw
