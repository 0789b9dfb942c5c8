// Builds what a config names. Errors of the builders point at the key.
#include "job/build.h"

#include "job/offload.h"

#include "job/cost_source.h"
#include "job/makes.h"
#include "job/plan.h"
#include "job/rules.h"
#include "job/settings.h"
#include "job/slices.h"
#include "job/transformer_job.h"
#include "schedules/plan/gradient_sums.h"
#include "workloads/bounded.h"
#include "workloads/data/data_sources.h"
#include "workloads/models/blocks.h"
#include "workloads/models/frozen_layers.h"
#include "workloads/models/recomputed_layers.h"
#include "workloads/stages/layout_notation.h"
#include "workloads/stages/ties.h"
#include "workloads/transformers/transformer_model.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <numeric>
#include <string>

namespace pw {
namespace {

StageSplit split_by_cuts(const Setup& setup, const Model& model) {
    const std::vector<std::string>& cuts = setup.pipeline.cuts;
    // growing prefixes, so that the error points at the first wrong cut
    for (std::size_t count = 0; count < cuts.size(); ++count)
        try {
            split_at(model.layers, {cuts.begin(), cuts.begin() + static_cast<std::ptrdiff_t>(count) + 1});
        } catch (const Error& error) {
            fail_at(setup, fmt::format("pipeline.split[{}]", count), error,
                    "write the first layer of each later stage in forward order, or split: auto");
        }
    return split_at(model.layers, cuts);
}

StageSplit split_by_names(const Setup& setup, const Model& model) {
    const std::vector<std::vector<std::string>>& lists = setup.pipeline.lists;
    for (std::size_t stage = 0; stage < lists.size(); ++stage)
        for (std::size_t i = 0; i < lists[stage].size(); ++i)
            if (find_layer(model.layers, lists[stage][i]) < 0)
                setup.fail_at(fmt::format("pipeline.split.stages[{}][{}]", stage, i),
                              fmt::format("{} has no layer '{}'", model.name, lists[stage][i]),
                              "name layers in full, as in layer3.0.conv2");
    try {
        return split_by_lists(model.layers, lists);
    } catch (const Error& error) {
        fail_at(setup, "pipeline.split.stages", error,
                "put every layer into exactly one stage, none in a later stage than its readers");
    }
}

// Returns the letters of the stages of a list of blocks, which has the stages of device 0 first, then the stages of
// device 1.
std::vector<std::string> letters_of_counts(const Setup& setup) {
    const std::vector<int>& blocks = setup.pipeline.blocks;
    const std::vector<int> device_of = holders_of_stages(setup).device_of;
    std::vector<std::size_t> in_list(blocks.size());  // by stage
    std::iota(in_list.begin(), in_list.end(), std::size_t{0});
    if (device_of.size() == blocks.size()) {
        std::vector<int> by_device(blocks.size());
        std::iota(by_device.begin(), by_device.end(), 0);
        std::stable_sort(by_device.begin(), by_device.end(), [&](int a, int b) { return device_of[a] < device_of[b]; });
        for (std::size_t place = 0; place < blocks.size(); ++place)
            in_list[static_cast<std::size_t>(by_device[place])] = place;
    }
    std::vector<int> by_stage;
    for (const std::size_t place : in_list)
        by_stage.push_back(blocks[place]);
    return letters_of_blocks(by_stage, setup.workload.transformer ? setup.workload.transformer->mtp : 0);
}

StageSplit split_by_letters(const Setup& setup, const Model& model, const std::vector<std::string>& letters) {
    try {
        return split_by_layout(model.layers, letters, is_decoder(setup.workload.model));
    } catch (const Error& error) {
        fail_at(setup, "pipeline.split", error, "write as many blocks as the model has, or the first layers of stages");
    }
}

void check_empty_stages(const Setup& setup, const StageSplit& split) {
    const int empty = first_empty_stage(split);
    if (empty < 0)
        return;
    const char* const key = setup.pipeline.split == PipelineConfig::Split::Lists    ? "pipeline.split.stages[{}]"
                            : setup.pipeline.split == PipelineConfig::Split::Counts ? "pipeline.split[{}]"
                                                                                    : "pipeline.split";
    if (!cost_source_of(setup).may_be_empty)
        setup.fail_at(
            fmt::format(fmt::runtime(key), empty),
            fmt::format("stage {} gets no layer, and only transformers on a cluster may have empty stages", empty),
            "give the stage a layer");
    for (const int end : {0, split.stages() - 1})
        if (split.layers[static_cast<std::size_t>(end)].empty())
            setup.fail_at(
                fmt::format(fmt::runtime(key), end),
                fmt::format("stage {} gets no layer; only stages between the first and the last one may be empty", end),
                "give the stage a layer");
}

// A split of the file's may not cut a block if the file says so.
void check_blocks(const Setup& setup, const Model& model, const StageSplit& split) {
    const std::vector<int> starts = starts_of_blocks(model.layers);
    for (std::size_t block = 0; block < starts.size(); ++block) {
        const int first = starts[block];
        const int end = block + 1 < starts.size() ? starts[block + 1] : static_cast<int>(num_vertices(model.layers));
        for (int layer = first + 1; layer < end; ++layer)
            if (split.stage_of[layer] != split.stage_of[first])
                setup.fail_at("pipeline.split",
                              fmt::format("'{}' and '{}' are of one block, but in stages {} and {} (pipeline.cuts)",
                                          model.layers[first].name, model.layers[layer].name, split.stage_of[first],
                                          split.stage_of[layer]),
                              "cut between blocks, or write cuts: layers");
    }
}

// Returns the kind of labels of the workload's data set.
Labels labels_of(const Setup& setup) {
    const BuiltInModel* model = find_model(setup.workload.model);
    return model == nullptr ? Labels::PerImage : model->labels;
}

Dataset stored_dataset(const Setup& setup, const Model& model) {
    const WorkloadConfig& workload = setup.workload;
    const DataSource& source = data_source(workload.dataset);
    const std::int64_t seed = setup.training.seed;
    if (source.open == nullptr || workload.path.empty())
        return made_up(labels_of(setup), model, seed);
    try {
        return source.open(workload.path, model, seed);
    } catch (const Error& error) {
        if (error.code() != ExitCode::BadInput)
            throw;
        fail_at(setup, "workload.path", error, "correct the path");
    }
}

// Reading the config has checked that models of tokens and of images get their kind of data.
void check_labels(const Setup& setup, const BuiltInModel& model) {
    const DataSource& source = data_source(setup.workload.dataset);
    if (model.labels == Labels::PerPixel && source.labels && *source.labels != Labels::PerPixel)
        setup.fail_at("workload.dataset",
                      fmt::format("{} needs a label per pixel; {} has one per image", model.name, source.name),
                      fmt::format("write dataset: {}", data_sources().front().name));
}

const BuiltInModel& built_in_model(const Setup& setup) {
    const BuiltInModel* model = find_model(setup.workload.model);
    if (model == nullptr)
        setup.fail_at("workload.model", fmt::format("unknown model '{}'", setup.workload.model),
                      "see `pipewright list models`");
    if (model->build == nullptr)
        setup.fail_at("workload.model", fmt::format("model: {} has times but no layers to build", model->name),
                      fmt::format("use it with simulate and plan, or name another model, such as {}",
                                  built_in_models().front()->name));
    return *model;
}

// Without hosts it is not known which link of the profile two devices have.
void check_hosts(const Profile& profile, const Setup& setup) {
    const ClusterConfig& cluster = setup.cluster;
    const auto nameless = std::find_if(cluster.devices.begin(), cluster.devices.end(),
                                       [](const DeviceConfig& device) { return device.host.empty(); });
    if (profile.between_hosts && !cluster.link_given && cluster.devices.size() > 1 && nameless != cluster.devices.end())
        setup.fail_at("cluster.profile",
                      fmt::format("the profile has one link inside a host and another one between hosts, but device {} "
                                  "has no host",
                                  nameless - cluster.devices.begin()),
                      "write how many devices each host has (cluster.devices_per_host), the host of each device, or "
                      "cluster.link");
}

}  // namespace

namespace {

Model built_model(const Setup& setup) {
    if (const CostSourceRow& source = cost_source_of(setup); source.model != nullptr)
        return source.model(setup);
    const BuiltInModel& model = built_in_model(setup);
    check_labels(setup, model);
    const DataSource& source = data_source(setup.workload.dataset);
    const LayerKind loss = setup.training.loss == TrainingConfig::Loss::MeanSquaredError ? LayerKind::MeanSquaredError
                                                                                         : LayerKind::CrossEntropy;
    try {
        return model.build(setup.workload.options, source.image.channels, loss);
    } catch (const Error& error) {
        fail_at(setup, "workload.image_size", error,
                fmt::format("choose another image_size, such as {}", default_image_size(model, source)));
    }
}

}  // namespace

Model build_model(const Setup& setup) {
    Model model = built_model(setup);
    mark_layers(setup, model);
    return model;
}

void mark_layers(const Setup& setup, Model& model) {
    mark_recomputed(setup, model);
    try {
        set_frozen(model.layers, setup.workload.frozen);
    } catch (const Error& error) {
        fail_at(setup, "workload.frozen", error,
                "name layers or their blocks, as in layer3.0.conv2 or layer3, and leave a layer with parameters out; "
                "'*' matches any characters");
    }
}

void mark_recomputed(const Setup& setup, Model& model) {
    try {
        set_recomputed(model.layers, setup.pipeline.recompute_layers);
    } catch (const Error& error) {
        fail_at(setup, "pipeline.recompute_layers", error,
                "name layers or their blocks, as in layer3.0.conv2 or layer3; '*' matches any characters");
    }
}

void mark_offloaded(const Setup& setup, const StageSplit& split, Model& model) {
    std::vector<int> layers;
    for (const int stage : setup.pipeline.offload.stages)
        layers.insert(layers.end(), split.layers[stage].begin(), split.layers[stage].end());
    try {
        set_offloaded(model.layers, layers, setup.pipeline.offload_layers);
    } catch (const Error& error) {
        fail_at(setup, "pipeline.offload_layers", error,
                "name layers or their blocks, as in layer3.0.conv2 or layer3; '*' matches any characters");
    }
}

namespace {

// Returns the speed of the device of each stage, or 1 where a stage has several devices. No device has two stages.
std::vector<double> speeds_of_stages(const Setup& setup, const StageHolders& holders) {
    std::vector<double> speeds;
    for (const int device : holders.device_of)
        speeds.push_back(holders.speed[static_cast<std::size_t>(device)]);
    return speeds.empty() ? std::vector<double>(static_cast<std::size_t>(setup.pipeline.stages), 1) : speeds;
}

// Returns the speed of each make by the times of all layers, relative to the first make. Empty if there is one make.
std::vector<double> speeds_of_makes(const LayerGraph& graph, const Profile& profile, int samples) {
    const auto time_of = [&](const std::vector<LayerProfile>& layers) {
        Profile own = profile;
        own.layers = layers;
        const std::vector<Ns> times = layer_times(graph, own, samples);
        return std::accumulate(times.begin(), times.end(), 0.0);
    };
    std::vector<double> speeds;
    for (const std::vector<LayerProfile>& layers : profile.of_makes)
        speeds.push_back(time_of(profile.of_makes.front()) / std::max(1.0, time_of(layers)));
    return speeds;
}

StageSplit split_made(const Setup& setup, const Model& model, const Profile& profile) {
    const PipelineConfig& pipeline = setup.pipeline;
    const bool even = pipeline.split == PipelineConfig::Split::Even;
    const std::vector<Ns> times =
        even ? std::vector<Ns>{} : layer_times(model.layers, profile, pipeline.micro_batch_size);
    const CutPlaces places = places_of_cuts(setup, model.layers);
    try {
        if (even)
            return split_even(model.layers, pipeline.stages, places);
        const StageHolders holders =
            holders_of_stages(setup, speeds_of_makes(model.layers, profile, pipeline.micro_batch_size));
        if (holders.device_of.size() > holders.speed.size())
            return split_balanced(model.layers, times, holders, places);
        return split_bottleneck(model.layers, speeds_of_stages(setup, holders), times, places);
    } catch (const Error& error) {
        fail_at(setup, setup.places.contains("pipeline.stages") ? "pipeline.stages" : "pipeline.split", error,
                "write fewer stages");
    }
}

StageSplit split_given(const Setup& setup, const Model& model) {
    using Split = PipelineConfig::Split;
    const PipelineConfig& pipeline = setup.pipeline;
    StageSplit split = pipeline.split == Split::Cuts    ? split_by_cuts(setup, model)
                       : pipeline.split == Split::Lists ? split_by_names(setup, model)
                       : pipeline.split == Split::Counts
                           ? split_by_letters(setup, model, letters_of_counts(setup))
                           : split_by_letters(setup, model, stages_of_layout(pipeline.layout));
    check_empty_stages(setup, split);
    if (pipeline.cut_at == PipelineConfig::CutAt::Blocks)
        check_blocks(setup, model, split);
    return split;
}

StageSplit split_of_layers(const Setup& setup, const Model& model, const Profile& profile) {
    using Split = PipelineConfig::Split;
    const Split split = setup.pipeline.split;
    if (split != Split::Auto && split != Split::Even)
        return split_given(setup, model);
    if (const CostSourceRow& source = cost_source_of(setup);
        source.usual_split != nullptr && !setup.places.contains("pipeline.split"))
        return source.usual_split(setup, model);
    return split_made(setup, model, profile);
}

}  // namespace

CutPlaces places_of_cuts(const Setup& setup, const LayerGraph& graph) {
    return setup.pipeline.cut_at == PipelineConfig::CutAt::Blocks ? starts_of_blocks(graph) : CutPlaces{};
}

StageSplit make_split(const Setup& setup, const Model& model, const Profile& profile) {
    StageSplit split = split_of_layers(setup, model, profile);
    group_readers(split, setup.run);
    return split;
}

void group_readers(StageSplit& split, const RunConfig& run) {
    split.reader_groups.clear();
    if (run.fan_out_gradients == RunConfig::FanOutGradients::Stage)
        return;
    split.reader_groups.resize(split.stage_of.size());
    std::iota(split.reader_groups.begin(), split.reader_groups.end(), 0);
}

Profile in_cluster(Profile profile, const Setup& setup) {
    if (setup.cluster.dispatch)
        profile.dispatch = {*setup.cluster.dispatch, 0};
    check_hosts(profile, setup);
    return profile;
}

void add_settings(Costs& costs, const Setup& setup) {
    costs.optimizer = setup.training.optimizer;
    costs.kept = kept_of(setup);
    costs.zero = setup.training.zero;
    costs.sum_bucket = setup.sum_bucket;
    costs.mover_share = setup.mover_share;
    costs.pair_exposed = setup.pipeline.pair_exposed;
    if (setup.run.transport == RunConfig::Transport::Link || setup.run.transport == RunConfig::Transport::Mpi)
        costs.sent_copies = true;
}

Dataset open_dataset(const Setup& setup, const Model& model) {
    check_normalise(setup, model);
    Dataset data = stored_dataset(setup, model);
    data.change(setup.workload.changes);
    assert(data.labels_per_sample() == labels_per_sample(model));
    return data;
}

Costs complete_costs(Costs of_stages, const Setup& setup, std::shared_ptr<const Cluster> cluster,
                     const LayerGraph& graph, const StageSplit& split, const Shape& shape) {
    Costs costs = std::move(of_stages);
    costs.lengths = setup.pipeline.micro_batch_lengths;
    costs.cluster = std::move(cluster);
    add_settings(costs, setup);
    cut_in_slices(costs, slice_ends_of(setup, shape.slices, attention_part(costs)));
    offload_in_part(costs, setup);
    add_gradient_sums(costs, shape, ties_of(graph, split, keeps_blocks(setup) ? kFloatBytes : costs.kept.gradient),
                      setup.sums);
    if (const CostSourceRow& source = cost_source_of(setup); source.add_groups != nullptr)
        source.add_groups(costs, setup, split, shape);
    sum_on_the_way(costs, shape);
    return costs;
}

}  // namespace pw
