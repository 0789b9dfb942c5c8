#include "python/calls.h"

#include "exec/execute.h"
#include "job/idle_keys.h"
#include "job/settings.h"
#include "report/comparison.h"
#include "report/measure.h"
#include "report/notes.h"
#include "report/panels.h"
#include "report/partition_search.h"
#include "report/plan_search.h"
#include "report/run_report.h"
#include "report/sweep.h"
#include "schedules/csv/csv.h"
#include "schedules/import/trace_folder.h"
#include "schedules/trace/trace_json.h"
#include "search/plan_choice.h"
#include "viz/plot.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

namespace pw {

namespace {

void add(Notices& notes, const Notices& more) { notes.insert(notes.end(), more.begin(), more.end()); }

int threads_or_cores(int threads) {
    return threads > 0 ? threads : std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

Config load_single(const ConfigSource& source, const char* call) {
    Config config = source.load_with({});
    if (!config.sweep.empty())
        config.fail_at("sweep", fmt::format("{}() is about one plan, but 'sweep' has several", call),
                       "call sweep(), or override the key 'sweep' with None");
    return config;
}

Job job_of(Config config, Notices& notes) { return make_job(std::move(config), notes); }

void add_report(Outcome& outcome, Report report) {
    auto shared = std::make_shared<const Report>(std::move(report));
    outcome.reports.push_back(shared);
    outcome.text = [shared](std::size_t) { return to_text(*shared); };
}

// A schedule of the caller is searched in addition to the schedules that the config names.
void search_own_schedule(Config& config) {
    if (!config.pipeline.own_schedule)
        return;
    std::vector<std::string>& names = config.search.schedules;
    names = searched_schedules(config);
    if (const std::string own(config.pipeline.own_schedule->name); std::ranges::find(names, own) == names.end())
        names.push_back(own);
}

Outcome searched_plan(const Config& config, const SearchEffort& effort, const Hooks& hooks) {
    PlanLimits limits;
    limits.seconds = effort.seconds.value_or(limits.seconds);
    limits.threads = threads_or_cores(effort.threads);
    const auto found = std::make_shared<const PlanSearch>(search_best_plan(config, limits, hooks));
    Outcome outcome = outcome_of(found, found->result.notes);
    if (ended_without_a_plan(*found))
        fail_with(ExitCode::RunFailed,
                  "the search ended before any plan was tried\n  help: give it more time (time_limit), or search fewer "
                  "micro-batches (larger search.micro_batch_sizes) or a model with fewer layers");
    require_plan(*found);
    outcome.text = [found](std::size_t most) { return to_text(*found, most); };
    outcome.config = [found](const std::string& file) { return best_config_yaml(*found, file); };
    outcome.chart = [found](const SweepView&) { return chart_of(*found); };
    add(outcome.notes, notes_on_costs(*found->best, config.search.micro_batch_sizes));
    return outcome;
}

Outcome searched_partition(const Config& config, const SearchEffort& effort, const Hooks& hooks) {
    SearchLimits limits;
    limits.seconds = effort.seconds.value_or(limits.seconds);
    limits.should_stop = hooks.should_stop;
    auto found = std::make_shared<const PartitionSearch>(search_partition(config, limits));
    require_stages(*found);
    Outcome outcome = outcome_of(found, {});
    outcome.text = [found](std::size_t) { return to_text(*found); };
    outcome.chart = [found](const SweepView&) { return chart_of(*found); };
    return outcome;
}

Outcome outcome_of_comparison(Comparison comparison, Notices notes) {
    auto shared = std::make_shared<const Comparison>(std::move(comparison));
    add(notes, shared->notes);
    add(notes, shared->warnings);
    Outcome outcome = outcome_of(shared, std::move(notes));
    outcome.text = [shared](std::size_t) {
        return fmt::format("{}{}{}", to_text(*shared),
                           shared->parts ? fmt::format("\n{}\n{}", to_text(*shared->parts), why(*shared->parts)) : "",
                           calibration_text(*shared));
    };
    outcome.plot = [shared](const std::string& file, const View& view) { plot_comparison(*shared, file, view); };
    outcome.reports = {{shared, &shared->predicted}, {shared, &shared->measured}};
    return outcome;
}

}  // namespace

Outcome simulated(const ConfigSource& source, bool with_events) {
    Outcome outcome;
    const Job job = job_of(load_single(source, "simulate"), outcome.notes);
    Report report = predicted_report(job, with_events);
    outcome.json = [json = to_json(report, job)] { return json; };
    add_report(outcome, std::move(report));
    add(outcome.notes, notes_on_idle_keys(job));
    add(outcome.notes, notes_on_costs(job));
    if (std::string note = note_on_host_memory(job); !note.empty())
        outcome.notes.push_back(std::move(note));
    return outcome;
}

std::vector<std::variant<Outcome, Error>> all_simulated(const std::vector<ConfigSource>& sources, int threads,
                                                        const Hooks& hooks) {
    const Error stopped(ExitCode::RunFailed, "stopped before this config was simulated");
    std::vector<std::variant<Outcome, Error>> outcomes(sources.size(), stopped);
    std::atomic<std::size_t> next = 0, done = 0;
    std::exception_ptr failure;
    std::mutex mutex;
    const auto work = [&] {
        for (std::size_t i = next++; i < sources.size() && !hooks.stops(); i = next++) {
            try {
                outcomes[i] = simulated(sources[i], false);
            } catch (const Error& error) {
                outcomes[i] = error;
            } catch (...) {
                const std::scoped_lock lock(mutex);
                failure = std::current_exception();
            }
            hooks.show(fmt::format("config {} of {}", ++done, sources.size()));
        }
    };
    {
        std::vector<std::jthread> others;
        const auto most = static_cast<int>(std::min<std::size_t>(sources.size(), 1024));
        for (int i = 1; i < std::min(threads_or_cores(threads), most); ++i)
            others.emplace_back(work);
        work();
    }
    if (failure)
        std::rethrow_exception(failure);
    return outcomes;
}

Outcome swept(const ConfigSource& source, std::vector<SweepAxis> axes, const Hooks& hooks) {
    if (axes.empty()) {
        const Config config = source.load_with({});
        axes = config.sweep;
        if (axes.empty())
            config.fail_at("sweep", "the config has no block 'sweep', and no axes are given",
                           "give keys and their values: sweep(config, {\"pipeline.micro_batches\": [4, 8]})");
    }
    auto sweep = std::make_shared<const Sweep>(simulate_sweep(source, axes, hooks));
    Outcome outcome = outcome_of(sweep, sweep->notes);
    outcome.text = [sweep](std::size_t) { return to_text(*sweep); };
    outcome.chart = [sweep](const SweepView& axes) {
        Notices missing;
        check_drawable(sweep->axes, axes);
        return chart_of(*sweep, missing, axes);
    };
    for (const SweepPoint& point : sweep->points) {
        outcome.reports.emplace_back(sweep, point.report ? &*point.report : nullptr);
        outcome.errors.push_back(point.error);
    }
    return outcome;
}

Outcome answered(const ConfigSource& source, const Questions& questions, const Hooks& hooks) {
    Notices notes;
    const Job job = job_of(load_single(source, "this"), notes);
    const Report report = predicted_report(job, false);
    auto answers = std::make_shared<const Answers>(answers_to(questions, source, job, report, hooks));
    Outcome outcome = outcome_of(answers, std::move(notes));
    outcome.text = [answers](std::size_t) { return answers->slack.empty() ? to_text(*answers) : answers->slack; };
    return outcome;
}

Outcome searched(const ConfigSource& source, const SearchEffort& effort, const Hooks& hooks) {
    Config config = source.load_with({});
    return at_its_place(config, [&] {
        search_own_schedule(config);
        const bool for_makespan = config.search.objective == SearchConfig::Objective::Makespan;
        Outcome outcome = searches_cluster(config) || for_makespan ? searched_plan(config, effort, hooks)
                                                                   : searched_partition(config, effort, hooks);
        for (const IdleKey& key : idle_keys_of_search(config))
            outcome.notes.push_back(print(key));
        return outcome;
    });
}

Outcome executed(const ConfigSource& source, const Hooks& hooks) {
    Outcome outcome;
    Config config = load_single(source, "run");
    if (!is_emulated(config))
        require_layers(config, "run");
    const Job job = job_of(std::move(config), outcome.notes);
    if (has_precision(job.setup, job.profile))
        refuse_over_memory(job);
    if (std::string note = note_on_data(job.setup); !note.empty())
        outcome.notes.push_back(std::move(note));
    RunOptions options;
    options.should_stop = hooks.should_stop;
    options.progress = progress_for(hooks);
    RunResult result = run(job, options);
    add(outcome.notes, result.notes);
    add(outcome.notes, result.warnings);
    add(outcome.notes, notes_on_idle_keys(job));
    Report report = report_of(std::move(result.trace), job.setup.cluster.devices);
    result.trace = report.trace;
    outcome.json = [json = to_json(result, report)] { return json; };
    add_report(outcome, std::move(report));
    return outcome;
}

Outcome compared(const ConfigSource& source, std::optional<int> turns, const Hooks& hooks) {
    Config config = load_single(source, "compare");
    if (!is_emulated(config))
        require_layers(config, "run");
    MeasuredJob made = measured_job(std::move(config), hooks);
    Notices notes = std::move(made.notes);
    add(notes, made.warnings);
    refuse_over_memory(made.job);
    return outcome_of_comparison(compare_run(made.job, turns_for(made.job, turns), hooks), std::move(notes));
}

Outcome compared(const Report& predicted, const Report& measured) {
    return outcome_of_comparison(compare_traces(predicted, measured), {});
}

Outcome imported(const std::vector<std::string>& files, const std::vector<std::string>& tasks) {
    if (files.empty())
        fail("no file is given\n  help: name a trace, or one file for each of its ranks");
    Outcome outcome;
    Report report = read_report(with_files_of_folders(files, outcome.notes), outcome.notes, tasks);
    outcome.json = [json = to_json(report)] { return json; };
    add_report(outcome, std::move(report));
    return outcome;
}

Outcome replayed_with(const Report& measured, bool explained) {
    auto replay = std::make_shared<const ReplayedTrace>(replayed(measured, explained));
    Outcome outcome = outcome_of(replay, {});
    outcome.text = [replay](std::size_t) { return to_text(*replay); };
    return outcome;
}

std::vector<std::vector<std::string>> tasks_of(const ConfigSource& source) {
    Notices notes;
    const Job job = job_of(load_single(source, "simulate"), notes);
    std::vector<std::vector<std::string>> names(job.plan.order.size());
    for (std::size_t device = 0; device < names.size(); ++device)
        for (const Task& task : job.plan.order[device])
            names[device].push_back(print(task));
    return names;
}

std::string csv_of(const ConfigSource& source) {
    Notices notes;
    const Job job = job_of(load_single(source, "simulate"), notes);
    return at_its_place(job.setup, [&] { return print_csv(job.plan, false); });
}

std::string complete_text(const ConfigSource& source) { return print_config(source.load_with({})); }

std::string summary_of(const ConfigSource& source) {
    const Config config = source.load_with({});
    return fmt::format("{}, {}", config.workload.model, config.pipeline.schedule);
}

std::shared_ptr<const Report> read_own_report(const std::string& file, const std::vector<std::string>& names,
                                              const std::vector<Bytes>& limits) {
    std::vector<DeviceConfig> devices(names.size());
    for (std::size_t device = 0; device < names.size(); ++device) {
        devices[device].name = names[device];
        devices[device].memory = limits.at(device);
    }
    return std::make_shared<const Report>(report_of(read_trace(file), devices));
}

void plot_reports(const std::vector<std::shared_ptr<const Report>>& reports, const std::vector<std::string>& titles,
                  const std::string& file, const View& view) {
    check_plot_file(file);
    std::vector<Trace> drawn;
    drawn.reserve(reports.size());
    std::vector<Panel> panels;
    for (std::size_t i = 0; i < reports.size(); ++i) {
        const Report& report = *reports[i];
        check_timeline(file, report.trace.devices);
        drawn.push_back(drawn_part_of(report));
        panels.push_back(drawn_panel(report, drawn.back(), file));
        if (!titles[i].empty())
            panels.back().title = titles[i];
    }
    plot(panels, file, view);
}

}  // namespace pw
