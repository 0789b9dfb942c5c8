#include "report/predict.h"

#include "job/settings.h"
#include "schedules/memory/buffers.h"
#include "schedules/passes/passes.h"

namespace pw {

TransferMode simulated_mode(const Job& job) {
    TransferMode mode = job.mode;
    mode.sent_copies = keeps_copies(job.costs, mode.early_receive());
    return mode;
}

Simulator simulator_of(const Job& job) {
    const TransferMode mode = simulated_mode(job);
    if (!job.proof || !job.proof->graph.is_of(job.plan))  // the plan was changed after it was proven
        return Simulator(job.plan, mode);
    const std::shared_ptr<const VersionTable> versions(std::shared_ptr<const void>(), &job.versions);
    return Simulator(job.plan, job.proof, versions, mode);
}

Trace predict(const Job& job) {
    check_precision(job.config, job.profile);
    Trace trace = at_its_place(job.config, [&] { return simulator_of(job).trace(job.costs); });
    add_config(trace, job.config);
    return trace;
}

PredictedNumbers predict_numbers(const Job& job) {
    check_precision(job.config, job.profile);
    Trace head = trace_of(job.plan);
    head.label = kPredicted;
    add_config(head, job.config);
    Metrics metrics = at_its_place(job.config, [&] { return simulator_of(job).metrics(job.costs, head); });
    return {std::move(head), std::move(metrics)};
}

}  // namespace pw
