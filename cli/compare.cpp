// compare: predicted beside measured, from a config or from two traces.
#include "report/comparison.h"
#include "cli/option_numbers.h"

#include "cli/command.h"
#include "cli/execution.h"
#include "cli/file_kind.h"
#include "cli/streams.h"
#include "report/sweep.h"
#include "report/table.h"
#include "exec/all_ranks.h"
#include "job/build.h"
#include "job/launched_ranks.h"
#include "schedules/orders/schedule.h"
#include "report/predict.h"
#include "viz/plot.h"
#include "workloads/costs/micro_batch_sizes.h"
#include "workloads/error.h"

#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <cmath>
#include <limits>
#include <memory>
#include <optional>
#include <sstream>

namespace pw {

namespace {

struct CompareArguments {
    ConfigArguments config;
    std::vector<std::string> others;  // one: the measured trace, then config.path is the predicted one
    std::string max_error, plot, schedules, folder;
    std::optional<int> turns;
    bool json = false, why = false, replay = false;
};

// "5%" or "5 %".
double parse_percent(const std::string& text) {
    std::size_t end = 0;
    double value = -1;
    try {
        value = std::stod(text, &end);
    } catch (const std::exception&) {
        value = -1;
    }
    const std::string unit = text.substr(std::min(text.find_first_not_of(' ', end), text.size()));
    if (value < 0 || !std::isfinite(value) || unit != "%")
        fail("--max-error '{}' is no percentage\n  help: write it with its unit, as in --max-error 5%", text);
    return value / 100;
}

Sides sides_of_traces(const CompareArguments& arguments) {
    if (arguments.turns)
        fail("--interleave does not apply to traces\n  help: compare CONFIG --interleave N runs anew");
    if (!arguments.config.set.empty())
        fail("--set does not apply to traces\n  help: compare CONFIG --set ... simulates and runs anew");
    if (arguments.others.size() > 1)
        fail(
            "{} traces, and two are compared\n  help: compare PREDICTED MEASURED; files of the ranks of one trace go "
            "with "
            "--replay, or plot and validate",
            arguments.others.size() + 1);
    const std::string& measured_path = arguments.others.front();
    for (const std::string& path : {arguments.config.path, measured_path})
        require_trace(path,
                      fmt::format("compare it alone, or write traces: pipewright simulate {} --trace FILE", path));
    Sides sides{read_report({arguments.config.path}), read_report({measured_path})};
    const Trace &predicted = sides.predicted.trace, &measured = sides.measured.trace;
    if (predicted.plan_hash != measured.plan_hash)
        fail(
            "the traces are of different plans: {} ({}) and {} ({})\n  help: trace simulate and run of the same config",
            predicted.plan_hash, predicted.schedule, measured.plan_hash, measured.schedule);
    if (predicted.label == "measured" && measured.label == "predicted")
        fail("the traces are swapped: '{}' is measured\n  help: compare PREDICTED MEASURED", arguments.config.path);
    try {
        sides.parts = error_parts(predicted, measured);
    } catch (const Error& error) {
        print_note(fmt::format("what the difference comes from is not known: {}", first_line(error)));
    }
    return sides;
}

Sides sides_of_config(const CompareArguments& arguments, Config config) {
    if (!is_emulated(config))
        require_layers(config, "run");
    const Job job = calibrated_job(std::move(config));
    refuse_over_memory(job);
    if (is_first_rank()) {
        if (const std::string note = note_on_speed(job); !note.empty() && !job.config.cluster.profile.empty())
            print_note(note);
        if (!arguments.json)
            print_result("{}\n\n", summary_of(job));
    }
    return both_sides(job, turns_for(job, arguments.turns));
}

void check_error(const char* what, double error, double limit) {
    if (std::isfinite(limit) && !(std::abs(error) <= limit))  // nor is an unknown error a small one
        fail_with(ExitCode::CheckFailed, "{} error {} exceeds --max-error {}", what, print_signed_percent(error),
                  print_percent(limit));
}

std::vector<std::string> names_in(const std::string& list) {
    std::vector<std::string> names;
    if (list == kAllSchedules) {
        for (const Schedule& schedule : schedules())
            names.emplace_back(schedule.name);
        return names;
    }
    std::istringstream text(list);
    for (std::string name; std::getline(text, name, ',');)
        names.push_back(name);
    return names;
}

std::string print_parts(const Sides& sides, bool with_why) {
    if (!sides.parts)
        return "";
    return fmt::format("\n{}{}{}", print(*sides.parts), with_why ? "\n" : "", with_why ? why(*sides.parts) : "");
}

// Of a trace alone.
void replay(const CompareArguments& arguments) {
    if (!arguments.schedules.empty() || !arguments.max_error.empty() || !arguments.plot.empty() || arguments.why ||
        !arguments.config.set.empty())
        fail("--replay takes one trace and --json\n  help: pipewright compare MEASURED.json --replay");
    std::vector<std::string> paths = {arguments.config.path};
    paths.insert(paths.end(), arguments.others.begin(), arguments.others.end());
    for (const std::string& path : paths)
        require_trace(path, fmt::format("write one: pipewright run {} --trace FILE", path));
    const Report measured = read_report(paths);
    if (arguments.json)
        print_json(json_of_replay(measured));
    else
        print_result("{}", print_replay(measured));
}

// What the command says of both sides.
void tell(const Sides& sides, const CompareArguments& arguments, double limit) {
    const Comparison comparison = comparison_of(sides);
    Outputs outputs;
    outputs.attempt([&] {
        if (arguments.json)
            print_json(json_of(sides, comparison));
        else
            print_result("{}{}{}", print(comparison, sides), print_parts(sides, arguments.why),
                         print_calibrated(sides));
    });
    outputs.attempt([&] {
        if (!arguments.plot.empty())
            plot_sides(sides, arguments.plot);
    });
    outputs.done();
    check_error("step time", comparison.step_time_error, limit);
    check_error("peak memory", comparison.peak_memory_error, limit);
}

void compare(const CompareArguments& arguments) {
    const bool of_traces = arguments.replay || !arguments.others.empty();
    if (of_traces && !is_first_rank())
        return;
    if (arguments.replay)
        return replay(arguments);
    if (arguments.schedules.empty() && !arguments.folder.empty())
        fail(
            "-o is the folder of --schedules\n  help: compare CONFIG --schedules gpipe,1f1b -o FOLDER, or leave it "
            "out");
    const double limit =
        arguments.max_error.empty() ? std::numeric_limits<double>::infinity() : parse_percent(arguments.max_error);
    if (of_traces && arguments.schedules.empty()) {
        check_plot_file(arguments.plot);
        return tell(sides_of_traces(arguments), arguments, limit);
    }
    if (!arguments.schedules.empty())
        return compare_schedules(arguments.config, names_in(arguments.schedules), arguments.folder, arguments.turns);
    check_plot_file(arguments.plot);
    const Config config = arguments.config.load();
    with_all_ranks(config, [&] {
        const Sides sides = sides_of_config(arguments, config);
        if (is_first_rank())
            tell(sides, arguments, limit);
    });
}

}  // namespace

Job calibrated_job(Config config) {
    if (config.run.backend == RunConfig::Backend::Cuda && runs_on_ranks(config.run))
        config.fail_at("run.transport", "compare runs GPUs in one process",
                       "start it without a launcher; or mpirun -n N pipewright run CONFIG --trace measured.json, and "
                       "then pipewright compare predicted.json measured.json");
    take_hosts_of_ranks(config);
    if (config.cluster.link_given && !is_emulated(config) && config.run.transport != RunConfig::Transport::Link)
        print_note(
            "cluster.link is predicted, but devices hand over as this machine does; with run.backend cpu "
            "run.transport: link emulates it");
    if (is_emulated(config) || !config.cluster.profile.empty())  // it sleeps what is predicted
        return job_of(std::move(config));
    print_note("no cluster.profile: measuring one first; to keep one: pipewright profile CONFIG -o PROFILE.yaml");
    Profile profile = profile_of_first_rank(config, [&] {
        return measure_with_progress(config, build_model(config), sizes_of(config.pipeline).different());
    });
    return job_of(std::move(config), std::move(profile));
}

Json json_of(const Sides& sides, const Comparison& comparison) {
    Json by_op = Json::object();
    for (const auto& [op, error] : comparison.task_time_error)
        by_op[std::string(letters_of(op))] = error;
    const Trace& trace = sides.measured.trace;
    Json json = {{"schema_version", 1},
                 {"plan_hash", trace.plan_hash},
                 {"schedule", trace.schedule},
                 {"stages", trace.stages},
                 {"micro_batches", trace.micro_batches},
                 {"step_time_error", comparison.step_time_error},
                 {"peak_memory_error", comparison.peak_memory_error},
                 {"resident_memory_error", comparison.resident_memory_error},
                 {"gpu_memory_error", comparison.gpu_memory_error},
                 {"task_time_error_median", comparison.task_time_error_median},
                 {"task_time_error", std::move(by_op)},
                 {"mechanics_error", sides.parts ? Json(mechanics_error(*sides.parts)) : Json()},
                 {"error_parts", sides.parts ? json_of(*sides.parts) : Json()},
                 {"predicted", json_of(sides.predicted)},
                 {"measured", sides.result ? json_of(*sides.result, sides.measured) : json_of(sides.measured)}};
    add_calibrated(sides, json);
    return json;
}

namespace {

// The beginning of an asynchronous run: its first mini-batches, where a drawing can still be read.
Trace beginning_of(const Trace& trace) {
    const int drawn = 2 * (trace.micro_batches + trace.stages);
    Trace part = trace;
    std::erase_if(part.events, [&](const TraceEvent& event) { return event.task.microbatch >= drawn; });
    Ns end = 0;
    for (const TraceEvent& event : part.events)
        end = std::max(end, event.end);
    std::erase_if(part.memory, [&](const MemorySample& sample) { return sample.time > end; });
    return part;
}

}  // namespace

void plot_sides(const Sides& sides, const std::string& file) {
    const auto part = [](const Report& report) {
        return report.trace.asynchronous ? beginning_of(report.trace) : only_step(report.trace, report.metrics.step);
    };
    const Trace predicted = part(sides.predicted), measured = part(sides.measured);
    Panel of_measured{&measured, title_of(sides.measured)};
    if (sides.parts)
        of_measured.table = rows_of(*sides.parts);
    plot({{&predicted, title_of(sides.predicted)}, std::move(of_measured)}, file);
}

Action add_compare(CLI::App& command) {
    auto arguments = std::make_shared<CompareArguments>();
    add_config(command, arguments->config);
    command.get_option("CONFIG")->description("the config, a YAML file; with MEASURED the trace of a prediction");
    command
        .add_option("MEASURED", arguments->others,
                    "the trace of a run of the same plan; with --replay further files of the ranks of one trace")
        ->type_name("")
        ->expected(0, -1);
    command
        .add_option("--max-error", arguments->max_error,
                    "exit 4 when the error of the step time or of the peak memory is larger")
        ->type_name("PERCENT");
    command.add_option("--schedules", arguments->schedules, "several schedules in one table, or all")
        ->type_name("A,B,...");
    command
        .add_option("-o", arguments->folder,
                    "with --schedules: keep table, plots, profile and accuracy.json in a folder")
        ->type_name("FOLDER");
    command
        .add_option("--interleave", arguments->turns,
                    fmt::format("run in so many turns with probes of the plan, which calibrate it beside the run; "
                                "default: {} without a cluster.profile, else 0, none",
                                kTurns))
        ->type_name("N")
        ->check(whole_number(0, 1000));
    command.add_option("--plot", arguments->plot, "draw both on one time axis: " + plot_formats())->type_name("FILE");
    command.add_flag("--why", arguments->why, "say in three sentences where the error of the step time comes from");
    command.add_flag("--replay", arguments->replay,
                     "CONFIG is a measured trace, whoever made it: replay its plan with its own task times");
    command.add_flag("--json", arguments->json, "print one JSON object");
    return [arguments] { compare(*arguments); };
}

}  // namespace pw
