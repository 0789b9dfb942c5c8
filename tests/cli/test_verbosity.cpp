// How much commands say, the log of a run's steps, and runs that are only announced.
#include "tests/support/cli_rig.h"
#include "tests/support/refusal.h"

#include <sstream>

namespace pw {

namespace {

class Verbosity : public Cli {
protected:
    std::vector<Json> logged(const std::string& name) const {
        std::istringstream text(read(name));
        std::vector<Json> lines;
        for (std::string line; std::getline(text, line);)
            lines.push_back(Json::parse(line));
        return lines;
    }
};

class StepLogs : public Verbosity {};
class DryRuns : public Verbosity {};

}  // namespace

TEST_F(Verbosity, IsAnOptionOfEveryCommand) {
    for (const char* command :
         {"simulate", "profile", "run", "launch", "compare", "search", "import", "plot", "validate", "plan", "list"})
        expect_says(run_well(std::string(command) + " --help").out, {"-q,--quiet", "-v,--verbose"});
}

TEST_F(Verbosity, QuietCommandsPrintNoNotesButErrors) {
    const Said usual = run_well("simulate mlp.yaml"), quiet = run_well("simulate mlp.yaml -q");
    EXPECT_TRUE(contains(usual.err, "note: analytic costs")) << usual.err;
    EXPECT_EQ(quiet.err, "");
    EXPECT_EQ(quiet.out, usual.out);
    EXPECT_TRUE(contains(error_of("simulate mlp.yaml --quiet --set pipeline.schedule=nope", 2), "no schedule 'nope'"));
}

TEST_F(Verbosity, VerboseCommandsSayWhereCostsComeFrom) {
    expect_says(run_well("simulate mlp.yaml -v --set 'cluster.link={bandwidth: 10 GB/s, latency: 5 us}'").err,
                {"detail: passes: FLOPs and bytes of layers at 150 GFLOP/s (default of cluster.compute), 15 GB/s of "
                 "memory (default of cluster.memory_bandwidth)\n",
                 "detail: messages: 10 GB/s and 5.000 us (cluster)\n", "detail: memory: unlimited (default",
                 "precision: fp32 (default of training.precision)", "detail: the command took "});
    expect_says(run_well("simulate mlp.yaml -v --set 'cluster.compute=1 TFLOP/s' --set 'cluster.memory=1 GB'").err,
                {"1 TFLOP/s (cluster.compute)", "memory: 1 GB per device (cluster.memory)", "free (default: no "});
    expect_says(run_well("simulate uniform.yaml -v").err, {"passes: times of stages in the block workload"});
    expect_says(run_well("run mlp.yaml --steps 3 -v --set run.backend=reference").err, {"\nstep 3/3   loss "});
    EXPECT_FALSE(contains(run_well("run mlp.yaml --steps 3 --set run.backend=reference").err, "step 3/3"));
}

TEST_F(StepLogs, HaveALineForEveryStep) {
    const std::string plan = "run mlp.yaml --set run.backend=reference --log steps.jsonl";
    const Json run = run_well(plan + " --json --steps 3 --checkpoint kept").json();
    std::vector<Json> lines = logged("steps.jsonl");
    ASSERT_EQ(lines.size(), 3u);
    for (int step = 0; step < 3; ++step) {
        EXPECT_EQ(lines[step]["step"], step + 1);
        EXPECT_EQ(lines[step]["steps"], 3);
        EXPECT_EQ(lines[step]["loss"], run["losses"][step]);
        const double seconds = lines[step]["step_time_ns"].get<double>() * 1e-9;
        EXPECT_NEAR(lines[step]["samples_per_second"].get<double>() * seconds, 8, 1e-6);
    }
    // a run that resumes adds to it, another one begins it again
    run_well(plan + " --steps 5 --resume kept");
    lines = logged("steps.jsonl");
    ASSERT_EQ(lines.size(), 5u);
    EXPECT_EQ(lines[4]["step"], 5);
    run_well(plan + " --steps 1");
    EXPECT_EQ(logged("steps.jsonl").size(), 1u);
    expect_says(error_of("run mlp.yaml --log nowhere/steps.jsonl", 1), {"cannot write 'nowhere/steps.jsonl'"});
}

TEST_F(StepLogs, SurviveAKill) {
    const std::string command = "cd '" + file("").string() + "' && timeout -s KILL 1 '" + binary_ +
                                "' run mlp.yaml --set run.backend=reference --steps 1000000 --log steps.jsonl "
                                ">/dev/null 2>&1";
    EXPECT_NE(std::system(command.c_str()), 0);
    std::string text = read("steps.jsonl");
    EXPECT_TRUE(text.ends_with("}\n")) << text.substr(text.size() - std::min<std::size_t>(text.size(), 200));
    EXPECT_GE(logged("steps.jsonl").size(), 1u);
}

TEST_F(DryRuns, AnnounceTheRunAndWriteNothing) {
    const std::string files = " --trace t.json --checkpoint kept --log steps.jsonl --dump d --save s";
    const Said said = run_well("run mlp.yaml --dry-run --steps 7" + files);
    expect_says(said.out, {"mlp, stages from fc1 | ", "reserved", "no deadlock: the ", "steps 1 to 7 would run"});
    for (const char* name : {"t.json", "kept", "steps.jsonl", "d", "s"})
        EXPECT_FALSE(std::filesystem::exists(file(name))) << name;
    EXPECT_EQ(run_well("run mlp.yaml --dry-run --json").json()["devices"],
              run_well("simulate mlp.yaml --json").json()["devices"]);
    // what would be refused is refused
    EXPECT_TRUE(contains(error_of("run mlp.yaml --dry-run --set 'cluster.memory=1 kB'", 3),
                         "device 0 does not have the memory"));
    EXPECT_TRUE(contains(error_of("run uniform.yaml --dry-run", 2), "no layers to run"));
}

TEST_F(DryRuns, OfLaunchPrintTheCommandLine) {
    const Said said = run_well(
        "launch -n 2 --launcher 'srun --mpi=pmix' mlp.yaml --dry-run --quiet --checkpoint kept --checkpoint-every 5 "
        "--set 'pipeline.split=[fc2, loss]'");
    EXPECT_TRUE(said.out.starts_with("srun --mpi=pmix -n 2 /")) << said.out;
    EXPECT_TRUE(contains(said.out, " run ")) << said.out;
    EXPECT_TRUE(contains(said.out, " mlp.yaml '--set=pipeline.split=[fc2, loss]'")) << said.out;
    EXPECT_TRUE(contains(said.out, " --checkpoint=kept --checkpoint-every=5 --quiet\n")) << said.out;
    EXPECT_FALSE(contains(said.out, "dry-run")) << said.out;
    expect_says(run_well("launch -n 2 mlp.yaml --dry-run --checkpoint kept --checkpoint-every 5").err,
                {"after a failure, up to 3 times, the same with --resume of the latest checkpoint in kept"});
}

}  // namespace pw
