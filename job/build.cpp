// Builds what a config names; errors of the builders point at the key.
#include "job/build.h"

#include "job/cost_source.h"
#include "job/makes.h"
#include "job/plan.h"
#include "job/rules.h"
#include "job/settings.h"
#include "job/transformer_job.h"
#include "schedules/plan/gradient_sums.h"
#include "workloads/bounded.h"
#include "workloads/costs/slices.h"
#include "workloads/data/data_sources.h"
#include "workloads/models/blocks.h"
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

StageSplit split_by_cuts(const Config& config, const Model& model) {
    const std::vector<std::string>& cuts = config.pipeline.cuts;
    // growing prefixes, so that the error points at the first wrong cut
    for (std::size_t count = 0; count < cuts.size(); ++count)
        try {
            split_at(model.layers, {cuts.begin(), cuts.begin() + static_cast<std::ptrdiff_t>(count) + 1});
        } catch (const Error& error) {
            fail_at(config, fmt::format("pipeline.split[{}]", count), error,
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
        fail_at(config, "pipeline.split.stages", error,
                "put every layer into exactly one stage, none in a later stage than its readers");
    }
}

// Returns the letters of the stages of a list of blocks, which has the stages of device 0 first, then the stages of
// device 1.
std::vector<std::string> letters_of_counts(const Config& config) {
    const std::vector<int>& blocks = config.pipeline.blocks;
    const std::vector<int> device_of = holders_of_stages(config).device_of;
    std::vector<std::size_t> in_list(blocks.size());  // by stage
    std::iota(in_list.begin(), in_list.end(), std::size_t{0});
    if (device_of.size() == blocks.size()) {
        std::vector<int> by_device(blocks.size());
        std::iota(by_device.begin(), by_device.end(), 0);
        std::stable_sort(by_device.begin(), by_device.end(), [&](int a, int b) { return device_of[a] < device_of[b]; });
        for (std::size_t place = 0; place < blocks.size(); ++place)
            in_list[static_cast<std::size_t>(by_device[place])] = place;
    }
    std::vector<std::string> letters;
    for (std::size_t stage = 0; stage < blocks.size(); ++stage) {
        const bool is_first = stage == 0, is_last = stage + 1 == blocks.size();
        letters.push_back((is_first ? "E" : "") + std::string(static_cast<std::size_t>(blocks[in_list[stage]]), 't') +
                          (is_last ? "L" : ""));
        if (letters.back().empty())
            config.fail_at(fmt::format("pipeline.split[{}]", in_list[stage]),
                           fmt::format("stage {} gets no layer: no stage can be empty here", stage),
                           "give the stage a block");
    }
    return letters;
}

StageSplit split_by_letters(const Config& config, const Model& model, const std::vector<std::string>& letters) {
    try {
        return split_by_layout(model.layers, letters, is_decoder(config.workload.model));
    } catch (const Error& error) {
        fail_at(config, "pipeline.split", error,
                "write as many blocks as the model has, or the first layers of stages");
    }
}

// A split of the file's may not cut a block if the file says so.
void check_blocks(const Config& config, const Model& model, const StageSplit& split) {
    const std::vector<int> starts = starts_of_blocks(model.layers);
    for (std::size_t block = 0; block < starts.size(); ++block) {
        const int first = starts[block];
        const int end = block + 1 < starts.size() ? starts[block + 1] : static_cast<int>(num_vertices(model.layers));
        for (int layer = first + 1; layer < end; ++layer)
            if (split.stage_of[layer] != split.stage_of[first])
                config.fail_at("pipeline.split",
                               fmt::format("'{}' and '{}' are of one block, but in stages {} and {} (pipeline.cuts)",
                                           model.layers[first].name, model.layers[layer].name, split.stage_of[first],
                                           split.stage_of[layer]),
                               "cut between blocks, or write cuts: layers");
    }
}

// Returns the kind of labels of the workload's data set.
Labels labels_of(const Config& config) {
    const BuiltInModel* model = find_model(config.workload.model);
    return model == nullptr ? Labels::PerImage : model->labels;
}

Dataset stored_dataset(const Config& config, const Model& model) {
    const WorkloadConfig& workload = config.workload;
    const DataSource& source = data_source(workload.dataset);
    const std::int64_t seed = config.training.seed;
    if (source.open == nullptr || workload.path.empty())
        return made_up(labels_of(config), model, seed);
    try {
        return source.open(workload.path, model, seed);
    } catch (const Error& error) {
        if (error.code() != ExitCode::BadInput)
            throw;
        fail_at(config, "workload.path", error, "correct the path");
    }
}

// Reading the config has checked that models of tokens and of images get their kind of data.
void check_labels(const Config& config, const BuiltInModel& model) {
    const DataSource& source = data_source(config.workload.dataset);
    if (model.labels == Labels::PerPixel && source.labels && *source.labels != Labels::PerPixel)
        config.fail_at("workload.dataset",
                       fmt::format("{} needs a label per pixel; {} has one per image", model.name, source.name),
                       fmt::format("write dataset: {}", data_sources().front().name));
}

const BuiltInModel& built_in_model(const Config& config) {
    const BuiltInModel* model = find_model(config.workload.model);
    if (model == nullptr)
        config.fail_at("workload.model", fmt::format("unknown model '{}'", config.workload.model),
                       "see `pipewright list models`");
    if (model->build == nullptr)
        config.fail_at("workload.model", fmt::format("model: {} has times but no layers to build", model->name),
                       fmt::format("use it with simulate and plan, or name another model, such as {}",
                                   built_in_models().front()->name));
    return *model;
}

// Without hosts it is not known which link of the profile two devices have.
void check_hosts(const Profile& profile, const Config& config) {
    const ClusterConfig& cluster = config.cluster;
    const auto nameless = std::find_if(cluster.devices.begin(), cluster.devices.end(),
                                       [](const DeviceConfig& device) { return device.host.empty(); });
    if (profile.between_hosts && !cluster.link_given && cluster.devices.size() > 1 && nameless != cluster.devices.end())
        config.fail_at(
            "cluster.profile",
            fmt::format("the profile has one link inside a host and another one between hosts, but device {} "
                        "has no host",
                        nameless - cluster.devices.begin()),
            "write how many devices each host has (cluster.devices_per_host), the host of each device, or "
            "cluster.link");
}

}  // namespace

namespace {

Model built_model(const Config& config) {
    if (cost_source_of(config).source == CostSource::File)
        return model_from_file(config).model;
    if (is_transformer(config))
        return transformer_model(transformer_job_of(config), config.pipeline.micro_batch_size).model;
    const BuiltInModel& model = built_in_model(config);
    check_labels(config, model);
    const DataSource& source = data_source(config.workload.dataset);
    const LayerKind loss = config.training.loss == TrainingConfig::Loss::MeanSquaredError ? LayerKind::MeanSquaredError
                                                                                          : LayerKind::CrossEntropy;
    try {
        return model.build(config.workload.options, source.image.channels, loss);
    } catch (const Error& error) {
        fail_at(config, "workload.image_size", error,
                fmt::format("choose another image_size, such as {}", default_image_size(model, source)));
    }
}

}  // namespace

Model build_model(const Config& config) {
    Model model = built_model(config);
    mark_recomputed(config, model);
    return model;
}

void mark_recomputed(const Config& config, Model& model) {
    try {
        set_recomputed(model.layers, config.pipeline.recompute_layers);
    } catch (const Error& error) {
        fail_at(config, "pipeline.recompute_layers", error,
                "name layers or their blocks, as in layer3.0.conv2 or layer3; '*' matches any characters");
    }
}

namespace {

// Gives every stage equally many blocks, as Megatron-LM does, with the embedding in the first and the head in the last.
// Where that is not possible, both count as blocks; else the first stages have one more.
StageSplit split_by_blocks(const Config& config, const Model& model) {
    const int stages = config.pipeline.stages, blocks = config.workload.transformer->layers;
    if (slots_of_stages(blocks, stages) < stages)
        config.fail_at(config.places.contains("pipeline.stages") ? "pipeline.stages" : "parallel.pipeline",
                       fmt::format("{} blocks cannot be divided among {} stages", blocks, stages),
                       "write fewer stages");
    std::vector<std::string> cuts;
    int next = 0;
    const std::vector<int> of_stages = even_blocks(blocks, stages);
    for (int stage = 0; stage + 1 < stages; ++stage) {
        next += of_stages[static_cast<std::size_t>(stage)];
        cuts.push_back(next < blocks ? fmt::format("block.{}", next) : "head");
    }
    return split_at(model.layers, cuts);
}

// Returns the speed of the device of each stage, where no device has two stages; 1 where a stage has several devices.
std::vector<double> speeds_of_stages(const Config& config, const StageHolders& holders) {
    std::vector<double> speeds;
    for (const int device : holders.device_of)
        speeds.push_back(holders.speed[static_cast<std::size_t>(device)]);
    return speeds.empty() ? std::vector<double>(static_cast<std::size_t>(config.pipeline.stages), 1) : speeds;
}

// Returns the speed of each make by the times of all layers, relative to the first make; empty if there is one.
std::vector<double> speeds_of_makes(const Profile& profile, int samples) {
    const auto time_of = [&](const std::vector<LayerProfile>& layers) {
        Profile own = profile;
        own.layers = layers;
        const std::vector<Ns> times = layer_times(own, samples);
        return std::accumulate(times.begin(), times.end(), 0.0);
    };
    std::vector<double> speeds;
    for (const std::vector<LayerProfile>& layers : profile.of_makes)
        speeds.push_back(time_of(profile.of_makes.front()) / std::max(1.0, time_of(layers)));
    return speeds;
}

StageSplit split_made(const Config& config, const Model& model, const Profile& profile) {
    const PipelineConfig& pipeline = config.pipeline;
    const bool even = pipeline.split == PipelineConfig::Split::Even;
    const std::vector<Ns> times = even ? std::vector<Ns>{} : layer_times(profile, pipeline.micro_batch_size);
    const CutPlaces places = places_of_cuts(config, model.layers);
    try {
        if (even)
            return split_even(model.layers, pipeline.stages, places);
        const StageHolders holders = holders_of_stages(config, speeds_of_makes(profile, pipeline.micro_batch_size));
        if (holders.device_of.size() > holders.speed.size())
            return split_balanced(model.layers, times, holders, places);
        return split_bottleneck(model.layers, speeds_of_stages(config, holders), times, places);
    } catch (const Error& error) {
        fail_at(config, config.places.contains("pipeline.stages") ? "pipeline.stages" : "pipeline.split", error,
                "write fewer stages");
    }
}

StageSplit split_given(const Config& config, const Model& model) {
    using Split = PipelineConfig::Split;
    const PipelineConfig& pipeline = config.pipeline;
    StageSplit split = pipeline.split == Split::Cuts    ? split_by_cuts(config, model)
                       : pipeline.split == Split::Lists ? split_by_names(config, model)
                       : pipeline.split == Split::Counts
                           ? split_by_letters(config, model, letters_of_counts(config))
                           : split_by_letters(config, model, stages_of_layout(pipeline.layout));
    if (pipeline.cut_at == PipelineConfig::CutAt::Blocks)
        check_blocks(config, model, split);
    return split;
}

StageSplit split_of_layers(const Config& config, const Model& model, const Profile& profile) {
    using Split = PipelineConfig::Split;
    const Split split = config.pipeline.split;
    if (split != Split::Auto && split != Split::Even)
        return split_given(config, model);
    if (is_transformer(config) && !config.places.contains("pipeline.split"))
        return split_by_blocks(config, model);
    return split_made(config, model, profile);
}

}  // namespace

CutPlaces places_of_cuts(const Config& config, const LayerGraph& graph) {
    return config.pipeline.cut_at == PipelineConfig::CutAt::Blocks ? starts_of_blocks(graph) : CutPlaces{};
}

StageSplit make_split(const Config& config, const Model& model, const Profile& profile) {
    StageSplit split = split_of_layers(config, model, profile);
    group_readers(split, config.run);
    return split;
}

void group_readers(StageSplit& split, const RunConfig& run) {
    split.reader_groups.clear();
    if (run.fan_out_gradients == RunConfig::FanOutGradients::Stage)
        return;
    split.reader_groups.resize(split.stage_of.size());
    std::iota(split.reader_groups.begin(), split.reader_groups.end(), 0);
}

Profile in_cluster(Profile profile, const Config& config) {
    if (config.cluster.dispatch)
        profile.dispatch = {*config.cluster.dispatch, 0};
    check_hosts(profile, config);
    return profile;
}

void add_settings(Costs& costs, const Config& config) {
    costs.optimizer = config.training.optimizer;
    costs.shard_optimizer = config.training.shard_optimizer;
    costs.sum_bucket = config.sum_bucket;
    costs.mover_share = config.mover_share;
    costs.pair_exposed = config.pipeline.pair_exposed;
    if (config.run.transport == RunConfig::Transport::Link || config.run.transport == RunConfig::Transport::Mpi)
        costs.sent_copies = true;
}

Dataset open_dataset(const Config& config, const Model& model) {
    check_normalise(config, model);
    Dataset data = stored_dataset(config, model);
    data.change(config.workload.changes);
    assert(data.labels_per_sample() == labels_per_sample(model));
    return data;
}

namespace {

// Gives stages whose devices have other degrees their sizes. Between stages, the ranks of the smaller one share a
// tensor: each of them sends its part, or receives it from one or several ranks.
void take_sizes_of_stages(Costs& costs, const Config& config, const Shape& shape) {
    std::vector<int> ranks;  // that share a tensor, by stage
    for (int stage = 0; stage < shape.stages; ++stage) {
        const std::vector<int> devices = shape.devices_of(stage);
        if (devices.size() > 1)
            config.fail_at("parallel",
                           fmt::format("schedule {} gives stage {} to {} devices, whose degrees differ",
                                       config.pipeline.schedule, stage, devices.size()),
                           "write one degree for all stages, or a schedule in which each stage has one device");
        const Parallel& degrees = config.parallel.degrees_of(devices.front());
        ranks.push_back(degrees.tensor * degrees.context);
        if (const std::vector<StageBytes>& sizes = costs.times_on(devices.front()).sizes; !sizes.empty())
            costs.bytes[static_cast<std::size_t>(stage)] = sizes[static_cast<std::size_t>(stage)];
    }
    TransformerJob whole = transformer_job_of(config);
    whole.parallel.tensor = whole.parallel.context = 1;
    whole.parallel.sequence = false;
    const double tensor = TransformerLayers(whole).output_bytes(config.pipeline.micro_batch_size);
    for (EdgeBytes& edge : costs.edges)
        for (Bytes* bytes : {&edge.forward, &edge.backward})
            if (*bytes > 0)
                *bytes = bounded(std::ceil(tensor / std::min(ranks[static_cast<std::size_t>(edge.from)],
                                                             ranks[static_cast<std::size_t>(edge.to)])));
}

}  // namespace

Costs complete_costs(Costs of_stages, const Config& config, std::shared_ptr<const Cluster> cluster,
                     const LayerGraph& graph, const StageSplit& split, const Shape& shape) {
    Costs costs = std::move(of_stages);
    costs.lengths = config.pipeline.micro_batch_lengths;
    costs.cluster = std::move(cluster);
    add_settings(costs, config);
    cut_in_slices(costs, shape.slices);
    add_gradient_sums(costs, shape, ties_of(graph, split), config.sums);
    if (is_transformer(config)) {
        add_replicas(costs, transformer_jobs_of(config), split, config.pipeline.micro_batch_size);
        if (!config.parallel.of_stages.empty())
            take_sizes_of_stages(costs, config, shape);
    }
    return costs;
}

}  // namespace pw
