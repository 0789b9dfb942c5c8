#include "job/cost_source.h"

#include "job/rules.h"
#include "job/transformer_source.h"
#include "workloads/bounded.h"
#include "workloads/costs/micro_batch_sizes.h"

#include <algorithm>
#include <filesystem>
#include <limits>

namespace pw {

namespace {

TrainingKind training_of(const Setup& setup, Precision precision) {
    return {.precision = precision, .optimizer = setup.training.optimizer, .types = setup.training.types};
}

Profile profile_from_file(const Setup& setup, const Model&) {
    if (!setup.cluster.profile.empty())
        setup.fail_at("cluster.profile", fmt::format("'{}' has its own times and sizes", setup.workload.model),
                      "remove cluster.profile");
    return model_from_file(setup).profile;
}

// The memory bounds an update: an update of other bytes than the profile's takes a time in proportion.
Profile measured_profile(const Setup& setup, const Model&) {
    check_profile_exists(setup);
    Profile profile = read_profile(setup.cluster.profile);
    const Precision precision = setup.training.precision;
    const Bytes own = update_bytes(training_of(setup, precision).kept()),
                measured = update_bytes(TrainingKind{precision, profile.optimizer}.kept());
    for (LayerProfile& layer : profile.layers)
        for (Ns* time : {&layer.update.median, &layer.update.spread})
            if (own != measured)
                *time = bounded(static_cast<double>(*time) * static_cast<double>(own) / static_cast<double>(measured));
    return profile;
}

// Makes an analytic profile for every size of micro-batches.
Profile profile_by_rates(const Setup& setup, const Model& model) {
    const MicroBatchSizes sizes = sizes_of(setup.pipeline);
    const TrainingKind training = training_of(setup, setup.cluster.kind ? setup.training.precision : Precision::Fp32);
    DeviceRates rates = setup.cluster.rates;
    rates.products = product_rates_of(setup);
    Profile profile = analytic_profile(model, sizes.full, rates, training);
    if (setup.cluster.kind)
        profile.precision = training.precision;
    if (sizes.is_even())
        return profile;
    const Profile last = analytic_profile(model, sizes.last(), rates, training);
    for (std::size_t layer = 0; layer < profile.layers.size(); ++layer) {
        profile.layers[layer].times.insert(last.layers[layer].times.begin(), last.layers[layer].times.end());
        profile.layers[layer].bytes.insert(last.layers[layer].bytes.begin(), last.layers[layer].bytes.end());
    }
    profile.data.insert(last.data.begin(), last.data.end());
    profile.data_bytes.insert(last.data_bytes.begin(), last.data_bytes.end());
    return profile;
}

// PipeDream's profiles were measured with a mini-batch that the file does not name.
void check_graph_has_batch(const Setup& setup) {
    const PipelineConfig& pipeline = setup.pipeline;
    if (model_file(setup.workload.model) != ModelFile::Graph || pipeline.mini_batch == pipeline.micro_batch_size)
        return;
    setup.fail_at(
        "workload.model", fmt::format("'{}' does not say how many samples its times are for", setup.workload.model),
        fmt::format("write search.profile_batch, the samples of the mini-batch that it was measured with, such as 64, "
                    "or {0} if the times are those of a micro-batch of {0}",
                    pipeline.micro_batch_size));
}

void check_no_times_by_samples(const Setup& setup, const Profile& profile) {
    const auto by_samples = std::find_if(profile.layers.begin(), profile.layers.end(), [&](const LayerProfile& layer) {
        return layer.times.size() > 1 || !layer.times.contains(setup.pipeline.micro_batch_size);
    });
    if (by_samples != profile.layers.end())
        setup.fail_at(
            "workload.model",
            fmt::format(
                "'{}' has times by number of samples in layer '{}', but does not say how many samples its other "
                "times and its sizes are for",
                setup.workload.model, by_samples->name),
            "write samples: N into the file");
}

// The rows are in the order of the enum. The last one is for a config that has none of the others.
constexpr CostSourceRow kSources[] = {
    {CostSource::Uniform, "uniform", false, false, false, false, is_uniform, nullptr},
    {CostSource::Shapes, "shapes", true, false, true, true,
     [](const Setup& setup) { return setup.workload.transformer.has_value(); }, profile_by_shapes, model_by_shapes,
     split_by_blocks, pipeline_cluster_of, add_groups},
    {CostSource::File, "file", true, false, false, false,
     [](const Setup& setup) { return model_file(setup.workload.model) != ModelFile::None; }, profile_from_file,
     [](const Setup& setup) { return model_from_file(setup).model; }},
    {CostSource::Measured, "measured", true, true, false, false,
     [](const Setup& setup) { return !setup.cluster.profile.empty(); }, measured_profile},
    {CostSource::Analytic, "analytic", true, true, false, false, has_analytic_costs, profile_by_rates},
};

}  // namespace

const CostSourceRow& row_of(CostSource source) { return kSources[static_cast<int>(source)]; }

const CostSourceRow& cost_source_of(const Setup& setup) {
    const CostSourceRow* row = kSources;
    while (!row->applies(setup))
        ++row;
    return *row;
}

ProfiledModel model_from_file(const Setup& setup) {
    const std::string& path = setup.workload.model;
    std::error_code error;
    if (!std::filesystem::is_regular_file(path, error))
        setup.fail_at(
            "workload.model", fmt::format("there is no file '{}'", path),
            model_file(path) == ModelFile::JsonFile
                ? "check the path, which starts at the folder of this file; only `search` takes instances *.json"
                : "check the path, which starts at the folder of this file");
    if (is_instance(path))
        setup.fail_at("workload.model",
                      fmt::format("only `search` takes the instance '{}', with objective max-load or piper", path),
                      "write search.objective, or name a model with layers and the times of their passes: a "
                      "*.graph.txt, a layer graph (*.yaml, *.json, *.csv) or a profile of Metis or Galvatron");
    const std::int64_t batch = setup.workload.profile_batch;
    if (batch > std::numeric_limits<int>::max())
        setup.fail_at("search.profile_batch", fmt::format("the times of '{}' are for {} samples", path, batch),
                      "set search.profile_batch to the number of samples that they were measured with");
    const ModelOptions& options = setup.workload.options;
    ProfiledModel read =
        read_profiled_model(path, {.samples = batch > 0 ? static_cast<int>(batch) : setup.pipeline.micro_batch_size,
                                   .blocks = options.blocks,
                                   .embedding = options.embedding,
                                   .sequence_length = options.sequence_length,
                                   .memory_profile = setup.workload.memory_profile});
    read.profile.any_size = !read.says_samples && batch == 0;
    if (read.profile.any_size) {
        check_graph_has_batch(setup);
        check_no_times_by_samples(setup, read.profile);
    }
    return read;
}

}  // namespace pw
