// simulate: from a config to the predicted trace and its numbers.
#include "report/answers.h"
#include "cli/command.h"
#include "report/notes.h"
#include "report/report.h"
#include "cli/streams.h"
#include "report/sweep.h"
#include "report/table.h"
#include "schedules/trace/trace_json.h"
#include "report/predict.h"
#include "viz/plot.h"
#include "workloads/text/files.h"

#include <fmt/format.h>
#include <malloc.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <limits>
#include <memory>
#include <utility>

namespace pw {

namespace {

struct SimulateArguments {
    ConfigArguments config;
    bool json = false;
    std::string trace, plot;
    AnswerArguments answers;
};

void refuse_single_in_sweep(const SimulateArguments& arguments, const Config& config) {
    if (arguments.answers.any())
        config.fail_at(
            "sweep",
            "--samples, --stragglers, --what-if, --explain and --slack are about one simulation, and 'sweep' "
            "asks for several",
            "remove them, or take one point: --set sweep= --set KEY=VALUE");
    if (!arguments.trace.empty())
        config.fail_at("sweep", "--trace writes the trace of one simulation, and 'sweep' asks for several",
                       "remove --trace, or take one point: --set sweep= --set KEY=VALUE");
}

void print_simulation(const SimulateArguments& arguments, const Job& job, const Report& report,
                      const Answers& answers) {
    if (!arguments.json)
        return print_result("{}\n\n{}{}", summary_of(job), print(report), answers.text);
    Json json = json_of(report);
    if (!answers.json.is_null())
        json.update(answers.json);
    json["costs"] = std::string(row_of(job.source).name);
    json["interpolated"] = job.costs.interpolated;
    print_json(json);
}

// What plans are worked out with comes and goes in large blocks: to give each back to the system and to ask for it
// again took a tenth of the time.
void keep_freed_memory() {
#ifdef __GLIBC__
    mallopt(M_MMAP_THRESHOLD, 32 << 20);
    mallopt(M_TRIM_THRESHOLD, std::numeric_limits<int>::max());
#endif
}

void simulate_config(const SimulateArguments& arguments) {
    keep_freed_memory();
    Config config = arguments.config.load();
    check_target_file(arguments.trace);
    check_target_file(arguments.answers.slack);
    check_plot_file(arguments.plot);
    if (!config.sweep.empty()) {
        refuse_single_in_sweep(arguments, config);
        simulate_sweep(arguments.config, config, arguments.json, arguments.plot);
        return;
    }
    if (!arguments.plot.empty())
        check_timeline(arguments.plot, static_cast<int>(config.cluster.devices.size()));
    const Job job = job_of(std::move(config));
    const bool traced = !arguments.trace.empty() || !arguments.plot.empty();
    const Report report = traced ? report_of(predict(job), job.config) : report_of(predict_numbers(job), job.config);
    const Answers answers =
        arguments.answers.any() ? answers_of(arguments.answers, arguments.config, job, report) : Answers{};
    Outputs outputs;
    outputs.attempt([&] { print_simulation(arguments, job, report, answers); });
    outputs.attempt([&] {
        if (!arguments.answers.slack.empty())
            write_file(arguments.answers.slack, answers.slack);
    });
    outputs.attempt([&] {
        if (!arguments.trace.empty())
            write_trace(report.trace, arguments.trace);
    });
    outputs.attempt([&] {
        if (!arguments.plot.empty())
            plot({{&report.trace, title_of(report)}}, arguments.plot);
    });
    print_idle_keys(job);
    if (const std::string note = note_on_costs(job); !note.empty())
        print_note(note);
    outputs.done();
}

}  // namespace

Action add_simulate(CLI::App& command) {
    auto arguments = std::make_shared<SimulateArguments>();
    add_config(command, arguments->config);
    command.add_flag("--json", arguments->json, "print one JSON object");
    command.add_option("--trace", arguments->trace, "write the predicted trace")->type_name("FILE");
    command
        .add_option("--plot", arguments->plot,
                    "draw the predicted trace, or the step times of a sweep: " + plot_formats())
        ->type_name("FILE");
    add_answers(command, arguments->answers);
    return [arguments] { simulate_config(*arguments); };
}

}  // namespace pw
