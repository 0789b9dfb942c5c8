#include "search/step_parts.h"

#include "job/transformer_job.h"
#include "job/transformer_source.h"
#include "workloads/transformers/transformer_model.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

namespace pw {

namespace {

Ns nearest(double seconds) { return static_cast<Ns>(std::llround(seconds * 1e9)); }

int last_to_end(const Metrics& metrics) {
    const auto last =
        std::max_element(metrics.devices.begin(), metrics.devices.end(),
                         [](const DeviceMetrics& a, const DeviceMetrics& b) { return a.last_end < b.last_end; });
    return static_cast<int>(last - metrics.devices.begin());
}

int micro_batches_on(int device, int stage, const Shape& shape) {
    int count = 0;
    for (int microbatch = 0; microbatch < shape.microbatches; ++microbatch)
        count += shape.server_of(stage, microbatch) == device ? 1 : 0;
    return count;
}

// Returns the seconds of all passes of a rank, and of the end of its step.
StageParts parts_of_rank(int rank, const Job& job, const Shape& shape) {
    const auto jobs = transformer_jobs_of(job.setup);
    const auto make = static_cast<std::size_t>(job.costs.cluster->times_of(rank));
    const std::vector<StageParts> stages =
        stage_parts(jobs[make].front(), job.split, job.costs.times_on(rank).stage, job.setup.pipeline.micro_batch_size,
                    slice_ends_by_shapes(job.setup, shape.slices));
    StageParts all;
    for (const int stage : shape.stages_of(rank)) {
        StageParts own = stages[static_cast<std::size_t>(stage)];
        for (const auto& [name, seconds] : kPassParts)
            own.passes.*seconds *= micro_batches_on(rank, stage, shape) / shape.slices;
        all.passes += own.passes;
        all.sums += own.sums;
        all.update += own.update;
        all.gathers += own.gathers;
    }
    return all;
}

}  // namespace

// Tasks take whole nanoseconds: the rest counts as other time of passes, and as update.
StepParts step_parts(const Job& job, const Shape& shape, const Metrics& metrics) {
    StepParts parts;
    parts.rank = last_to_end(metrics);
    const DeviceMetrics& device = metrics.devices[static_cast<std::size_t>(parts.rank)];
    const StageParts own = parts_of_rank(parts.rank, job, shape);
    Ns passes = 0, all = 0;
    for (const StepPartFacts& facts : kStepParts) {
        all += facts.of_pass == nullptr ? 0 : nearest(own.passes.*facts.of_pass);
        if (facts.of_pass != nullptr && facts.part != StepPart::Other)
            passes += parts[facts.part] = nearest(own.passes.*facts.of_pass);
    }
    if (overlaps_pairs(job.costs)) {  // what pairs save is time of messages, with its part of the other time
        const double saved = static_cast<double>(std::max<Ns>(0, all - device.busy)) * 1e-9;
        const double of_passes = saved * static_cast<double>(passes) / static_cast<double>(std::max<Ns>(1, all));
        const Ns hidden = std::min(nearest(of_passes), parts[StepPart::Experts]);
        parts[StepPart::Experts] -= hidden;
        passes -= hidden;
    }
    parts[StepPart::Other] = device.busy - passes;
    parts[StepPart::Sums] = device.sums + nearest(own.sums);  // among ranks of the pipeline, and among replicas
    parts[StepPart::Gathers] = nearest(own.gathers);
    parts[StepPart::Update] = device.updates - nearest(own.sums) - parts[StepPart::Gathers];
    parts[StepPart::Stages] = device.exposed_communication;
    parts[StepPart::Bubble] = device.idle - device.sums - device.updates - device.exposed_communication;
    return parts;
}

}  // namespace pw
