// Times the searches for splits and plans: the median of three, on one core, reading not counted. Each row runs in a
// process of its own, whose peak memory is its own too. Times are the thread's: another process on the core does not
// count. The last column is the wall time of the authors' program for the same instance on a shared Xeon of two cores,
// within about a factor of two, or "< x s" where there is no such program: the time to stay below.
//
//     bench_search DATA_DIR [part of the names to run]
#include "job/plan.h"
#include "schedules/orders/schedule.h"
#include "search/pipedream/pipedream.h"
#include "search/piper/piper.h"
#include "search/placement/max_load.h"
#include "search/plans/makespan.h"
#include "workloads/costs/profiled_model.h"
#include "workloads/error.h"
#include "workloads/stages/chain_partition.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <functional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

namespace pw {
namespace {

struct Answer {
    double objective = 0, lower_bound = 0;  // in the instance's unit
    std::int64_t tried = 0;                 // stages, or simulated plans
};
using Solve = std::function<Answer()>;

struct Row {
    std::string name;
    std::function<Solve(const std::string& folder)> read;
    const char* peer;  // its wall time
};

Answer answer_of(const Partition& partition) {
    return {partition.objective, partition.lower_bound, partition.candidates};
}

constexpr double kGiB = 1024.0 * 1024 * 1024;

Row max_load_row(std::string_view file, const char* peer) {
    return {fmt::format("max-load {}", file),
            [file](const std::string& folder) -> Solve {
                const auto path = fmt::format("{}/dnn-partitioning/{}.json", folder, file);
                return [instance = read_placement_instance(path)] { return answer_of(max_load_partition(instance)); };
            },
            peer};
}

struct PiperSetting {
    std::string_view file;
    int devices;
    double memory;  // GiB
    int microbatches;
    bool data_parallel;
    const char* peer;
};

Row piper_row(const PiperSetting& setting) {
    return {fmt::format("piper {} k={} {} GiB{}", setting.file, setting.devices, setting.memory,
                        setting.data_parallel ? "" : " no replicas"),
            [setting](const std::string& folder) -> Solve {
                PiperInstance instance = read_piper_instance(fmt::format("{}/piper/{}.json", folder, setting.file));
                instance.devices = setting.devices;
                instance.memory = setting.memory * kGiB;
                instance.microbatches = setting.microbatches;
                instance.bandwidth = 25 * kGiB;
                return [setting, instance] {
                    return answer_of(piper_partition(instance, {true, setting.data_parallel}));
                };
            },
            setting.peer};
}

ProfiledModel public_model(const std::string& folder, std::string_view model, int samples) {
    return read_profiled_model(fmt::format("{}/pipedream-profiles/{}.graph.txt", folder, model), {.samples = samples});
}

// Objectives in seconds.
Row pipedream_row(std::string_view model, const std::vector<PipedreamOptions::Level>& levels, const char* peer) {
    std::string devices;
    for (const PipedreamOptions::Level& level : levels)
        devices += fmt::format("{}{}", devices.empty() ? "" : "x", level.devices);
    return {fmt::format("pipedream {} {}", model, devices),
            [model, levels](const std::string& folder) -> Solve {
                const ProfiledModel read = public_model(folder, model, 1);
                return [graph = pipedream_graph(read.model, read.profile, 1), levels] {
                    return answer_of(plan_pipedream(graph, {levels}));
                };
            },
            peer};
}

// Objective in nanoseconds; the partition is exact.
Row chain_row(int layers, int parts, const char* peer) {
    return {fmt::format("chain {} layers {} parts", layers, parts),
            [layers, parts](const std::string&) -> Solve {
                std::mt19937_64 random(2026);
                Chain chain;
                for (int layer = 0; layer < layers; ++layer)
                    chain.time.push_back(static_cast<Ns>(1 + random() % 1'000'000));
                return [chain, parts] {
                    const auto bottleneck = static_cast<double>(partition_chain(chain, parts).bottleneck);
                    return Answer{bottleneck, bottleneck};
                };
            },
            peer};
}

// Eight devices, a mini-batch of 64, links of 10 GB/s and 5 us.
SearchSetup joint_setup(Bytes memory) {
    SearchSetup setup;
    setup.workload.model = "resnet50";
    setup.cluster.devices.resize(8);
    for (DeviceConfig& device : setup.cluster.devices)
        device.memory = memory;
    setup.cluster.link_given = true;
    setup.cluster.link.latency = 5'000;
    setup.cluster.link.bandwidth = 1e10;
    setup.search.schedules = {"gpipe", "1f1b", "eager-1f1b", "interleaved", "zb-h1", "zb-v"};
    setup.search.micro_batch_sizes = {1, 2, 4, 8};
    setup.search.mini_batch = 64;
    return setup;
}

// Schedule, micro-batch size, stages and split at once; objective: the simulated step in milliseconds. The profile's
// sizes are those of 128 images.
Row joint_row(std::string_view what, Bytes memory, const char* peer) {
    return {fmt::format("joint resnet50 8 devices{}", what),
            [memory](const std::string& folder) -> Solve {
                return [read = public_model(folder, "resnet50", 128), setup = joint_setup(memory)] {
                    const auto profile_at = [&](int) { return read.profile; };
                    const SearchResult result = search_plans({setup, read.model, profile_at, setup.transfer});
                    const Ns best = result.best() == nullptr ? 0 : result.best()->step_time;
                    return Answer{static_cast<double>(best) * 1e-6, static_cast<double>(result.lower_bound) * 1e-6,
                                  result.candidates};
                };
            },
            peer};
}

std::vector<Row> all_rows() {
    return {
        max_load_row("layer_resnet50_training", "0.40 s"),
        max_load_row("layer_gnmt_training", "46.2 s"),
        max_load_row("layer_inceptionv3_inference", "none in 400 s"),
        max_load_row("op_bert_l-3_inference", "1.0 s"),
        max_load_row("op_bert_l-6_training", "55.0 s"),
        max_load_row("op_resnet50_inference", "0.23 s"),
        piper_row({"bert32a100", 8, 8, 1920, true, "0.05 s"}),
        piper_row({"bert32a100", 64, 8, 1920, true, "0.22 s"}),
        piper_row({"bert32a100", 256, 8, 1920, true, "0.95 s"}),
        piper_row({"resnet", 8, 8, 7680, false, "0.8 s (not exact)"}),
        piper_row({"resnet", 8, 8, 7680, true, "3.2 s"}),
        piper_row({"resnet", 8, 4, 7680, true, "3.1 s"}),
        piper_row({"resnet", 16, 2, 7680, true, "4.6 s"}),
        piper_row({"gnmt", 2, 2.5, 256, true, "none in 100 s"}),
        pipedream_row("vgg16", {{16, 1.25e9}}, "0.19 s"),
        pipedream_row("gnmt", {{8, 3e10}, {2, 3.125e9}}, "6.3 s"),
        pipedream_row("gnmt_large", {{4, 1e9}}, "10.0 s"),
        pipedream_row("resnet50", {{4, 1.2e10}, {4, 1.25e9}}, "19.3 s"),
        pipedream_row("resnet50", {{8, 3e10}, {2, 3.125e9}}, "109.8 s"),
        chain_row(1'000'000, 1'000, "< 0.1 s"),
        joint_row("", kUnlimited, "< 10 s"),
        joint_row(" of 4 GiB", static_cast<Bytes>(4 * kGiB), "< 10 s"),
        joint_row(" of 256 MiB", static_cast<Bytes>(kGiB / 4), "< 10 s"),
    };
}

double seconds() {
    timespec time{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

double peak_megabytes() {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return static_cast<double>(usage.ru_maxrss) / 1024;
}

void print_row(const Row& row, const std::string& folder) {
    const Solve solve = row.read(folder);
    Answer answer;
    std::array<double, 3> times{};
    for (double& time : times) {
        const double start = seconds();
        answer = solve();
        time = seconds() - start;
    }
    std::sort(times.begin(), times.end());
    const double gap = answer.objective > 0 ? 1 - answer.lower_bound / answer.objective : 0;
    fmt::print("{:38} {:>18.12g} {:>7.3f} {:>9} {:>9.4f} {:>8.1f}  {}\n", row.name, answer.objective, 100 * gap,
               answer.tried, times[1], peak_megabytes(), row.peer);
}

int run(const std::string& folder, std::string_view part) {
    fmt::print("{:38} {:>18} {:>7} {:>9} {:>9} {:>8}  {}\n", "instance", "objective", "gap %", "tried", "seconds",
               "peak MB", "peer");
    int failed = 0;
    for (const Row& row : all_rows()) {
        if (row.name.find(part) == std::string::npos)
            continue;
        std::fflush(stdout);
        if (const pid_t child = fork(); child == 0) {
            try {
                print_row(row, folder);
            } catch (const Error& error) {
                fmt::print(stderr, "error: {}\n", error.what());
                _exit(static_cast<int>(error.code()));
            }
            std::fflush(stdout);
            _exit(0);
        } else {
            int status = 0;
            waitpid(child, &status, 0);
            failed += status == 0 ? 0 : 1;
        }
    }
    return failed == 0 ? 0 : 1;
}

}  // namespace
}  // namespace pw

int main(int count, char** values) {
    if (count < 2) {
        fmt::print(stderr, "usage: bench_search DATA_DIR [part of the names to run]\n");
        return static_cast<int>(pw::ExitCode::BadInput);
    }
    return pw::run(values[1], count > 2 ? values[2] : "");
}
