// simulate: predicts the trace of a config and its numbers.
#include "cli/command.h"
#include "cli/option_numbers.h"
#include "cli/outputs.h"
#include "cli/picture_options.h"
#include "cli/streams.h"
#include "report/advice.h"
#include "report/answers.h"
#include "report/notes.h"
#include "report/origins.h"
#include "report/panels.h"
#include "report/predict.h"
#include "report/report.h"
#include "report/sweep.h"
#include "report/training_arguments.h"
#include "schedules/trace/trace_json.h"
#include "viz/plot.h"
#include "workloads/error.h"
#include "workloads/text/files.h"

#include <fmt/format.h>
#include <malloc.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <limits>
#include <list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace pw {

namespace {

struct SimulateArguments {
    ConfigArguments config;
    bool json = false;
    std::string trace, plot, slack, program, schedules, csv;
    View view;
    SweepView sweep_view;
    Questions questions;

    bool prints_text() const { return !json && csv != "-"; }
};

// Several simulations have no single trace, and no single plan to ask about.
void refuse_single_among_schedules(const SimulateArguments& arguments, const Config& config) {
    constexpr const char* kHelp = "name the schedule instead: --set pipeline.schedule=NAME";
    if (arguments.questions.any() || !arguments.trace.empty() || !arguments.program.empty())
        fail(
            "--trace, --arguments, --samples, --stragglers, --what-if, --explain and --slack are about one plan, and "
            "--schedules has several\n  help: {}",
            kHelp);
    for (const SweepAxis& axis : config.sweep)
        if (axis.key == "pipeline.schedule")
            config.fail_at("sweep", "'sweep' and --schedules both list schedules", "remove one of them");
}

void refuse_single_in_sweep(const SimulateArguments& arguments, const Config& config) {
    if (!arguments.program.empty())
        config.fail_at("sweep", "--arguments is about one plan, but 'sweep' has several",
                       "take one point: --set sweep= --set KEY=VALUE");
    if (arguments.questions.any())
        config.fail_at(
            "sweep",
            "--samples, --stragglers, --what-if, --explain and --slack are about one simulation, but 'sweep' "
            "has several",
            "remove them, or take one point: --set sweep= --set KEY=VALUE");
    if (!arguments.trace.empty())
        config.fail_at("sweep", "--trace writes the trace of one simulation, but 'sweep' has several",
                       "remove --trace, or take one point: --set sweep= --set KEY=VALUE");
    if (arguments.view.has_range())
        config.fail_at("sweep", "--range is a part of a timeline, but 'sweep' is drawn as a chart",
                       "remove --range, or take one point: --set sweep= --set KEY=VALUE");
}

void print_simulation(const SimulateArguments& arguments, const Job& job, const Report& report,
                      const Answers& answers) {
    if (arguments.prints_text())
        return print_result("{}\n\n{}{}", summary_of(job), to_text(report), to_text(answers));
    if (!arguments.json)
        return;
    Json json = to_json(report, job);
    if (const Json answered = to_json(answers); !answered.is_null())
        json.update(answered);
    print_json(json);
}

// Making plans allocates and frees large blocks. Returning each to the system and requesting it again took a tenth of
// the time.
void keep_large_blocks() {
#ifdef __GLIBC__
    mallopt(M_MMAP_THRESHOLD, 32 << 20);
    mallopt(M_TRIM_THRESHOLD, std::numeric_limits<int>::max());
#endif
}

void draw_sweep(const SimulateArguments& arguments, const Sweep& sweep) {
    Notices missing;
    const Chart chart = chart_of(sweep, missing, arguments.sweep_view);
    print_notes(missing);
    plot_chart(chart, arguments.plot, arguments.view);
}

// A timeline for each schedule, on one time axis.
void draw_schedules(const SimulateArguments& arguments, const Sweep& sweep) {
    std::list<Trace> drawn;
    std::vector<Panel> panels;
    for (const SweepPoint& point : sweep.points)
        if (point.report)
            panels.push_back(
                drawn_panel(*point.report, drawn.emplace_back(drawn_part_of(*point.report)), arguments.plot));
        else
            print_note(
                fmt::format("the picture has no panel of {}: {}", point.texts.front(), first_line(*point.error)));
    plot(panels, arguments.plot, arguments.view);
    note_large_picture(arguments.plot);
}

template <class Draw>
void print_sweep(const SimulateArguments& arguments, const Sweep& sweep, Draw draw) {
    Outputs outputs;
    outputs.attempt([&] {
        if (arguments.json)
            print_json(to_json(sweep));
        else if (arguments.prints_text())
            print_result("{}", to_text(sweep));
    });
    outputs.attempt([&] {
        if (!arguments.csv.empty())
            write_csv(arguments.csv, to_json(sweep)["points"]);
    });
    outputs.attempt([&] {
        if (!arguments.plot.empty())
            draw(arguments, sweep);
    });
    print_notes(sweep.notes);
    outputs.done();
}

void sweep_config(const SimulateArguments& arguments, const Config& config) {
    refuse_single_in_sweep(arguments, config);
    if (!arguments.plot.empty())
        check_drawable(config.sweep, arguments.sweep_view);
    Sweep sweep;
    {
        ProgressLine line;
        sweep = simulate_sweep(arguments.config, config.sweep, {[&](const std::string& state) { line.show(state); }});
    }
    print_sweep(arguments, sweep, draw_sweep);
}

void compare_predictions(const SimulateArguments& arguments, const Config& config) {
    if (!arguments.plot.empty())
        check_timeline(arguments.plot, static_cast<int>(config.cluster.devices.size()));
    Sweep sweep;
    {
        ProgressLine line;
        sweep = simulate_schedules(arguments.config, schedules_in(arguments.schedules),
                                   {[&](const std::string& state) { line.show(state); }}, !arguments.plot.empty());
    }
    print_sweep(arguments, sweep, draw_schedules);
}

// With --arguments nothing is simulated.
void refuse_reports(const SimulateArguments& arguments) {
    if (arguments.json || arguments.questions.any() || !arguments.trace.empty() || !arguments.plot.empty() ||
        !arguments.csv.empty())
        fail(
            "--arguments prints a plan and simulates nothing\n  help: remove --arguments, or --json, --csv, --trace, "
            "--plot and what is asked about the simulation");
}

void print_arguments(const Job& job, const std::string& program) {
    const TrainingArguments arguments = training_arguments(program, job);
    write_result(arguments.text);
    print_notes(arguments.notes);
    print_notes(notes_on_idle_keys(job));
}

Panel simulated_panel(const SimulateArguments& arguments, const Job& job, const Report& report,
                      const Answers& answers) {
    Panel panel = panel_of(report, report.trace);
    if (answers.explanation)
        add_explanation(panel, *answers.explanation);
    else if (shows_causes(arguments.plot))
        add_explanation(panel, simulator_of(job).explain(job.costs));
    if (shows_causes(arguments.plot))
        panel.advice = advice_on(job, report.metrics.step_time);
    return panel;
}

void simulate_config(SimulateArguments arguments) {
    keep_large_blocks();
    arguments.config.read_pipe();
    Config config = arguments.config.load();
    check_csv(arguments.csv, arguments.json);
    check_outputs({{"--trace", arguments.trace},
                   {"--slack", arguments.slack},
                   {"--plot", arguments.plot, Output::Kind::Picture},
                   csv_output(arguments.csv)},
                  inputs_of(arguments.config, config, arguments.questions.what_if));
    arguments.questions.slack = !arguments.slack.empty();
    if (!arguments.program.empty())
        refuse_reports(arguments);
    if (!arguments.schedules.empty()) {
        refuse_single_among_schedules(arguments, config);
        if (config.sweep.empty())
            return compare_predictions(arguments, config);
        config.sweep.insert(config.sweep.begin(), {"pipeline.schedule", schedules_in(arguments.schedules)});
    }
    if (!config.sweep.empty())
        return sweep_config(arguments, config);
    const SweepView& axes = arguments.sweep_view;
    if (!axes.x.empty() || !axes.y.empty() || !axes.z.empty())
        fail(
            "--x, --y and --z are about the chart of a sweep, and this config has no block sweep\n  help: add one, as "
            "in "
            "--set 'sweep={{pipeline.micro_batches: [4, 8, 16]}}'");
    if (!arguments.plot.empty())
        check_timeline(arguments.plot, static_cast<int>(config.cluster.devices.size()));
    const Job job = job_of(std::move(config));
    if (!arguments.program.empty())
        return print_arguments(job, arguments.program);
    const Report report = predicted_report(job, !arguments.trace.empty() || !arguments.plot.empty());
    Answers answers;
    if (arguments.questions.any()) {
        ProgressLine line;
        answers = answers_to(arguments.questions, arguments.config, job, report,
                             {[&](const std::string& state) { line.show(state); }});
    }
    Outputs outputs;
    outputs.attempt([&] { print_simulation(arguments, job, report, answers); });
    outputs.attempt([&] {
        if (!arguments.csv.empty())
            write_csv(arguments.csv, to_json(report)["devices"]);
    });
    outputs.attempt([&] {
        if (!arguments.slack.empty())
            write_file(arguments.slack, answers.slack);
    });
    outputs.attempt([&] {
        if (!arguments.trace.empty())
            write_trace(report.trace, arguments.trace);
    });
    outputs.attempt([&] {
        if (arguments.plot.empty())
            return;
        plot({simulated_panel(arguments, job, report, answers)}, arguments.plot, arguments.view);
        note_large_picture(arguments.plot);
    });
    print_notes(notes_on_idle_keys(job));
    print_notes(notes_on_costs(job));
    for (const std::string& note : {note_on_host_memory(job), note_on_precision(job.setup)})
        if (!note.empty())
            print_note(note);
    print_details(origins_of_costs(job));
    outputs.done();
}

void add_sweep_options(CLI::App& command, CLI::Option* picture, SweepView& view) {
    command.add_option("--x", view.x, "of a sweep's chart: a key of the sweep, or one of " + sweep_numbers())
        ->type_name("NAME")
        ->needs(picture);
    command.add_option("--y", view.y, "one of these numbers; or a key, for a map of two keys; default: samples/s")
        ->type_name("NAME")
        ->needs(picture);
    command.add_option("--z", view.z, "the number in the cells of a map")->type_name("NAME")->needs(picture);
}

void add_questions(CLI::App& command, SimulateArguments& arguments) {
    Questions& questions = arguments.questions;
    CLI::Option* samples = command.add_option("--samples", questions.samples, "number of draws with random task times")
                               ->type_name("N")
                               ->check(whole_number(1, 10'000'000));
    command
        .add_option("--jitter", questions.jitter,
                    "distribution of the random times: lognormal:SIGMA, or profile; default: lognormal:0.05")
        ->type_name("KIND")
        ->needs(samples);
    command.add_option("--seed", questions.seed, "seed of the draws; default: 0")->type_name("N")->needs(samples);
    command.add_flag("--stragglers", questions.stragglers, "print the step time with each device 10 % slower in turn");
    command
        .add_option("--what-if", questions.what_if,
                    "print the step time with another value; if repeated, also with all of them together")
        ->type_name("KEY=VALUE")
        ->allow_extra_args(false);
    command.add_flag("--explain", questions.explain, "print what is on the critical path, and why devices are idle");
    command
        .add_option("--slack", arguments.slack, "write how much later each task could end without a longer step (CSV)")
        ->type_name("FILE");
}

}  // namespace

void add_training_arguments(CLI::App& command, SimulateArguments& arguments) {
    std::vector<std::string> names;
    for (const TrainingProgram& program : training_programs())
        names.emplace_back(name_of(program.program));
    command
        .add_option("--arguments", arguments.program,
                    "print the plan as the arguments of a program that trains transformers, and no report")
        ->type_name("PROGRAM")
        ->check(CLI::IsMember(names));
}

Action add_simulate(CLI::App& command) {
    auto arguments = std::make_shared<SimulateArguments>();
    add_config(command, arguments->config);
    command.add_flag("--json", arguments->json, "print one JSON object");
    add_csv(command, arguments->csv);
    command
        .add_option("--schedules", arguments->schedules,
                    "predict several schedules in one table, the fastest first: names separated by commas, or all")
        ->type_name("A,B,...");
    command.add_option("--trace", arguments->trace, "write the predicted trace")->type_name("FILE");
    CLI::Option* const picture =
        command
            .add_option(
                "--plot", arguments->plot,
                "draw the predicted trace, a trace for each of --schedules, or the chart of a sweep: " + plot_formats())
            ->type_name("FILE");
    add_picture_options(command, picture, arguments->view, true);
    add_sweep_options(command, picture, arguments->sweep_view);
    add_questions(command, *arguments);
    add_training_arguments(command, *arguments);
    return [arguments] { simulate_config(*arguments); };
}

}  // namespace pw
