#include "schedules/schedule.h"
#include "workloads/error.h"

namespace pw {

namespace {

const Schedule& schedule_of(const Config& config) {
    try {
        return schedule_named(config.pipeline.schedule);
    } catch (const Error& error) {
        config.fail_at("pipeline.schedule", error.what(), "`pipewright list schedules` describes them");
    }
}

}  // namespace

Plan make_plan(const Config& config, const std::vector<Edge>& edges, int steps) {
    const Schedule& schedule = schedule_of(config);
    if (!config.pipeline.weights.empty() && config.pipeline.weights != name_of(schedule.weights))
        config.fail_at("pipeline.weights",
                       fmt::format("schedule {} cannot use weight policy {}", schedule.name, config.pipeline.weights),
                       fmt::format("leave pipeline.weights out, or set it to {}", name_of(schedule.weights)));
    Shape shape;
    shape.devices = static_cast<int>(config.cluster.devices.size());
    shape.stages = config.pipeline.stages;
    shape.microbatches = config.pipeline.micro_batches * (schedule.asynchronous ? steps : 1);
    shape.edges = edges;
    if (config.places.contains("cluster.devices") && !config.places.contains("pipeline.stages") &&
        shape.devices != shape.stages)
        config.fail_at(config.places.contains("pipeline.split") ? "pipeline.split" : "cluster.devices",
                       fmt::format("the split makes {} stages for {} devices", shape.stages, shape.devices),
                       fmt::format("schedule {} takes one stage per device: split into {}, or set pipeline.stages: {} "
                                   "where a device may hold several",
                                   schedule.name, shape.devices, shape.stages));
    if (shape.devices > shape.stages)
        config.fail_at("cluster.devices", fmt::format("{} devices for {} stages", shape.devices, shape.stages),
                       "give every device a stage: raise pipeline.stages or lower cluster.devices");
    try {
        return make_plan(schedule, std::move(shape), {config.pipeline.drain == "lifo"});
    } catch (const Error& error) {
        if (error.code() != ExitCode::BadInput)
            throw;
        config.fail_at("pipeline", error.what(), fmt::format("schedule {}", schedule.name));
    }
}

}  // namespace pw
