// What a configuration names, built: errors of the builders point at the key that asked for it.
#include "job/build.h"

#include "job/cost_source.h"
#include "job/rules.h"
#include "schedules/durations.h"
#include "workloads/models/gpt.h"
#include "workloads/stages/ties.h"

#include <cassert>
#include <map>
#include <string>

namespace pw {
namespace {

StageSplit split_by_cuts(const Config& config, const Model& model) {
    const std::vector<std::string>& cuts = config.pipeline.cuts;
    // growing prefixes, so that the first wrong cut is the one pointed at
    for (std::size_t count = 0; count < cuts.size(); ++count)
        try {
            split_at(model.layers, {cuts.begin(), cuts.begin() + static_cast<std::ptrdiff_t>(count) + 1});
        } catch (const Error& error) {
            config.fail_at(fmt::format("pipeline.split[{}]", count), error.what(),
                           "write the first layer of each later stage in forward order, or split: auto");
        }
    return split_at(model.layers, cuts);
}

StageSplit split_by_names(const Config& config, const Model& model) {
    const std::vector<std::vector<std::string>>& lists = config.pipeline.lists;
    for (std::size_t stage = 0; stage < lists.size(); ++stage)
        for (std::size_t i = 0; i < lists[stage].size(); ++i)
            if (find_layer(model.layers, lists[stage][i]) < 0)
                config.fail_at(fmt::format("pipeline.split.stages[{}][{}]", stage, i),
                               fmt::format("{} has no layer '{}'", model.name, lists[stage][i]),
                               "name layers in full, as in layer3.0.conv2");
    try {
        return split_by_lists(model.layers, lists);
    } catch (const Error& error) {
        config.fail_at("pipeline.split.stages", error.what(),
                       "put every layer into exactly one stage, none behind a stage that reads it");
    }
}

bool is_segmented(const WorkloadConfig& workload) { return workload.model == "unet"; }

GptShape gpt_shape(const WorkloadConfig& workload) {
    return {workload.sequence_length, workload.vocabulary, workload.embedding,
            workload.blocks,          workload.heads,      workload.dropout};
}

Dataset open_sequences(const Config& config) {
    const auto& [length, vocabulary] = std::pair(config.workload.sequence_length, config.workload.vocabulary);
    const std::string& path = config.workload.path;
    if (config.workload.dataset != "text" || path.empty())
        return Dataset::synthetic_text(length, vocabulary, config.training.seed);
    try {
        return Dataset::text(path, length, vocabulary, config.training.seed);
    } catch (const Error& error) {
        config.fail_at("workload.path", error.what(),
                       "name a longer text file, or write a shorter workload.sequence_length");
    }
}

Dataset stored_dataset(const Config& config, const Model& model) {
    const WorkloadConfig& workload = config.workload;
    if (workload.model == "gpt")
        return open_sequences(config);
    if (workload.dataset == "cifar10" && !workload.path.empty())
        return Dataset::cifar10(workload.path, workload.image_size, config.training.seed);
    if (workload.dataset == "mnist" && !workload.path.empty())
        return Dataset::mnist(workload.path, model.input, config.training.seed);
    if (is_segmented(workload))
        return Dataset::segmentation(model.input, model.classes, config.training.seed);
    return Dataset::synthetic(model.input, model.classes, config.training.seed);
}

}  // namespace

Model build_model(const Config& config) {
    const WorkloadConfig& workload = config.workload;
    const CostSource source = cost_source_of(config).source;
    if (source == CostSource::File)
        return model_from_file(config).model;
    if (source == CostSource::Uniform)
        config.fail_at("workload.model", "model: uniform has times and no layers: there is nothing to build",
                       "use it with simulate and plan, or name a model, such as resnet50");
    const LayerKind loss = config.training.loss == TrainingConfig::Loss::MeanSquaredError
                               ? LayerKind::MeanSquaredError
                               : LayerKind::CrossEntropy;
    if (is_segmented(workload) && workload.dataset != "synthetic")
        config.fail_at("workload.dataset",
                       fmt::format("unet needs a label per pixel; {} has one per image", workload.dataset),
                       "write dataset: synthetic");
    if (workload.model == "gpt")
        return build_gpt(gpt_shape(workload), loss);
    try {
        if (workload.model == "resnet50")
            return build_resnet50(workload.image_size, workload.classes, loss);
        if (workload.model == "unet")
            return build_unet(workload.image_size, workload.base_channels, workload.levels, workload.classes, loss);
        const int channels = workload.dataset == "cifar10" ? 3 : 1;
        return build_mlp({channels, workload.image_size, workload.image_size}, workload.classes, workload.hidden, loss,
                         workload.dropout);
    } catch (const Error& error) {
        config.fail_at("workload.image_size", error.what(),
                       fmt::format("choose another image_size, such as {}", is_segmented(workload) ? 64 : 224));
    }
}

StageSplit make_split(const Config& config, const Model& model, const Profile& profile) {
    const PipelineConfig& pipeline = config.pipeline;
    if (pipeline.split == PipelineConfig::Split::Cuts)
        return split_by_cuts(config, model);
    if (pipeline.split == PipelineConfig::Split::Lists)
        return split_by_names(config, model);
    const bool even = pipeline.split == PipelineConfig::Split::Even;
    const std::vector<Ns> times = even ? std::vector<Ns>{} : layer_times(profile, pipeline.micro_batch_size);
    try {
        return even ? split_even(model.layers, pipeline.stages)
                    : split_bottleneck(model.layers, pipeline.stages, times);
    } catch (const Error& error) {
        config.fail_at(config.places.contains("pipeline.stages") ? "pipeline.stages" : "pipeline.split", error.what(),
                       "write fewer stages");
    }
}

Profile profile_of(const Config& config, const Model& model) {
    return cost_source_of(config).profile(config, model);
}

void add_cluster(Costs& costs, const Config& config, const Profile& profile) {
    const ClusterConfig& cluster = config.cluster;
    costs.speed.clear();
    costs.host.clear();
    std::map<std::string, int> hosts;  // devices that do not say stand on one, the nameless
    for (const DeviceConfig& device : cluster.devices) {
        costs.speed.push_back(device.speed);
        costs.host.push_back(hosts.try_emplace(device.host, static_cast<int>(hosts.size())).first->second);
    }
    const bool profiled = is_measured(profile) && !cluster.link_given;
    const Link given{cluster.link_latency, cluster.link_bandwidth};
    costs.link = profiled ? profile.link : given;
    costs.sums = profiled ? profile.sums : given;
    if (config.run.transport == RunConfig::Transport::Link)
        costs.sent_copies = true;
}

Dataset open_dataset(const Config& config, const Model& model) {
    check_normalise(config, model);
    Dataset data = stored_dataset(config, model);
    data.change(config.workload.changes);
    assert(data.labels_per_sample() == labels_per_sample(model));
    return data;
}

Costs complete_costs(Costs of_stages, const Config& config, const Profile& profile, const LayerGraph& graph,
                     const StageSplit& split, const Shape& shape) {
    Costs costs = std::move(of_stages);
    add_cluster(costs, config, profile);
    add_gradient_sums(costs, shape, ties_of(graph, split));
    return costs;
}

}  // namespace pw
