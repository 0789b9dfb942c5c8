// compare: predicted against measured, from a config or from two traces.
#include "cli/compare.h"
#include "cli/command.h"
#include "cli/file_kind.h"
#include "cli/option_numbers.h"
#include "cli/picture_options.h"
#include "cli/streams.h"
#include "exec/all_ranks.h"
#include "job/launched_ranks.h"
#include "report/comparison.h"
#include "report/measure.h"
#include "report/notes.h"
#include "report/table.h"
#include "schedules/orders/schedule.h"
#include "viz/plot.h"
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
    std::vector<std::string> others;  // one: the measured trace, and config.path is the predicted one
    std::string max_error, plot, schedules, folder;
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

Comparison compare_files(const CompareArguments& arguments) {
    if (arguments.turns)
        fail("--interleave does not apply to traces\n  help: compare CONFIG --interleave N runs the config again");
    if (!arguments.config.set.empty())
        fail("--set does not apply to traces\n  help: compare CONFIG --set ... simulates and runs the config again");
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
    return compare_traces(report_in({arguments.config.path}), report_in({measured_path}));
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
    refuse_over_memory(job);
    const int turns = turns_for(job, arguments.turns);
    if (is_first_rank()) {
        if (const std::string note = note_on_speed(job); !note.empty() && !job.config.cluster.profile.empty())
            print_note(note);
        if (!arguments.json)
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

std::string parts_text(const Comparison& comparison, bool with_why) {
    if (!comparison.parts)
        return "";
    return fmt::format("\n{}{}{}", to_text(*comparison.parts), with_why ? "\n" : "",
                       with_why ? why(*comparison.parts) : "");
}

// Replays one trace.
void replay_trace(const CompareArguments& arguments) {
    if (!arguments.schedules.empty() || !arguments.max_error.empty() || !arguments.plot.empty() || arguments.why ||
        !arguments.config.set.empty())
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
        else
            print_result("{}{}{}", to_text(comparison), parts_text(comparison, arguments.why),
                         calibration_text(comparison));
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

void compare(const CompareArguments& arguments) {
    const bool of_traces = arguments.replay || !arguments.others.empty();
    if (of_traces && !is_first_rank())
        return;
    if (arguments.replay)
        return replay_trace(arguments);
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
    if (of_traces && arguments.schedules.empty()) {
        check_plot_file(arguments.plot);
        return print_comparison(compare_files(arguments), arguments, limit);
    }
    if (!arguments.schedules.empty())
        return compare_shown(arguments.config, names_in(arguments.schedules), arguments.folder, arguments.turns);
    check_plot_file(arguments.plot);
    const Config config = arguments.config.load();
    with_all_ranks(config, [&] {
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
    command.get_option("CONFIG")->description("a config (YAML); the trace of a prediction if MEASURED is given");
    command
        .add_option("MEASURED", arguments->others,
                    "the trace of a run of the same plan; with --replay: more files of a trace that has one per rank")
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
    return [arguments] { compare(*arguments); };
}

}  // namespace pw
