// What executions do not do yet, said before anything is set up.
#include "exec/execute.h"
#include "exec/parameter_files.h"
#include "workloads/error.h"
#include "workloads/profiled_model.h"

namespace pw {

namespace {

void check_holders(const Plan& plan) {
    for (int stage = 0; stage < plan.shape.stages; ++stage)
        if (const std::vector<int> holders = plan.shape.devices_of(stage); holders.size() > 1)
            fail(
                "plan '{}': stage {} is on devices {} and {}: running replicas is not in this version\n  help: "
                "`pipewright simulate` and `pipewright plan` take them; to run, give every stage one device",
                plan.schedule, stage, holders[0], holders[1]);
}

}  // namespace

void check_runnable(const Job& job) {
    check_holders(job.plan);
    if (is_emulated(job.config))
        return;
    if (job.model == nullptr)
        job.config.fail_at("workload.model", "a uniform workload has no layers to run",
                           "set run.backend: emulated, or name a model: `pipewright list models`");
    if (model_file(job.config.workload.model) != ModelFile::None)
        job.config.fail_at("workload.model", "a model from a file has times and sizes, and nothing to run",
                           "set run.backend: emulated, or name a model: `pipewright list models`");
    check_initial(job.config, *job.model);
}

}  // namespace pw
