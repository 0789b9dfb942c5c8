#include "report/measured_config.h"
#include "report/report.h"

#include "schedules/orders/schedule.h"
#include "schedules/passes/passes.h"
#include "schedules/trace/trace_plan.h"
#include "workloads/error.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

namespace pw {

namespace {

bool is_ordered(const Task& task) { return task.op == Op::Forward || is_backward(task.op); }

// What a trace is compared with: a schedule's name and options, as keys of the block pipeline.
struct OptionsOfOrder {
    std::string_view option;  // Schedule::option of the rows that read it (empty: all rows)
    ScheduleOptions options;
    std::string keys;
};

std::vector<OptionsOfOrder> options_of_orders(int devices) {
    using Drain = ScheduleOptions::Drain;
    return {{"", {}, ""},
            {"drain", {Drain::Fifo, 0}, ", drain: fifo"},
            {"drain", {Drain::Lifo, 0}, ", drain: lifo"},
            {"group", {Drain::Own, devices}, fmt::format(", group: {}", devices)},
            {"concatenation",
             {.concatenation = ScheduleOptions::Concatenation::ForwardDoubling},
             ", concatenation: forward-doubling"}};
}

// Returns the keys of the schedule that has this order. Empty if no schedule has this order.
std::string schedule_with(const Plan& plan) {
    Shape shape;
    shape.devices = plan.shape.devices;
    shape.stages = plan.shape.stages;
    shape.microbatches = plan.shape.microbatches;
    for (const Schedule& schedule : schedules())
        for (const OptionsOfOrder& other : options_of_orders(shape.devices)) {
            if (schedule.asynchronous() || schedule.needs_costs ||
                (!other.option.empty() && schedule.option != other.option))
                continue;
            try {
                const Shape where = placed(schedule, shape);
                if (schedule.orders({where, other.options}) == plan.order)
                    return fmt::format("schedule: {}{}", schedule.name, other.keys);
            } catch (const Error&) {  // the schedule is not defined for the shape
            }
        }
    return "";
}

Plan plan_of_computation(const Report& measured) {
    const Trace& trace = measured.trace;
    Plan plan = plan_of(trace);
    for (std::vector<Task>& order : plan.order)
        std::erase_if(order, [](const Task& task) { return !is_ordered(task); });
    return plan;
}

// A plan that no schedule names is written to a file, which cannot have replicas.
void refuse_several_holders(const Plan& plan) {
    for (int stage = 0; stage < plan.shape.stages; ++stage)
        if (const std::vector<int> devices = plan.shape.devices_of(stage); devices.size() != 1)
            fail(
                "the trace has stage {} on {} devices, in the order of no schedule in both directions\n  help: name "
                "the "
                "files of one of the replicas, or ask `pipewright compare TRACE --replay --explain`, which takes the "
                "trace as it is",
                stage, devices.size());
}

// Returns when and for which micro-batches the stages recompute, if adding R to the tasks of `plan` gives the list of
// the trace. Else R comes right before every backward.
Recomputation recomputation_of(const Trace& trace, const Plan& plan, Recomputation recomputation) {
    constexpr int kMost = 32;
    if (recomputation.stages.empty())
        return recomputation;
    Plan traced = plan_of(trace);
    for (std::vector<Task>& order : traced.order)
        std::erase_if(order, [](const Task& task) { return !is_ordered(task) && task.op != Op::Recompute; });
    for (int saved = 0; saved < kMost; ++saved)
        for (int ahead = 0; ahead < kMost; ++ahead) {
            const Recomputation other{recomputation.stages, saved, ahead};
            Plan longer = plan;
            add_recomputes(longer, other);
            if (longer.order == traced.order)
                return other;
        }
    return recomputation;
}

// By stage: the mean time of an operation in a step, 0 where there is none.
std::vector<Ns> mean_times(const Report& measured, Op op) {
    std::vector<Ns> times(static_cast<std::size_t>(measured.trace.stages), 0);
    std::vector<int> counts(times.size(), 0);
    const std::vector<Ns> own = own_times(measured.trace.events);
    for (std::size_t k = 0; k < own.size(); ++k)
        if (const TraceEvent& event = measured.trace.events[k];
            event.task.op == op && event.step == measured.metrics.step) {
            times[static_cast<std::size_t>(event.task.stage)] += own[k];
            ++counts[static_cast<std::size_t>(event.task.stage)];
        }
    for (std::size_t stage = 0; stage < times.size(); ++stage)
        times[stage] /= std::max(counts[stage], 1);
    return times;
}

std::string print_times(const std::vector<Ns>& times) {
    std::vector<std::string> parts;
    for (const Ns time : times)
        parts.push_back(fmt::format("{}.{:03} us", time / 1000, time % 1000));
    return fmt::format("[{}]", fmt::join(parts, ", "));
}

}  // namespace

MeasuredConfig measured_config(const Report& measured) {
    const Trace& trace = measured.trace;
    if (trace.asynchronous)
        fail(
            "the trace is of an asynchronous schedule, which has no step to take times from\n  help: record a "
            "synchronous one, such as 1f1b");
    Plan plan = plan_of_computation(measured);
    const bool has_backwards = trains(plan);
    MeasuredConfig config;
    config.forward = mean_times(measured, Op::Forward);
    config.backward_input = mean_times(measured, Op::BackwardInput);
    config.backward_weight = mean_times(measured, Op::BackwardWeight);
    const std::vector<Ns> whole = mean_times(measured, Op::Backward), recompute = mean_times(measured, Op::Recompute);
    for (std::size_t stage = 0; stage < whole.size(); ++stage) {
        Ns &input = config.backward_input[stage], &weight = config.backward_weight[stage];
        if (input == 0 && weight == 0) {
            weight = whole[stage] / 2;
            input = whole[stage] - weight;
        }
        if (config.forward[stage] <= 0 || (has_backwards && input + weight <= 0))
            fail("the trace has no {} of stage {} that takes time\n  help: record {} of all stages",
                 config.forward[stage] <= 0 ? "forward" : "backward", stage,
                 has_backwards ? "forwards and backwards" : "forwards");
        if (recompute[stage] > 0)
            config.recompute.stages.push_back(static_cast<int>(stage));
    }
    config.devices = trace.devices;
    config.micro_batches = trace.micro_batches;
    config.micro_batch_size = trace.micro_batch_size;
    config.recompute = recomputation_of(trace, plan, config.recompute);
    config.schedule = schedule_with(plan);
    if (config.schedule.empty()) {
        refuse_several_holders(plan);
        config.plan = std::move(plan);
    }
    return config;
}

std::string print(const MeasuredConfig& config, const std::string& plan_file) {
    std::string pipeline = config.plan ? fmt::format("schedule: {}", plan_file) : config.schedule;
    if (!config.recompute.stages.empty())
        pipeline += fmt::format(", recompute: [{}]", fmt::join(config.recompute.stages, ", "));
    if (config.recompute.saved > 0)
        pipeline += fmt::format(", recompute_saved: {}", config.recompute.saved);
    if (config.recompute.ahead > 0)
        pipeline += fmt::format(", recompute_ahead: {}", config.recompute.ahead);
    return fmt::format(
        "# Times of stages as measured, for a micro-batch. A whole backward is half for inputs and half for weights.\n"
        "workload: {{model: uniform, stages: {}, activation: 0 B,\n"
        "           forward: {},\n           backward_input: {},\n           backward_weight: {}}}\n"
        "cluster: {{devices: {}}}\n"
        "pipeline: {{{}, micro_batches: {}, micro_batch_size: {}}}\n",
        config.forward.size(), print_times(config.forward), print_times(config.backward_input),
        print_times(config.backward_weight), config.devices, pipeline, config.micro_batches, config.micro_batch_size);
}

}  // namespace pw
