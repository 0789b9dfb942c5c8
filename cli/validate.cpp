// validate: check a config, a plan, a trace or a folder of results without running anything.
#include "cli/accuracy.h"
#include "cli/command.h"
#include "cli/pipeline.h"
#include "cli/report.h"
#include "cli/table.h"
#include "schedules/csv.h"
#include "schedules/passes.h"
#include "workloads/error.h"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <filesystem>
#include <fstream>
#include <memory>

namespace pw {

namespace {

struct ValidateArguments {
    std::string path;
    std::vector<std::string> set;
    bool json = false;
};

int tasks_of(const Plan& plan) {
    std::size_t tasks = 0;
    for (const auto& order : plan.order)
        tasks += order.size();
    return static_cast<int>(tasks);
}

Json json_of_plan(const Plan& plan, const char* kind) {
    return {{"schema_version", 1},
            {"kind", kind},
            {"ok", true},
            {"schedule", plan.schedule},
            {"stages", plan.shape.stages},
            {"tasks", tasks_of(plan)},
            {"plan_hash", hash_of(plan)}};
}

void print_ok_plan(const Plan& plan) {
    fmt::print("ok: plan {} of {}: {} tasks on {} devices, complete, ordered, free of deadlock\n", hash_of(plan),
               plan.schedule, tasks_of(plan), plan.shape.devices);
}

void print_ok_memory(const Report& report) {
    for (std::size_t device = 0; device < report.limits.size(); ++device) {
        const Bytes needed = report.metrics.devices[device].peak_memory, limit = report.limits[device];
        if (needed <= limit)
            fmt::print("ok: memory of device {}: {} of {}\n", report.names[device], print_bytes(needed),
                       limit == kUnlimited ? "unlimited" : print_bytes(limit));
    }
}

void validate_config(const ValidateArguments& arguments) {
    const Pipeline pipeline = pipeline_of(load_config(arguments.path, arguments.set, defaults_of));
    check(pipeline.plan);
    const Report report = report_of(predict(pipeline), pipeline.config);
    if (arguments.json) {
        Json json = json_of_plan(pipeline.plan, "config");
        json["ok"] = json["fits"] = fits(report);
        print_json(json);
    } else {
        fmt::print("ok: config {}: {}\n", arguments.path, summary_of(pipeline));
        print_ok_plan(pipeline.plan);
        print_ok_memory(report);
        fmt::print("{}", print_misfits(report));
    }
    if (!fits(report))
        fail_with(ExitCode::Infeasible, "{}: the plan needs more memory than its devices have", arguments.path);
}

void validate_plan(const ValidateArguments& arguments) {
    const CsvPlan read = read_csv(arguments.path);
    for (const std::string& notice : read.notices)
        print_note(notice);
    const Plan& plan = read.plan;
    check(plan);
    if (arguments.json)
        print_json(json_of_plan(plan, "plan"));
    else
        print_ok_plan(plan);
}

void validate_trace(const ValidateArguments& arguments) {
    const Report report = report_of(read_trace(arguments.path));
    if (arguments.json) {
        Json json = json_of(report);
        json["kind"] = "trace";
        json["ok"] = true;
        print_json(json);
    } else {
        fmt::print("ok: trace {}: {}\n", arguments.path, title_of(report));
    }
}

void validate_results(const ValidateArguments& arguments) {
    const Accuracy accuracy = read_accuracy(arguments.path);
    if (arguments.json)
        print_json(json_of(accuracy));
    else
        fmt::print("{}", print(accuracy));
}

// A trace is JSON like a config may be; its events are what tells it apart.
bool is_trace(const std::string& path) {
    std::ifstream file(path);
    const Json json = Json::parse(file, nullptr, false);
    return json.is_object() && json.contains("traceEvents");
}

void validate(const ValidateArguments& arguments) {
    const std::filesystem::path path(arguments.path);
    const std::string suffix = path.extension().string();
    if (!std::filesystem::exists(path))
        fail("'{}' does not exist\n  help: give a config, a PLAN.csv, a trace or a folder of results", arguments.path);
    if (std::filesystem::is_directory(path))
        validate_results(arguments);
    else if (suffix == ".csv")
        validate_plan(arguments);
    else if (suffix == ".json" && is_trace(arguments.path))
        validate_trace(arguments);
    else if (suffix == ".json" || suffix == ".yaml" || suffix == ".yml")
        validate_config(arguments);
    else
        fail(
            "'{}' is no config (*.yaml, *.json), plan (*.csv), trace (*.json) or folder of results\n  help: "
            "checkpoints are not in this version",
            arguments.path);
}

}  // namespace

Action add_validate(CLI::App& command) {
    auto arguments = std::make_shared<ValidateArguments>();
    command.add_option("PATH", arguments->path, "a config, a PLAN.csv, a trace, or a folder of accuracy tables")
        ->required()
        ->type_name("");
    add_set(command, arguments->set);
    command.add_flag("--json", arguments->json, "print one JSON object");
    return [arguments] { validate(*arguments); };
}

}  // namespace pw
