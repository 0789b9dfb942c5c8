// import: reads traces of other programs and writes one of ours, or a config with its times.
#include "cli/command.h"
#include "cli/file_kind.h"
#include "cli/outputs.h"
#include "cli/streams.h"
#include "job/load.h"
#include "report/measured_config.h"
#include "report/predict.h"
#include "report/report.h"
#include "schedules/csv/csv.h"
#include "schedules/import/trace_folder.h"
#include "schedules/trace/trace_json.h"
#include "workloads/error.h"
#include "workloads/text/files.h"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <filesystem>
#include <initializer_list>
#include <memory>
#include <set>
#include <string>
#include <vector>

namespace pw {

namespace {

struct ImportArguments {
    std::vector<std::string> files, patterns;
    std::string output;
};

bool writes_config(const std::string& output) {
    const std::string suffix = std::filesystem::path(output).extension().string();
    return suffix == ".yaml" || suffix == ".yml";
}

// The file of the plan, where no schedule has its order: "folder/model.plan.csv" for "folder/model.yaml".
std::string plan_file_of(const std::string& output) {
    return std::filesystem::path(output).replace_extension(".plan.csv").string();
}

void import_config(const ImportArguments& arguments) {
    const Report report = report_in(arguments.files, arguments.patterns);
    const MeasuredConfig config = measured_config(report);
    const std::string path = plan_file_of(arguments.output);
    const std::string plan_file = std::filesystem::path(path).filename().string();
    if (config.plan) {
        write_file(path, print_csv(*config.plan, false));
        print_note(fmt::format("no schedule has the order of the trace: its plan is in {}", path));
    }
    write_file(arguments.output, print(config, plan_file));
    const PredictedNumbers predicted = predict_numbers(job_of(load_config(arguments.output, {})));
    print_result("{}: {}; step {} with these times, {} measured\n", arguments.output,
                 config.plan ? "schedule: " + plan_file : config.schedule, print_time(predicted.metrics.step_time),
                 print_time(report.metrics.step_time));
}

void import_trace(const ImportArguments& arguments) {
    const Report report = report_in(arguments.files, arguments.patterns);
    write_trace(report.trace, arguments.output);
    std::set<int> steps;
    for (const TraceEvent& event : report.trace.events)
        steps.insert(event.step);
    print_result("{}: {}; devices: {}, stages: {}, micro-batches: {}, steps: {}\n", arguments.output, title_of(report),
                 report.trace.devices, report.trace.stages, report.trace.micro_batches, steps.size());
}

bool ends_with_one_of(const std::string& path, std::initializer_list<const char*> suffixes) {
    return std::any_of(suffixes.begin(), suffixes.end(), [&](const char* suffix) { return path.ends_with(suffix); });
}

void import_files(ImportArguments arguments) {
    Notices notes;
    arguments.files = with_files_of_folders(arguments.files, notes);
    print_notes(notes);
    const bool to_config = writes_config(arguments.output);
    if (!to_config && !ends_with_one_of(arguments.output, {".json", ".json.gz"}))
        fail(
            "import writes a trace (*.json, *.json.gz) or a config with its times (*.yaml), not '{}'\n  help: "
            "-o trace.json, or -o model.yaml; `pipewright plot FILES -o FILE` draws a picture",
            arguments.output);
    std::vector<Output> outputs = {{"-o", arguments.output}};
    if (to_config)
        outputs.push_back({"-o", plan_file_of(arguments.output)});
    check_outputs(outputs, arguments.files);
    for (const std::string& path : arguments.files)
        require_trace(path, fmt::format("pipewright simulate {} --trace {}", path, arguments.output));
    to_config ? import_config(arguments) : import_trace(arguments);
}

}  // namespace

Report report_in(const std::vector<std::string>& paths, const std::vector<std::string>& patterns) {
    Notices notes;
    const Report report = read_report(paths, notes, patterns);
    print_notes(notes);
    return report;
}

Action add_import(CLI::App& command) {
    auto arguments = std::make_shared<ImportArguments>();
    command
        .add_option(
            "FILES", arguments->files,
            "a trace of another program, or a file for each of its ranks, or their folder; docs/import.md lists the "
            "formats")
        ->required()
        ->type_name("")
        ->expected(-1);
    command
        .add_option("-o,--output", arguments->output,
                    "the trace to write, or with .yaml a config whose stages take the measured times")
        ->required()
        ->type_name("FILE");
    command
        .add_option(
            "--task", arguments->patterns,
            "a name of tasks, where names are your own: 'fwd_mb{mb}_stage{stage}', with {mb}, {stage}, {chunk}, "
            "{rank}, {step} for numbers, {op} for an operation and * for any text; may be repeated")
        ->type_name("PATTERN")
        ->allow_extra_args(false);
    return [arguments] { import_files(*arguments); };
}

}  // namespace pw
