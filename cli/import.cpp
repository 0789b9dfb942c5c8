// import: reads traces of other programs and writes one of ours.
#include "cli/command.h"
#include "cli/file_kind.h"
#include "cli/streams.h"
#include "report/report.h"
#include "schedules/trace/trace_json.h"
#include "workloads/text/files.h"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <memory>
#include <set>
#include <string>
#include <vector>

namespace pw {

namespace {

struct ImportArguments {
    std::vector<std::string> files;
    std::string output;
};

void import_trace(const ImportArguments& arguments) {
    check_target_file(arguments.output);
    for (const std::string& path : arguments.files)
        require_trace(path, fmt::format("pipewright simulate {} --trace {}", path, arguments.output));
    const Report report = report_in(arguments.files);
    write_trace(report.trace, arguments.output);
    std::set<int> steps;
    for (const TraceEvent& event : report.trace.events)
        steps.insert(event.step);
    print_result("{}: {}; devices: {}, stages: {}, micro-batches: {}, steps: {}\n", arguments.output, title_of(report),
                 report.trace.devices, report.trace.stages, report.trace.micro_batches, steps.size());
}

}  // namespace

Report report_in(const std::vector<std::string>& paths) {
    Notices notes;
    const Report report = read_report(paths, notes);
    print_notes(notes);
    return report;
}

Action add_import(CLI::App& command) {
    auto arguments = std::make_shared<ImportArguments>();
    command
        .add_option("FILES", arguments->files,
                    "a trace of another program, or one file for each of its ranks; docs/import.md lists the formats")
        ->required()
        ->type_name("")
        ->expected(-1);
    command.add_option("-o,--output", arguments->output, "the trace to write")->required()->type_name("FILE");
    return [arguments] { import_trace(*arguments); };
}

}  // namespace pw
