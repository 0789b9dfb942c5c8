#include "report/order_gap.h"

#include "job/plan.h"
#include "report/table.h"
#include "schedules/orders/order_bound.h"
#include "schedules/orders/order_costs.h"
#include "workloads/lower_bound.h"
#include "workloads/text/printable.h"

#include <fmt/format.h>

#include <algorithm>

namespace pw {

namespace {

double above(Ns time, Ns least, const char* what) {
    check_lower_bound(least, time, what);
    return least > 0 ? static_cast<double>(time - least) / static_cast<double>(least) : 0;
}

}  // namespace

std::optional<OrderGap> order_gap_of(const Job& job, const Metrics& metrics) {
    const PipelineConfig& pipeline = job.setup.pipeline;
    if (pipeline.schedule.ends_with(".csv") || !schedule_of(job.setup).needs_costs || job.plan.shape.copies > 1 ||
        pipeline.recompute.ahead != 0 || !job.costs.last.empty() || !job.plan.shape.forwards_only.empty())
        return std::nullopt;
    std::vector<Bytes> memory;
    for (const DeviceConfig& device : job.setup.cluster.devices)
        memory.push_back(device.memory);
    OrderCosts costs = order_costs(job.plan.shape, job.costs, std::move(memory), pipeline.recompute);
    for (auto& [holder, of_classes] : costs.times)
        for (OrderCosts::Times& times : of_classes)
            if (pipeline.recompute.saved > 0)  // the order decides for how many micro-batches no R runs
                times.recompute = 0;
    ScheduleOptions options;
    options.activations = pipeline.options.activations;
    OrderCosts shared = costs;
    hide_in_pairs(shared, job.costs, PairPart::Mean);
    const StepTimes work = least_work(OrderModel({job.plan.shape, options, &shared}));
    hide_in_pairs(costs, job.costs, PairPart::Least);
    const OrderModel model({job.plan.shape, options, &costs});
    StepTimes least =
        overlaps_pairs(job.costs) ? least_times(model) : least_times(model, {metrics.step_time, metrics.span});
    least = {std::max(least.step, work.step), std::max(least.span, work.span)};
    return OrderGap{least.step, least.span, above(metrics.step_time, least.step, "the step"),
                    above(metrics.span, least.span, "the span"), pipeline.options.aim == Aim::Span};
}

std::string to_text(const OrderGap& gap) {
    const double share = gap.aims_at_span ? gap.span : gap.step;
    const Ns least = gap.aims_at_span ? gap.least_span : gap.least_step;
    return share == 0 ? fmt::format("no order on these devices has a shorter {}\n", gap.aims_at_span ? "span" : "step")
                      : fmt::format("{} at most {} above the least of all orders on these devices ({})\n",
                                    gap.aims_at_span ? "span" : "step", print_percent(share), print_time(least));
}

}  // namespace pw
