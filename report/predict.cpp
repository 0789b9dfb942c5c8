#include "report/predict.h"

#include "job/settings.h"
#include "job/trace_config.h"
#include "schedules/memory/buffers.h"
#include "schedules/passes/passes.h"
#include "schedules/plan/versions.h"

#include <memory>
#include <type_traits>
#include <utility>

namespace pw {

TransferMode simulated_mode(const Job& job) {
    TransferMode mode = job.mode;
    mode.sent_copies = keeps_copies(job.costs, mode.early_receive());
    return mode;
}

namespace {

Simulator simulator_of(const Job& job, std::shared_ptr<const Plan> plan, std::shared_ptr<const VersionTable> versions) {
    std::shared_ptr<const Proof> proof = job.proof;
    if (!proof || !proof->graph.is_of(*plan)) {  // the plan was changed after it was proven
        proof = std::make_shared<const Proof>(Proof{PlanGraph(*plan)});
        versions = std::make_shared<const VersionTable>(versions_of(*plan));
    }
    return {std::move(plan), std::move(proof), std::move(versions), simulated_mode(job)};
}

// The simulator refers to the job: the plan and the versions may be large, and are not copied.
Simulator simulator_within(const Job& job) {
    const auto within = [](const auto& part) {
        using Part = std::remove_reference_t<decltype(part)>;
        return std::shared_ptr<Part>(std::shared_ptr<const void>(), &part);
    };
    return simulator_of(job, within(job.plan), within(job.versions));
}

}  // namespace

Simulator simulator_of(const Job& job) {
    return simulator_of(job, std::make_shared<const Plan>(job.plan),
                        std::make_shared<const VersionTable>(job.versions));
}

Trace predict(const Job& job) {
    check_precision(job.setup, job.profile);
    Trace trace = at_its_place(job.setup, [&] { return simulator_within(job).trace(job.costs); });
    add_config(trace, job);
    return trace;
}

PredictedNumbers predict_numbers(const Job& job) {
    check_precision(job.setup, job.profile);
    Trace head = trace_of(job.plan);
    head.label = kPredicted;
    add_config(head, job);
    Metrics metrics = at_its_place(job.setup, [&] { return simulator_within(job).metrics(job.costs, head); });
    return {std::move(head), std::move(metrics)};
}

}  // namespace pw
