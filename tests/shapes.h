// Plans and costs of equal stages, as the tests of the schedules use them.
#pragma once

#include "schedules/schedule.h"
#include "workloads/costs.h"

#include <string_view>

namespace pw::test {

// `chunks` stages on each of p devices; for pipedream-2bw one mini-batch has all m micro-batches.
inline Plan plan_of(std::string_view schedule, int p, int m, int chunks = 1, const PlanOptions& options = {}) {
    Shape shape;
    shape.devices = p;
    shape.stages = p * chunks;
    shape.microbatches = m;
    if (schedule_named(schedule).updates == Updates::PerMiniBatch)
        shape.per_update = m;
    return make_plan(schedule_named(schedule), shape, options);
}

// Stage s on replicas[s] devices.
inline Plan plan_of(std::string_view schedule, const std::vector<int>& replicas, int m,
                    const PlanOptions& options = {}) {
    Shape shape;
    shape.placement = placement_of(replicas);
    shape.stages = static_cast<int>(replicas.size());
    shape.devices = shape.devices_before(shape.stages);
    shape.microbatches = m;
    return make_plan(schedule_named(schedule), shape, options);
}

// Times of one stage.
inline Costs uniform(int stages, Ns forward, Ns input, Ns weight, Ns latency = 0) {
    Costs costs;
    costs.stage.assign(static_cast<std::size_t>(stages), {forward, input + weight, input, weight, forward, 0, 0});
    costs.bytes.resize(static_cast<std::size_t>(stages));
    costs.link.latency = latency;
    return costs;
}

}  // namespace pw::test
