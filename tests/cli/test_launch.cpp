// launch restarts a run after failures that may not recur, and only then. The launcher is a script that makes each
// attempt end as the test requires; tests/ranks has real launchers.
#include "tests/support/cli_rig.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

namespace pw {

namespace {

class Launch : public Cli {
protected:
    void SetUp() override {
        Cli::SetUp();
        write("four.yaml", R"(
workload: {model: mlp, hidden: [32, 32, 32]}
cluster: {devices: 4}
pipeline: {schedule: 1f1b, micro_batches: 4, micro_batch_size: 2}
training: {steps: 6}
)");
        // Line N of `tries` is what happens to attempt N, in shell; "$@" is the run.
        write("fake", R"sh(#!/bin/sh
echo "call: $*" >>calls
[ "$1" = -n ] && shift 2
start() { echo 'pipewright run has started'; }
eval "$(sed -n "$(wc -l <calls)p" tries)"
)sh");
        std::filesystem::permissions(file("fake"), std::filesystem::perms::owner_all);
    }

    // Runs `launch` with these attempts.
    Said launch(const std::string& tries, const std::string& arguments) const {
        std::filesystem::remove(file("calls"));
        write("tries", tries);
        return run("launch -n 4 --launcher ./fake four.yaml " + arguments);
    }
    // Runs a shell script in which $1 is the program.
    int run_script(const std::string& script) const {
        write("script.sh",
              "wait_for() { for i in $(seq 3000); do [ -e \"$1\" ] && return; sleep 0.01; done; }\n" + script);
        return std::system(fmt::format("cd '{}' && sh script.sh '{}'", file("").string(), binary_).c_str());
    }
    std::vector<std::string> calls() const {
        std::ifstream lines(file("calls"));
        std::vector<std::string> calls;
        for (std::string line; std::getline(lines, line);)
            calls.push_back(line);
        return calls;
    }
    static bool says(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }
};

constexpr const char* kKept = "--checkpoint kept --checkpoint-every 1 --json";

TEST_F(Launch, EndsWithTheWeightsOfAnUndisturbedRun) {
    const Json whole = run_well("run four.yaml --json").json();
    const Said said =
        launch("start; exit 1\n\"$@\" --steps=2; kill -9 $$\n\"$@\" --steps=5; exit 5\nexec \"$@\"\n", kKept);
    ASSERT_EQ(said.code, 0) << said.err;
    EXPECT_EQ(said.json()["weights_hash"], whole["weights_hash"]);  // without output of earlier attempts
    for (const char* line : {"the run failed (exit code 1): restart 1 of 3, from the beginning\n",
                             "was killed (exit code 137): restart 2 of 3, from kept/step-00000002\n",
                             "a rank became silent (exit code 5): restart 3 of 3, from kept/step-00000005\n"})
        EXPECT_TRUE(says(said.err, line)) << said.err;
    ASSERT_EQ(calls().size(), 4u);
    EXPECT_TRUE(calls()[0].starts_with("call: -n 4 /")) << calls()[0];
    EXPECT_TRUE(says(calls()[0], "/pipewright run --say-started four.yaml --checkpoint=kept")) << calls()[0];
    EXPECT_FALSE(says(calls()[1], "--resume")) << calls()[1];
    EXPECT_TRUE(calls()[3].ends_with(" --resume=kept/step-00000005")) << calls()[3];
}

// The checkpoint is there, but the results are not.
TEST_F(Launch, RepeatsTheLastStepIfOnlyItsResultsAreMissing) {
    const Json whole = run_well("run four.yaml --json").json();
    const Said said = launch("\"$@\"; exit 1\nexec \"$@\"\n", kKept);
    ASSERT_EQ(said.code, 0) << said.err;
    EXPECT_TRUE(says(said.err, "from kept/step-00000005\n")) << said.err;
    EXPECT_EQ(said.json()["weights_hash"], whole["weights_hash"]);
}

TEST_F(Launch, SkipsAnIncompleteCheckpoint) {
    const Said said = launch("\"$@\" --steps=3; echo >>kept/step-00000003/complete; exit 1\nexec \"$@\"\n", kKept);
    ASSERT_EQ(said.code, 0) << said.err;
    EXPECT_TRUE(says(said.err, "warning: checkpoint 'kept/step-00000003' is not as it was written")) << said.err;
    EXPECT_TRUE(says(said.err, "from kept/step-00000002\n")) << said.err;
}

TEST_F(Launch, RestartsAfterFailuresThatMayNotRecur) {
    for (const int code : {1, 5, 9, 15, 134, 137, 139, 143, 255}) {
        const Said said = launch(fmt::format("start; exit {0}\nexit {0}\n", code), "--max-restarts 1");
        EXPECT_EQ(said.code, code) << said.err;
        EXPECT_EQ(calls().size(), 2u) << code;
        EXPECT_TRUE(says(said.err, "restart 1 of 1, from the beginning")) << said.err;
        EXPECT_TRUE(says(said.err, fmt::format("(exit code {}) after 1 restarts\n", code))) << said.err;
    }
    for (const int code : {2, 3, 4}) {
        const Said said = launch(fmt::format("start; exit {0}\nexit {0}\n", code), "");
        EXPECT_EQ(said.code, code) << said.err;
        EXPECT_EQ(calls().size(), 1u) << code;
        EXPECT_TRUE(says(said.err, "and would fail again")) << said.err;
    }
}

// mpirun refuses to start, or hosts cannot be reached.
TEST_F(Launch, StopsAtOnceIfNoRankHasStarted) {
    for (const int code : {1, 5, 137, 255}) {
        const Said said = launch(fmt::format("echo refused >&2; exit {0}\n", code), "");
        EXPECT_EQ(said.code, code) << said.err;
        EXPECT_EQ(calls().size(), 1u) << code;
        EXPECT_EQ(said.out, "");
        EXPECT_TRUE(says(said.err, fmt::format("error: './fake' ended with exit code {} before rank 0 had started\n"
                                               "  help: its message above says why; try `./fake -n 4 hostname` until",
                                               code)))
            << said.err;
    }
    // A host may be away for a while between two attempts.
    const Said later = launch("\"$@\" --steps=2; exit 1\nexit 1\nexec \"$@\"\n", kKept);
    EXPECT_EQ(later.code, 0) << later.err;
    EXPECT_EQ(calls().size(), 3u);
    EXPECT_FALSE(says(later.out, "has started")) << later.out;
}

// Open MPI's own rule: both variables, for the user 0 only.
TEST_F(Launch, LetsOpenMpiRunAsRoot) {
    if (geteuid() != 0)
        GTEST_SKIP() << "needs root";
    unsetenv("OMPI_ALLOW_RUN_AS_ROOT");
    unsetenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM");
    constexpr const char* kVariables = "OMPI_ALLOW_RUN_AS_ROOT=1 and OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1";
    for (const auto& [name, allows] : {std::pair{"mpirun", true}, {"mpiexec.openmpi", true}, {"srun", false}}) {
        write(name, R"sh(#!/bin/sh
[ "$OMPI_ALLOW_RUN_AS_ROOT$OMPI_ALLOW_RUN_AS_ROOT_CONFIRM" = 11 ] && exit 4
exit 2
)sh");
        std::filesystem::permissions(file(name), std::filesystem::perms::owner_all);
        const Said said = run(fmt::format("launch -n 4 --launcher ./{} four.yaml", name));
        EXPECT_EQ(said.code, allows ? 4 : 2) << said.err;
        EXPECT_EQ(says(said.err, kVariables), allows) << said.err;
    }
}

TEST_F(Launch, RestartsThreeTimesByDefault) {
    const std::string always = "start; exit 1\nexit 1\nexit 1\nexit 1\nexit 1\nexit 1\n";
    EXPECT_EQ(launch(always, "").code, 1);
    EXPECT_EQ(calls().size(), 4u);
    EXPECT_EQ(launch(always, "--max-restarts 0").code, 1);
    EXPECT_EQ(calls().size(), 1u);
    const Said said = launch("\"$@\" --steps=2; exit 1\nexit 1\n", std::string(kKept) + " --max-restarts 1");
    EXPECT_EQ(said.out, "");
    EXPECT_TRUE(says(said.err, "help: continue with --resume kept\n")) << said.err;
}

TEST_F(Launch, PassesOnTheOptionsOfRun) {
    const Said said = launch("printf '%s|' \"$@\" >words; exit 0\n",
                             "--set 'training={steps: 2, seed: 3}' --set workload.hidden=[32,32,32] --steps 3 --json "
                             "--save 'two words'");
    EXPECT_EQ(said.code, 0) << said.err;
    const std::string words = read("words");
    EXPECT_TRUE(words.ends_with(
        "|run|--say-started|four.yaml|--set=training={steps: 2, seed: 3}|--set=workload.hidden=[32,32,32]|"
        "--steps=3|--save=two words|--json=true|"))
        << words;
    EXPECT_TRUE(
        says(said.err, "without --checkpoint DIR --checkpoint-every N every restart starts from the beginning"));
    EXPECT_EQ(launch("exec \"$@\"\n", "--steps 1 --set 'training={seed: 3}'").code, 0);
}

// Other checkpoints may belong to another training with the same model.
TEST_F(Launch, ResumesOnlyFromNamedCheckpoints) {
    const std::string whole = run_well("run four.yaml --json").json()["weights_hash"];
    run_well("run four.yaml --steps 2 --checkpoint kept");
    const Said refused = launch("exit 0\n", kKept);
    EXPECT_EQ(refused.code, 2);
    EXPECT_TRUE(says(refused.err, "'kept' has checkpoints already")) << refused.err;
    EXPECT_TRUE(says(refused.err, "help: add --resume kept, or name another folder")) << refused.err;
    EXPECT_TRUE(calls().empty());
    const Said other = launch("exit 0\n", std::string(kKept) + " --resume kept/step-00000002");
    EXPECT_EQ(other.code, 2) << other.err;
    // begins with the other folder's checkpoint, continues with its own
    const Said fresh = launch("start; exit 1\n\"$@\" --steps=4; exit 1\nexec \"$@\"\n",
                              "--checkpoint fresh --checkpoint-every 1 --json --resume kept");
    ASSERT_EQ(fresh.code, 0) << fresh.err;
    EXPECT_TRUE(says(fresh.err, "restart 1 of 3, from kept\n")) << fresh.err;
    EXPECT_TRUE(says(fresh.err, "restart 2 of 3, from fresh/step-00000004\n")) << fresh.err;
    EXPECT_EQ(fresh.json()["weights_hash"], whole);
    const Said same = launch("start; exit 1\nexec \"$@\"\n", std::string(kKept) + " --resume ./kept/");
    ASSERT_EQ(same.code, 0) << same.err;
    EXPECT_EQ(same.json()["weights_hash"], whole);
}

TEST_F(Launch, UsageMistakesStartNothing) {
    write("tries", "exit 0\n");
    for (const char* arguments :
         {"four.yaml", "-n 0 four.yaml", "-n -1 four.yaml", "-n x four.yaml", "-n 2", "-n 2 nowhere.yaml",
          "-n 2 four.yaml --jsn", "-n 2 four.yaml --max-restarts -1", "-n 2 four.yaml --steps 0",
          "-n 2 four.yaml extra.yaml", "-n 2 four.yaml --set training.step=1"})
        EXPECT_TRUE(says(error_of(fmt::format("launch --launcher ./fake {}", arguments), 2), "help: ")) << arguments;
    EXPECT_TRUE(says(error_of("launch -n 2 --launcher ' ' four.yaml", 2), "leave it out"));
    EXPECT_TRUE(says(error_of("launch -n 2 four.yaml --checkpoint uniform.yaml", 1), "is no folder"));
    EXPECT_TRUE(calls().empty());
    EXPECT_TRUE(says(run("launch -n 2 --launcher ./none four.yaml").err, "no program './none' was found\n  help: "));
    EXPECT_EQ(run("launch -n 2 --launcher ./none four.yaml").code, 1);
}

TEST_F(Launch, UsesMpirunByDefault) {
    std::filesystem::rename(file("fake"), file("mpirun"));
    write("tries", "exit 0\nexit 0\n");
    ASSERT_EQ(run_script("PATH=.:$PATH \"$1\" launch -n 2 four.yaml 2>err"), 0) << read("err");
    EXPECT_EQ(calls().size(), 1u);
    EXPECT_NE(run_script("PATH=/nowhere \"$1\" launch -n 2 four.yaml 2>err"), 0);
    EXPECT_TRUE(says(read("err"), "error: no program 'mpirun' was found\n  help: apt-get install openmpi-bin"));
}

// Processes that have left the process group and session, and their own children, are killed, too; others are not.
TEST_F(Launch, LeavesNoProcess) {
    write(
        "leave.sh",
        R"sh(setsid sh -c 'sleep 600 & echo $! >>left; setsid sleep 600 & echo $! >>left; echo $$ >>left; exec sleep 600' &
sleep 600 &
echo $! >>left
while [ "$(wc -l <left)" -lt 4 ]; do sleep 0.01; done
)sh");
    write("look.sh", "for left in $(cat left); do kill -0 $left 2>/dev/null && echo $left >>alive; done; exit 0\n");
    write("tries", "start; . ./leave.sh; exit 1\n. ./look.sh\n");
    ASSERT_EQ(run_script(
                  R"(sh -c 'sleep 600 & echo $! >other; exec "$0" launch -n 2 --launcher ./fake four.yaml' "$1" 2>err
kill $(cat other)
)"),
              0)
        << read("err");
    EXPECT_EQ(calls().size(), 2u) << read("err");
    EXPECT_EQ(read("alive"), "");
    write("tries", ". ./leave.sh; exit 0\n");
    std::filesystem::remove(file("calls"));
    std::filesystem::remove(file("left"));
    EXPECT_EQ(run_script("\"$1\" launch -n 2 --launcher ./fake four.yaml 2>err; . ./look.sh"), 0);
    EXPECT_EQ(read("alive"), "");
}

// The launcher ends its ranks itself, on any host.
TEST_F(Launch, EndsItsLauncherWhenItIsKilled) {
    write("tries", "trap 'echo $PPID >heard; exit 1' TERM; start; >ready; while :; do sleep 0.01; done\n");
    ASSERT_EQ(run_script(R"("$1" launch -n 2 --launcher ./fake four.yaml >out 2>err &
wait_for ready
kill -KILL $!
wait_for heard
[ -e heard ]
)"),
              0)
        << read("err");
}

// A config whose name begins with a dash is no option of run, and a launcher may be in a folder with a space.
TEST_F(Launch, KeepsWordsApart) {
    std::filesystem::copy(file("four.yaml"), file("--save=x.yaml"));
    std::filesystem::create_directory(file("a b"));
    std::filesystem::copy(file("fake"), file("a b/fake"));
    write("tries", "exit 0\n");
    ASSERT_EQ(run(R"(launch -n 4 --launcher '"./a b/fake" -x C' -q -- --save=x.yaml)").code, 0) << read("said.err");
    ASSERT_EQ(calls().size(), 1u);
    EXPECT_TRUE(says(calls()[0], "call: -x C -n 4 ")) << calls()[0];
    EXPECT_TRUE(says(calls()[0], " ./--save=x.yaml")) << calls()[0];
}

TEST_F(Launch, PassesOnASignalAndEnds) {
    for (const char* signal : {"INT", "TERM", "HUP"}) {
        std::filesystem::remove(file("calls"));
        write("tries",
              "trap 'echo $PPID >>heard; echo kept; exit 1' INT TERM HUP; >ready; while :; do sleep 0.01; done\n");
        // a shell makes background programs ignore SIGINT, nohup makes them ignore SIGHUP
        ASSERT_EQ(run_script(fmt::format(R"(rm -f ready heard
(exec env --default-signal=INT,TERM,HUP "$1" launch -n 2 --launcher ./fake four.yaml >out 2>err) &
wait_for ready
kill -{} $!
wait $!
echo $? >code
)",
                                         signal)),
                  0);
        EXPECT_EQ(read("code"), "1\n") << read("err");
        EXPECT_EQ(calls().size(), 1u) << read("err");
        EXPECT_EQ(std::ranges::count(read("heard"), '\n'), 1) << signal;
        EXPECT_EQ(read("out"), "kept\n");
        EXPECT_TRUE(says(read("err"), "error: the run was stopped by a signal (exit code 1)\n")) << read("err");
    }
}

// The second signal kills programs that ignore the first one.
TEST_F(Launch, ASecondSignalKills) {
    write("tries", "trap '' TERM; setsid sleep 600 & echo $! >left; >ready; while :; do sleep 0.01; done\n");
    ASSERT_EQ(run_script(R"("$1" launch -n 2 --launcher ./fake four.yaml 2>err &
wait_for ready
kill -TERM $!
sleep 0.2
kill -TERM $!
wait $!
echo $? >code
kill -0 $(cat left) 2>/dev/null && echo alive >>code
exit 0
)"),
              0);
    EXPECT_EQ(read("code"), "137\n") << read("err");
    EXPECT_EQ(calls().size(), 1u);
}

TEST_F(Launch, ContinuesAfterHangUpsThatItIgnores) {
    write("tries", ">ready; while [ ! -e go ]; do sleep 0.01; done; exit 0\n");
    ASSERT_EQ(run_script(R"(trap '' HUP
"$1" launch -n 2 --launcher ./fake four.yaml 2>err &
wait_for ready
kill -HUP $!
sleep 0.1
>go
wait $!
)"),
              0)
        << read("err");
}

}  // namespace

}  // namespace pw
