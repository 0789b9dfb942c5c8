// validate: checks a config, a plan, a profile, a trace, a checkpoint or a folder of results without running anything.
#include "cli/command.h"
#include "cli/file_kind.h"
#include "cli/streams.h"
#include "exec/checkpoint/checkpoint.h"
#include "exec/runnable.h"
#include "report/accuracy.h"
#include "report/notes.h"
#include "report/report.h"
#include "report/table.h"
#include "schedules/csv/csv.h"
#include "schedules/passes/passes.h"
#include "schedules/plan/plan_graph.h"
#include "workloads/costs/products.h"
#include "workloads/error.h"

#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <exception>
#include <filesystem>
#include <memory>

namespace pw {

namespace {

struct ValidateArguments {
    std::string path;
    std::vector<std::string> ranks;  // the other files of a trace
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

void print_ok_plan(const Plan& plan, const std::string& where = {}) {
    print_result("ok: plan {} of {}: {} tasks on {} devices, complete, ordered, free of deadlock{}\n", hash_of(plan),
                 plan.schedule, tasks_of(plan), plan.shape.devices, where);
}

void print_ok_plan(const Job& job) {
    print_ok_plan(job.plan, job.deadlock.empty() ? std::string() : fmt::format(" ({})", print(job.mode)));
}

void print_ok_memory(const Report& report) {
    for (std::size_t device = 0; device < report.limits.size(); ++device) {
        const Bytes needed = report.metrics.devices[device].needed_memory(), limit = report.limits[device];
        if (needed <= limit)
            print_result("ok: memory of device {}: {} of {}\n", escaped_line(report.names[device]),
                         print_bytes_as(needed, limit),
                         limit == kUnlimited ? "unlimited" : print_bytes_as(limit, limit));
    }
}

// Checks a plan whose times and sizes in training.precision are not known.
void validate_without_costs(const ValidateArguments& arguments, const Job& job) {
    if (arguments.json) {
        Json json = json_of_plan(job.plan, "config");
        json["fits"] = nullptr;
        print_json(json);
    } else {
        print_result("ok: config {}: {}\n", arguments.path, summary_of(job));
        print_ok_plan(job);
    }
    print_note(
        fmt::format("memory is not checked, since costs in {} are not known; measure them with `pipewright profile`",
                    name_of(job.setup.training.precision)));
}

void validate_config(const ValidateArguments& arguments) {
    const Job job = job_of(ConfigArguments{{arguments.path, arguments.set}}.load());
    check_link(job.setup, job.plan.shape);
    print_notes(notes_on_idle_keys(job));
    if (!has_precision(job.setup, job.profile)) {
        validate_without_costs(arguments, job);
        return;
    }
    const Report report = predicted_report(job, false);
    if (arguments.json) {
        Json json = json_of_plan(job.plan, "config");
        json["ok"] = json["fits"] = fits(report);
        print_json(json);
    } else {
        print_result("ok: config {}: {}\n", arguments.path, summary_of(job));
        print_ok_plan(job);
        print_ok_memory(report);
        print_result("{}", misfits_of(report));
    }
    if (!fits(report))
        fail_with(ExitCode::Infeasible, "{}: the plan needs more memory than its devices have", arguments.path);
}

using Communicator = TransferMode::Communicator;
using Protocol = TransferMode::Protocol;
using Receive = TransferMode::Receive;

std::vector<TransferMode> lane_modes() {
    std::vector<TransferMode> modes;
    for (const Choice<Communicator>& communicator : kChoices<Communicator>)
        for (const Choice<Receive>& receive : kChoices<Receive>)
            modes.push_back({communicator.value, receive.value, Protocol::Eager, true});
    return modes;
}

// Returns whether the plan deadlocks under each protocol. The transfers of a file are used as they are. If the file has
// no transfers, they are added for the mode.
std::vector<std::string> verdicts(const std::string& path, TransferMode mode) {
    const CsvPlan read = read_csv(path, mode);
    const PlanGraph graph(read.plan);
    std::vector<std::string> verdicts;
    for (const auto protocol : {Protocol::Eager, Protocol::OneSlot, Protocol::Rendezvous}) {
        mode.protocol = protocol;
        verdicts.emplace_back(deadlock_of(read.plan, graph, mode).empty() ? "free" : "deadlock");
    }
    return verdicts;
}

void validate_plan(const ValidateArguments& arguments) {
    const CsvPlan read = read_csv(arguments.path);
    print_notes(read.notices);
    std::exception_ptr deadlock;
    try {
        TransferMode strictest;
        strictest.protocol = Protocol::Rendezvous;
        prove(read, strictest);
    } catch (const Error& error) {
        if (error.code() != ExitCode::Infeasible)
            throw;
        deadlock = std::current_exception();
    }
    Table table({"lanes", "receive", "unbounded", "one slot", "rendezvous"}, true);
    Json modes = Json::array();
    for (const TransferMode& mode : lane_modes()) {
        const std::string communicator(name_of(mode.communicator)), receive(name_of(mode.receive));
        const std::vector<std::string> found = verdicts(arguments.path, mode);
        table.add({communicator, receive, found[0], found[1], found[2]});
        modes.push_back({{"communicator", communicator},
                         {"receive", receive},
                         {"eager", found[0]},
                         {"one_slot", found[1]},
                         {"rendezvous", found[2]}});
    }
    if (deadlock) {
        if (!arguments.json)
            print_result("{}", table.print());
        std::rethrow_exception(deadlock);
    }
    if (arguments.json) {
        Json json = json_of_plan(read.plan, "plan");
        json["modes"] = std::move(modes);
        print_json(json);
    } else {
        print_ok_plan(read.plan);
        print_result("\n{}", table.print());
    }
}

void validate_trace(const ValidateArguments& arguments) {
    std::vector<std::string> paths = {arguments.path};
    paths.insert(paths.end(), arguments.ranks.begin(), arguments.ranks.end());
    const Report report = report_in(paths);
    if (arguments.json) {
        Json json = to_json(report);
        json["kind"] = "trace";
        json["ok"] = true;
        print_json(json);
    } else {
        print_result("ok: trace {}: {}\n", arguments.path, title_of(report));
    }
}

void validate_profile(const ValidateArguments& arguments) {
    const Profile profile = read_profile(arguments.path);
    std::vector<int> sizes;
    for (const auto& [samples, time] : profile.data)
        sizes.push_back(samples);
    if (arguments.json)
        print_json({{"schema_version", 1},
                    {"kind", "profile"},
                    {"ok", true},
                    {"model", profile.model},
                    {"backend", profile.backend},
                    {"machine", profile.machine},
                    {"layers", profile.layers.size()},
                    {"micro_batch_sizes", sizes}});
    else
        print_result("ok: profile {}: {}, {} layers, micro-batches of {}, backend {}, {}\n", arguments.path,
                     profile.model, profile.layers.size(), fmt::join(sizes, ", "), profile.backend, profile.machine);
}

void validate_products(const ValidateArguments& arguments) {
    Json tables = Json::array();
    std::string text;
    for (const ProductTable& table : read_products(arguments.path)) {
        tables.push_back({{"device", table.device},
                          {"precision", std::string(name_of(table.precision))},
                          {"products", table.rows.size()}});
        text += fmt::format("ok: products {}: {} in {}, {}\n", arguments.path, table.rows.size(),
                            name_of(table.precision), table.device);
    }
    if (arguments.json)
        print_json({{"schema_version", 1}, {"kind", "products"}, {"ok", true}, {"tables", tables}});
    else
        print_result("{}", text);
}

void validate_results(const ValidateArguments& arguments) {
    const Accuracy accuracy = read_accuracy(arguments.path);
    if (arguments.json)
        print_json(to_json(accuracy));
    else
        print_result("{}", to_text(accuracy));
}

// Returns the first tensor of a checkpoint with a value that is not finite, or an empty name.
std::string not_finite_in(const Checkpoint& checkpoint) {
    for (const auto* tensors : {&checkpoint.parameters, &checkpoint.states})
        for (const NamedTensor& tensor : *tensors)
            if (!std::ranges::all_of(tensor.values, [](float value) { return std::isfinite(value); }))
                return tensor.name + (tensors == &checkpoint.states && facts_of(checkpoint.optimizer).has_momentum
                                          ? ", its momentum"
                                          : "");
    return "";
}

[[noreturn]] void fail_not_finite(const std::string& folder, const std::string& tensor) {
    fail_with(ExitCode::CheckFailed,
              "checkpoint '{}' has values that are not finite: {}\n  help: the training has diverged: continue from an "
              "earlier checkpoint, with a smaller training.learning_rate",
              folder, tensor);
}

void validate_checkpoint(const ValidateArguments& arguments) {
    std::vector<std::string> left_out;
    const auto [folder, checkpoint] = find_checkpoint(arguments.path, left_out);
    print_warnings(left_out);
    std::int64_t values = 0;
    for (const NamedTensor& tensor : checkpoint.parameters)
        values += static_cast<std::int64_t>(tensor.values.size());
    const std::string broken = not_finite_in(checkpoint);
    if (!broken.empty() && !arguments.json)
        fail_not_finite(folder, broken);
    if (arguments.json)
        print_json({{"schema_version", 1},
                    {"kind", "checkpoint"},
                    {"ok", broken.empty()},
                    {"folder", folder},
                    {"step", checkpoint.step},
                    {"samples", checkpoint.samples},
                    {"model", checkpoint.model},
                    {"parameters", checkpoint.parameters.size()},
                    {"values", values},
                    {"left_out", left_out},
                    {"weights_hash", hash_of(checkpoint.parameters)}});
    else
        print_result("ok: checkpoint {}: {} after step {}, {} samples; {} parameters with {} values, weights {}\n",
                     folder, checkpoint.model, checkpoint.step, checkpoint.samples, checkpoint.parameters.size(),
                     values, hash_of(checkpoint.parameters));
    if (!broken.empty())
        fail_not_finite(folder, broken);
}

void validate(const ValidateArguments& arguments) {
    const std::filesystem::path path(arguments.path);
    const std::string suffix = path.extension().string();
    if (!std::filesystem::exists(path))
        fail("'{}' does not exist\n  help: name a config, a PLAN.csv, a profile, a trace or a folder of results",
             arguments.path);
    if (!arguments.ranks.empty() && kind_of(arguments.path) != FileKind::Trace)
        fail(
            "'{}' is not a trace, but {} files are named\n  help: validate one; several must be the traces of the "
            "ranks of "
            "one "
            "run",
            arguments.path, arguments.ranks.size() + 1);
    if (is_checkpoint(arguments.path))
        validate_checkpoint(arguments);
    else if (std::filesystem::is_directory(path))
        validate_results(arguments);
    else if (const FileKind kind = kind_of(arguments.path); kind == FileKind::Plan || kind == FileKind::Table)
        validate_plan(arguments);
    else if (kind == FileKind::Trace)
        validate_trace(arguments);
    else if (kind == FileKind::Profile)
        validate_profile(arguments);
    else if (kind == FileKind::Products)
        validate_products(arguments);
    else if (suffix == ".json" || suffix == ".yaml" || suffix == ".yml")
        validate_config(arguments);
    else {
        require_config(arguments.path);
        fail(
            "'{}' is not a config (*.yaml, *.json), plan (*.csv), profile, trace (*.json), checkpoint or folder of "
            "results\n  help: pipewright --help lists the commands that make them",
            arguments.path);
    }
}

}  // namespace

Action add_validate(CLI::App& command) {
    auto arguments = std::make_shared<ValidateArguments>();
    command
        .add_option("PATH", arguments->path,
                    "a config, a PLAN.csv, a profile, a trace, a checkpoint, or a folder of accuracy tables")
        ->required()
        ->type_name("");
    command.add_option("RANK", arguments->ranks, "more files of a trace that has one per rank")
        ->type_name("")
        ->expected(0, -1);
    add_set(command, arguments->set);
    command.add_flag("--json", arguments->json, "print one JSON object");
    return [arguments] { validate(*arguments); };
}

}  // namespace pw
