// Times the searches for splits on public instances: the median of three, on one core, reading not counted. Each row
// runs in a process of its own, whose peak memory is its own too. Times are the thread's: another process on the core
// does not count. The last column is the wall time of the authors' program for the same instance on a shared Xeon of
// two cores, within about a factor of two.
//
//     bench_search DATA_DIR [part of the names to run]
#include "search/max_load.h"
#include "search/piper.h"
#include "workloads/error.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <ctime>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace pw {
namespace {

using Solve = std::function<Partition()>;

struct Row {
    std::string name;
    std::function<Solve(const std::string& folder)> read;
    const char* peer;  // its wall time
};

Row max_load_row(std::string_view file, const char* peer) {
    return {fmt::format("max-load {}", file),
            [file](const std::string& folder) -> Solve {
                const auto path = fmt::format("{}/dnn-partitioning/{}.json", folder, file);
                return [instance = read_placement_instance(path)] { return max_load_partition(instance); };
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
                constexpr double kGiB = 1024.0 * 1024 * 1024;
                PiperInstance instance = read_piper_instance(fmt::format("{}/piper/{}.json", folder, setting.file));
                instance.devices = setting.devices;
                instance.memory = setting.memory * kGiB;
                instance.microbatches = setting.microbatches;
                instance.bandwidth = 25 * kGiB;
                return [setting, instance] { return piper_partition(instance, {true, setting.data_parallel}); };
            },
            setting.peer};
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
    Partition partition;
    std::array<double, 3> times{};
    for (double& time : times) {
        const double start = seconds();
        partition = solve();
        time = seconds() - start;
    }
    std::sort(times.begin(), times.end());
    const double gap = partition.objective > 0 ? 1 - partition.lower_bound / partition.objective : 0;
    fmt::print("{:38} {:>18.12g} {:>7.3f} {:>9.4f} {:>8.1f}  {}\n", row.name, partition.objective, 100 * gap, times[1],
               peak_megabytes(), row.peer);
}

int run(const std::string& folder, std::string_view part) {
    fmt::print("{:38} {:>18} {:>7} {:>9} {:>8}  {}\n", "instance", "objective", "gap %", "seconds", "peak MB", "peer");
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
