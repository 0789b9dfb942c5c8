// scripts/gpu-report, all its calls, on a machine whose GPU, PyTorch and binaries are fakes that print what the real
// ones do. A second of its budgets lasts 50 ms here.
#include "tests/house/tree_text.h"
#include "tests/support/temporary_folder.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include <sys/wait.h>

namespace pw {
namespace {

// Under the name of each program. FAKES/NAME.does, where it is, comes first.
constexpr const char* kFake = R"sh(#!/bin/sh
name=$(basename "$0")
[ ! -e "$FAKES/$name.does" ] || . "$FAKES/$name.does"
after() {  # OPTION ARGUMENTS...: what follows it
  wanted=$1
  while [ "$1" != "${2-}" ] && shift && [ $# -gt 0 ]; do [ "$1" != "$wanted" ] || { echo "$2"; return; }; done
}
case "$name $*" in
  "nvidia-smi --query"*) echo "NVIDIA H100 80GB HBM3" ;;
  "python "*resnet50_pytorch.py*)
    echo '{"optimizers": {"foreach": {"images_per_second": 2500}, "fused": {"images_per_second": 2525}}}' ;;
  "python "*) exec python3 "$@" ;;
  "pipewright run "*)
    trace=$(after --trace "$@")
    [ -z "$trace" ] || echo '{"traceEvents": [{"ph": "X", "args": {"step": 0, "start_ns": 0}},
      {"ph": "X", "args": {"step": 1, "start_ns": 90000000}}, {"ph": "X", "args": {"step": 1, "start_ns": 99000000}},
      {"ph": "X", "args": {"step": 2, "start_ns": 154000000}}]}' >"$trace"
    echo '{"schedule": "1f1b", "step_time_ns": 1500000, "samples_per_second": 4500, "losses": [2.5, 2.25, 2.125],
      "weights_hash": "0123456789abcdef"}' ;;
  "pipewright compare "*)
    folder=$(after -o "$@")
    mkdir -p "$folder"
    echo 'layers: []' >"$folder/profile.yaml"
    echo '{"points": [{"schedule": "1f1b", "micro_batches": 8, "step_time_error": -0.04, "peak_memory_error": 0,
      "predicted": {"step_time_ns": 96000000, "bubble_rate": 0.25},
      "measured": {"step_time_ns": 100000000, "bubble_rate": 0.27, "samples_per_second": 2560}}]}' \
      >"$folder/accuracy.json" ;;
  gpu_layers*)
    echo "floor: the larger of bytes at 2900 GB/s (a copy of 1 GiB) and FLOPs at 1070 TFLOP/s"
    echo "shown: 4100 images/s by the sum of the passes; the floor allows 8000" ;;
  gpu_*) echo "shown: what $name shows" ;;
  test_cuda_*)
    echo "[ RUN      ] Suite.Passes"
    echo "[       OK ] Suite.Passes (1 ms)" ;;
  compute-sanitizer*) echo "========= ERROR SUMMARY: 0 errors" ;;
  *) echo "$name $*" ;;
esac
)sh";

class GpuReport : public testing::Test {
protected:
    GpuReport() {
        for (const std::string name :
             {"bin/pipewright", "bin/gpu_probe", "bin/gpu_shares", "bin/gpu_layers", "bin/gpu_cupti",
              "bin/gpu_identity", "bin/gpu_nccl_smoke", "bin/test_cuda_kernels", "bin/test_cuda_seats",
              "bin/test_cuda_layers", "bin/test_cuda_models", "bin/test_cuda_residuals", "bin/test_cuda_run",
              "path/nvidia-smi", "path/python", "path/compute-sanitizer", "path/ncu"}) {
            fs::create_directories(fs::path(path(name)).parent_path());
            fs::permissions(folder_.write(name, kFake), fs::perms::owner_all);
        }
    }

    // What a fake does first.
    void make(const std::string& name, const std::string& commands) const { folder_.write(name + ".does", commands); }

    int report(const std::string& arguments) const {
        const std::string here = folder_.path().string();
        const std::string command = "cd '" + here + "' && FAKES='" + here + "' PATH='" + here +
                                    "/path':\"$PATH\" PYTHON='" + here +
                                    "/path/python' GPU_REPORT_SECOND=50 "
                                    "'" PIPEWRIGHT_SOURCE_DIR "/scripts/gpu-report' --build . " +
                                    arguments + " >said.out 2>said.err </dev/null";
        const int status = std::system(command.c_str());
        return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    }

    std::string path(const std::string& name) const { return (folder_.path() / name).string(); }
    std::string read(const std::string& name) const { return text_of(path(name)); }

    // How each command of a call ended, by its file.
    std::map<std::string, std::string> statuses(const std::string& call) const {
        std::istringstream lines(read("out/steps-" + call + ".tsv"));
        std::map<std::string, std::string> all;
        for (std::string file, status, rest; std::getline(lines, file, '\t');) {
            std::getline(lines, status, '\t');
            std::getline(lines, rest);
            all[file] = status;
        }
        return all;
    }

    void expect_on_page(const std::vector<std::string>& texts) const {
        const std::string page = read("out/README.md");
        for (const std::string& text : texts)
            EXPECT_NE(page.find(text), std::string::npos) << text << "\nis not on the page:\n" << page;
    }

private:
    TemporaryFolder folder_;
};

TEST_F(GpuReport, RunsAllInThreeCalls) {
    for (const char* call : {"1", "2", "3"})
        EXPECT_EQ(report(std::string("--call ") + call + " --archive report-" + call + ".tar.gz out"), 0)
            << read("said.err");
    EXPECT_EQ(statuses("1").size(), 12u);
    EXPECT_EQ(statuses("2").size(), 20u);
    EXPECT_EQ(statuses("3").size(), 13u);
    expect_on_page({"# NVIDIA H100 80GB HBM3", "45 commands: 45 went well.",
                    // both from the start of a step to the next, 64 ms; in addition the time of a step alone
                    "| pipewright | 4000 | 4000 - 4000 | 4500 | 1.600 | 2 |",
                    "| pytorch-eager | 2500 | 2500 - 2500 | - | 1.000 | 2 |",
                    "| pytorch-compile, fused SGD | 2525 | 2525 - 2525 | - | 1.010 | 2 |",
                    "| memory at 3.35 TB/s (data sheet of H100 80GB HBM3) | 9882 | pipewright 40.5 %,",
                    "| memory at 2.90 TB/s (a copy, measured) | 8555 | pipewright 46.8 %,",
                    "(gpu_layers) | 8000 | pipewright 50.0 %,", "| 1f1b | 8 | 96.000 ms | 100.000 ms | -4.0% |",
                    "| mlp-two-shares | 1f1b | 1.500 ms | 2.50000 2.25000 2.12500 | 0123456789abcdef |",
                    "| test_cuda_run-2 | 1 | 1 |", "0.00e+00 of the CPU's loss away", "ERROR SUMMARY: 0 errors"});
    EXPECT_EQ(std::system(("tar -xzf '" + path("report-3.tar.gz") + "' -C '" + path("path") + "'").c_str()), 0);
    EXPECT_EQ(read("path/out/README.md"), read("out/README.md"));
}

TEST_F(GpuReport, WhatHangsOrFailsStopsNothingElse) {
    make("gpu_shares", "trap '' TERM\nwhile :; do sleep 0.1; done\n");
    make("gpu_identity", "echo 'NOT SHOWN: bits differ'\nexit 4\n");
    make("python", "case $* in *'--mode compile'*) echo 'out of memory' >&2; exit 3 ;; esac\n");
    EXPECT_EQ(report("--call 2 out"), 1);
    std::map<std::string, std::string> all = statuses("2");
    EXPECT_FALSE(all.contains("throughput/pytorch-compile-2.json"));
    EXPECT_EQ(all["throughput/pytorch-eager-2.json"], "ok");
    expect_on_page({"19 commands: 16 went well.",
                    "Not well: `throughput/pytorch-compile-1.json` failed (3), `tools/gpu_shares.txt` stopped after "
                    "30 s, `identity/gpu_identity.txt` not as it should be (4).",
                    "failed (3): out of memory", "| pipewright | 4000 |", "NOT SHOWN: bits differ"});
}

TEST_F(GpuReport, ACrashedTestIsRunAgainWithoutTheCaseThatCrashed) {
    make("test_cuda_layers",
         "case $* in *filter=-*) echo \"again $*\" ;;\n"
         "*) echo '[ RUN      ] Shapes/Layers.Crash/conv, where GetParam() = 1'\n"
         "kill -SEGV $$ ;; esac\n");
    EXPECT_EQ(report("--call 1 --only kernels out"), 1);
    EXPECT_EQ(statuses("1")["tests/test_cuda_layers.txt"], "failed (139)");
    EXPECT_EQ(statuses("1")["tests/test_cuda_layers-rest.txt"], "ok");
    EXPECT_NE(read("out/tests/test_cuda_layers-rest.txt").find("again --gtest_filter=-Shapes/Layers.Crash/conv\n"),
              std::string::npos);
    expect_on_page({"Not passed: `Shapes/Layers.Crash/conv`"});
}

TEST_F(GpuReport, BudgetsShrinkWithTheTimeThatIsLeft) {
    make("gpu_layers", "exec sleep 100\n");  // takes half of the 50 s
    make("gpu_shares", "exec sleep 100\n");  // takes half of the rest
    EXPECT_EQ(report("--call 2 --only layers,pipelines,identity --limit 60 out"), 1);
    std::map<std::string, std::string> all = statuses("2");
    int first = 0, second = 0;  // a busy machine takes some of them before the first begins
    ASSERT_EQ(std::sscanf(all["tools/gpu_layers.txt"].c_str(), "stopped after %d s", &first), 1);
    ASSERT_EQ(std::sscanf(all["tools/gpu_shares.txt"].c_str(), "stopped after %d s", &second), 1);
    EXPECT_LE(first, 25);
    EXPECT_GE(first, 15);
    EXPECT_LE(second, first / 2 + 1);
    expect_on_page(
        {"Left out for want of time: `pipelines/m8.txt`, `pipelines/m16.txt`, "
         "`identity/gpu_identity.txt`."});
    EXPECT_NE(read("said.err").find("left out: pipelines/m16.txt\n"), std::string::npos) << read("said.err");
}

TEST_F(GpuReport, LeavesPageAndArchiveWhenItIsStopped) {
    make("gpu_probe",
         "case $* in *machine*) ;; *) echo $$ >\"$FAKES/probe.pid\"\n"
         "kill -TERM $(cut -d' ' -f4 /proc/$PPID/stat)\n"  // the script, which started timeout, which this
         "exec sleep 100 ;; esac\n");
    EXPECT_EQ(report("--call 1 --archive report.tar.gz out"), 1);
    EXPECT_TRUE(fs::exists(path("report.tar.gz")));
    expect_on_page({"2 commands: 2 went well."});
    ASSERT_TRUE(fs::exists(path("probe.pid")));
    EXPECT_NE(std::system(("kill -0 $(cat '" + path("probe.pid") + "') 2>/dev/null").c_str()), 0);
}

TEST_F(GpuReport, SkipsWithoutAGpuAndRefusesACallThatIsNone) {
    make("nvidia-smi", "echo 'NVIDIA-SMI has failed' >&2\nexit 9\n");
    EXPECT_EQ(report("--call 1 out"), 77);
    EXPECT_FALSE(fs::exists(path("out")));
    EXPECT_EQ(report("--call 4 out"), 2);
}

}  // namespace
}  // namespace pw
