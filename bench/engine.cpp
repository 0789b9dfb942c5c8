// Times the engine step by step: the plan (orders, transfers, proof), its simulator, the first evaluation of the costs,
// one more, and the numbers of devices. Per task, transfers included: nanoseconds, medians of three, on one core,
// and the largest growth of the process. Every size runs in a process of its own. Before that, the time
// of a thousand draws.
//
//     bench_engine [SCHEDULE STAGES MICRO_BATCHES]
#include "schedules/orders/schedule.h"
#include "sim/metrics.h"
#include "sim/simulate.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string>
#include <vector>

namespace pw {
namespace {

struct Size {
    std::string schedule;
    int stages, micro_batches;
};

double now() {
    timespec time{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) * 1e9 + static_cast<double>(time.tv_nsec);
}

double peak_bytes() {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return static_cast<double>(usage.ru_maxrss) * 1024;
}

Costs costs_of(int stages) {
    Costs costs;
    ClusterEdit(costs)->link = {.latency = 5'000, .bandwidth = 25e9};
    for (int stage = 0; stage < stages; ++stage) {
        costs.stage.push_back(
            {.forward = 1'000'000, .backward = 2'000'000, .backward_input = 1'000'000, .backward_weight = 1'000'000});
        costs.bytes.push_back({});
        costs.bytes.back().until_weight = 1 << 20;
        if (stage > 0)
            costs.edges.push_back({stage - 1, stage, 16 << 20, 16 << 20});
    }
    return costs;
}

constexpr std::array kPhases = {"plan", "simulator", "first", "again", "numbers"};
using Times = std::array<double, kPhases.size()>;

Times times_of(const Size& size, std::int64_t& tasks) {
    Shape shape;
    shape.devices = shape.stages = size.stages;
    shape.microbatches = size.micro_batches;
    const Costs costs = costs_of(size.stages);
    Times times{};
    double since = now();
    const auto lap = [&](std::size_t phase) {
        const double time = now();
        times[phase] = time - since;
        since = now();
    };
    const ProvenPlan proven = proven_plan(schedule_named(size.schedule), shape, {});
    const Plan& plan = proven.plan;
    lap(0);
    Simulator simulator(std::make_shared<const Plan>(plan), proven.proof,
                        std::make_shared<const VersionTable>(versions_of(plan)), {.sent_copies = costs.sent_copies});
    lap(1);
    (void)simulator.step_time(costs);
    lap(2);
    (void)simulator.step_time(costs);
    lap(3);
    (void)simulator.metrics(costs, without_hash(plan));
    lap(4);
    tasks = 0;
    for (const std::vector<Task>& order : plan.order)
        tasks += std::ssize(order);
    return times;
}

void measure(const Size& size) {
    const double empty = peak_bytes();
    std::int64_t tasks = 0;
    std::vector<Times> all;
    for (int repeat = 0; repeat < 3; ++repeat)
        all.push_back(times_of(size, tasks));
    std::string line = fmt::format("{:<12}{:>6}{:>8}{:>10}", size.schedule, size.stages, size.micro_batches, tasks);
    for (std::size_t phase = 0; phase < kPhases.size(); ++phase) {
        std::sort(all.begin(), all.end(), [&](const Times& a, const Times& b) { return a[phase] < b[phase]; });
        line += fmt::format("{:>11.1f}", all[1][phase] / static_cast<double>(tasks));
    }
    fmt::print("{}{:>12.0f}\n", line, (peak_bytes() - empty) / static_cast<double>(tasks));
}

// A thousand draws of 16 stages and 512 micro-batches, random numbers included, on one core.
void measure_draws() {
    const Size size{"1f1b", 16, 512};
    Shape shape;
    shape.devices = shape.stages = size.stages;
    shape.microbatches = size.micro_batches;
    const Costs costs = costs_of(size.stages);
    const ProvenPlan proven = proven_plan(schedule_named(size.schedule), shape, {});
    Simulator simulator(std::make_shared<const Plan>(proven.plan), proven.proof,
                        std::make_shared<const VersionTable>(versions_of(proven.plan)),
                        {.sent_copies = costs.sent_copies});
    const Jitter jitter = lognormal_jitter(0.05);
    std::vector<double> times;
    for (int repeat = 0; repeat < 5; ++repeat) {
        const double since = now();
        (void)simulator.sample(costs, jitter, 1000, 1, 1);
        times.push_back(now() - since);
    }
    std::sort(times.begin(), times.end());
    fmt::print("1000 draws of {} p={} m={}: {:.3f} s\n", size.schedule, size.stages, size.micro_batches,
               times[2] / 1e9);
}

int run(const std::vector<Size>& sizes) {
    fmt::print("{:<12}{:>6}{:>8}{:>10}", "schedule", "p", "m", "tasks");
    for (const char* phase : kPhases)
        fmt::print("{:>11}", phase);
    fmt::print("{:>12}\n", "bytes");
    for (const Size& size : sizes) {
        std::fflush(stdout);
        const pid_t child = fork();
        if (child == 0) {
            measure(size);
            std::fflush(stdout);
            _exit(0);
        }
        int status = 0;
        if (child < 0 || waitpid(child, &status, 0) < 0 || status != 0) {
            fmt::print("{} p={} m={}: failed\n", size.schedule, size.stages, size.micro_batches);
            return 1;
        }
    }
    return 0;
}

}  // namespace
}  // namespace pw

int main(int count, char** values) {
    if (count == 4)
        return pw::run({{values[1], std::atoi(values[2]), std::atoi(values[3])}});
    pw::measure_draws();
    return pw::run({{"1f1b", 8, 32},
                    {"1f1b", 64, 512},
                    {"1f1b", 64, 4096},
                    {"1f1b", 256, 1024},
                    {"gpipe", 64, 4096},
                    {"zb-h1", 64, 4096},
                    {"1f1b", 1024, 4096}});
}
