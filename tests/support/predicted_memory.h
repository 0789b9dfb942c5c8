// Predicted memory against the memory that a run counts.
#pragma once

#include "exec/measuring/profile.h"
#include "job/build.h"
#include "job/plan.h"
#include "tests/support/execution.h"

#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace pw {

// Checks the predicted memory of an execution: the prediction uses a profile's byte sizes, the run counts what its
// allocator lent.
inline void expect_predicted_memory(const Execution& execution, const std::string& what, const Profile& profile) {
    const Job job = execution.job();
    const int samples = job.setup.pipeline.micro_batch_size;
    Costs costs = costs_of(*job.model, job.split, profile, samples);
    costs.cluster = cluster_of(job.setup, profile);
    add_settings(costs, job.setup);
    const bool early = job.setup.transfer.early_receive();
    const auto memory = memory_of(job.plan, buffers_of(job.plan, costs, job.versions, early));
    const RunResult run = pw::run(job, {});
    EXPECT_EQ(run.arena, reserved_of(job.plan, costs, job.versions, job.setup.transfer));
    for (int device = 0; device < job.plan.shape.devices; ++device)
        EXPECT_EQ(run.peak[device], peak_of(memory[device])) << fmt::format("{} device {}", what, device);
}

inline void expect_predicted_memory(const char* yaml, const std::vector<std::string>& set, const Profile& profile) {
    expect_predicted_memory(Execution(yaml, set), fmt::format("{}", fmt::join(set, " ")), profile);
}

inline Profile measured(const Execution& execution, int samples) {
    return measure_profile(execution.job().setup, *execution.job().model, {samples}, {});
}
inline Profile measured(const char* yaml, int samples) {
    return measured(Execution(yaml, {"cluster.devices=1"}), samples);
}

}  // namespace pw
