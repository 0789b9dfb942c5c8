// compare --schedules: one config, one profile, several schedules, one table.
#include "cli/comparison.h"
#include "cli/execution.h"
#include "cli/streams.h"
#include "cli/table.h"
#include "exec/all_ranks.h"
#include "job/config/config.h"
#include "job/launched_ranks.h"
#include "schedules/trace/trace_json.h"
#include "viz/plot.h"
#include "workloads/costs/micro_batch_sizes.h"
#include "workloads/error.h"
#include "workloads/text/files.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <filesystem>
#include <numeric>

namespace pw {

namespace {

std::vector<std::string> row_of_sides(const std::string& schedule, const Sides& sides, const Comparison& comparison) {
    const Metrics &predicted = sides.predicted.metrics, &measured = sides.measured.metrics;
    return {schedule,
            print_time(predicted.step_time),
            print_time(measured.step_time),
            print_signed_percent(comparison.step_time_error),
            fmt::format("{:.4g}", predicted.samples_per_second),
            fmt::format("{:.4g}", measured.samples_per_second),
            print_percent(predicted.bubble_rate),
            print_percent(measured.bubble_rate),
            print_bytes(largest_peak(sides.predicted)),
            print_bytes(largest_peak(sides.measured)),
            print_signed_percent(comparison.peak_memory_error)};
}

constexpr std::size_t kLeastWidth = 10;  // of a column whose cells are not known yet

// Right away, also where the output goes to a file: a row may take minutes.
void show(const std::string& text) {
    print_result("{}", text);
    finish_results();
}

std::string title_of(const Job& job, const Sides& sides) {
    return fmt::format("{}, {}, {} backend, {}\n", job.config.workload.model, print(sizes_of(job.config.pipeline)),
                       name_of(job.config.run.backend), sides.measured.trace.machine);
}

Job job_with(const ConfigArguments& arguments, const std::string& schedule, const Profile* profile) {
    ConfigArguments own = arguments;
    own.set.push_back("pipeline.schedule=" + schedule);
    return profile == nullptr ? calibrated_job(own.load()) : job_of(own.load(), *profile);
}

// Over the samples learnt from. A schedule that updates more often, after fewer samples, has the mean of its losses
// over those of a mini-batch of the config: the same samples as the others.
Curve curve_of(const std::string& schedule, const std::vector<double>& losses, const Job& job) {
    const auto steps = static_cast<std::size_t>(job.config.training.steps);
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

// Schedules that sum in the same order have the same losses to the last bit: one curve for all of them.
void add_curve(std::vector<Curve>& curves, Curve added) {
    for (Curve& curve : curves)
        if (curve.values == added.values && curve.x == added.x) {
            curve.title += ", " + added.title;
            return;
        }
    curves.push_back(std::move(added));
}

// A mistake in the last name is found before the first run.
void check_names(const ConfigArguments& arguments, const std::vector<std::string>& schedules) {
    for (const std::string& schedule : schedules) {
        if (!schedule.ends_with(".csv"))
            (void)schedule_named(schedule);
        ConfigArguments own = arguments;
        own.set.push_back("pipeline.schedule=" + schedule);
        Config config = own.load();
        take_hosts_of_ranks(config);
        if (!is_emulated(config))
            require_layers(config, "run");
        Notices told_when_it_runs;
        (void)make_job(std::move(config), told_when_it_runs);
    }
}

// What is known so far: a later schedule that fails takes nothing along.
void write_points(const std::filesystem::path& root, const std::string& text, const Json& points) {
    write_file((root / "accuracy.json").string(), Json{{"schema_version", 1}, {"points", points}}.dump(1) + "\n");
    write_file((root / "table.txt").string(), text);
}

// Pages in place of pictures, and the traces, to be drawn where gnuplot is.
void draw(const Sides& sides, const std::filesystem::path& root, const std::string& schedule, bool pictures) {
    const std::string stem = (root / schedule).string();
    plot_sides(sides, stem + (pictures ? ".svg" : ".html"));
    if (pictures)
        return;
    write_trace(sides.predicted.trace, stem + ".predicted.json");
    write_trace(sides.measured.trace, stem + ".measured.json");
}

void compare_one_by_one(const ConfigArguments& arguments, const std::vector<std::string>& schedules,
                        const std::string& folder, std::optional<int> turns) {
    check_names(arguments, schedules);
    const std::filesystem::path root(folder);
    const bool kept = !folder.empty() && is_first_rank();
    check_target_folder(folder);
    if (kept)
        std::filesystem::create_directories(root);
    Table table({"schedule", "predicted step", "measured", "error", "predicted samples/s", "measured",
                 "predicted bubble", "measured", "predicted peak", "measured", "error"});
    Json points = Json::array();
    std::vector<Curve> losses;
    std::string title;
    std::optional<Profile> profile;
    bool emulated = false;
    const bool pictures = has_gnuplot();
    Outputs outputs;
    if (kept && !pictures)
        print_note(
            "gnuplot not found: pages (.html) instead of pictures, and the traces are kept; with gnuplot: "
            "pipewright compare S.predicted.json S.measured.json --plot S.svg");
    for (const std::string& schedule : schedules) {
        const Job job = job_with(arguments, schedule, profile ? &*profile : nullptr);
        refuse_over_memory(job);
        if (job.source == CostSource::Measured && !profile) {
            profile = job.profile;
            if (kept)
                outputs.attempt([&] { write_profile(*profile, (root / "profile.yaml").string()); });
        }
        print_note(summary_of(job));
        const Sides sides = both_sides(job, turns_for(job, turns));
        if (!is_first_rank())
            continue;
        const Comparison comparison = comparison_of(sides);
        if (points.empty()) {
            title = title_of(job, sides);
            outputs.attempt([&] { show(title + table.last_row(kLeastWidth)); });
        }
        table.add(row_of_sides(schedule, sides, comparison));
        outputs.attempt([&] { show(table.last_row(kLeastWidth)); });
        Json point = json_of(sides, comparison);
        point["name"] = schedule;
        points.push_back(std::move(point));
        if (kept)
            outputs.attempt([&] { draw(sides, root, schedule, pictures); });
        add_curve(losses, curve_of(schedule, sides.result->losses, job));
        emulated = is_emulated(job.config);
        if (kept)
            outputs.attempt([&] { write_points(root, title + table.print(), points); });
    }
    if (!is_first_rank())
        return;
    outputs.attempt([&] {
        if (kept && !emulated)  // which learns nothing
            plot_curves(losses, "samples", "loss", (root / (pictures ? "losses.svg" : "losses.html")).string());
    });
    outputs.done();
}

}  // namespace

void compare_schedules(const ConfigArguments& arguments, const std::vector<std::string>& schedules,
                       const std::string& folder, std::optional<int> turns) {
    ConfigArguments first = arguments;
    first.set.push_back("pipeline.schedule=" + schedules.front());
    with_all_ranks(first.load(), [&] { compare_one_by_one(arguments, schedules, folder, turns); });
}

}  // namespace pw
