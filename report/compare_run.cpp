// Both sides of a comparison made anew: a job simulated and run, in turns with probes or not.
#include "report/comparison.h"
#include "cli/execution.h"
#include "report/table.h"
#include "exec/all_ranks.h"
#include "exec/measuring/probes.h"
#include "exec/measuring/turns.h"
#include "job/launched_ranks.h"
#include "report/predict.h"
#include "workloads/median.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <utility>

namespace pw {

namespace {

double relative_error(Ns predicted, Ns measured) {
    return measured > 0 ? static_cast<double>(predicted - measured) / static_cast<double>(measured) : 0;
}

// Of the runs of an asynchronous plan, one per turn, that of the median step time.
RunResult median_run(std::vector<RunResult> runs, const Config& config) {
    std::vector<std::pair<Ns, std::size_t>> times;
    for (std::size_t k = 0; k < runs.size(); ++k)
        times.emplace_back(report_of(runs[k], config).metrics.step_time, k);
    return std::move(runs[lower_median(times).second]);
}

// Of an asynchronous job, which runs in one of `every` turns, or of all steps of another one.
Ns predicted_time(const Job& job, int turns, int every) {
    int runs = steps_of(job);
    if (job.plan.asynchronous) {
        runs = 0;
        for (int turn = 0; turn < turns; ++turn)
            runs += runs_in_turn(turn, turns, every) ? 1 : 0;
    }
    return predict_numbers(job).metrics.makespan * runs;
}

// Says what is about to run and how long that is predicted to take.
void announce(const Job& job, int turns) {
    if (!is_first_rank())
        return;
    const Probes probes = probes_of(job, turns);
    const Ns run = predicted_time(job, turns, kTurnsOfARun),
             probing = predicted_time(probes.near, turns, 1) + predicted_time(probes.alone, turns, 1);
    print_note(fmt::format("{}: {} steps ({}) in {} turns with probes that calibrate the prediction ({})",
                           job.config.pipeline.schedule, job.config.training.steps, print_time(run), turns,
                           print_time(probing)));
}

Sides in_turns(const Job& job, int turns) {
    announce(job, turns);
    InterleavedRun run = interleave(job, turns);
    Sides sides;
    if (!is_first_rank())
        return sides;
    sides.calibrated = Calibrated{std::move(run.calibration), {}, run.turns, std::move(run.yardstick)};
    Job calibrated = job;
    calibrated.costs = sides.calibrated->calibration.costs;
    sides.calibrated->predicted = report_of(predict(calibrated), job.config);
    sides.predicted =
        job.config.cluster.profile.empty() ? sides.calibrated->predicted : report_of(predict(job), job.config);
    sides.result = median_run(std::move(run.runs), job.config);
    sides.result->resident_growth.reset();  // it would be that of the probes, too
    return sides;
}

Sides beside_run(const Job& job) {
    RunResult result = execute(job, {});
    return is_first_rank() ? Sides{report_of(predict(job), job.config), {}, std::move(result)} : Sides{};
}

}  // namespace

double Sides::drift() const {
    return calibrated ? relative_error(predicted.metrics.step_time, measured.metrics.step_time) -
                            relative_error(calibrated->predicted.metrics.step_time, measured.metrics.step_time)
                      : 0;
}

int turns_for(const Job& job, std::optional<int> asked) {
    if (asked.value_or(0) > 0 && !can_interleave(job))
        job.config.fail_at(
            "run.backend",
            fmt::format("a run of backend {} does not take turns with probes", name_of(job.config.run.backend)),
            "leave --interleave out, or run with run.backend: cpu");
    if (asked || !can_interleave(job) || !job.config.cluster.profile.empty())
        return asked.value_or(0);
    return affordable_turns(job, kTurns);
}

Sides both_sides(const Job& job, int turns) {
    wait_for_first_rank(job.config);
    Sides sides = turns > 0 ? in_turns(job, turns) : beside_run(job);
    if (!is_first_rank())
        return sides;
    sides.measured = report_of(*sides.result, job.config);
    const Trace* calibrated =
        sides.calibrated && !job.config.cluster.profile.empty() ? &sides.calibrated->predicted.trace : nullptr;
    sides.parts = error_parts(job, sides.predicted.trace, calibrated, sides.measured.trace);
    return sides;
}

void add_calibrated(const Sides& sides, Json& json) {
    if (!sides.calibrated)
        return;
    const Calibrated& calibrated = *sides.calibrated;
    const Costs& costs = calibrated.calibration.costs;
    const Ns time = calibrated.predicted.metrics.step_time;
    Json tasks = Json::array();
    for (const TaskTimes& one : calibrated.calibration.tasks)
        tasks.push_back({{"op", letters_of(one.op)},
                         {"stage", one.stage},
                         {"samples", one.samples},
                         {"mean_ns", one.mean},
                         {"deviation_ns", one.deviation},
                         {"autocorrelation", one.autocorrelation}});
    json["calibrated"] = {{"step_time_ns", time},
                          {"step_time_error", relative_error(time, sides.measured.metrics.step_time)},
                          {"dispatch_ns", costs.dispatch},
                          {"link_latency_ns", costs.link.latency},
                          {"tasks", std::move(tasks)}};
    json["drift"] = sides.drift();
    json["slices"] = calibrated.turns;
    json["reference"] = {{"median_ns", calibrated.yardstick.median()}, {"spread_ns", calibrated.yardstick.spread()}};
}

std::string print_calibrated(const Sides& sides) {
    if (!sides.calibrated)
        return {};
    const Ns measured = sides.measured.metrics.step_time, time = sides.calibrated->predicted.metrics.step_time;
    const Yardstick& yardstick = sides.calibrated->yardstick;
    const std::string drift = sides.parts && sides.parts->drift
                                  ? fmt::format("   drift since the profile {}", print_signed_percent(sides.drift()))
                                  : "";
    return fmt::format("\ncalibrated beside the run, in {} turns: step {} ({}){}\nreference work {}, spread {}\n",
                       sides.calibrated->turns, print_time(time), print_signed_percent(relative_error(time, measured)),
                       drift, print_time(yardstick.median()), print_time(yardstick.spread()));
}

}  // namespace pw
