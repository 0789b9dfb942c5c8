#include "report/comparison.h"

#include "exec/memory.h"
#include "report/notes.h"
#include "report/panels.h"
#include "report/run_report.h"
#include "report/table.h"
#include "schedules/trace/trace_plan.h"
#include "sim/simulate.h"
#include "viz/plot.h"
#include "workloads/error.h"
#include "workloads/median.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace pw {

namespace {

constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

double error_of(Ns predicted, Ns measured) {
    if (predicted == measured)
        return 0;
    return measured > 0 ? static_cast<double>(predicted - measured) / static_cast<double>(measured) : kUnknown;
}

// The memory of a run in addition to its arenas: code of libraries that it is the first to use, kernels made for its
// shapes, and its own lists. The median of results/memory-cpu.
constexpr Bytes kOutsideArenas = 9'000'000;

double median_error(const std::vector<double>& errors) { return errors.empty() ? kUnknown : mean_median(errors); }

// Durations of the tasks that the metrics are from. A task of a pair takes the time of the pair.
std::map<std::pair<int, Task>, Ns> durations_of(const Report& report) {
    std::map<std::pair<int, Task>, Ns> durations;
    const std::vector<TraceEvent>& events = report.trace.events;
    const std::vector<std::pair<Ns, Ns>> launches = launches_of(events);
    for (std::size_t number = 0; number < events.size(); ++number)
        if (const TraceEvent& event = events[number];
            !moves_data(event.task.op) && (report.trace.asynchronous || event.step == report.metrics.step))
            durations[{event.device, event.task}] = launches[number].second - launches[number].first;
    return durations;
}

void add_task_errors(PredictionErrors& known, const Report& predicted, const Report& measured) {
    const auto expected = durations_of(predicted);
    std::map<Op, std::vector<double>> by_op;
    std::vector<double> all;
    for (const auto& [key, duration] : durations_of(measured)) {
        const auto found = expected.find(key);
        if (found == expected.end() || duration <= 0)
            continue;
        const Op op = key.second.op;
        by_op[op].push_back(error_of(found->second, duration));
        if (is_compute(op))
            all.push_back(by_op[op].back());
    }
    known.task_time_median = median_error(all);
    for (auto& [op, errors] : by_op)
        known.task_time[op] = median_error(errors);
}

std::vector<double> memory_errors(const Report& predicted, const Report& measured) {
    std::vector<double> errors;
    const auto &expected = predicted.metrics.devices, &found = measured.metrics.devices;
    for (std::size_t device = 0; device < std::min(expected.size(), found.size()); ++device)
        errors.push_back(error_of(expected[device].peak_memory, found[device].peak_memory));
    return errors;
}

Bytes in_pages(Bytes arena) { return (arena + kHugePage - 1) / kHugePage * kHugePage; }

double largest(const std::vector<double>& errors) {
    double worst = kUnknown;
    for (const double error : errors)
        if (std::isnan(worst) || std::abs(error) > std::abs(worst))
            worst = error;
    return worst;
}

std::vector<double> gpu_memory_errors(const Report& predicted, const RunResult& result) {
    std::vector<double> errors;
    for (const GpuUse& gpu : result.gpus)
        errors.push_back(error_of(gpu_memory_of(predicted, gpu.devices), gpu.grown));
    return errors;
}

}  // namespace

Bytes resident_memory_of(const Report& predicted) {
    Bytes all = kOutsideArenas;
    for (const DeviceMetrics& device : predicted.metrics.devices)
        all += in_pages(device.needed_memory());
    return all;
}

Bytes gpu_memory_of(const Report& predicted, const std::vector<int>& devices) {
    Bytes all = 0;
    for (const int device : devices)
        all += in_pages(predicted.metrics.devices[static_cast<std::size_t>(device)].needed_memory());
    return all;
}

PredictionErrors errors_of(const Report& predicted, const Report& measured, const std::optional<RunResult>& result) {
    PredictionErrors errors;
    errors.step_time = error_of(predicted.metrics.step_time, measured.metrics.step_time);
    errors.peak_memory = largest(memory_errors(predicted, measured));
    errors.resident_memory = result && result->resident_growth
                                 ? error_of(resident_memory_of(predicted), *result->resident_growth)
                                 : kUnknown;
    errors.gpu_memory = result ? largest(gpu_memory_errors(predicted, *result)) : kUnknown;
    add_task_errors(errors, predicted, measured);
    return errors;
}

Comparison compare_traces(Report predicted, Report measured) {
    if (measured.trace.schedule == kForeign && predicted.trace.schedule != kForeign && !predicted.trace.asynchronous)
        measured = report_of(as_plan_of(std::move(measured.trace), predicted.trace));
    Comparison comparison{std::move(predicted), std::move(measured), {}};
    const Trace &expected = comparison.predicted.trace, &found = comparison.measured.trace;
    if (expected.plan_hash != found.plan_hash)
        fail(
            "the traces are of different plans: {} ({}) and {} ({})\n  help: trace simulate and run of the same config",
            expected.plan_hash, expected.schedule, found.plan_hash, found.schedule);
    if (expected.label == "measured" && found.label == kPredicted)
        fail("the traces are swapped: the first one is measured\n  help: compare PREDICTED MEASURED");
    try {
        comparison.parts = error_parts_of_traces(expected, found);
    } catch (const Error& error) {
        comparison.notes.push_back(fmt::format("what the difference comes from is not known: {}", first_line(error)));
    }
    comparison.errors = errors_of(comparison.predicted, comparison.measured);
    return comparison;
}

std::string to_text(const Comparison& comparison) {
    const Report &predicted = comparison.predicted, &measured = comparison.measured;
    const std::optional<RunResult>& result = comparison.result;
    const Metrics &expected = predicted.metrics, &found = measured.metrics;
    Table table({"", "predicted", "measured", "error"});
    table.add({"step time", print_time(expected.step_time), print_time(found.step_time),
               print_signed_percent(comparison.errors.step_time)});
    table.add({"samples/s", fmt::format("{:.4g}", expected.samples_per_second),
               fmt::format("{:.4g}", found.samples_per_second), ""});
    table.add({"bubble rate", print_percent(expected.bubble_rate), print_percent(found.bubble_rate), ""});
    const std::vector<double> errors = memory_errors(predicted, measured);
    for (std::size_t device = 0; device < errors.size(); ++device)
        table.add({fmt::format("peak memory, device {}", measured.names[device]),
                   print_bytes(expected.devices[device].peak_memory), print_bytes(found.devices[device].peak_memory),
                   print_signed_percent(errors[device])});
    if (result && result->resident_growth)
        table.add({"resident memory of the process", print_bytes(resident_memory_of(predicted)),
                   print_bytes(*result->resident_growth), print_signed_percent(comparison.errors.resident_memory)});
    const std::vector<double> gpu_errors = result ? gpu_memory_errors(predicted, *result) : std::vector<double>();
    for (std::size_t gpu = 0; gpu < gpu_errors.size(); ++gpu) {
        const GpuUse& use = result->gpus[gpu];
        table.add({fmt::format("memory of GPU {}{}", use.gpu, result->ranks ? fmt::format(", rank {}", use.rank) : ""),
                   print_bytes(gpu_memory_of(predicted, use.devices)), print_bytes(use.grown),
                   print_signed_percent(gpu_errors[gpu])});
    }
    for (const auto& [op, error] : comparison.errors.task_time)
        table.add({fmt::format("{} tasks, median", letters_of(op)), "", "", print_signed_percent(error)});
    return table.print();
}

namespace {

double relative_error(Ns predicted, Ns measured) {
    return measured > 0 ? static_cast<double>(predicted - measured) / static_cast<double>(measured) : 0;
}

void add_calibrated(const Comparison& comparison, Json& json) {
    if (!comparison.calibrated)
        return;
    const Calibrated& calibrated = *comparison.calibrated;
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
                          {"step_time_error", relative_error(time, comparison.measured.metrics.step_time)},
                          {"dispatch_ns", costs.dispatch},
                          {"link_latency_ns", costs.cluster->link.latency},
                          {"tasks", std::move(tasks)}};
    json["drift"] = comparison.drift();
    json["slices"] = calibrated.turns;
    json["reference"] = {{"median_ns", calibrated.reference_work.median()},
                         {"spread_ns", calibrated.reference_work.spread()}};
}

}  // namespace

double Comparison::drift() const {
    return calibrated ? relative_error(predicted.metrics.step_time, measured.metrics.step_time) -
                            relative_error(calibrated->predicted.metrics.step_time, measured.metrics.step_time)
                      : 0;
}

Json to_json(const Comparison& comparison) {
    Json by_op = Json::object();
    for (const auto& [op, error] : comparison.errors.task_time)
        by_op[std::string(letters_of(op))] = error;
    const Report& measured = comparison.measured;
    const std::optional<ErrorParts>& parts = comparison.parts;
    Json json = {{"schema_version", 1},
                 {"plan_hash", measured.trace.plan_hash},
                 {"schedule", measured.trace.schedule},
                 {"stages", measured.trace.stages},
                 {"micro_batches", measured.trace.micro_batches},
                 {"step_time_error", comparison.errors.step_time},
                 {"peak_memory_error", comparison.errors.peak_memory},
                 {"resident_memory_error", comparison.errors.resident_memory},
                 {"gpu_memory_error", comparison.errors.gpu_memory},
                 {"task_time_error_median", comparison.errors.task_time_median},
                 {"task_time_error", std::move(by_op)},
                 {"mechanics_error", parts ? Json(mechanics_error(*parts)) : Json()},
                 {"error_parts", parts ? to_json(*parts) : Json()},
                 {"predicted", to_json(comparison.predicted)},
                 {"measured", comparison.result ? to_json(*comparison.result, measured) : to_json(measured)}};
    add_calibrated(comparison, json);
    return json;
}

std::string calibration_text(const Comparison& comparison) {
    if (!comparison.calibrated)
        return {};
    const Calibrated& calibrated = *comparison.calibrated;
    const Ns measured = comparison.measured.metrics.step_time, time = calibrated.predicted.metrics.step_time;
    const std::string drift =
        comparison.parts && comparison.parts->drift
            ? fmt::format("   drift since the profile {}", print_signed_percent(comparison.drift()))
            : "";
    return fmt::format("\ncalibrated during the run, in {} turns: step {} ({}){}\nreference work {}, spread {}\n",
                       calibrated.turns, print_time(time), print_signed_percent(relative_error(time, measured)), drift,
                       print_time(calibrated.reference_work.median()), print_time(calibrated.reference_work.spread()));
}

void plot_comparison(const Comparison& comparison, const std::string& file, const View& view) {
    const Trace predicted = drawn_part_of(comparison.predicted), measured = drawn_part_of(comparison.measured);
    std::vector<Panel> panels = {drawn_panel(comparison.predicted, predicted, file),
                                 drawn_panel(comparison.measured, measured, file)};
    panels.back().limits = panels.front().limits;
    if (comparison.parts)
        panels.back().tables.insert(panels.back().tables.begin(), {"Parts of the error", rows_of(*comparison.parts)});
    plot(panels, file, view);
}

}  // namespace pw
