// Any config is refused with a documented code, or every number of its prediction is possible. PIPEWRIGHT_SOAK=1 draws
// ten times as many, the sanitizers a fifth; PIPEWRIGHT_SEED=N draws others.
#include "job/build.h"
#include "job/load.h"
#include "job/plan.h"
#include "schedules/memory/limits.h"
#include "schedules/orders/schedule.h"
#include "schedules/plan/gradient_sums.h"
#include "search/plans/makespan.h"
#include "sim/metrics.h"
#include "sim/simulate.h"
#include "tests/support/cli_rig.h"
#include "tests/support/random_configs.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/thoroughness.h"
#include "workloads/costs/micro_batch_sizes.h"
#include "workloads/costs/profiled_model.h"

#include <gtest/gtest.h>

#include <cmath>
#include <csignal>
#include <cstdlib>
#include <new>

#include <sys/resource.h>
#include <sys/time.h>
#include <unistd.h>

namespace pw {
namespace {

constexpr rlim_t kMemory = rlim_t{4} << 30;
constexpr int kTooLong = 120;  // seconds of processor time for one config

std::uint64_t first_seed() {
    const char* seed = std::getenv("PIPEWRIGHT_SEED");
    return seed == nullptr ? 1 : std::strtoull(seed, nullptr, 10);
}

std::string g_config;  // the config under test, for the report of one that takes too long

void report_too_long(int) {
    const auto written = write(STDERR_FILENO, g_config.data(), g_config.size());
    _exit(written < 0 ? 2 : 1);
}

void limit_this_process() {
    const rlimit limit{kMemory, kMemory};
    if (!kSanitized) {  // sanitizers map more address space than any limit allows
        ASSERT_EQ(setrlimit(RLIMIT_AS, &limit), 0);
    }
    signal(SIGPROF, report_too_long);
}

// 0: no limit.
void limit_time(int seconds) {
    const itimerval limit{{0, 0}, {seconds, 0}};
    setitimer(ITIMER_PROF, &limit, nullptr);
}

bool is_share(double value) { return value >= 0 && value <= 1 + 1e-12; }

void expect_possible(const Trace& trace, const Metrics& metrics) {
    Ns longest = 0;
    for (const TraceEvent& event : trace.events) {
        ASSERT_GE(event.start, 0);
        ASSERT_GE(event.end, event.start);
        ASSERT_GE(event.bytes, 0);
        if (!is_transfer(event.task.op))
            longest = std::max(longest, event.end - event.start);
    }
    EXPECT_GE(metrics.makespan, longest);
    EXPECT_GE(metrics.makespan, metrics.span);
    EXPECT_LE(metrics.makespan, kLongestPlan);
    EXPECT_GE(metrics.ideal, 0);
    EXPECT_GE(metrics.span, 0);
    EXPECT_TRUE(is_share(metrics.bubble_rate)) << metrics.bubble_rate;
    EXPECT_TRUE(is_share(metrics.span_bubble_rate)) << metrics.span_bubble_rate;
    EXPECT_TRUE(std::isfinite(metrics.bubble_ratio) && metrics.bubble_ratio >= -1e-9) << metrics.bubble_ratio;
    EXPECT_GE(metrics.step_time, trace.asynchronous ? 0 : longest);
    EXPECT_LE(metrics.step_time, metrics.makespan);
    EXPECT_TRUE(std::isfinite(metrics.samples_per_second));
    EXPECT_EQ(metrics.samples_per_second > 0, metrics.step_time > 0);
    for (const DeviceMetrics& device : metrics.devices) {
        EXPECT_GE(device.busy, 0);
        EXPECT_GE(device.idle, 0);
        EXPECT_GE(device.exposed_communication, 0);
        EXPECT_LE(device.exposed_communication, device.idle);
        EXPECT_GE(device.peak_memory, 0);
        EXPECT_EQ(device.peak_memory, total(device.memory));
        EXPECT_GE(*std::min_element(device.memory.begin(), device.memory.end()), 0);
        EXPECT_GE(device.peak_in_flight, 0);
        EXPECT_GE(device.peak_in_flight_until_weight, device.peak_in_flight);
    }
}

Trace predicted(const Config& config) {
    Costs costs;
    Plan plan;
    if (config.workload.model == "uniform") {
        costs = uniform_costs(config);
        costs.cluster = cluster_of(config, {});
        add_settings(costs, config);
        plan = make_plan(config, {}, config.training.steps);
    } else {
        const Model model = build_model(config);
        const Profile profile = profile_of(config, model);
        const StageSplit split = make_split(config, model, profile);
        plan = make_plan(config, links_of(model.layers, split), config.training.steps);
        costs = costs_of(model, split, profile, sizes_of(config.pipeline));
        costs.cluster = cluster_of(config, profile);
        add_settings(costs, config);
        add_gradient_sums(costs, plan.shape, ties_of(model.layers, split));
    }
    Trace trace = simulate(plan, costs, config.transfer);
    trace.micro_batches = config.pipeline.micro_batches;
    trace.micro_batch_size = config.pipeline.micro_batch_size;
    trace.mini_batch = config.pipeline.mini_batch;
    return trace;
}

void expect_possible_search(const Config& config) {
    const Model model = build_model(config);
    const auto profile_at = [&](int samples) {
        Config sized = config;
        sized.pipeline.micro_batch_size = samples;
        sized.pipeline.mini_batch = std::int64_t{sized.pipeline.micro_batches} * samples;
        return profile_of(sized, model);
    };
    PlanLimits limits;
    limits.tasks = 20'000;
    const SearchResult result = search_plans({config, model, profile_at, config.transfer}, limits);
    EXPECT_GE(result.lower_bound, 0);
    for (const FoundPlan& plan : result.plans) {
        EXPECT_GE(plan.step_time, 0);
        EXPECT_LE(plan.step_time, kLongestPlan);
        EXPECT_GE(plan.lower_bound, 0);
        EXPECT_GE(plan.most_reserved(), 0);
    }
    if (result.best() != nullptr) {
        EXPECT_LE(result.best()->lower_bound, result.best()->step_time);
    }
}

// Returns true if the config is predicted, false if it is refused as documented.
template <class Act>
bool is_taken(Act act) {
    try {
        act();
        return true;
    } catch (const Error& error) {
        EXPECT_TRUE(error.code() == ExitCode::BadInput || error.code() == ExitCode::Infeasible) << error.what();
        EXPECT_FALSE(std::string(error.what()).empty());
    } catch (const std::exception& error) {
        ADD_FAILURE() << "neither a result nor a refusal: " << error.what();
    }
    return false;
}

TEST(Properties, HoldForAnyPredictedConfig) {
    limit_this_process();
    const TemporaryFolder folder;
    const int count = rounds(800);
    int predictions = 0, searches = 0;
    for (int number = 0; number < count && !testing::Test::HasFailure(); ++number) {
        const std::uint64_t seed = first_seed() * 1'000'000 + static_cast<std::uint64_t>(number);
        const RandomConfig drawn = RandomConfigs(seed).draw();
        g_config = fmt::format("seed {}\n{}{}", seed, drawn.text, drawn.layers);
        SCOPED_TRACE(g_config);
        folder.write("layers.yaml", drawn.layers);
        const std::string path = folder.write("cfg.yaml", drawn.text);
        limit_time(kTooLong);
        is_taken([&] {
            const Config config = load_config(path, {});
            if (is_taken([&] {
                    const Trace trace = predicted(config);
                    expect_possible(trace, metrics_of(trace));
                }))
                ++predictions;
            if (number % 4 == 0 && config.places.contains("search") &&
                is_taken([&] { expect_possible_search(config); }))
                ++searches;
        });
        limit_time(0);
    }
    if (!testing::Test::HasFailure()) {
        EXPECT_GT(predictions, count / 5) << "too many are refused: the draw says nothing";
        EXPECT_GT(searches, count / 400) << "too many are refused: the draw says nothing";
    }
}

class BinaryProperties : public Cli {
protected:
    // As `run`, with bounded memory and time.
    Said run_bounded(const std::string& arguments) const {
        std::ofstream(file("bounded.sh")) << (kSanitized ? "" : fmt::format("ulimit -v {}\n", kMemory / 1024))
                                          << fmt::format("ulimit -t {}\nexec timeout {} '{}' {}\n", kTooLong,
                                                         10 * kTooLong, PIPEWRIGHT_BINARY, arguments);
        const std::string command =
            fmt::format("cd '{}' && sh bounded.sh >said.out 2>said.err </dev/null", file("").string());
        const int status = std::system(command.c_str());
        return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, read("said.out"), read("said.err")};
    }

    void expect_documented(const std::string& arguments, const Said& said) const {
        SCOPED_TRACE(arguments);
        const bool refused_by_system = said.code == 1 && said.err.find("cannot reserve") != said.err.npos;
        EXPECT_TRUE(said.code == 0 || said.code == 2 || said.code == 3 || refused_by_system)
            << "exit code " << said.code << '\n'
            << said.err;
        EXPECT_EQ(said.err.find("out of memory"), said.err.npos) << said.err;
        EXPECT_TRUE(said.code == 0 || said.err.find("error: ") != said.err.npos) << said.err;
    }

    // For a simulation or a measurement.
    void expect_possible(const Json& json) const {
        EXPECT_GE(json["makespan_ns"], 0);
        EXPECT_GE(json["makespan_ns"], json["span_ns"]);
        EXPECT_GE(json["step_time_ns"], 0);
        EXPECT_TRUE(is_share(json["bubble_rate"]));
        EXPECT_TRUE(json["samples_per_second"].is_number());
        EXPECT_EQ(json["samples_per_second"] > 0, json["step_time_ns"] > 0);
        for (const Json& device : json["devices"]) {
            EXPECT_GE(device["busy_ns"], 0);
            EXPECT_GE(device["idle_ns"], 0);
            EXPECT_GE(device["peak_memory_bytes"], 0);
        }
    }

    void try_command(const std::string& command) const {
        const Said said = run_bounded(command);
        expect_documented(command, said);
        if (said.code != 0 || command.find("--json") == command.npos)
            return;
        const Json json = said.json();
        if (command.starts_with("simulate") || command.starts_with("run"))
            for (const Json& point : json.contains("points") ? json["points"] : Json::array({json}))
                if (!point.contains("error") && point.contains("devices"))
                    expect_possible(point);
        if (command.starts_with("search")) {
            EXPECT_GE(json["objective_ns"], 0) << said.out;
            EXPECT_GE(json["lower_bound_ns"], 0) << said.out;
        }
    }
};

// A small config to run, or one with a block `search` to search.
RandomConfig config_of(std::uint64_t seed, int command) {
    RandomConfigs configs(seed, command == 4);
    RandomConfig drawn = configs.draw();
    while (command == 3 && drawn.text.find("search: ") == drawn.text.npos)
        drawn = configs.draw();
    return drawn;
}

TEST_F(BinaryProperties, HoldForAnyConfigAndCommand) {
    const int count = rounds(60);
    for (int number = 0; number < count && !HasFailure(); ++number) {
        const std::uint64_t seed = first_seed() * 2'000'000 + static_cast<std::uint64_t>(number);
        const bool runs = number % 5 == 4;
        const RandomConfig drawn = config_of(seed, number % 5);
        SCOPED_TRACE(fmt::format("seed {}\n{}{}", seed, drawn.text, drawn.layers));
        write("layers.yaml", drawn.layers);
        write("cfg.yaml", drawn.text);
        constexpr const char* kCommands[] = {"simulate cfg.yaml --json", "validate cfg.yaml",
                                             "plan cfg.yaml --format csv", "search cfg.yaml --json --time-limit 1",
                                             "run cfg.yaml --json --set run.backend=emulated"};
        std::string command = kCommands[number % 5];
        if (runs && drawn.text.find("model: mlp") != drawn.text.npos)
            command = "run cfg.yaml --json --set run.backend=reference";
        if (number % 5 == 0 && number % 3 == 0)
            command += fmt::format(
                " --set 'sweep={{pipeline.micro_batches: [1, 7, {}], pipeline.schedule: [gpipe, 1f1b, zb-v]}}'",
                soaks() ? 200'000 : 20'000);
        try_command(command);
    }
}

}  // namespace
}  // namespace pw
