// The size of a plan's arenas relative to their peaks, over every schedule, model, split and way to transfer: one line
// per workload, and the plan with the largest ratio.
//
//     bench_packing [WORKLOAD [FOLDER]]
//
// In FOLDER it writes a file for every device whose arena is more than 1.1 times its peak, for bench/packing_bound.py:
// the peak, the arena and the plan, and then for each buffer its bytes and the first and the last position of its life.
#include "job/job.h"
#include "job/load.h"
#include "schedules/memory/buffers.h"
#include "workloads/error.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <vector>

namespace pw {
namespace {

// How the sizes of a config's stages are changed, differently for each plan.
enum class Sizes {
    AsTheyAre,
    Scaled,  // every stage and every boundary by a factor from 1/4 to 4: a split as uneven as it comes
    Drawn    // every kind of buffer of each stage from 64 KiB to 2.5 MiB: nothing fits to anything
};

struct Workload {
    std::string_view name, text;  // the text is that of a config
    bool layers = true;           // which can be split in several ways
    Sizes sizes = Sizes::AsTheyAre;
};

constexpr const char* kUniform =
    "{model: uniform, activation: 48 MB, activation_until_weight: 16 MB, output: 8 MB, weights: 64 MB}";

constexpr Workload kWorkloads[] = {
    {"uniform", kUniform, false},
    {"uneven", kUniform, false, Sizes::Scaled},
    {"drawn", "{model: uniform}", false, Sizes::Drawn},
    {"mlp", "{model: mlp}"},
    {"resnet50", "{model: resnet50, image_size: 64, classes: 10}"},
    {"unet", "{model: unet, image_size: 64, classes: 4, base_channels: 16, levels: 3}"},
    {"gpt", "{model: gpt, sequence_length: 64, vocabulary: 256, embedding: 128, blocks: 16, heads: 4}"},
};

struct Ratio {
    double ratio;
    std::string plan;
};

struct Found {
    std::vector<Ratio> ratios;  // one per device of each plan
    int plans = 0;
    double seconds = 0;  // of packing
};

double now() {
    timespec time{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

void change_sizes(Costs& costs, Sizes sizes, std::uint64_t seed) {
    std::mt19937_64 random(seed);
    const auto scale = [&](std::initializer_list<Bytes*> together) {
        const double factor = std::exp2(static_cast<double>(random() % 1000) / 250 - 2);
        for (Bytes* bytes : together)
            *bytes = static_cast<Bytes>(static_cast<double>(*bytes) * factor);
    };
    const auto draw = [&] { return static_cast<Bytes>(1 + random() % 40) * 65536; };
    for (StageBytes& bytes : costs.bytes)
        if (sizes == Sizes::Scaled) {
            scale({&bytes.weights});
            scale({&bytes.until_input, &bytes.until_weight});
        } else if (sizes == Sizes::Drawn) {
            for (Bytes* drawn : {&bytes.until_input, &bytes.until_weight, &bytes.gradient_kept})
                *drawn = draw();
        }
    for (EdgeBytes& edge : costs.edges)
        if (sizes == Sizes::Scaled)
            scale({&edge.forward, &edge.backward});
        else if (sizes == Sizes::Drawn)
            edge.forward = edge.backward = draw();
}

constexpr double kAimed = 1.1;  // times the peak

void write_device(const std::string& folder, const std::string& plan, const std::vector<Buffer>& buffers,
                  std::span<const int> own, Bytes peak, Bytes arena) {
    std::filesystem::create_directories(folder);
    const auto number = std::distance(std::filesystem::directory_iterator(folder), {});
    std::ofstream file(std::filesystem::path(folder) / fmt::format("{:03}.txt", number));
    file << peak << ' ' << arena << ' ' << plan << '\n';
    for (const int k : own)
        file << buffers[k].bytes << ' ' << buffers[k].first << ' ' << buffers[k].last << '\n';
}

void add(Job job, const Workload& workload, const std::string& name, const std::string& folder, Found& found) {
    change_sizes(job.costs, workload.sizes, static_cast<std::uint64_t>(found.plans));
    const std::vector<Buffer> buffers =
        buffers_of(job.plan, *job.proof, job.costs, job.versions, job.mode.early_receive());
    const double start = now();
    const Packing packing = pack(buffers, job.plan.shape.devices);
    found.seconds += now() - start;
    ++found.plans;
    const Rows own = by_device(buffers, job.plan.shape.devices);
    for (int device = 0; device < job.plan.shape.devices; ++device) {
        const Bytes peak = total(peak_of(job.plan.order[device], buffers, own[device]));
        if (peak == 0)
            continue;
        const double ratio = static_cast<double>(packing.arena[device]) / static_cast<double>(peak);
        found.ratios.push_back({ratio, fmt::format("{} {} device={}", workload.name, name, device)});
        if (ratio > kAimed && !folder.empty())
            write_device(folder, found.ratios.back().plan, buffers, own[device], peak, packing.arena[device]);
    }
}

// Tries a config with these keys set; not every schedule accepts every number.
void try_plan(const std::string& config, const Workload& workload, const std::vector<std::string>& set,
              const std::string& folder, Found& found) {
    try {
        Notices notices;
        add(make_job(load_config(config, set), notices), workload, fmt::format("{}", fmt::join(set, " ")), folder,
            found);
    } catch (const Error& error) {
        if (error.code() != ExitCode::BadInput)
            throw;
    }
}

void try_schedule(const std::string& config, const Workload& workload, const Schedule& schedule,
                  const std::string& folder, Found& found) {
    const std::vector<std::string> splits = workload.layers
                                                ? std::vector<std::string>{"pipeline.split=auto", "pipeline.split=even"}
                                                : std::vector<std::string>{""};
    for (const int devices : {2, 3, 4, 8})
        for (const int micro_batches : {2, 4, 7, 16, 32})
            for (const WeightPolicy policy : schedule.policies)
                for (const char* receive : {"early", "deferred"})
                    for (const char* recompute : {"none", "all"})
                        for (const std::string& split : splits) {
                            std::vector<std::string> set{fmt::format("pipeline.schedule={}", schedule.name),
                                                         fmt::format("pipeline.weights={}", name_of(policy)),
                                                         fmt::format("pipeline.micro_batches={}", micro_batches),
                                                         fmt::format("pipeline.recompute={}", recompute),
                                                         fmt::format("transfer.receive={}", receive),
                                                         fmt::format("cluster.devices={}", devices)};
                            if (!split.empty())
                                set.push_back(split);
                            try_plan(config, workload, set, folder, found);
                        }
}

void report(std::string_view name, Found& found) {
    std::vector<Ratio>& ratios = found.ratios;
    std::stable_sort(ratios.begin(), ratios.end(), [](const Ratio& a, const Ratio& b) { return a.ratio < b.ratio; });
    const auto at = [&](double share) {
        return ratios[static_cast<std::size_t>(share * static_cast<double>(ratios.size() - 1))].ratio;
    };
    fmt::print("{:<10}{:>8}{:>9}{:>9.3f}{:>9.3f}{:>9.3f}{:>9.3f}{:>9.1f}  {}\n", name, found.plans, ratios.size(),
               at(0.5), at(0.95), at(0.99), at(1), found.seconds, ratios.back().plan);
    std::fflush(stdout);
}

void measure(std::string_view wanted, const std::string& folder) {
    const std::string config = std::filesystem::temp_directory_path() / "bench_packing.yaml";
    fmt::print("{:<10}{:>8}{:>9}{:>9}{:>9}{:>9}{:>9}{:>9}  {}\n", "workload", "plans", "devices", "median", "p95",
               "p99", "worst", "seconds", "the worst");
    Found all;
    for (const Workload& workload : kWorkloads) {
        if (!wanted.empty() && workload.name != wanted)
            continue;
        std::ofstream(config) << "workload: " << workload.text << "\ntraining: {steps: 2}\n";
        Found found;
        for (const Schedule& schedule : schedules())
            try_schedule(config, workload, schedule, folder, found);
        all.ratios.insert(all.ratios.end(), found.ratios.begin(), found.ratios.end());
        all.plans += found.plans;
        all.seconds += found.seconds;
        report(workload.name, found);
    }
    report("all", all);
    std::filesystem::remove(config);
}

}  // namespace
}  // namespace pw

int main(int count, char** arguments) try {
    pw::measure(count > 1 ? arguments[1] : "", count > 2 ? arguments[2] : "");
} catch (const pw::Error& error) {
    fmt::print(stderr, "error: {}\n", error.what());
    return 1;
}
