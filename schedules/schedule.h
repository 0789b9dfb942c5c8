// The schedules: one function and one row each. A schedule writes compute tasks only.
#pragma once

#include "schedules/plan.h"
#include "workloads/config.h"

#include <span>
#include <string_view>
#include <vector>

namespace pw {

struct ScheduleOptions {
    bool lifo_drain = false;  // gpipe: last micro-batch first
};

struct Schedule {
    std::string_view name;
    std::string_view summary;
    std::string_view origin;
    bool asynchronous;
    WeightPolicy weights;
    std::vector<Task> (*order)(const Shape& shape, int device, const ScheduleOptions& options);
};

std::span<const Schedule> schedules();
// Case-insensitive. Throws Error (BadInput) listing the names.
const Schedule& schedule_named(std::string_view name);

// Orders, then U where the schedule wrote none, then transfers, then the check.
Plan make_plan(const Schedule& schedule, Shape shape, const ScheduleOptions& options = {});
// What a config asks for: `edges` are the boundaries of its split. Asynchronous schedules get one
// plan over steps x micro_batches.
Plan make_plan(const Config& config, const std::vector<Edge>& edges, int steps);

}  // namespace pw
