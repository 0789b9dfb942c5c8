#include "report/report.h"

#include "job/transformer_job.h"
#include "job/transformer_source.h"
#include "workloads/transformers/degrees.h"
#include "workloads/transformers/layer_costs.h"
#include "workloads/transformers/transformer_model.h"

#include "job/cost_source.h"
#include "job/setup/setup.h"
#include "report/calibration.h"
#include "report/error_band_text.h"
#include "report/predict.h"
#include "report/step_parts_text.h"
#include "report/table.h"
#include "schedules/import/any_trace.h"
#include "schedules/trace/trace_json.h"
#include "workloads/text/printable.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

namespace pw {

namespace {

constexpr int kSchemaVersion = 1;

Bytes bytes_of(const DeviceMetrics& device, std::initializer_list<MemoryKind> kinds) {
    Bytes sum = 0;
    for (const MemoryKind kind : kinds)
        sum += device.memory[static_cast<std::size_t>(kind)];
    return sum;
}

Bytes activations_of(const DeviceMetrics& device) {
    return bytes_of(device, {MemoryKind::Activations, MemoryKind::Inputs});
}

Bytes parameters_of(const DeviceMetrics& device) {
    return bytes_of(device,
                    {MemoryKind::Weights, MemoryKind::StashedWeights, MemoryKind::Gradients, MemoryKind::Optimizer});
}

double idle_rate(const DeviceMetrics& device) {
    const Ns all = device.busy + device.idle;
    return all > 0 ? static_cast<double>(device.idle) / static_cast<double>(all) : 0;
}

std::string stages_of(const Report& report, std::size_t device) {
    if (device >= report.trace.stages_of.size())
        return "-";
    return fmt::format("{}", fmt::join(report.trace.stages_of[device], " "));
}

// Sizes are in the units of the limit.
std::vector<std::string> row_of_device(std::string name, std::string stages, const DeviceMetrics& device, Bytes limit) {
    return {std::move(name),
            std::move(stages),
            print_time(device.busy),
            fmt::format("{} ({})", print_time(device.idle), print_percent(idle_rate(device))),
            print_time(device.exposed_communication),
            std::to_string(device.peak_in_flight),
            print_bytes_as(activations_of(device), limit),
            print_bytes_as(parameters_of(device), limit),
            print_bytes_as(device.peak_memory, limit),
            device.reserved_memory ? print_bytes_as(*device.reserved_memory, limit) : "-"};
}

// The largest of every column.
std::vector<std::string> row_of_largest(const std::vector<DeviceMetrics>& devices, Bytes limit) {
    const auto largest = [&](auto value) { return std::invoke(value, *std::ranges::max_element(devices, {}, value)); };
    const auto idle =
        *std::max_element(devices.begin(), devices.end(), [](const auto& a, const auto& b) { return a.idle < b.idle; });
    return {"max",
            "",
            print_time(largest([](const DeviceMetrics& device) { return device.busy; })),
            fmt::format("{} ({})", print_time(idle.idle), print_percent(idle_rate(idle))),
            print_time(largest([](const DeviceMetrics& device) { return device.exposed_communication; })),
            std::to_string(largest([](const DeviceMetrics& device) { return device.peak_in_flight; })),
            print_bytes_as(largest(activations_of), limit),
            print_bytes_as(largest(parameters_of), limit),
            print_bytes_as(largest([](const DeviceMetrics& device) { return device.peak_memory; }), limit),
            devices.front().reserved_memory ? print_bytes_as(largest(&DeviceMetrics::needed_memory), limit) : "-"};
}

Json json_of_device(const Report& report, std::size_t number) {
    const DeviceMetrics& device = report.metrics.devices[number];
    const Bytes limit = report.limits[number];
    Json memory;
    for (int kind = 0; kind < kMemoryKinds; ++kind)
        memory[std::string(name_of(static_cast<MemoryKind>(kind)))] = device.memory[static_cast<std::size_t>(kind)];
    Json json = {{"device", number},
                 {"name", report.names[number]},
                 {"stages", number < report.trace.stages_of.size() ? Json(report.trace.stages_of[number]) : Json()},
                 {"busy_ns", device.busy},
                 {"idle_ns", device.idle},
                 {"exposed_communication_ns", device.exposed_communication},
                 {"peak_memory_bytes", device.peak_memory},
                 {"reserved_memory_bytes", nullptr},
                 {"memory_limit_bytes", nullptr},
                 {"memory", std::move(memory)},
                 {"peak_in_flight", device.peak_in_flight},
                 {"peak_in_flight_until_weight", device.peak_in_flight_until_weight},
                 {"weight_versions", device.weight_versions}};
    if (device.reserved_memory)
        json["reserved_memory_bytes"] = *device.reserved_memory;
    if (limit != kUnlimited)
        json["memory_limit_bytes"] = limit;
    return json;
}

Json json_of_parts(const PassParts& parts) {
    Json seconds;
    for (const auto& [name, seconds_of] : kPassParts) {
        Json& sum = seconds[std::string(name)];
        sum = (sum.is_null() ? 0.0 : sum.get<double>()) + parts.*seconds_of;
    }
    return seconds;
}

Json json_of_cluster(const ClusterRate& cluster) {
    Json json = {{"devices", cluster.devices},
                 {"replicas", cluster.replicas},
                 {"tokens_per_second", cluster.tokens_per_second},
                 {"model_flops_utilisation", cluster.utilisation},
                 {"seconds", cluster.parts ? json_of_parts(*cluster.parts) : Json()}};
    if (cluster.step) {
        json["parts_ns"] = json_of(*cluster.step);
        json["parts_rank"] = cluster.step->rank;
    }
    return json;
}

std::string help_on_memory(const Report& report) {
    return report.cluster
               ? "  help: raise parallel.tensor, pipeline or zero, recompute more (parallel.recompute: full), "
                 "write a smaller "
                 "micro_batch_size, or let `pipewright search` choose\n"
               : "  help: write a smaller micro_batch_size or fewer micro_batches, recompute "
                 "(pipeline.recompute: all), or "
                 "try other schedules (--schedules all) and splits\n";
}

}  // namespace

namespace {

Report report_with(PredictedNumbers numbers, const std::vector<DeviceConfig>& devices) {
    Report report{std::move(numbers.head), std::move(numbers.metrics), {}, {}};
    for (std::size_t device = 0; device < static_cast<std::size_t>(report.trace.devices); ++device) {
        const bool given = device < devices.size();
        report.limits.push_back(given ? devices[device].memory : kUnlimited);
        report.names.push_back(given && !devices[device].name.empty() ? devices[device].name : std::to_string(device));
    }
    return report;
}

}  // namespace

Report report_of(Trace trace, const std::vector<DeviceConfig>& devices) {
    Metrics metrics = metrics_of(trace);
    return report_with({std::move(trace), std::move(metrics)}, devices);
}

namespace {

// Returns the degrees above the least as "tensor 8, pipeline 2, data 4, ZeRO 1". Degrees that differ between stages are
// "tensor 2|1".
std::string degrees_of(const ParallelConfig& parallel) {
    std::string text;
    for (const DegreeFacts& facts : kDegrees) {
        const std::vector<int> values = values_of(facts.degree, parallel.degrees, parallel.of_stages);
        if (facts.summary && (values.size() > 1 || values.front() > facts.least))
            text += fmt::format("{}{} {}", text.empty() ? "" : ", ", facts.summary, fmt::join(values, "|"));
    }
    return text.empty() ? "one device" : text;
}

}  // namespace

ClusterRate cluster_rate(const Setup& setup, double samples_per_second, bool trains) {
    const auto devices = static_cast<int>(setup.parallel.ranks->devices.size());
    const double flops = model_flops_per_sample(setup, trains) / devices;
    return {
        devices,
        setup.parallel.degrees.data,
        samples_per_second * setup.workload.options.sequence_length,
        samples_per_second * flops / peak_flops(setup),
        {},
        {},
        degrees_of(setup.parallel),
        trains ? &error_band({setup.parallel.degrees.release.has_value(), devices, setup.calibration.runs}) : nullptr};
}

namespace {

bool runs(const Plan& plan, bool (*wanted)(Op)) {
    return std::any_of(plan.order.begin(), plan.order.end(), [&](const Tasks& order) {
        return std::any_of(order.begin(), order.end(), [&](const Task& task) { return wanted(task.op); });
    });
}

}  // namespace

bool trains(const Plan& plan) { return runs(plan, makes_weight_gradient); }

namespace {

// Whether every pass takes what its layers take in training: otherwise the parts of their time are not known.
bool has_parts(const Job& job) {
    return row_of(job.source).has_groups && job.setup.pipeline.micro_batch_lengths.empty() && trains(job.plan) &&
           !runs(job.plan, [](Op op) { return op == Op::Recompute; });
}

// Every device of the plan counts once.
PassParts mean_parts(const Job& job, const Metrics& metrics) {
    const Setup& setup = job.setup;
    PassParts parts;
    const int size = setup.pipeline.micro_batch_size;
    const auto jobs = transformer_jobs_of(setup);
    const Shape& shape = job.plan.shape;
    if (jobs.size() == 1 && shape.slices == 1) {
        for (const TransformerLayerCost& layer : TransformerLayers(jobs.front().front()).all(size))
            parts += layer.parts;
    } else {
        const SliceEnds ends = slice_ends_by_shapes(setup, shape.slices);
        for (int stage = 0; stage < shape.stages; ++stage) {
            const int device = shape.devices_of(stage).front();
            const auto make = static_cast<std::size_t>(job.costs.cluster->times_of(device));
            parts += stage_parts(jobs[make].front(), job.split, job.costs.times_on(device).stage, size,
                                 ends)[static_cast<std::size_t>(stage)]
                         .passes;
        }
    }
    const Parallel& parallel = setup.parallel.degrees;
    const double samples = metrics.samples_per_second * static_cast<double>(metrics.step_time) * 1e-9;
    for (const auto& [name, seconds_of] : kPassParts)
        parts.*seconds_of *= samples / size / parallel.data / parallel.pipeline;
    return parts;
}

}  // namespace

std::optional<StepParts> parts_of_step(const Job& job, const Metrics& metrics) {
    if (!has_parts(job) || job.plan.asynchronous)
        return std::nullopt;
    return step_parts(job, job.plan.shape, metrics);
}

Report predicted_report(const Job& job, bool with_events) {
    const std::vector<DeviceConfig>& devices = job.setup.cluster.devices;
    Report report = with_events ? report_of(predict(job), devices) : report_with(predict_numbers(job), devices);
    report.tokens = tokens_per_sample(job.setup);
    if (row_of(job.source).has_groups) {
        report.cluster = cluster_rate(job.setup, report.metrics.samples_per_second, trains(job.plan));
        report.cluster->step = parts_of_step(job, report.metrics);
        if (has_parts(job))
            report.cluster->parts = mean_parts(job, report.metrics);
    }
    report.order_gap = order_gap_of(job, report.metrics);
    return report;
}

Report read_report(const std::vector<std::string>& paths, Notices& notes, const std::vector<std::string>& patterns) {
    Trace trace = read_any_trace(paths, notes, patterns);
    check_trace(trace, paths.front());
    return report_of(std::move(trace));
}

bool fits(const Report& report) {
    for (std::size_t device = 0; device < report.limits.size(); ++device)
        if (report.metrics.devices[device].needed_memory() > report.limits[device])
            return false;
    return true;
}

double work_rate_of(const Report& report) { return report.metrics.samples_per_second * std::max(1, report.tokens); }

std::string print_rate(double per_second, bool of_tokens) {
    constexpr double kFiveDigits = 99'999.5, kLargest = 1e15;
    const std::string digits = fmt::format("{:.{}g}", per_second, of_tokens ? 5 : 4);
    if (!of_tokens || !(per_second >= kFiveDigits && per_second < kLargest))
        return digits;
    return fmt::format("{:.0f}", std::stod(digits));
}

std::int64_t samples_of_step(const Metrics& metrics) {
    return std::llround(metrics.samples_per_second * static_cast<double>(metrics.step_time) * 1e-9);
}

Bytes largest_peak(const Report& report) {
    Bytes largest = 0;
    for (const DeviceMetrics& device : report.metrics.devices)
        largest = std::max(largest, device.peak_memory);
    return largest;
}

Bytes largest_reserved(const Report& report) {
    Bytes largest = 0;
    for (const DeviceMetrics& device : report.metrics.devices)
        largest = std::max(largest, device.needed_memory());
    return largest;
}

std::string misfits_of(const Report& report) {
    std::string text;
    for (std::size_t device = 0; device < report.limits.size(); ++device) {
        const Bytes needed = report.metrics.devices[device].needed_memory(), limit = report.limits[device];
        if (needed > limit)
            text += fmt::format("does not fit: device {} needs {} and has {}: {} over\n",
                                escaped_line(report.names[device]), print_bytes_as(needed, limit),
                                print_bytes_as(limit, limit), print_bytes_as(needed - limit, limit));
    }
    return text;
}

Json to_json(const Report& report) {
    const Metrics& metrics = report.metrics;
    Json devices = Json::array();
    for (std::size_t device = 0; device < metrics.devices.size(); ++device)
        devices.push_back(json_of_device(report, device));
    Json json = {{"schema_version", kSchemaVersion},
                 {"label", report.trace.label},
                 {"makespan_ns", metrics.makespan},
                 {"span_ns", metrics.span},
                 {"step_time_ns", metrics.step_time},
                 {"ideal_ns", metrics.ideal},
                 {"bubble_rate", metrics.bubble_rate},
                 {"bubble_ratio", metrics.bubble_ratio},
                 {"span_bubble_rate", metrics.span_bubble_rate},
                 {"samples_per_second", metrics.samples_per_second},
                 {"tasks", metrics.tasks},
                 {"plan_hash", report.trace.plan_hash},
                 {"fits", fits(report)},
                 {"schedule", report.trace.schedule},
                 {"stages", report.trace.stages},
                 {"micro_batches", report.trace.micro_batches},
                 {"micro_batch_size", report.trace.micro_batch_size},
                 {"mini_batch", samples_of_mini_batch(report.trace)},
                 {"devices", std::move(devices)}};
    if (report.cluster) {
        json["cluster"] = json_of_cluster(*report.cluster);
        if (report.cluster->band != nullptr)
            json["cluster"]["band"] = to_json(metrics.step_time, *report.cluster->band);
    }
    if (const std::optional<OrderGap>& gap = report.order_gap)
        json["order"] = {{"least_step_ns", gap->least_step},
                         {"least_span_ns", gap->least_span},
                         {"step_gap", gap->step},
                         {"span_gap", gap->span}};
    return json;
}

Json to_json(const Report& report, const Job& job) {
    Json json = to_json(report);
    json["costs"] = std::string(row_of(job.source).name);
    json["interpolated"] = job.costs.interpolated;
    if (job.setup.calibration != Calibration{})
        json["calibration"] = to_json(job.setup.calibration);
    return json;
}

std::string to_text(const Report& report) {
    const Metrics& metrics = report.metrics;
    Table table({"device", "stages", "busy", "bubble (rate)", "exposed transfers", "in flight", "activations",
                 "parameters", "peak memory", "reserved"});
    for (std::size_t device = 0; device < metrics.devices.size(); ++device)
        table.add(row_of_device(report.names[device], stages_of(report, device), metrics.devices[device],
                                report.limits.front()));  // the same unit for a column
    if (metrics.devices.size() > 1)
        table.add(row_of_largest(metrics.devices, report.limits.front()));
    const std::string rate =
        report.cluster
            ? fmt::format("{} tokens/s on {} device{}, {} of the peak",
                          print_rate(report.cluster->tokens_per_second, true), report.cluster->devices,
                          report.cluster->devices == 1 ? "" : "s", print_percent(report.cluster->utilisation))
            : fmt::format("{} samples/s", print_rate(metrics.samples_per_second, false));
    const std::string band =
        report.cluster && report.cluster->band != nullptr ? to_text(metrics.step_time, *report.cluster->band) : "";
    return fmt::format("{}\nstep time {}   {}   bubble rate {}\n{}{}{}", table.print(), print_time(metrics.step_time),
                       rate, print_percent(metrics.bubble_rate), band,
                       report.order_gap ? to_text(*report.order_gap) : "",
                       fits(report) ? "" : misfits_of(report) + help_on_memory(report));
}

std::string title_of(const Report& report) {
    return fmt::format("{}, {}{}: step {}, bubble {}", report.trace.label, report.trace.schedule,
                       report.trace.asynchronous ? " (asynchronous)" : "", print_time(report.metrics.step_time),
                       print_percent(report.metrics.bubble_rate));
}

namespace {

// The beginning of an asynchronous run: its first mini-batches, where a drawing can still be read.
Trace beginning_of(const Trace& trace) {
    const int drawn = 2 * (trace.micro_batches + trace.stages);
    Trace part = trace;
    std::erase_if(part.events, [&](const TraceEvent& event) { return event.task.microbatch >= drawn; });
    Ns end = 0;
    for (const TraceEvent& event : part.events)
        end = std::max(end, event.end);
    std::erase_if(part.memory, [&](const MemorySample& sample) { return sample.time > end; });
    return part;
}

}  // namespace

Trace drawn_part_of(const Report& report) {
    return report.trace.asynchronous ? beginning_of(report.trace) : only_step(report.trace, report.metrics.step);
}

}  // namespace pw
