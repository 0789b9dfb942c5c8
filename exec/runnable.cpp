// What executions do not do yet, said before anything is set up.
#include "exec/execute.h"
#include "exec/parameter_files.h"
#include "workloads/error.h"
#include "workloads/profiled_model.h"

namespace pw {

void check_runnable(const Job& job) {
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
