// A comparison made anew: a job simulated and run, in turns with probes or not.
#include "exec/all_ranks.h"
#include "exec/measuring/probes.h"
#include "exec/measuring/turns.h"
#include "job/launched_ranks.h"
#include "report/comparison.h"
#include "report/error_of_rank.h"
#include "report/notes.h"
#include "report/predict.h"
#include "report/run_report.h"
#include "workloads/median.h"

#include <fmt/format.h>

#include <cmath>
#include <utility>

namespace pw {

namespace {

// Returns the run with the median step time. An asynchronous plan has a run per turn.
RunResult median_run(std::vector<RunResult> runs) {
    std::vector<std::pair<Ns, std::size_t>> times;
    for (std::size_t k = 0; k < runs.size(); ++k)
        times.emplace_back(metrics_of(runs[k].trace).step_time, k);
    return std::move(runs[lower_median(times).second]);
}

// Returns the time of an asynchronous job, which runs in one of `every` turns, or of all steps of another job.
Ns predicted_time(const Job& job, int turns, int every) {
    int runs = steps_of(job);
    if (job.plan.asynchronous) {
        runs = 0;
        for (int turn = 0; turn < turns; ++turn)
            runs += runs_in_turn(turn, turns, every) ? 1 : 0;
    }
    return predict_numbers(job).metrics.makespan * runs;
}

void keep_remarks(const RunResult& result, Comparison& comparison) {
    comparison.notes.insert(comparison.notes.end(), result.notes.begin(), result.notes.end());
    comparison.warnings = result.warnings;
}

void run_with_probes(const Job& job, int turns, const Hooks& hooks, Comparison& comparison) {
    RunOptions options;
    options.progress = progress_for(hooks);
    options.should_stop = hooks.should_stop;
    InterleavedRun run;
    as_this_rank(job, [&] { run = run_interleaved(job, turns, options); });
    keep_remarks(run.runs.front(), comparison);
    if (!is_first_rank())
        return;
    comparison.calibrated = Calibrated{std::move(run.calibration), {}, run.turns, std::move(run.reference_work)};
    Job calibrated = job;
    calibrated.costs = comparison.calibrated->calibration.costs;
    comparison.calibrated->predicted = predicted_report(calibrated);
    comparison.predicted = job.setup.cluster.profile.empty() ? comparison.calibrated->predicted : predicted_report(job);
    comparison.result = median_run(std::move(run.runs));
    comparison.result->resident_growth.reset();  // it would include the growth by the probes
}

void run_alone(const Job& job, const Hooks& hooks, Comparison& comparison) {
    RunOptions options;
    options.progress = progress_for(hooks);
    options.should_stop = hooks.should_stop;
    as_this_rank(job, [&] { comparison.result = run(job, options); });
    keep_remarks(*comparison.result, comparison);
    if (is_first_rank())
        comparison.predicted = predicted_report(job);
}

// The costs of a stored profile were measured at another time.
void advise(const Job& job, int turns, Comparison& comparison) {
    constexpr double kUsual = 0.05;
    const bool differs = !comparison.warnings.empty() || std::abs(comparison.errors.step_time) > kUsual;
    if (job.setup.cluster.profile.empty() || turns > 0 || !can_interleave(job) || !differs)
        return;
    comparison.advice = fmt::format(
        "the costs of cluster.profile are of another time: leave cluster.profile out, or add --interleave {}, and "
        "costs are measured during the run",
        kTurns);
    if (!comparison.warnings.empty())
        comparison.warnings.insert(comparison.warnings.begin(), comparison.advice);
}

}  // namespace

int turns_for(const Job& job, std::optional<int> asked) {
    if (asked.value_or(0) > 0 && job.plan.shape.slices > 1)
        job.setup.fail_at("pipeline.slices",
                          "a plan of slices does not take turns with probes, which have whole micro-batches",
                          "leave --interleave out, or write slices: 1");
    if (asked.value_or(0) > 0 && !can_interleave(job))
        job.setup.fail_at(
            "run.backend",
            fmt::format("a run of backend {} does not take turns with probes", name_of(job.setup.run.backend)),
            "leave --interleave out, or run with run.backend: cpu");
    if (asked || !can_interleave(job) || !job.setup.cluster.profile.empty())
        return asked.value_or(0);
    return affordable_turns(job, kTurns);
}

std::string note_on_turns(const Job& job, int turns) {
    if (turns == 0)
        return {};
    const Probes probes = probes_of(job, turns);
    const Ns run = predicted_time(job, turns, kTurnsOfARun),
             probing = predicted_time(probes.near, turns, 1) + predicted_time(probes.alone, turns, 1);
    return fmt::format("{}: {} steps ({}) in {} turns with probes that calibrate the prediction ({})",
                       job.setup.pipeline.schedule, job.setup.training.steps, print_time(run), turns,
                       print_time(probing));
}

Comparison compare_run(const Job& job, int turns, const Hooks& hooks) {
    wait_for_first_rank(job.setup);
    Comparison comparison;
    if (std::string note = note_on_data(job.setup); !note.empty())
        comparison.notes.push_back(std::move(note));
    if (turns > 0)
        run_with_probes(job, turns, hooks, comparison);
    else
        run_alone(job, hooks, comparison);
    if (!is_first_rank())
        return comparison;
    const Notices idle = notes_on_idle_keys(job);
    comparison.notes.insert(comparison.notes.end(), idle.begin(), idle.end());
    comparison.measured = report_of(comparison.result->trace, job.setup.cluster.devices);
    comparison.errors = errors_of(comparison.predicted, comparison.measured, comparison.result);
    const Trace* calibrated =
        comparison.calibrated && !job.setup.cluster.profile.empty() ? &comparison.calibrated->predicted.trace : nullptr;
    comparison.parts = error_parts_of_run(job, comparison.predicted.trace, calibrated, comparison.measured.trace);
    advise(job, turns, comparison);
    return comparison;
}

}  // namespace pw
