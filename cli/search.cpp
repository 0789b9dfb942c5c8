// search: the best stage split and plan, with a proof of how good it is.
#include "cli/search.h"

#include "cli/command.h"
#include "cli/memory_cap.h"
#include "cli/option_numbers.h"
#include "cli/streams.h"
#include "cli/table.h"
#include "exec/execute.h"
#include "job/build.h"
#include "job/cost_source.h"
#include "job/idle_keys.h"
#include "job/settings.h"
#include "schedules/orders/schedule.h"
#include "viz/plot.h"
#include "workloads/error.h"
#include "workloads/machine_memory.h"
#include "workloads/text/files.h"

#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <chrono>
#include <memory>
#include <new>
#include <optional>
#include <thread>

namespace pw {

namespace {

struct SearchArguments {
    ConfigArguments config;
    bool json = false;
    std::string output, plot;
    double time_limit = 0;     // seconds; 0: none
    std::string memory_limit;  // empty: a quarter of the machine's
    int threads = 0;           // 0: one per core
    int top = 10;
};

double seconds_since(std::chrono::steady_clock::time_point start) {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

MakespanLimits limits_of(const SearchArguments& arguments, double seconds_gone) {
    MakespanLimits limits;
    if (arguments.time_limit > 0)
        limits.seconds = std::max(0.0, arguments.time_limit - seconds_gone);
    limits.threads =
        arguments.threads > 0 ? arguments.threads : std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
    return limits;
}

Bytes memory_limit_of(const SearchArguments& arguments) {
    if (arguments.memory_limit.empty())
        return memory_of_machine() / 4;
    const std::optional<Bytes> limit = parse_bytes(arguments.memory_limit);
    if (!limit || *limit < 1)
        fail("--memory-limit is '{}', which is no size\n  help: write a number and a unit, as in 4 GB or 512 MiB",
             arguments.memory_limit);
    return *limit;
}

[[noreturn]] void fail_without_memory(Bytes limit) {
    fail_with(ExitCode::RunFailed,
              "out of memory: no plan was found within {} of memory\n  help: raise --memory-limit, lower --threads, or "
              "search fewer stages (search.stages), devices or micro-batches (larger search.micro_batch_sizes)",
              print_bytes(limit));
}

// Before a plan was simulated.
[[noreturn]] void fail_without_a_try(const SearchResult& result, const SearchArguments& arguments, Bytes memory) {
    if (result.stop == SearchStop::Memory)
        fail_without_memory(memory);
    fail_with(ExitCode::RunFailed,
              "the time limit of {:g} s ends before a plan was tried\n  help: raise --time-limit, or search fewer "
              "micro-batches (larger search.micro_batch_sizes) or a model with fewer layers",
              arguments.time_limit);
}

[[noreturn]] void fail_infeasible(const SearchResult& result) {
    if (!result.shortage)
        fail_with(ExitCode::Infeasible,
                  "no schedule of the search takes any of the splits that were tried\n  help: search "
                  "other schedules (search.schedules) or numbers of stages (search.stages)");
    const Shortage& shortage = *result.shortage;
    fail_with(ExitCode::Infeasible,
              "{}{}: in the closest one the device of stage {} needs {} ({} bytes) and has {} ({} bytes)\n  "
              "help: raise cluster.memory, or search smaller micro-batches (search.micro_batch_sizes), other schedules "
              "(search.schedules) or recomputation (search.recompute: auto)",
              result.none_fits ? "no plan fits" : "no plan was found that fits",
              result.stop == SearchStop::Time     ? " before the time limit"
              : result.stop == SearchStop::Memory ? " within the memory limit"
                                                  : "",
              shortage.stage, print_bytes_as(shortage.needs, shortage.has), shortage.needs,
              print_bytes_as(shortage.has, shortage.has), shortage.has);
}

bool is_runnable(const Job& job) {
    try {
        check_runnable(job);
        return true;
    } catch (const Error&) {
        return false;
    }
}

// A machine that the config describes by its rates is not this one.
const char* next_command(const Job& job) {
    const Config& config = job.config;
    if (is_emulated(config))
        return "run";
    const bool is_here = config.run.backend == RunConfig::Backend::Cuda || !config.cluster.profile.empty() ||
                         (config.cluster.rates.flops == DeviceRates{}.flops &&
                          config.cluster.rates.memory_bandwidth == DeviceRates{}.memory_bandwidth);
    return is_here && is_runnable(job) ? "run" : "simulate";
}

void print_notes(const SearchResult& result, Bytes memory) {
    for (const std::string& note : result.notes)
        print_note(note);
    if (result.left_out > 0 && !result.plans.empty())
        print_note(
            fmt::format("{} of {} choices needed more than {} of memory and were left out: raise "
                        "--memory-limit or lower --threads",
                        result.left_out, result.choices, print_bytes(memory)));
}

// That replicas were not asked for, where some of the schedules take them.
void note_missing_replicas(const Config& config, SearchResult& result) {
    const bool some_take = std::any_of(result.plans.begin(), result.plans.end(), [](const FoundPlan& plan) {
        const Schedule& schedule = schedule_named(plan.choice.schedule);
        return schedule.takes_replicas() && !schedule.asynchronous();
    });
    if (config.search.replicas == SearchConfig::Replicas::No && some_take && config.cluster.devices.size() > 1)
        result.notes.emplace_back(
            "every stage has one device: data parallelism and other replicas are among the choices with "
            "search.replicas: true, or equal for as many of each stage");
}

SearchResult search_within(const SearchProblem& problem, const MakespanLimits& limits, Bytes memory) {
    ProgressLine progress;
    bool enough = true;
    SearchResult result;
    {
        const MemoryCap cap(memory);
        try {
            result = search_plans(problem, limits, [&](const std::string& state) { progress.show(state); });
        } catch (const std::bad_alloc&) {
            enough = false;
        }
    }
    if (!enough)
        fail_without_memory(memory);
    return result;
}

void refuse_uniform(const Config& config) {
    if (!cost_source_of(config).has_layers)
        config.fail_at("workload.model", "model: uniform has the times of stages: there is nothing to split and search",
                       "write the times by layer into a layer graph, `layers.yaml`, and name it as the model "
                       "(docs/config.md, models from files); or compare schedules of these stages by `pipewright "
                       "simulate` with sweep: {pipeline.schedule: [..], pipeline.micro_batches: [..]}");
}

void search_makespan(const Config& config, const SearchArguments& arguments) {
    const auto start = std::chrono::steady_clock::now();
    const Bytes memory = memory_limit_of(arguments);
    refuse_uniform(config);
    const Model model = build_model(config);
    const SearchProblem problem = problem_of(config, model);
    SearchResult result = search_within(problem, limits_of(arguments, seconds_since(start)), memory);
    std::optional<Job> best;
    if (result.best() != nullptr) {
        best = make_job(config_of(problem, *result.best()), result.notes);
        note_missing_replicas(config, result);
    }
    print_notes(result, memory);
    const SearchReport report{problem, result, best};
    if (arguments.json)
        print_json(json_of(report, seconds_since(start)));
    if (result.plans.empty() && result.stop != SearchStop::None)
        fail_without_a_try(result, arguments, memory);
    if (!best)
        fail_infeasible(result);
    Outputs outputs;
    outputs.attempt([&] {
        if (!arguments.json)
            print_result("{}", print(report, static_cast<std::size_t>(arguments.top)));
    });
    outputs.attempt([&] {
        if (!arguments.plot.empty())
            plot_search(result, arguments.plot);
    });
    outputs.attempt([&] {
        if (!arguments.output.empty())
            write_file(arguments.output, print_yaml(problem, result, arguments.output));
    });
    outputs.done();
    if (!arguments.json && !arguments.output.empty())
        print_result("next: pipewright {} {}\n", next_command(*best), arguments.output);
    const std::string note = note_on_costs(*best, config.search.micro_batch_sizes);
    if (!note.empty())
        print_note(note);
}

void search_objective_within(const Config& config, const SearchArguments& arguments) {
    const Bytes memory = memory_limit_of(arguments);
    bool enough = true;
    {
        const MemoryCap cap(memory);
        try {
            search_objective(config, {arguments.json, arguments.time_limit, arguments.output, arguments.plot});
        } catch (const std::bad_alloc&) {
            enough = false;
        }
    }
    if (!enough)
        fail_without_memory(memory);
}

void search_config(const SearchArguments& arguments) {
    const Config config = arguments.config.load();
    check_plot_file(arguments.plot);
    check_target_file(arguments.output);
    at_its_place(config, [&] {
        if (config.search.objective == SearchConfig::Objective::Makespan)
            search_makespan(config, arguments);
        else
            search_objective_within(config, arguments);
        for (const IdleKey& key : idle_keys_of_search(config))
            print_note(print(key));
    });
}

}  // namespace

Action add_search(CLI::App& command) {
    auto arguments = std::make_shared<SearchArguments>();
    add_config(command, arguments->config);
    command.add_option("-o,--output", arguments->output, "write the best config")->type_name("BEST.yaml");
    command.add_flag("--json", arguments->json, "print one JSON object");
    command
        .add_option(
            "--plot", arguments->plot,
            "draw reserved memory against step time, with other objectives the time of every stage: " + plot_formats())
        ->type_name("FILE");
    command.add_option("--time-limit", arguments->time_limit, "seconds; then the best so far and its gap")
        ->check(seconds_above_zero())
        ->type_name("SECONDS");
    command
        .add_option("--memory-limit", arguments->memory_limit, "as in 4 GB; default: a quarter of the machine's memory")
        ->type_name("SIZE");
    command.add_option("--threads", arguments->threads, "default: one per core; they never change the answer")
        ->type_name("N")
        ->check(whole_number(1, 1024));
    command.add_option("--top", arguments->top, "plans in the table")
        ->type_name("N")
        ->check(whole_number(1, 1'000'000));
    return [arguments] { search_config(*arguments); };
}

}  // namespace pw
