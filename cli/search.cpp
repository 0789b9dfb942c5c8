// search: finds the best stage split and plan, with a bound on how much better another plan could be.
#include "cli/command.h"
#include "cli/memory_cap.h"
#include "cli/option_numbers.h"
#include "cli/outputs.h"
#include "cli/picture_options.h"
#include "cli/search_line.h"
#include "cli/signals.h"
#include "cli/streams.h"
#include "exec/all_ranks.h"
#include "exec/runnable.h"
#include "job/idle_keys.h"
#include "job/launched_ranks.h"
#include "job/settings.h"
#include "report/notes.h"
#include "report/origins.h"
#include "report/partition_search.h"
#include "report/plan_search.h"
#include "report/table.h"
#include "report/training_arguments.h"
#include "viz/plot.h"
#include "workloads/error.h"
#include "workloads/machine_memory.h"
#include "workloads/text/files.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <chrono>
#include <memory>
#include <new>
#include <optional>
#include <thread>
#include <utility>

namespace pw {

namespace {

struct SearchArguments {
    ConfigArguments config;
    bool json = false;
    std::string output, plot, csv;
    View view;
    double time_limit = 0;     // seconds; 0: none
    std::string memory_limit;  // empty: a quarter of the machine's
    int threads = 0;           // 0: a thread per core
    int top = 10;
    int row = 1;  // of the table: the plan that is written

    bool prints_text() const { return !json && csv != "-"; }
};

int cores_of_machine() { return std::max(1, static_cast<int>(std::thread::hardware_concurrency())); }

double seconds_since(std::chrono::steady_clock::time_point start) {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

volatile std::sig_atomic_t stopped_by_signal = 0;

// After SIGINT or SIGTERM a search ends with the best plan so far. A second signal ends it at once.
void stop_soon(int signal) {
    stopped_by_signal = signal;
    std::signal(signal, SIG_DFL);
}

void end_soon_on_signals() {
    for (const int signal : {SIGINT, SIGTERM})
        if (!is_ignored(signal))
            std::signal(signal, stop_soon);
}

bool is_stopped_by_signal() { return stopped_by_signal != 0; }

PlanLimits limits_of(const Config& config, const SearchArguments& arguments, const ComputingRanks& ranks,
                     double seconds_gone) {
    PlanLimits limits;
    if (arguments.time_limit > 0)
        limits.seconds = std::max(0.0, arguments.time_limit - seconds_gone);
    limits.threads = arguments.threads > 0 ? arguments.threads : ranks.cores;
    limits.exact = static_cast<std::size_t>(arguments.top);
    limits.should_stop = [&] { return is_stopped_by_signal() || (ranks.has_failed && ranks.has_failed()); };
    limits.team = {ranks.rank, ranks.size, ranks.exchange};
    limits.refusal = refusal_of_plans(config);
    return limits;
}

Bytes memory_limit_of(const SearchArguments& arguments) {
    if (arguments.memory_limit.empty())
        return memory_of_machine() / 4;
    const std::optional<Bytes> limit = parse_bytes(arguments.memory_limit);
    if (!limit || *limit < 1)
        fail("--memory-limit is '{}', which is not a size\n  help: write a number and a unit, as in 4 GB or 512 MiB",
             arguments.memory_limit);
    return *limit;
}

[[noreturn]] void fail_without_memory(Bytes limit) {
    fail_with(ExitCode::RunFailed,
              "out of memory: no plan was found within {} of memory\n  help: raise --memory-limit, lower --threads, or "
              "search fewer stages (search.stages), devices or micro-batches (larger search.micro_batch_sizes)",
              print_bytes(limit));
}

// The search ended before any plan was simulated.
[[noreturn]] void fail_without_a_plan(const SearchResult& result, const SearchArguments& arguments, Bytes memory) {
    if (result.stop == SearchStop::Memory)
        fail_without_memory(memory);
    if (result.stop == SearchStop::Caller)
        fail_with(ExitCode::RunFailed,
                  "the search was stopped by a signal before any plan was tried\n  help: let it search longer, or "
                  "list fewer values in the block search");
    fail_with(ExitCode::RunFailed,
              "the time limit of {:g} s ended before any plan was tried\n  help: raise --time-limit, or list "
              "fewer values in the block search, larger search.micro_batch_sizes or a model with fewer layers",
              arguments.time_limit);
}

bool is_runnable(const Job& job) {
    try {
        check_runnable(job);
        return true;
    } catch (const Error&) {
        return false;
    }
}

// A machine that the config describes by rates may differ from this machine.
bool is_for_this_machine(const Job& job) {
    const Setup& setup = job.setup;
    if (is_emulated(setup))
        return true;
    const bool is_here = setup.run.backend == RunConfig::Backend::Cuda || !setup.cluster.profile.empty() ||
                         (setup.cluster.rates.flops == DeviceRates{}.flops &&
                          setup.cluster.rates.memory_bandwidth == DeviceRates{}.memory_bandwidth);
    return is_here && is_runnable(job);
}

// What trains by the plan in `file`: a training program if the plan is of a transformer and a program runs it.
std::string next_command(const Job& job, const Config& searched, const std::string& file) {
    const std::vector<std::string> programs = programs_that_run(job.setup);
    if (programs.empty())
        return fmt::format("{} {}", is_for_this_machine(job) ? "run" : "simulate", file);
    const std::string program(searched.search.program ? name_of(*searched.search.program) : programs.front());
    return fmt::format("simulate {} --arguments {}", file, program);
}

// Says why no program runs a plan, and what finds a plan that a program runs.
void note_on_programs(const Job& job) {
    if (!job.setup.workload.transformer || !programs_that_run(job.setup).empty())
        return;
    std::string refusals;
    for (const TrainingProgram& program : training_programs())
        refusals += fmt::format("{}{}", refusals.empty() ? "" : "; ", refusal_of(program.program, job.setup)->fact);
    print_note(
        fmt::format("no training program runs this plan: {}. The key search.program restricts the search to plans "
                    "that a program runs",
                    refusals));
}

// A search costs every plan as one release of a program runs it.
void note_on_release(const Config& config) {
    const std::optional<Program> program = config.search.program;
    if (!searches_cluster(config) || !program || facts_of(config.parallel.degrees.trained_by()).program == program)
        return;
    std::vector<std::string_view> releases;
    for (const auto& [name, release] : kChoices<Release>)
        if (facts_of(release).program == program)
            releases.push_back(name);
    print_note(fmt::format("plans are for {}, but their costs are the costs of {}: write parallel.release: {}",
                           name_of(*program), name_of(config.parallel.degrees.trained_by()),
                           fmt::join(releases, ", ")));
}

void print_notes_of(const SearchResult& result, Bytes memory) {
    print_notes(result.notes);
    if (result.left_out > 0 && !result.plans.empty())
        print_note(
            fmt::format("{} of {} choices needed more than {} of memory and were left out: raise "
                        "--memory-limit or lower --threads",
                        result.left_out, result.choices, print_bytes(memory)));
}

// Calls `search` with at most this much memory.
template <class Search>
void within_memory(Bytes memory, Search search) {
    bool enough = true;
    {
        const MemoryCap cap(memory);
        try {
            search();
        } catch (const std::bad_alloc&) {
            enough = false;
        }
    }
    if (!enough)
        fail_without_memory(memory);
}

// Refuses a row that the table does not have.
void check_row(const PlanSearch& search, const SearchArguments& arguments) {
    const std::size_t rows = rows_of(search, static_cast<std::size_t>(arguments.top));
    if (static_cast<std::size_t>(arguments.row) > rows)
        fail("--row is {}, but the table has {} row{}\n  help: write a row of the table, or raise --top", arguments.row,
             rows, rows == 1 ? "" : "s");
}

void write_found(const PlanSearch& search, const Config& config, const SearchArguments& arguments) {
    check_row(search, arguments);
    const auto row = static_cast<std::size_t>(arguments.row);
    Outputs outputs;
    outputs.attempt([&] {
        if (arguments.prints_text())
            print_result("{}", to_text(search, static_cast<std::size_t>(arguments.top)));
    });
    outputs.attempt([&] {
        if (!arguments.csv.empty())
            write_csv(arguments.csv, to_json(search)["plans"]);
    });
    outputs.attempt([&] {
        if (!arguments.plot.empty())
            plot_chart(chart_of(search), arguments.plot, arguments.view);
    });
    outputs.attempt([&] {
        if (!arguments.output.empty())
            write_file(arguments.output, best_config_yaml(search, arguments.output, row));
    });
    outputs.done();
    print_details(origins_of_costs(*search.best, config));
    if (const std::string note = note_on_precision(config); !note.empty())
        print_note(note);
    note_on_release(config);
    if (arguments.output.empty())
        return note_on_programs(*search.best);
    const Job written = job_in_row(search, row);
    note_on_programs(written);
    if (arguments.prints_text())
        print_result("next: pipewright {}\n", next_command(written, config, arguments.output));
}

void search_for_plan(const ComputingRanks& ranks, const Config& config, const SearchArguments& arguments) {
    const auto start = std::chrono::steady_clock::now();
    const Bytes memory = memory_limit_of(arguments) / (arguments.memory_limit.empty() ? ranks.on_host : 1);
    SearchProblem problem = posed_search(config);
    SearchResult result;
    std::optional<FoundPlan> other_cuts;
    {
        SearchLine line(is_stopped_by_signal);
        const PlanLimits limits = limits_of(config, arguments, ranks, seconds_since(start));
        const SearchProgress progress = [&](const std::string& state) { line.show(state); };
        within_memory(memory, [&] {
            result = search_plans(problem, limits, is_first_rank() ? progress : nullptr);
            other_cuts = plan_of_other_cuts(problem, result, limits);
        });
    }
    if (!is_first_rank())
        return;
    PlanSearch search = found_plans(std::move(problem), std::move(result));
    search.other_cuts = std::move(other_cuts);
    search.seconds = seconds_since(start);
    print_notes_of(search.result, memory);
    if (arguments.json)
        print_json(to_json(search));
    if (ended_without_a_plan(search))
        fail_without_a_plan(search.result, arguments, memory);
    require_plan(search);
    write_found(search, config, arguments);
    print_notes(notes_on_costs(*search.best, config.search.micro_batch_sizes));
}

void write_partition(const PartitionSearch& search, const SearchArguments& arguments) {
    if (arguments.json)
        print_json(to_json(search));
    require_stages(search);
    Outputs outputs;
    outputs.attempt([&] {
        if (arguments.prints_text())
            print_result("{}", to_text(search));
    });
    outputs.attempt([&] {
        if (!arguments.csv.empty())
            write_csv(arguments.csv, to_json(search)["best"]["stages"]);
    });
    outputs.attempt([&] {
        if (!arguments.plot.empty())
            plot_chart(chart_of(search), arguments.plot, arguments.view);
    });
    outputs.done();
}

void search_objective(const Config& config, const SearchArguments& arguments) {
    const Bytes memory = memory_limit_of(arguments);
    if (!arguments.output.empty())
        fail(
            "objective {} has no schedule: there is no config to write\n  help: leave out -o, or search objective "
            "makespan",
            name_of(config.search.objective));
    SearchLimits limits;
    limits.should_stop = is_stopped_by_signal;
    if (arguments.time_limit > 0)
        limits.seconds = arguments.time_limit;
    std::optional<PartitionSearch> found;
    {
        SearchLine line(is_stopped_by_signal);
        line.show("searching");
        within_memory(memory, [&] { found = search_partition(config, limits); });
    }
    write_partition(*found, arguments);
}

void search_config(const SearchArguments& arguments) {
    const Config config = arguments.config.load();
    end_soon_on_signals();
    check_config_target(arguments.output);
    check_csv(arguments.csv, arguments.json);
    check_outputs(
        {{"-o", arguments.output}, {"--plot", arguments.plot, Output::Kind::Picture}, csv_output(arguments.csv)},
        inputs_of(arguments.config, config));
    at_its_place(config, [&] {
        if (searches_cluster(config))
            with_computing_ranks(config.run.timeout,
                                 [&](const ComputingRanks& ranks) { search_for_plan(ranks, config, arguments); });
        else if (!is_first_rank())
            return;
        else if (config.search.objective == SearchConfig::Objective::Makespan)
            search_for_plan({.cores = cores_of_machine()}, config, arguments);
        else
            search_objective(config, arguments);
        for (const IdleKey& key : idle_keys_of_search(config))
            print_note(print(key));
    });
}

}  // namespace

Action add_search(CLI::App& command) {
    auto arguments = std::make_shared<SearchArguments>();
    add_config(command, arguments->config);
    CLI::Option* const output =
        command.add_option("-o,--output", arguments->output, "write the config of the best plan")
            ->type_name("BEST.yaml");
    command.add_option("--row", arguments->row, "with -o: write the plan of this row of the table, from 1")
        ->type_name("N")
        ->check(whole_number(1, 1'000'000))
        ->needs(output);
    command.add_flag("--json", arguments->json, "print one JSON object");
    add_csv(command, arguments->csv);
    CLI::Option* const picture =
        command
            .add_option("--plot", arguments->plot,
                        "draw reserved memory against step time (with other objectives: the time of every stage): " +
                            plot_formats())
            ->type_name("FILE");
    add_picture_options(command, picture, arguments->view, false);
    command
        .add_option("--time-limit", arguments->time_limit, "stop after this time with the best plan so far and its gap")
        ->check(seconds_above_zero())
        ->type_name("SECONDS");
    command
        .add_option("--memory-limit", arguments->memory_limit,
                    "memory of the search, as in 4 GB; default: a quarter of the machine's memory")
        ->type_name("SIZE");
    command
        .add_option("--threads", arguments->threads,
                    "threads of the search; default: one per core; the result does not depend on them")
        ->type_name("N")
        ->check(whole_number(1, 1024));
    command.add_option("--top", arguments->top, "number of plans in the table")
        ->type_name("N")
        ->check(whole_number(1, 1'000'000));
    return [arguments] { search_config(*arguments); };
}

}  // namespace pw
