#include "cli/pipeline.h"

#include "cli/table.h"
#include "exec/execute.h"
#include "schedules/buffers.h"
#include "schedules/durations.h"
#include "schedules/schedule.h"
#include "schedules/versions.h"
#include "workloads/beyond_limit.h"
#include "workloads/costs/micro_batch_sizes.h"
#include "workloads/costs/profiled_model.h"
#include "workloads/rules.h"

#include <fmt/format.h>

#include <algorithm>
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
    check_profile_exists(pipeline.config);
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
    pipeline.costs = executed_costs(costs_of(model, pipeline.split, pipeline.profile, sizes_of(pipeline.config.pipeline)),
                                    pipeline.config, pipeline.profile, model.layers, pipeline.split,
                                    pipeline.plan.shape);
    pipeline.model = std::move(model);
    return pipeline;
}

// Empty: not known.
std::string precision_of(const Profile& profile) {
    const bool has_several = profile.backend == "cuda";
    return profile.precision.empty() && !has_several ? "fp32" : profile.precision;
}

std::string note_on_uniform(const Config& config) {
    if (!config.cluster.profile.empty())
        return "model: uniform has its own times: cluster.profile is not used";
    if (config.pipeline.micro_batch_size != 1)
        return fmt::format(
            "the times and sizes of model: uniform are those of a micro-batch, whatever its size: "
            "pipeline.micro_batch_size {} counts in samples/s only",
            config.pipeline.micro_batch_size);
    return {};
}

// Sizes of micro-batches that every layer has times and bytes of.
std::vector<int> sizes_in(const Profile& profile) {
    std::vector<int> sizes;
    for (const auto& [size, data] : profile.data)
        if (std::all_of(profile.layers.begin(), profile.layers.end(), [size = size](const LayerProfile& layer) {
                return layer.times.contains(size) && layer.bytes.contains(size);
            }))
            sizes.push_back(size);
    return sizes;
}

std::string first_layers(const Pipeline& pipeline) {
    std::string text;
    for (const std::vector<int>& layers : pipeline.split.layers)
        text += (text.empty() ? "" : " | ") + pipeline.model->layers[static_cast<std::size_t>(layers.front())].name;
    return text;
}

}  // namespace

Pipeline pipeline_of(Config config, std::vector<std::string>* notices) {
    return at_its_place(config, [&] {
        if (is_uniform(config))
            return uniform_pipeline(config, notices);
        Model model = build_model(config);
        Profile profile = profile_of(config, model);
        return layered_pipeline(config, std::move(model), std::move(profile), !config.cluster.profile.empty(), notices);
    });
}

Pipeline pipeline_of(Config config, Profile profile) {
    return at_its_place(
        config, [&] { return layered_pipeline(config, build_model(config), std::move(profile), true, nullptr); });
}

bool knows_precision(const Config& config, const Profile& profile) {
    if (config.workload.model == "uniform" || is_from_file(config) || config.run.backend != "cuda")
        return true;  // other backends have one; times that the user wrote are those of any
    return config.run.precision == precision_of(profile);
}

void check_precision(const Config& config, const Profile& profile) {
    if (knows_precision(config, profile))
        return;
    const std::string known = precision_of(profile);
    config.fail_at(
        "run.precision",
        profile.backend == kAnalytic
            ? fmt::format("analytic costs are those of fp32; nothing is known of {}", config.run.precision)
            : fmt::format("the profile {}, the config runs in {}",
                          known.empty() ? "does not say its precision" : "was measured in " + known,
                          config.run.precision),
        "measure one in this precision: `pipewright profile CONFIG -o PROFILE.yaml`, and name it as cluster.profile");
}

Trace predict(const Pipeline& pipeline) {
    check_precision(pipeline.config, pipeline.profile);
    // a model can be run: predict what its backend does
    const TransferMode mode = pipeline.model ? executed_mode(pipeline.config) : mode_of(pipeline.config.transfer);
    Trace trace = at_its_place(pipeline.config, [&] { return simulate(pipeline.plan, pipeline.costs, mode); });
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

std::string note_on_sizes(const Pipeline& pipeline, const std::vector<int>& used) {
    const std::vector<int> known = sizes_in(pipeline.profile);
    std::vector<int> missing;
    for (const int size : used)
        if (std::find(known.begin(), known.end(), size) == known.end())
            missing.push_back(size);
    if (missing.empty() || pipeline.profile.backend == kAnalytic)
        return {};
    if (is_from_file(pipeline.config))
        return fmt::format("{} has no times for micro-batches of {}: scaled from {}", pipeline.model->name,
                           fmt::join(missing, ", "),
                           known.empty() ? "other sizes" : fmt::to_string(fmt::join(known, ", ")));
    return fmt::format(
        "the profile has no times for micro-batches of {}: {} from {}; add --sizes {} to "
        "`pipewright profile`",
        fmt::join(missing, ", "), known.size() == 1 ? "scaled" : "interpolated", fmt::join(known, ", "),
        fmt::join(missing, ","));
}

namespace {

std::string note_on_share(const Profile& profile) {
    return profile.cpu_share < kQuietShare
               ? fmt::format(
                     "the profile was measured with {:.0f} % of its cores, beside other programs: measure it "
                     "again on a quiet machine",
                     100 * profile.cpu_share)
               : "";
}

std::string note_on_model(const Pipeline& pipeline) {
    const std::vector<int> sizes = sizes_of(pipeline.config.pipeline).different();
    if (is_uniform(pipeline.config))
        return note_on_uniform(pipeline.config);
    if (is_from_file(pipeline.config))
        return note_on_sizes(pipeline, sizes);
    if (pipeline.model && !pipeline.measured)
        return "analytic costs: run `pipewright profile` to calibrate";
    const RunConfig& run = pipeline.config.run;
    if (pipeline.measured && !is_emulated(pipeline.config) &&
        (pipeline.profile.backend != run.backend || pipeline.profile.threads_per_device != run.threads_per_device))
        return fmt::format("the profile is of backend {} with {} thread(s) per device, the config runs {} with {}",
                           pipeline.profile.backend, pipeline.profile.threads_per_device, run.backend,
                           run.threads_per_device);
    if (pipeline.measured && run.backend == "cuda" && run.deterministic && !pipeline.profile.convolutions.empty())
        return "the profile was measured with the fastest convolutions; with run.deterministic: true others run";
    return note_on_sizes(pipeline, sizes);
}

}  // namespace

std::string note_on_costs(const Pipeline& pipeline) {
    const std::string share = note_on_share(pipeline.profile), other = note_on_model(pipeline);
    return share.empty() || other.empty() ? share + other : fmt::format("{}\nnote: {}", share, other);
}

void refuse_over_memory(const Pipeline& pipeline) {
    refuse_over_memory(at_its_place(pipeline.config,
                                    [&] {
                                        return reserved_of(pipeline.plan, pipeline.costs, versions_of(pipeline.plan),
                                                           mode_of(pipeline.config.transfer));
                                    }),
                       pipeline.config.cluster.devices);
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
