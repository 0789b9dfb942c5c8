// search: the best stage split and plan, with a proof of how good it is.
#include "cli/search.h"

#include "cli/command.h"
#include "cli/table.h"
#include "exec/execute.h"
#include "viz/plot.h"
#include "workloads/beyond_limit.h"
#include "workloads/profiled_model.h"

#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <chrono>
#include <memory>
#include <thread>

namespace pw {

namespace {

struct SearchArguments {
    ConfigArguments config;
    bool json = false;
    std::string output, plot;
    double time_limit = 0;  // seconds; 0: none
    int threads = 0;        // 0: one per core
    int top = 10;
};

double seconds_since(std::chrono::steady_clock::time_point start) {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

MakespanLimits limits_of(const SearchArguments& arguments) {
    MakespanLimits limits;
    if (arguments.time_limit > 0)
        limits.seconds = arguments.time_limit;
    limits.threads =
        arguments.threads > 0 ? arguments.threads : std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
    return limits;
}

[[noreturn]] void fail_infeasible(const SearchResult& result) {
    if (!result.shortage)
        fail_with(ExitCode::Infeasible,
                  "no schedule of the search takes any of the splits that were tried\n  help: search "
                  "other schedules (search.schedules) or numbers of stages (search.stages)");
    const Shortage& shortage = *result.shortage;
    fail_with(ExitCode::Infeasible,
              "{}: in the closest one the device of stage {} needs {} ({} bytes) and has {} ({} bytes)\n  "
              "help: raise cluster.memory, or search smaller micro-batches (search.micro_batch_sizes), other schedules "
              "(search.schedules) or recomputation (search.recompute: auto)",
              result.none_fits ? "no plan fits" : "no plan was found that fits", shortage.stage,
              print_bytes(shortage.needs), shortage.needs, print_bytes(shortage.has), shortage.has);
}

// Else it can only be simulated.
bool can_run(const Config& config) {
    const bool has_kernels = model_file(config.workload.model) == ModelFile::None;
    return !is_replicated(config.pipeline) && (has_kernels || is_emulated(config));
}

void search_makespan(const Config& config, const SearchArguments& arguments) {
    const Model model = build_model(config);
    const SearchProblem problem{config, model,
                                [&](int samples) {
                                    Config sized = config;
                                    sized.pipeline.micro_batch_size = samples;
                                    sized.pipeline.mini_batch = std::int64_t{sized.pipeline.micro_batches} * samples;
                                    return profile_of(sized, model);
                                },
                                executed_mode(config)};
    const auto start = std::chrono::steady_clock::now();
    SearchResult result;
    {
        ProgressLine progress;
        result = search_plans(problem, limits_of(arguments), [&](const std::string& state) { progress.show(state); });
    }
    if (arguments.json)
        print_json(json_of(problem, result, seconds_since(start)));
    if (result.best() == nullptr)
        fail_infeasible(result);
    if (!arguments.json)
        fmt::print("{}", print(problem, result, static_cast<std::size_t>(arguments.top)));
    if (!arguments.plot.empty())
        plot_search(result, arguments.plot);
    if (!arguments.output.empty())
        write_file(arguments.output, print_yaml(problem, result, arguments.output));
    const Config best = config_of(problem, *result.best());
    if (!arguments.json && !arguments.output.empty())
        fmt::print("pipewright {} {}\n", can_run(best) ? "run" : "simulate", arguments.output);
    if (const std::string note = note_on_costs(pipeline_of(best)); !note.empty())
        print_note(note);
}

void search_config(const SearchArguments& arguments) {
    const Config config = arguments.config.load();
    if (!arguments.plot.empty())
        check_plot_file(arguments.plot);
    at_its_place(config, [&] {
        if (config.search.objective == "makespan")
            search_makespan(config, arguments);
        else
            search_objective(config, {arguments.json, arguments.time_limit, arguments.output, arguments.plot});
    });
}

}  // namespace

Action add_search(CLI::App& command) {
    auto arguments = std::make_shared<SearchArguments>();
    add_config(command, arguments->config);
    command.add_option("-o,--output", arguments->output, "write the best config")->type_name("BEST.yaml");
    command.add_flag("--json", arguments->json, "print one JSON object");
    command.add_option("--plot", arguments->plot, "draw peak memory against step time: svg, png, pdf, html, txt, json")
        ->type_name("FILE");
    command.add_option("--time-limit", arguments->time_limit, "seconds; the best so far and its gap")
        ->check(CLI::PositiveNumber)
        ->type_name("SECONDS");
    command.add_option("--threads", arguments->threads, "default: one per core; they never change the answer")
        ->check(CLI::Range(1, 1024));
    command.add_option("--top", arguments->top, "plans in the table")->check(CLI::Range(1, 1'000'000));
    return [arguments] { search_config(*arguments); };
}

}  // namespace pw
