// compare: predicted against measured, from a config or from two traces, or two plans side by side.
#include "cli/compare.h"
#include "cli/command.h"
#include "cli/file_kind.h"
#include "cli/option_numbers.h"
#include "cli/outputs.h"
#include "cli/picture_options.h"
#include "cli/streams.h"
#include "exec/all_ranks.h"
#include "job/launched_ranks.h"
#include "report/comparison.h"
#include "report/measure.h"
#include "report/notes.h"
#include "report/origins.h"
#include "report/plan_differences.h"
#include "report/sweep.h"
#include "report/table.h"
#include "viz/plot.h"
#include "workloads/error.h"

#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <cmath>
#include <filesystem>
#include <limits>
#include <memory>
#include <optional>
#include <utility>

namespace pw {

namespace {

struct CompareArguments {
    ConfigArguments config;
    std::vector<std::string> others;  // one: the measured trace, and config.path is the predicted trace
    std::string max_error, plot, schedules, folder, csv;
    View view;
    std::optional<int> turns;
    bool json = false, why = false, replay = false, explain = false;
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
        fail("--max-error '{}' is not a percentage\n  help: write it with its unit, as in --max-error 5%", text);
    return value / 100;
}

// Whether a file is to be read as a config. A trace is recognised by its beginning.
bool is_config_file(const std::string& path) { return kind_of(path) == FileKind::Unknown && names_workload(path); }

// The prediction of a config, or a trace.
Report side_of(const CompareArguments& arguments, const std::string& path) {
    if (!is_config_file(path)) {
        require_trace(path, "");
        return report_in({path});
    }
    ConfigArguments config = arguments.config;
    config.path = path;
    const Job job = job_of(config.load());
    print_notes(notes_on_costs(job));
    return predicted_report(job);
}

void refuse_of_files(const CompareArguments& arguments) {
    const std::vector<std::string>& others = arguments.others;
    if (arguments.turns)
        fail("--interleave does not apply to two files\n  help: compare CONFIG --interleave N runs the config again");
    if (others.size() > 1)
        fail(
            "{} files, and two are compared\n  help: compare PREDICTED MEASURED; files of the ranks of one trace go "
            "with --replay, or plot and validate",
            others.size() + 1);
    if (!arguments.config.set.empty() && !is_config_file(arguments.config.path) && !is_config_file(others.front()))
        fail("--set does not apply to traces\n  help: compare CONFIG --set ... simulates and runs the config again");
}

// Names of files, without their folders if the names differ.
std::pair<std::string, std::string> short_file_names(const std::string& first, const std::string& second) {
    const std::string a = std::filesystem::path(first).filename().string(),
                      b = std::filesystem::path(second).filename().string();
    return a == b ? std::pair(first, second) : std::pair(a, b);
}

void print_differences_of(Report first, Report second, const std::string& reason, const CompareArguments& arguments) {
    if (!arguments.max_error.empty() || arguments.why)
        fail(
            "--max-error and --why are about a prediction and a run of one plan{}\n  help: trace simulate and run of "
            "the same config",
            reason.empty() ? "" : ": " + reason);
    const auto [a, b] = short_file_names(arguments.config.path, arguments.others.front());
    const PlanDifferences differences = differences_of({a, std::move(first)}, {b, std::move(second)});
    if (!reason.empty())
        print_note(reason + ": both are shown next to each other");
    Outputs outputs;
    outputs.attempt([&] {
        if (arguments.json)
            print_json(to_json(differences));
        else if (arguments.csv != "-")
            print_result("{}", to_text(differences));
    });
    outputs.attempt([&] {
        if (!arguments.csv.empty())
            write_csv(arguments.csv, to_json(differences)["plans"]);
    });
    outputs.attempt([&] {
        if (arguments.plot.empty())
            return;
        plot_differences(differences, arguments.plot, arguments.view);
        note_large_picture(arguments.plot);
    });
    outputs.done();
}

Comparison compare_config(const CompareArguments& arguments, Config config) {
    if (!is_emulated(config))
        require_layers(config, "run");
    note_on_measuring(config);
    ProgressLine line;
    const Hooks hooks{[&](const std::string& state) { line.show(state); }};
    const MeasuredJob made = measured_job(std::move(config), hooks);
    const Job& job = made.job;
    line.hide();
    print_notes(made.notes);
    print_warnings(made.warnings);
    print_details(origins_of_costs(job));
    refuse_over_memory(job);
    const int turns = turns_for(job, arguments.turns);
    if (is_first_rank()) {
        if (const std::string note = note_on_speed(job); !note.empty() && !job.setup.cluster.profile.empty())
            print_note(note);
        if (!arguments.json && arguments.csv != "-")
            print_result("{}\n\n", summary_of(job));
        if (const std::string note = note_on_turns(job, turns); !note.empty())
            print_note(note);
    }
    return compare_run(job, turns, hooks);
}

void check_error(const char* what, double error, double limit) {
    if (std::isfinite(limit) && !(std::abs(error) <= limit))  // an unknown error fails, too
        fail_with(ExitCode::CheckFailed, "{} error {} exceeds --max-error {}", what, print_signed_percent(error),
                  print_percent(limit));
}

std::string parts_text(const Comparison& comparison, bool with_why) {
    if (!comparison.parts)
        return "";
    if (!with_why)
        return fmt::format("\n{}", to_text(*comparison.parts));
    const std::string first = comparison.advice.empty() ? "" : fmt::format("First: {}.\n", comparison.advice);
    return fmt::format("\n{}\n{}{}", to_text(*comparison.parts), first, why(*comparison.parts));
}

// Replays a trace.
void replay_trace(const CompareArguments& arguments) {
    if (!arguments.schedules.empty() || !arguments.max_error.empty() || !arguments.plot.empty() || arguments.why ||
        !arguments.csv.empty() || !arguments.config.set.empty())
        fail("--replay takes one trace, --explain and --json\n  help: pipewright compare MEASURED.json --replay");
    std::vector<std::string> paths = {arguments.config.path};
    paths.insert(paths.end(), arguments.others.begin(), arguments.others.end());
    for (const std::string& path : paths)
        require_trace(path, fmt::format("write one: pipewright run {} --trace FILE", path));
    const ReplayedTrace replay = replayed(report_in(paths), arguments.explain);
    if (arguments.json)
        print_json(to_json(replay));
    else
        print_result("{}", to_text(replay));
}

void print_comparison(const Comparison& comparison, const CompareArguments& arguments, double limit) {
    print_notes(comparison.notes);
    print_warnings(comparison.warnings);
    Outputs outputs;
    outputs.attempt([&] {
        if (arguments.json)
            print_json(to_json(comparison));
        else if (arguments.csv != "-")
            print_result("{}{}{}", to_text(comparison), parts_text(comparison, arguments.why),
                         calibration_text(comparison));
    });
    outputs.attempt([&] {
        if (!arguments.csv.empty())
            write_csv(arguments.csv, Json::array({to_json(comparison)}));
    });
    outputs.attempt([&] {
        if (arguments.plot.empty())
            return;
        plot_comparison(comparison, arguments.plot, arguments.view);
        note_large_picture(arguments.plot);
    });
    outputs.done();
    check_error("step time", comparison.errors.step_time, limit);
    check_error("peak memory", comparison.errors.peak_memory, limit);
}

std::vector<Output> outputs_of(const CompareArguments& arguments) {
    return {{"--plot", arguments.plot, Output::Kind::Picture}, csv_output(arguments.csv)};
}

std::vector<std::string> inputs_of_two(const CompareArguments& arguments) {
    std::vector<std::string> inputs;
    for (const std::string& path : {arguments.config.path, arguments.others.front()}) {
        inputs.push_back(path);
        if (!is_config_file(path))
            continue;
        const std::vector<std::string> named = ConfigArguments{{path, arguments.config.set}}.load().paths;
        inputs.insert(inputs.end(), named.begin(), named.end());
    }
    return inputs;
}

// Two traces of the same plan, or the prediction of a config and a trace of its plan, are compared as prediction and
// measurement. All other files are shown side by side.
void compare_two(const CompareArguments& arguments, double limit) {
    refuse_of_files(arguments);
    const std::string& second = arguments.others.front();
    check_outputs(outputs_of(arguments), inputs_of_two(arguments));
    Report a = side_of(arguments, arguments.config.path), b = side_of(arguments, second);
    if (is_config_file(second))
        return print_differences_of(std::move(a), std::move(b), "", arguments);
    if (const std::string reason = different_plans(a, b); !reason.empty())
        return print_differences_of(std::move(a), std::move(b), reason, arguments);
    print_comparison(compare_traces(std::move(a), std::move(b)), arguments, limit);
}

void compare(const CompareArguments& arguments) {
    const bool of_traces = arguments.replay || !arguments.others.empty();
    if (of_traces && !is_first_rank())
        return;
    if (arguments.replay)
        return replay_trace(arguments);
    check_csv(arguments.csv, arguments.json);
    if (arguments.explain)
        fail(
            "--explain is about one measured trace, with --replay\n  help: pipewright compare MEASURED.json --replay "
            "--explain; --why explains a comparison, and simulate CONFIG --explain a prediction");
    if (arguments.schedules.empty() && !arguments.folder.empty())
        fail(
            "-o is the folder of --schedules\n  help: compare CONFIG --schedules gpipe,1f1b -o FOLDER, or leave it "
            "out");
    const double limit =
        arguments.max_error.empty() ? std::numeric_limits<double>::infinity() : parse_percent(arguments.max_error);
    if (of_traces && arguments.schedules.empty())
        return compare_two(arguments, limit);
    if (!arguments.schedules.empty())
        return compare_shown(arguments.config, schedules_in(arguments.schedules),
                             {arguments.folder, arguments.csv, arguments.json, arguments.turns});
    const Config config = arguments.config.load();
    with_all_ranks(config, [&] {
        check_outputs(outputs_of(arguments), inputs_of(arguments.config, config));
        const Comparison comparison = compare_config(arguments, config);
        if (is_first_rank())
            print_comparison(comparison, arguments, limit);
    });
}

}  // namespace

void note_on_measuring(const Config& config) {
    if (needs_profile(config))
        print_note("no cluster.profile: measuring one first; to keep one: pipewright profile CONFIG -o PROFILE.yaml");
}

Action add_compare(CLI::App& command) {
    auto arguments = std::make_shared<CompareArguments>();
    add_config(command, arguments->config);
    command.get_option("CONFIG")->description("a config (YAML); or one of two files, each a config or a trace");
    command
        .add_option("OTHER", arguments->others,
                    "the trace of a run of the same plan, or another config or trace; with --replay: more files of a "
                    "trace that has one per rank")
        ->type_name("")
        ->expected(0, -1);
    command
        .add_option("--max-error", arguments->max_error,
                    "exit with code 4 if the error of the step time or of the peak memory is larger")
        ->type_name("PERCENT");
    command
        .add_option("--schedules", arguments->schedules,
                    "compare several schedules in one table: names separated by commas, or all")
        ->type_name("A,B,...");
    command
        .add_option("-o", arguments->folder,
                    "with --schedules: write table, plots, profile and accuracy.json to a folder")
        ->type_name("FOLDER");
    command
        .add_option(
            "--interleave", arguments->turns,
            fmt::format("run in N turns, alternating with probes of the plan that calibrate its costs during the run; "
                        "default: {} without a cluster.profile, else 0 (none)",
                        kTurns))
        ->type_name("N")
        ->check(whole_number(0, 1000));
    CLI::Option* const picture =
        command.add_option("--plot", arguments->plot, "draw both timelines on one time axis: " + plot_formats())
            ->type_name("FILE");
    add_picture_options(command, picture, arguments->view, true);
    command.add_flag("--why", arguments->why, "explain in three sentences where the error of the step time comes from");
    command.add_flag("--replay", arguments->replay,
                     "CONFIG is a measured trace of any program: replay its plan with its own task times");
    command.add_flag("--explain", arguments->explain,
                     "with --replay: say which stage is slow, the critical path, and what devices wait for");
    command.add_flag("--json", arguments->json, "print one JSON object");
    add_csv(command, arguments->csv);
    return [arguments] { compare(*arguments); };
}

}  // namespace pw
