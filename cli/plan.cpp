// plan: print or export the task lists of a config.
#include "cli/command.h"
#include "cli/pipeline.h"
#include "cli/streams.h"
#include "cli/table.h"
#include "schedules/csv.h"
#include "schedules/versions.h"
#include "workloads/files.h"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <memory>
#include <set>

namespace pw {

namespace {

struct PlanArguments {
    ConfigArguments config;
    std::string output, format;
    bool versions = false;
};

void note_tasks_left_out(const Plan& plan) {
    std::set<std::string> letters;
    for (const auto& order : plan.order)
        for (const Task& task : order)
            if (!has_csv_cell(task.op))
                letters.insert(std::string(letters_of(task.op)));
    if (!letters.empty())
        print_note(fmt::format("PyTorch's format has no cells for {}: left out", fmt::join(letters, ", ")));
}

std::string print_as(const Plan& plan, const std::string& format) {
    if (format == "text") {
        std::string text = print(plan);
        if (!text.ends_with('\n'))
            text += '\n';
        return text;
    }
    note_tasks_left_out(plan);
    return print_csv(plan, format == "csv-comms");
}

void print_plan(const PlanArguments& arguments) {
    check_target_file(arguments.output);
    const Pipeline pipeline = pipeline_of(arguments.config.load());
    std::string format = arguments.format;
    if (format.empty())
        format = arguments.output.ends_with(".csv") ? "csv" : "text";
    std::string text;
    if (arguments.versions) {
        text = print(pipeline.plan, versions_of(pipeline.plan));
        if (!text.ends_with('\n'))
            text += '\n';
    } else {
        text = print_as(pipeline.plan, format);
    }
    if (arguments.output.empty())
        print_result("{}", text);
    else
        write_file(arguments.output, text);
}

}  // namespace

Action add_plan(CLI::App& command) {
    auto arguments = std::make_shared<PlanArguments>();
    add_config(command, arguments->config);
    command.add_option("-o,--output", arguments->output, "write to FILE instead of stdout")->type_name("FILE");
    CLI::Option* format =
        command
            .add_option("--format", arguments->format,
                        "text (default), csv (PyTorch's compute_only; default for *.csv) or csv-comms (compute_comms)")
            ->type_name("FORMAT")
            ->check(CLI::IsMember({"text", "csv", "csv-comms"}));
    command.add_flag("--versions", arguments->versions, "print which weight version every task uses")->excludes(format);
    return [arguments] { print_plan(*arguments); };
}

}  // namespace pw
