// plot: draws traces, with a panel for each.
#include "viz/plot.h"

#include "cli/command.h"
#include "cli/file_kind.h"
#include "cli/outputs.h"
#include "cli/picture_options.h"
#include "cli/streams.h"
#include "report/panels.h"
#include "report/report.h"
#include "schedules/import/any_trace.h"
#include "workloads/error.h"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <charconv>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

namespace pw {

namespace {

struct PlotArguments {
    std::vector<std::string> traces;
    std::string output;
    std::optional<int> step;
    bool every_step = false;
    View view;
};

constexpr const char* kEveryStep = "all";

std::string refuse_step(std::string& text) {
    int step = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), step);
    const bool is_number = error == std::errc{} && end == text.data() + text.size() && step >= 0;
    return is_number || text == kEveryStep ? "" : fmt::format("'{}' is not the number of a step, or all", text);
}

// Returns the files of each picture: one file, or all files that have one rank each.
std::vector<std::vector<std::string>> files_of_traces(const std::vector<std::string>& paths) {
    std::vector<std::vector<std::string>> files;
    std::optional<std::size_t> ranks;
    for (const std::string& path : paths) {
        const bool of_one_rank = paths.size() > 1 && is_of_one_rank(path);
        if (of_one_rank && ranks) {
            files[*ranks].push_back(path);
            continue;
        }
        if (of_one_rank)
            ranks = files.size();
        files.push_back({path});
    }
    return files;
}

Trace drawn_part(const Report& report, const PlotArguments& arguments, const std::string& path) {
    const std::vector<TraceEvent>& events = report.trace.events;
    if ((arguments.step || arguments.every_step) && report.trace.asynchronous)
        fail("'{}' has no steps: its schedule is asynchronous\n  help: leave --step out to draw the whole trace", path);
    if (report.trace.asynchronous || arguments.every_step)
        return report.trace;
    const int step = arguments.step.value_or(report.metrics.step);
    if (std::none_of(events.begin(), events.end(), [&](const TraceEvent& event) { return event.step == step; })) {
        int last = 0;
        for (const TraceEvent& event : events)
            last = std::max(last, event.step);
        fail("'{}' has no step {}\n  help: its steps are 0 to {}; without --step the median one is drawn", path, step,
             last);
    }
    return only_step(report.trace, step);
}

void plot_traces(const PlotArguments& arguments) {
    std::vector<Report> reports;
    std::vector<Trace> drawn;
    constexpr std::size_t kMost = 64;
    if (arguments.traces.size() > kMost)
        fail("{} traces, but one picture shows at most {}\n  help: draw several pictures", arguments.traces.size(),
             kMost);
    check_outputs({{"-o", arguments.output, Output::Kind::Picture}}, arguments.traces);
    for (const std::string& path : arguments.traces)
        require_trace(path, fmt::format("pipewright simulate {} --plot {}", path, arguments.output));
    for (const std::vector<std::string>& paths : files_of_traces(arguments.traces)) {
        Report report = report_in(paths);
        drawn.push_back(drawn_part(report, arguments, paths.front()));
        reports.push_back(arguments.step ? report_of(drawn.back()) : std::move(report));
    }
    std::vector<Panel> panels;
    for (std::size_t k = 0; k < drawn.size(); ++k)
        panels.push_back(drawn_panel(reports[k], drawn[k], arguments.output));
    plot(panels, arguments.output, arguments.view);
    note_large_picture(arguments.output);
    print_result("{}\n", arguments.output);
}

}  // namespace

Action add_plot(CLI::App& command) {
    auto arguments = std::make_shared<PlotArguments>();
    command.add_option("TRACE", arguments->traces, "traces of simulate and run")
        ->required()
        ->type_name("")
        ->expected(-1);
    CLI::Option* const picture =
        command.add_option("-o,--output", arguments->output, "the picture to write: " + plot_formats())
            ->required()
            ->type_name("FILE");
    command
        .add_option_function<std::string>(
            "--step",
            [arguments](const std::string& text) {
                arguments->every_step = text == kEveryStep;
                if (!arguments->every_step)
                    arguments->step = std::stoi(text);
            },
            "the step to draw, or all; default: the one with the median time")
        ->type_name("N")
        ->check(CLI::Validator(refuse_step, ""));
    add_picture_options(command, picture, arguments->view, true);
    return [arguments] { plot_traces(*arguments); };
}

}  // namespace pw
