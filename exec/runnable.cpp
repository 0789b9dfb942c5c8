// What executions do not do yet, said before anything is set up.
#include "exec/execute.h"
#include "exec/parameter_files.h"
#include "workloads/error.h"
#include "workloads/profiled_model.h"

#include <algorithm>

namespace pw {

namespace {

bool has_batch_norm(const Model& model) {
    for (std::size_t layer = 0; layer < boost::num_vertices(model.layers); ++layer)
        if (model.layers[layer].kind == LayerKind::BatchNorm)
            return true;
    return false;
}

void check_holders(const Plan& plan) {
    for (int stage = 0; stage < plan.shape.stages; ++stage)
        if (const std::vector<int> holders = plan.shape.devices_of(stage); holders.size() > 1)
            fail(
                "plan '{}': stage {} is on devices {} and {}: running replicas is not in this version\n  help: "
                "`pipewright simulate` and `pipewright plan` take them; to run, give every stage one device",
                plan.schedule, stage, holders[0], holders[1]);
}

// Running averages follow the micro-batches; evaluation leaves them alone.
void check_forward_order(const Plan& plan) {
    for (const std::vector<Task>& order : plan.order) {
        std::vector<int> newest(static_cast<std::size_t>(plan.shape.stages), -1);
        for (const Task& task : order) {
            if (task.op != Op::Forward)
                continue;
            int& last = newest[task.stage];
            if (task.microbatch < last)
                fail(
                    "plan '{}': {} runs after {}, but batch norm's running averages follow the micro-batches\n"
                    "  help: run the forwards of a stage in ascending order, or a model without batch norm",
                    plan.schedule, print(task), print({Op::Forward, task.stage, last}));
            last = task.microbatch;
        }
    }
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
    if (has_batch_norm(*job.model))
        check_forward_order(job.plan);
}

}  // namespace pw
