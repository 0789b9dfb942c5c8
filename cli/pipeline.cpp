#include "cli/pipeline.h"

#include "cli/table.h"
#include "exec/execute.h"
#include "schedules/buffers.h"
#include "schedules/durations.h"
#include "schedules/schedule.h"
#include "schedules/versions.h"
#include "workloads/error.h"
#include "workloads/micro_batch_sizes.h"
#include "workloads/profiled_model.h"
#include "workloads/rules.h"

#include <fmt/format.h>

#include <utility>

namespace pw {

namespace {

bool is_uniform(const Config& config) { return config.workload.model == "uniform"; }

bool is_from_file(const Config& config) { return model_file(config.workload.model) != ModelFile::None; }

Plan plan_of(const Config& config, const StageLinks& links, std::vector<std::string>* notices) {
    if (notices != nullptr)
        return make_plan(config, links, config.training.steps, notices);
    std::vector<std::string> own;
    Plan plan = make_plan(config, links, config.training.steps, &own);
    for (const std::string& notice : own)
        print_note(notice);
    return plan;
}

Pipeline uniform_pipeline(Config config, std::vector<std::string>* notices) {
    Pipeline pipeline;
    pipeline.config = std::move(config);
    check_rules(pipeline.config, nullptr);
    pipeline.costs = uniform_costs(pipeline.config);
    add_cluster(pipeline.costs, pipeline.config, {});
    pipeline.plan = plan_of(pipeline.config, {}, notices);
    return pipeline;
}

Pipeline layered_pipeline(Config config, Model model, Profile profile, bool measured,
                          std::vector<std::string>* notices) {
    Pipeline pipeline;
    pipeline.config = std::move(config);
    pipeline.profile = std::move(profile);
    pipeline.measured = measured;
    check_normalise(pipeline.config, model);
    check_rules(pipeline.config, &model);
    pipeline.split = make_split(pipeline.config, model, pipeline.profile);
    pipeline.plan = plan_of(pipeline.config, links_of(model.layers, pipeline.split), notices);
    pipeline.costs =
        executed_costs(costs_of(model, pipeline.split, pipeline.profile, sizes_of(pipeline.config.pipeline),
                                splits_backward(pipeline.plan)),
                       pipeline.config, pipeline.profile, model.layers, pipeline.split, pipeline.plan.shape);
    pipeline.model = std::move(model);
    return pipeline;
}

std::string first_layers(const Pipeline& pipeline) {
    std::string text;
    for (const std::vector<int>& layers : pipeline.split.layers)
        text += (text.empty() ? "" : " | ") + pipeline.model->layers[static_cast<std::size_t>(layers.front())].name;
    return text;
}

}  // namespace

Pipeline pipeline_of(Config config, std::vector<std::string>* notices) {
    if (is_uniform(config))
        return uniform_pipeline(std::move(config), notices);
    Model model = build_model(config);
    Profile profile = profile_of(config, model);
    const bool measured = !config.cluster.profile.empty();
    return layered_pipeline(std::move(config), std::move(model), std::move(profile), measured, notices);
}

Pipeline pipeline_of(Config config, Profile profile) {
    Model model = build_model(config);
    return layered_pipeline(std::move(config), std::move(model), std::move(profile), true, nullptr);
}

Trace predict(const Pipeline& pipeline) {
    // a model can be run: predict what its backend does
    const TransferMode mode = pipeline.model ? executed_mode(pipeline.config) : mode_of(pipeline.config.transfer);
    Trace trace = simulate(pipeline.plan, pipeline.costs, mode);
    trace.label = "predicted";
    trace.config = pipeline.config.yaml;
    trace.micro_batches = pipeline.config.pipeline.micro_batches;
    trace.micro_batch_size = pipeline.config.pipeline.micro_batch_size;
    trace.mini_batch = pipeline.config.pipeline.mini_batch;
    return trace;
}

std::string summary_of(const Pipeline& pipeline) {
    const std::string stages = pipeline.model ? fmt::format("stages from {}", first_layers(pipeline))
                                              : fmt::format("{} stages", pipeline.plan.shape.stages);
    return fmt::format("{}, {}, {}, {}", pipeline.model ? pipeline.model->name : "uniform", stages,
                       pipeline.plan.schedule, print(sizes_of(pipeline.config.pipeline)));
}

std::string note_on_costs(const Pipeline& pipeline) {
    const std::vector<int> sizes = sizes_of(pipeline.config.pipeline).different();
    if (is_from_file(pipeline.config))
        return pipeline.costs.interpolated
                   ? fmt::format("{} has no times for micro-batches of {}: scaled from other sizes",
                                 pipeline.model->name, fmt::join(sizes, " and "))
                   : "";
    if (pipeline.model && !pipeline.measured)
        return "analytic costs: run `pipewright profile` to calibrate";
    const RunConfig& run = pipeline.config.run;
    if (pipeline.measured && !is_emulated(pipeline.config) &&
        (pipeline.profile.backend != run.backend || pipeline.profile.threads_per_device != run.threads_per_device))
        return fmt::format("the profile is of backend {} with {} thread(s) per device, the config runs {} with {}",
                           pipeline.profile.backend, pipeline.profile.threads_per_device, run.backend,
                           run.threads_per_device);
    if (pipeline.costs.interpolated)
        return fmt::format(
            "the profile has no times for micro-batches of {}: interpolated; add --sizes {} to "
            "`pipewright profile`",
            fmt::join(sizes, " and "), fmt::join(sizes, ","));
    return {};
}

void refuse_over_memory(const Pipeline& pipeline) {
    const std::vector<Buffer> buffers = buffers_of(pipeline.plan, pipeline.costs, versions_of(pipeline.plan),
                                                   pipeline.config.transfer.receive == "early");
    refuse_over_memory(pipeline.plan, buffers, pipeline.config.cluster.devices);
}

void require_layers(const Config& config, const std::string& command) {
    if (is_from_file(config))
        config.fail_at("workload.model",
                       fmt::format("'{}' has times and sizes, but nothing to {}", config.workload.model, command),
                       "use `pipewright simulate`, run with run.backend: emulated, or name a built-in model: "
                       "`pipewright list models`");
    if (is_uniform(config))
        config.fail_at(
            "workload.model", fmt::format("a uniform workload has no layers to {}", command),
            "use `pipewright simulate`, run with run.backend: emulated, or name a model: `pipewright list models`");
}

}  // namespace pw
