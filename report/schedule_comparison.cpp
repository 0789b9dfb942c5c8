#include "report/schedule_comparison.h"

#include "exec/all_ranks.h"
#include "job/launched_ranks.h"
#include "report/measure.h"
#include "report/notes.h"
#include "report/run_report.h"
#include "schedules/orders/schedule.h"
#include "workloads/costs/micro_batch_sizes.h"
#include "workloads/text/printable.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <numeric>
#include <utility>

namespace pw {

namespace {

std::vector<std::string> row_of_run(const ScheduleRun& run) {
    const Report &of_prediction = run.comparison.predicted, &of_run = run.comparison.measured;
    const Metrics &predicted = of_prediction.metrics, &measured = of_run.metrics;
    return {run.schedule,
            print_time(predicted.step_time),
            print_time(measured.step_time),
            print_signed_percent(run.comparison.errors.step_time),
            print_rate(predicted.samples_per_second, false),
            print_rate(measured.samples_per_second, false),
            print_percent(predicted.bubble_rate),
            print_percent(measured.bubble_rate),
            print_bytes(largest_peak(of_prediction)),
            print_bytes(largest_peak(of_run)),
            print_signed_percent(run.comparison.errors.peak_memory)};
}

std::string title_of_schedules(const Job& job, const Comparison& comparison) {
    return fmt::format("{}, {}, {} backend, {}", job.setup.workload.model, print(sizes_of(job.setup.pipeline)),
                       name_of(job.setup.run.backend), comparison.measured.trace.machine);
}

Config config_with_schedule(const ConfigSource& source, const std::string& schedule) {
    return source.load_with({"pipeline.schedule=" + schedule});
}

// Plots losses over the training samples. A schedule that updates more often, after fewer samples, has the mean of its
// losses over a mini-batch of the config: the same samples as all other schedules.
Curve curve_of(const std::string& schedule, const std::vector<double>& losses, const Job& job) {
    const auto steps = static_cast<std::size_t>(job.setup.training.steps);
    const std::size_t each = std::max<std::size_t>(1, losses.size() / steps);
    const std::vector<double> samples = samples_after(job, losses.size());
    Curve curve{each > 1 ? fmt::format("{} (mean of {} updates)", schedule, each) : schedule, {}};
    for (std::size_t first = 0; first + each <= losses.size(); first += each) {
        curve.values.push_back(std::accumulate(losses.begin() + static_cast<std::ptrdiff_t>(first),
                                               losses.begin() + static_cast<std::ptrdiff_t>(first + each), 0.0) /
                               static_cast<double>(each));
        curve.x.push_back(samples[first + each - 1]);
    }
    return curve;
}

void add_curve(std::vector<Curve>& curves, Curve added) {
    for (Curve& curve : curves)
        if (curve.values == added.values && curve.x == added.x) {
            curve.title += ", " + added.title;
            return;
        }
    curves.push_back(std::move(added));
}

// Leaves out the schedules that do not suit the config, before the first run. Returns the rest.
std::vector<std::string> suitable_schedules(const ConfigSource& source, const std::vector<std::string>& schedules,
                                            std::vector<ScheduleLeftOut>& left_out) {
    std::vector<std::string> suitable;
    for (const std::string& schedule : schedules) {
        if (!schedule.ends_with(".csv"))
            (void)schedule_named(schedule);
        try {
            Config config = config_with_schedule(source, schedule);
            take_hosts_of_ranks(config);
            if (!is_emulated(config))
                require_layers(config, "run");
            Notices reported_by_the_run;
            (void)make_job(std::move(config), reported_by_the_run);
            suitable.push_back(schedule);
        } catch (const Error& error) {
            left_out.push_back({schedule, error});
        }
    }
    if (suitable.empty() && !left_out.empty())
        throw left_out.front().error;
    return suitable;
}

MeasuredJob job_with_schedule(const ConfigSource& source, const std::string& schedule,
                              const std::optional<Profile>& profile, const ScheduleHooks& hooks) {
    Config config = config_with_schedule(source, schedule);
    if (!profile) {
        if (needs_profile(config) && hooks.measures)
            hooks.measures();
        return measured_job(std::move(config), hooks);
    }
    MeasuredJob made;
    made.job = make_job(std::move(config), *profile, made.notes);
    return made;
}

}  // namespace

ScheduleComparison compare_schedules(const ConfigSource& source, const std::vector<std::string>& schedules,
                                     const ScheduleHooks& hooks) {
    ScheduleComparison all;
    std::optional<Profile> profile;
    bool has_run = false;
    for (const std::string& schedule : suitable_schedules(source, schedules, all.left_out)) {
        if (hooks.stops())
            break;
        const MeasuredJob made = job_with_schedule(source, schedule, profile, hooks);
        const Job& job = made.job;
        if (job.source == CostSource::Measured && !profile)
            profile = job.profile;
        try {
            refuse_over_memory(job);
        } catch (const Error& error) {
            all.left_out.push_back({schedule, error});
            continue;
        }
        const int turns = turns_for(job, hooks.turns);
        if (hooks.begins)
            hooks.begins(job, turns, made.notes, made.warnings);
        Comparison comparison = compare_run(job, turns, hooks);
        has_run = true;
        if (!is_first_rank())
            continue;
        if (all.runs.empty())
            all.title = title_of_schedules(job, comparison);
        if (!is_emulated(job.setup))  // which learns nothing
            add_curve(all.losses, curve_of(schedule, comparison.result->losses, job));
        all.runs.push_back({schedule, std::move(comparison)});
        if (hooks.ended)
            hooks.ended(all);
    }
    if (!has_run && !all.left_out.empty() && !hooks.stops())
        throw all.left_out.front().error;
    return all;
}

Json to_json(const ScheduleComparison& comparison) {
    Json points = Json::array();
    for (const ScheduleRun& run : comparison.runs) {
        points.push_back(to_json(run.comparison));
        points.back()["name"] = run.schedule;
    }
    Json json = {{"schema_version", 1}, {"points", std::move(points)}};
    for (const auto& [schedule, error] : comparison.left_out)
        json["left_out"].push_back({{"schedule", schedule}, {"error", first_line(error)}});
    return json;
}

Table table_of(const ScheduleComparison& comparison) {
    Table table({"schedule", "predicted step", "measured", "error", "predicted samples/s", "measured",
                 "predicted bubble", "measured", "predicted peak", "measured", "error"});
    for (const ScheduleRun& run : comparison.runs)
        table.add(row_of_run(run));
    return table;
}

std::string left_out_text(const ScheduleComparison& comparison) {
    std::string text;
    for (const auto& [schedule, error] : comparison.left_out)
        text += fmt::format("{} left out: {}\n", schedule, escaped_line(first_line(error)));
    return text;
}

std::string to_text(const ScheduleComparison& comparison) {
    return fmt::format("{}\n{}{}", comparison.title, table_of(comparison).print(), left_out_text(comparison));
}

}  // namespace pw
