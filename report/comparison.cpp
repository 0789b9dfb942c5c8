#include "report/comparison.h"

#include "report/table.h"
#include "exec/memory.h"
#include "workloads/median.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace pw {

namespace {

constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

double error_of(Ns predicted, Ns measured) {
    if (predicted == measured)
        return 0;
    return measured > 0 ? static_cast<double>(predicted - measured) / static_cast<double>(measured) : kUnknown;
}

// What a run takes beside its arenas: code of libraries that it is the first to use, kernels made for its shapes, and
// its own lists. The median of results/memory-cpu.
constexpr Bytes kBesideArenas = 9'000'000;

double median_error(const std::vector<double>& errors) { return errors.empty() ? kUnknown : mean_median(errors); }

// Durations of the tasks that the metrics are from.
std::map<std::pair<int, Task>, Ns> durations_of(const Report& report) {
    std::map<std::pair<int, Task>, Ns> durations;
    for (const TraceEvent& event : report.trace.events)
        if (!is_transfer(event.task.op) && (report.trace.asynchronous || event.step == report.metrics.step))
            durations[{event.device, event.task}] = event.end - event.start;
    return durations;
}

void add_task_errors(Comparison& comparison, const Report& predicted, const Report& measured) {
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
    comparison.task_time_error_median = median_error(all);
    for (auto& [op, errors] : by_op)
        comparison.task_time_error[op] = median_error(errors);
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
    Bytes all = kBesideArenas;
    for (const DeviceMetrics& device : predicted.metrics.devices)
        all += in_pages(needed_of(device));
    return all;
}

Bytes gpu_memory_of(const Report& predicted, const std::vector<int>& devices) {
    Bytes all = 0;
    for (const int device : devices)
        all += in_pages(needed_of(predicted.metrics.devices[static_cast<std::size_t>(device)]));
    return all;
}

Comparison comparison_of(const Sides& sides) {
    const Report &predicted = sides.predicted, &measured = sides.measured;
    const std::optional<RunResult>& result = sides.result;
    Comparison comparison;
    comparison.step_time_error = error_of(predicted.metrics.step_time, measured.metrics.step_time);
    comparison.peak_memory_error = largest(memory_errors(predicted, measured));
    comparison.resident_memory_error = result && result->resident_growth
                                           ? error_of(resident_memory_of(predicted), *result->resident_growth)
                                           : kUnknown;
    comparison.gpu_memory_error = result ? largest(gpu_memory_errors(predicted, *result)) : kUnknown;
    add_task_errors(comparison, predicted, measured);
    return comparison;
}

std::string print(const Comparison& comparison, const Sides& sides) {
    const Report &predicted = sides.predicted, &measured = sides.measured;
    const std::optional<RunResult>& result = sides.result;
    const Metrics &expected = predicted.metrics, &found = measured.metrics;
    Table table({"", "predicted", "measured", "error"});
    table.add({"step time", print_time(expected.step_time), print_time(found.step_time),
               print_signed_percent(comparison.step_time_error)});
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
                   print_bytes(*result->resident_growth), print_signed_percent(comparison.resident_memory_error)});
    const std::vector<double> gpu_errors = result ? gpu_memory_errors(predicted, *result) : std::vector<double>();
    for (std::size_t gpu = 0; gpu < gpu_errors.size(); ++gpu) {
        const GpuUse& use = result->gpus[gpu];
        table.add({fmt::format("memory of GPU {}{}", use.gpu, result->ranks ? fmt::format(", rank {}", use.rank) : ""),
                   print_bytes(gpu_memory_of(predicted, use.devices)), print_bytes(use.grown),
                   print_signed_percent(gpu_errors[gpu])});
    }
    for (const auto& [op, error] : comparison.task_time_error)
        table.add({fmt::format("{} tasks, median", letters_of(op)), "", "", print_signed_percent(error)});
    return table.print();
}

}  // namespace pw
