// plan: print or export the task lists of a config.
#include "cli/command.h"
#include "cli/outputs.h"
#include "cli/streams.h"
#include "job/config/config.h"
#include "job/settings.h"
#include "report/notes.h"
#include "schedules/csv/csv.h"
#include "schedules/passes/passes.h"
#include "schedules/plan/plan_graph.h"
#include "schedules/plan/versions.h"
#include "workloads/costs/micro_batch_sizes.h"
#include "workloads/error.h"
#include "workloads/text/files.h"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace pw {

namespace {

struct PlanArguments {
    ConfigArguments config;
    std::string output, format;
    bool versions = false;
};

using Communicator = TransferMode::Communicator;

// The mode of PyTorch's runtime: it posts each transfer when its list reaches it, in one communicator.
constexpr TransferMode kPyTorch{Communicator::One, TransferMode::Receive::Deferred, TransferMode::Protocol::Rendezvous,
                                false};

bool names_communicator(const Setup& setup) { return setup.places.contains("transfer.communicator"); }

// Unless the config sets the communicator, the transfers of csv-comms are ordered for the single communicator of
// PyTorch.
Job job_for_pytorch(Config config) {
    const bool named = names_communicator(config);
    if (!named)
        config.transfer.communicator = Communicator::One;
    try {
        Job job = job_of(std::move(config));
        if (!named)
            check(job.plan, kPyTorch);
        return job;
    } catch (const Error& error) {
        if (named || error.code() != ExitCode::Infeasible)
            throw;
        throw Error(error.code(),
                    fmt::format("{}\n  help: PyTorch has one communicator; set transfer.communicator to export "
                                "the order for other lanes anyway",
                                error.what()));
    }
}

void note_tasks_left_out(const Plan& plan, bool transfers) {
    std::set<std::string> letters;
    for (const std::vector<Task>& order : plan.order)
        for (const Task& task : order)
            if (!has_csv_cell(task.op) || (task.op == Op::SumGradients && !transfers))
                letters.insert(std::string(letters_of(task.op)));
    if (transfers)
        letters.erase(std::string(letters_of(Op::Update)));  // part of its REDUCE_GRAD
    if (!letters.empty())
        print_note(fmt::format("PyTorch's format has no cells for {}: left out", fmt::join(letters, ", ")));
}

std::string describe(const std::vector<Edge>& edges) {
    std::vector<std::string> pairs;
    for (const Edge& edge : edges)
        pairs.push_back(fmt::format("{} and {}", edge.from, edge.to));
    return fmt::format("{}", fmt::join(pairs, ", "));
}

void note_mini_batches_left_out(const Plan& plan) {
    const Shape& shape = plan.shape;
    if (!plan.asynchronous)
        return;
    const int each = shape.last_of(0) + 1;
    print_note(fmt::format(
        "the file is one mini-batch of {} micro-batches with one update at its end; left out are weight "
        "policy {}{} and the updates of all stages after every {}",
        shape.microbatches, name_of(plan.weights),
        plan.prediction == Prediction::None ? ""
                                            : fmt::format(", the weights that {} predicts,", name_of(plan.prediction)),
        each == 1 ? "micro-batch" : fmt::format("{} micro-batches", each)));
}

// Prints notes about properties of the plan that the file cannot express.
void note_shape_left_out(const Job& job) {
    const Shape& shape = job.plan.shape;
    std::vector<Edge> skips = shape.edges.value_or(std::vector<Edge>{});
    std::erase_if(skips, [](const Edge& edge) { return edge.to == edge.from + 1; });
    if (!skips.empty())
        print_note(fmt::format("stages {} exchange tensors, but the file has transfers between neighbours only",
                               describe(skips)));
    if (!shape.ties.empty())
        print_note(
            fmt::format("stages {} share parameters, which is not in the file: PyTorch does not sum their "
                        "gradients",
                        describe(shape.ties)));
    if (shape.global_norm)
        print_note("training.clip_norm is not in the file: the program that runs the file must clip gradients");
    if (const MicroBatchSizes sizes = sizes_of(job.setup.pipeline); !sizes.is_even())
        print_note(fmt::format("the file does not say that there are {}: PyTorch weights all micro-batches equally",
                               print(sizes)));
}

bool has_backward(const Plan& plan) {
    return std::any_of(plan.order.begin(), plan.order.end(), [](const std::vector<Task>& order) {
        return std::any_of(order.begin(), order.end(), [](const Task& task) { return task.op == Op::Update; });
    });
}

void note_what_pytorch_refuses(const Plan& plan) {
    std::vector<int> shared;
    for (int stage = 0; stage < plan.shape.stages; ++stage)
        if (plan.shape.devices_of(stage).size() > 1)
            shared.push_back(stage);
    if (!shared.empty())
        print_note(
            fmt::format("PyTorch refuses the file, which has stages on several devices: {}", fmt::join(shared, ", ")));
    if (!has_backward(plan))
        print_note("PyTorch refuses the file: it has no backward passes");
}

void note_other_lanes(const Plan& plan) {
    if (deadlock_of(plan, PlanGraph(plan), kPyTorch).empty())
        return;
    print_note(
        "PyTorch has one communicator, in which this order may hang or mix up tensors: leave out transfer.communicator "
        "for "
        "an order that does not");
}

std::string print_csv(const Job& job, bool transfers) {
    const Plan& plan = job.plan;
    if (!plan.shape.joined.empty())
        job.setup.fail_at("pipeline.schedule",
                          fmt::format("stages in PyTorch's format are a chain, and schedule {} divides layers among "
                                      "devices",
                                      plan.schedule),
                          "print the plan as text (--format text), or choose another schedule");
    const std::string text = at_its_place(job.setup, [&] { return print_csv(plan, transfers); });
    parse_csv(text, "PLAN.csv");  // every file that is written can be read back
    note_tasks_left_out(plan, transfers);
    note_mini_batches_left_out(plan);
    note_shape_left_out(job);
    note_what_pytorch_refuses(plan);
    if (transfers && names_communicator(job.setup))
        note_other_lanes(plan);
    return text;
}

std::string with_line_end(std::string text) { return text.ends_with('\n') ? text : text + '\n'; }

std::string print_as(const Config& config, const PlanArguments& arguments) {
    std::string format = arguments.format;
    if (format.empty())
        format = arguments.output.ends_with(".csv") ? "csv" : "text";
    if (format == "csv-comms" && !arguments.versions)
        return print_csv(job_for_pytorch(config), true);
    const Job job = job_of(config);
    print_notes(notes_on_idle_keys(job));
    if (arguments.versions)
        return with_line_end(print(job.plan, versions_of(job.plan)));
    return format == "csv" ? print_csv(job, false) : with_line_end(print(job.plan));
}

void print_plan(const PlanArguments& arguments) {
    const Config config = arguments.config.load();
    check_outputs({{"-o", arguments.output}}, inputs_of(arguments.config, config));
    const std::string text = print_as(config, arguments);
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
                        "text (default), csv (PyTorch's compute_only; default for *.csv) or csv-comms (compute_comms, "
                        "for one communicator unless transfer.communicator is set)")
            ->type_name("FORMAT")
            ->check(CLI::IsMember({"text", "csv", "csv-comms"}));
    command.add_flag("--versions", arguments->versions, "print which weight version every task uses")->excludes(format);
    return [arguments] { print_plan(*arguments); };
}

}  // namespace pw
