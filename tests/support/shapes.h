// Plans and costs of equal stages, as the tests of the schedules use them.
#pragma once

#include "schedules/orders/order_costs.h"
#include "schedules/orders/schedule.h"
#include "workloads/costs/costs.h"
#include "workloads/error.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace pw {

using Replicas = std::vector<int>;
using Communicator = TransferMode::Communicator;

inline std::vector<std::string_view> names_of_schedules() {
    std::vector<std::string_view> all;
    for (const Schedule& schedule : schedules())
        all.push_back(schedule.name);
    return all;
}

// Returns a shape with `chunks` stages on each of `devices`; for pipedream-2bw one mini-batch has all micro-batches.
inline Shape shape_of(const Schedule& schedule, int devices, int microbatches, int chunks) {
    Shape shape;
    shape.devices = devices;
    shape.stages = devices * chunks;
    shape.microbatches = microbatches;
    if (schedule.updates == Updates::PerMiniBatch)
        shape.per_update = microbatches;
    return shape;
}

// Returns a shape with as many stages as the schedule has on each device.
inline Shape shape_of(const Schedule& schedule, int devices, int microbatches) {
    return shape_of(schedule, devices, microbatches, schedule.chunks);
}

// Returns a shape with stage s on replicas[s] devices.
inline Shape shape_of(const Replicas& replicas, int microbatches) {
    Shape shape;
    shape.placement = placement_of(replicas);
    shape.stages = static_cast<int>(replicas.size());
    shape.devices = shape.devices_before(shape.stages);
    shape.microbatches = microbatches;
    return shape;
}

// Returns every row of up to `stages` numbers from 1 to 3 that are not all 1.
inline std::vector<Replicas> all_replicas(int stages) {
    std::vector<Replicas> all, rows{{}};
    for (int length = 1; length <= stages; ++length) {
        std::vector<Replicas> longer;
        for (const Replicas& row : rows)
            for (int count = 1; count <= 3; ++count) {
                longer.push_back(row);
                longer.back().push_back(count);
            }
        rows = longer;
        std::copy_if(rows.begin(), rows.end(), std::back_inserter(all),
                     [](const Replicas& row) { return *std::max_element(row.begin(), row.end()) > 1; });
    }
    return all;
}

// Returns the tasks of a device, without transfers.
inline std::string row_of(const Plan& plan, int device) {
    std::string text;
    for (const Task& task : plan.order[device])
        if (!is_transfer(task.op))
            text += (text.empty() ? "" : " ") + print(task);
    return text;
}

// Returns costs in which every stage has these times.
inline Costs uniform(int stages, Ns forward, Ns input, Ns weight, Ns latency = 0) {
    Costs costs;
    costs.stage.assign(static_cast<std::size_t>(stages), {forward, input + weight, input, weight, forward, 0, 0});
    costs.bytes.resize(static_cast<std::size_t>(stages));
    ClusterEdit(costs)->link.latency = latency;
    return costs;
}

// Returns the plan of a shape. A schedule that orders tasks by their costs gets those of equal stages.
// Few orders are tried unless the options say more.
inline Plan plan_in(const Schedule& schedule, Shape shape, PlanOptions options = {}) {
    if (!schedule.needs_costs)
        return make_plan(schedule, std::move(shape), options);
    if (options.schedule.effort == ScheduleOptions().effort)
        options.schedule.effort = 0.01;
    shape = placed(schedule, std::move(shape));
    const OrderCosts costs =
        order_costs(shape, uniform(shape.stages, 10, 20, 10),
                    std::vector<Bytes>(static_cast<std::size_t>(shape.devices), std::numeric_limits<Bytes>::max()));
    return ordered(schedule, std::move(shape), options, &costs).plan;
}

// Returns the same, or nothing where the schedule is not defined for the shape: the error names settings to change.
inline std::optional<Plan> try_plan(const Schedule& schedule, Shape shape, const PlanOptions& options = {}) {
    try {
        return plan_in(schedule, std::move(shape), options);
    } catch (const Error& error) {
        EXPECT_EQ(error.code(), ExitCode::BadInput) << error.what();
        EXPECT_FALSE(error.settings().empty()) << error.what();
        return std::nullopt;
    }
}

// Returns a shape of these numbers. Where the schedule is not defined for them, they are even, and there are two
// micro-batches per device or more.
inline Shape shape_taken(const Schedule& schedule, int devices, int microbatches) {
    const Shape shape = shape_of(schedule, devices, microbatches);
    return try_plan(schedule, shape) ? shape
                                     : shape_of(schedule, devices + devices % 2,
                                                std::max(microbatches + microbatches % 2, 2 * (devices + devices % 2)));
}

// Returns a plan with `chunks` stages on each of p devices; for pipedream-2bw one mini-batch has all m micro-batches.
inline Plan plan_of(std::string_view schedule, int p, int m, int chunks = 1, const PlanOptions& options = {}) {
    return plan_in(schedule_named(schedule), shape_of(schedule_named(schedule), p, m, chunks), options);
}

inline Plan plan_of(std::string_view schedule, const Replicas& replicas, int m, const PlanOptions& options = {}) {
    return plan_in(schedule_named(schedule), shape_of(replicas, m), options);
}

}  // namespace pw
