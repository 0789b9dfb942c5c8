// run: executes the plan of a config and measures it.
#include "cli/command.h"
#include "cli/execution.h"
#include "cli/option_numbers.h"
#include "cli/outputs.h"
#include "cli/picture_options.h"
#include "cli/signals.h"
#include "cli/step_log.h"
#include "cli/streams.h"
#include "exec/checkpoint/checkpoint.h"
#include "exec/engine/machine.h"
#include "exec/oracle.h"
#include "exec/ranks/control_connection.h"
#include "exec/run_in_segments.h"
#include "exec/runnable.h"
#include "job/config/config.h"
#include "job/launched_ranks.h"
#include "report/error_of_rank.h"
#include "report/notes.h"
#include "report/origins.h"
#include "report/run_report.h"
#include "schedules/trace/trace_json.h"
#include "viz/plot.h"
#include "workloads/error.h"
#include "workloads/text/files.h"

#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <csignal>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

namespace pw {

namespace {

// Returns the steps that remain after the steps of the checkpoint.
int steps_left(const Config& config, const FoundCheckpoint& found) {
    const int left = config.training.steps - found.checkpoint.step;
    if (left <= 0)
        config.fail_at("training.steps",
                       fmt::format("checkpoint '{}' is of step {}, but the run has {} steps in all", found.folder,
                                   found.checkpoint.step, config.training.steps),
                       fmt::format("run more steps: --steps {}", found.checkpoint.step + config.training.steps));
    return left;
}

void check_checkpoints(const RunArguments& arguments, const Config& config) {
    const bool asked = !arguments.checkpoints.empty() || !arguments.resume.empty();
    if (asked && is_emulated(config))
        config.fail_at("run.backend", "emulated devices have no parameters to keep",
                       "run without --checkpoint and --resume, or with run.backend: cpu");
    if (arguments.checkpoint_every > 0 && arguments.checkpoints.empty())
        fail("--checkpoint-every needs a folder\n  help: add --checkpoint DIR");
}

Job load_job(const RunArguments& arguments, const std::optional<FoundCheckpoint>& found) {
    Config config = arguments.load();
    check_targets(arguments, config);
    if (!is_emulated(config))
        require_layers(config, "run");
    else if (!arguments.losses.empty())
        config.fail_at("run.backend", "emulated devices do not train, so there is no loss to draw",
                       "run without --losses, or with run.backend: cpu");
    const int ranks = launched_ranks().size;
    if (ranks > 1 && !runs_on_ranks(config.run) && !arguments.reference)
        config.fail_at("run.transport", fmt::format("{} ranks were started, but each would run all devices", ranks),
                       "write transport: auto, or start one process");
    check_checkpoints(arguments, config);
    if (found)
        config.training.steps = steps_left(config, *found);
    Job job = job_of(std::move(config));
    if (found)
        check_resumes(job.setup, *found, job.model->layers);
    return job;
}

std::optional<FoundCheckpoint> resumed(const RunArguments& arguments) {
    if (arguments.resume.empty())
        return {};
    std::vector<std::string> left_out;
    FoundCheckpoint found = find_checkpoint(arguments.resume, left_out);
    for (const std::string& line : left_out)
        print_warning(line + "; using the previous one");
    return found;
}

// After SIGINT or SIGTERM a run ends after its current step. A second signal ends it at once.
volatile std::sig_atomic_t last_signal = 0;

void end_soon(int signal) {
    last_signal = signal;
    std::signal(signal, SIG_DFL);
}

// `steps` is the number of steps of the whole training.
RunOptions options_of(const RunArguments& arguments, int steps) {
    RunOptions options;
    options.checkpoint_every = arguments.checkpoint_every;
    if (options.checkpoint_every > 0)
        keep_freed_memory();  // a checkpoint reuses the memory of the previous checkpoint
    if (!arguments.checkpoints.empty()) {
        options.checkpoints = std::make_shared<CheckpointFolder>(arguments.checkpoints, arguments.keep, steps);
        for (const int signal : {SIGINT, SIGTERM})
            if (!is_ignored(signal))
                std::signal(signal, end_soon);
        options.should_stop = [] { return last_signal != 0; };
    }
    options.dump = arguments.dump;
    options.save = arguments.save;
    options.whole_trace = !arguments.trace.empty();
    return options;
}

void print_run(const RunArguments& arguments, const Job& job, const RunResult& result) {
    const std::vector<DeviceConfig> none;
    const Report report = report_of(result.trace, arguments.reference ? none : job.setup.cluster.devices);
    if (arguments.json)
        print_json(to_json(result, report));
    else
        print_result("{}{}\n\n{}{}", summary_of(job), arguments.reference ? ", one task at a time" : "",
                     to_text(report), learning_text(result));
}

// A run is not successful if a signal stopped it, or if its last step is in no checkpoint.
void check_end(const RunResult& result, const std::string& checkpoints) {
    std::string what =
        result.stopped_after ? fmt::format("stopped by a signal after step {}", *result.stopped_after) : "";
    if (!result.lost_checkpoint.empty())
        what += fmt::format("{}the training since the last checkpoint is lost: {}", what.empty() ? "" : "; ",
                            result.lost_checkpoint);
    if (!what.empty())
        fail_with(ExitCode::RunFailed, "{}{}", what, resume_help(checkpoints));
}

// Adds how to resume to errors of a run that had started. A refused config cannot be resumed.
Error with_resume_help(const Error& error, const std::string& checkpoints) {
    const std::string what = error.what();
    const bool has_run = error.code() == ExitCode::RunFailed || error.code() == ExitCode::PeerSilent;
    return !has_run || what.find("--resume") != std::string::npos
               ? error
               : Error(error.code(), what + resume_help(checkpoints));
}

// An asynchronous job with intermediate checkpoints runs in pieces. `reference` runs the job's oracle.
RunResult run_job(const Job& job, const RunOptions& options, bool reference) {
    const auto made_of = [&](const Job& one) { return reference ? oracle_of(one) : one; };
    const bool in_pieces = job.plan.asynchronous && options.checkpoint_every > 0;
    try {
        return in_pieces ? run_in_segments(job, options, made_of) : run(made_of(job), options);
    } catch (const StoppedByOthers&) {
        throw;
    } catch (const Error& error) {
        throw with_resume_help(error, options.checkpoints ? options.checkpoints->root() : "");
    }
}

// Shows the progress of the run until it has finished, and reports disturbances.
RunResult execute(const Job& job, RunOptions options, StepLog& log, bool reference) {
    if (const std::string note = note_on_data(job.setup); !note.empty())
        print_note(note);
    ProgressLine line;
    options.progress =
        [&, show = progress_for({[&](const std::string& state) { line.show(state); }})](const Progress& progress) {
            log.add(progress);
            show(progress);
        };
    options.finished = [&line, then = options.finished](const RunResult& result) {
        line.hide();
        then(result);
    };
    RunResult result;
    as_this_rank(job, [&] { result = run_job(job, options, reference); });
    print_notes(result.notes);
    print_warnings(result.warnings);
    if (is_first_rank())
        print_notes(notes_on_idle_keys(job));
    return result;
}

// Prints what the run would do, by the costs that a prediction takes. Nothing is written.
void print_dry_run(const RunArguments& arguments, const Job& job, const std::optional<FoundCheckpoint>& found) {
    if (!is_first_rank())
        return;
    check_runnable(job);
    const Report report = predicted_report(arguments.reference ? oracle_of(job) : job, false);
    if (arguments.json)
        return print_json(to_json(report));
    const int done = found ? found->checkpoint.step : 0;
    print_result("{}{}\n\n{}\n{}\nsteps {} to {} would run; nothing was run or written\n", summary_of(job),
                 arguments.reference ? ", one task at a time" : "", to_text(report), proof_text(job), done + 1,
                 done + job.setup.training.steps);
    print_notes(notes_on_idle_keys(job));
    print_notes(notes_on_costs(job));
}

void run_config(const RunArguments& arguments) {
    if (arguments.reference && launched_ranks().rank > 0)  // the reference is one device, on rank 0
        return;
    std::optional<FoundCheckpoint> found = resumed(arguments);
    const Job job = load_job(arguments, found);
    // The reference runs on one device outside the cluster's limits. The run itself checks memory by the backend's own
    // sizes.
    if (!arguments.reference && has_precision(job.setup, job.profile))
        refuse_over_memory(job);
    print_details(origins_of_costs(job));
    if (arguments.dry)
        return print_dry_run(arguments, job, found);
    Outputs outputs;
    const int done = found ? found->checkpoint.step : 0;
    const std::int64_t samples_before = found ? found->checkpoint.samples : 0;
    RunOptions options = options_of(arguments, done + job.setup.training.steps);
    if (found) {
        print_note(fmt::format("resumed from {}, after step {}", found->folder, done));
        options.resumed = std::make_shared<const FoundCheckpoint>(std::move(*found));
    }
    StepLog log(launched_ranks().rank > 0 ? "" : arguments.log, job.setup.pipeline.mini_batch,
                options.resumed ? std::optional(done) : std::nullopt);
    RunResult end;
    options.finished = [&](const RunResult& result) {
        outputs.attempt([&] { print_run(arguments, job, result); });
        outputs.attempt([&] {
            if (!arguments.trace.empty())
                write_trace(result.trace, arguments.trace);
        });
        outputs.attempt([&] {
            if (!arguments.losses.empty())
                plot_curves({{job.setup.pipeline.schedule, result.losses,
                              samples_after(job, result.losses.size(), samples_before)}},
                            "samples", "loss", arguments.losses, arguments.view);
        });
    };
    outputs.attempt([&] { end = execute(job, options, log, arguments.reference); });
    outputs.done();
    check_end(end, arguments.checkpoints);
}

}  // namespace

std::string resume_help(const std::string& checkpoints) {
    const std::vector<std::string> there = checkpoints.empty() ? std::vector<std::string>() : steps_in(checkpoints);
    const bool resumable =
        std::ranges::any_of(there, [](const std::string& entry) { return training_in(entry).has_value(); });
    return resumable ? fmt::format("\n  help: continue with --resume {}", checkpoints) : "";
}

// A run that resumes may write its checkpoints to the folder that it resumes from.
void check_targets(const RunArguments& arguments, const Config& config) {
    using enum Output::Kind;
    std::vector<std::string> inputs = inputs_of(arguments.config, config);
    if (!arguments.resume.empty() && place_of(arguments.resume) != place_of(arguments.checkpoints))
        inputs.push_back(arguments.resume);
    check_outputs({{"--trace", arguments.trace},
                   {"--log", arguments.log},
                   {"--losses", arguments.losses, Picture},
                   {"--dump", arguments.dump, Folder},
                   {"--save", arguments.save, Folder},
                   {"--checkpoint", arguments.checkpoints, Folder}},
                  inputs);
}

Config RunArguments::load() const {
    ConfigArguments effective = config;
    if (steps > 0)
        effective.set.push_back(fmt::format("training.steps={}", steps));
    return effective.load();
}

void add_run_options(CLI::App& command, RunArguments& arguments) {
    add_config(command, arguments.config);
    command.add_option("--trace", arguments.trace, "write the measured trace")->type_name("FILE");
    command.add_option("--steps", arguments.steps, "run N steps instead of training.steps")
        ->type_name("N")
        ->check(whole_number(1, 1'000'000'000));
    command
        .add_option("--checkpoint", arguments.checkpoints,
                    "write checkpoints to DIR: at the end of the run, including an end by Ctrl-C")
        ->type_name("DIR");
    command
        .add_option("--checkpoint-every", arguments.checkpoint_every,
                    "with --checkpoint: also write one after every N steps")
        ->type_name("N")
        ->check(whole_number(1, 1'000'000'000));
    command.add_option("--keep", arguments.keep, "keep the latest K checkpoints; default 2")
        ->type_name("K")
        ->check(whole_number(1, 1'000'000'000));
    command
        .add_option("--resume", arguments.resume,
                    "continue from a checkpoint, or from the latest complete one in a folder")
        ->type_name("DIR");
    command.add_flag("--reference", arguments.reference,
                     "run the same micro-batches and sums on one device, unpipelined");
    command.add_option("--dump", arguments.dump, "write the first mini-batch, its gradients and weights as .npy")
        ->type_name("DIR");
    command.add_option("--log", arguments.log, "write a line of JSON for every step as it ends")->type_name("FILE");
    command.add_option("--save", arguments.save, "write all parameters after the run as .npy, for training.initial")
        ->type_name("DIR");
    CLI::Option* const picture =
        command.add_option("--losses", arguments.losses, "draw the loss of every update: " + plot_formats())
            ->type_name("FILE");
    add_picture_options(command, picture, arguments.view, false);
    command.add_flag("--json", arguments.json, "print one JSON object");
    command.add_flag("--dry-run", arguments.dry, "print plan, memory and proof; run and write nothing");
}

Action add_run(CLI::App& command) {
    auto arguments = std::make_shared<RunArguments>();
    add_run_options(command, *arguments);
    command.add_flag(kSayStarted, arguments->say_started)->group("");  // not in the help
    return [arguments] {
        if (arguments->say_started && launched_ranks().rank <= 0) {
            print_result("{}\n", kStartedLine);
            finish_results();
        }
        run_config(*arguments);
    };
}

}  // namespace pw
