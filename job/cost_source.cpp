#include "job/cost_source.h"

#include "job/rules.h"
#include "workloads/costs/micro_batch_sizes.h"

#include <filesystem>
#include <limits>

namespace pw {

namespace {

Profile profile_from_file(const Config& config, const Model&) {
    if (!config.cluster.profile.empty())
        config.fail_at("cluster.profile", fmt::format("'{}' brings its own times and sizes", config.workload.model),
                       "remove cluster.profile");
    return model_from_file(config).profile;
}

Profile measured_profile(const Config& config, const Model&) {
    check_profile_exists(config);
    return read_profile(config.cluster.profile);
}

// Makes an analytic profile at every size that the micro-batches have.
Profile profile_by_rates(const Config& config, const Model& model) {
    const MicroBatchSizes sizes = sizes_of(config.pipeline);
    Profile profile = analytic_profile(model, sizes.full, config.cluster.rates);
    if (sizes.is_even())
        return profile;
    const Profile last = analytic_profile(model, sizes.last(), config.cluster.rates);
    for (std::size_t layer = 0; layer < profile.layers.size(); ++layer) {
        profile.layers[layer].times.insert(last.layers[layer].times.begin(), last.layers[layer].times.end());
        profile.layers[layer].bytes.insert(last.layers[layer].bytes.begin(), last.layers[layer].bytes.end());
    }
    profile.data.insert(last.data.begin(), last.data.end());
    profile.data_bytes.insert(last.data_bytes.begin(), last.data_bytes.end());
    return profile;
}

// The sources stand in the order of the enum. The last is for a config that asks for none.
constexpr CostSourceRow kSources[] = {
    {CostSource::Uniform, "uniform", false, false, is_uniform, nullptr},
    {CostSource::File, "file", true, false,
     [](const Config& config) { return model_file(config.workload.model) != ModelFile::None; }, profile_from_file},
    {CostSource::Measured, "measured", true, true, [](const Config& config) { return !config.cluster.profile.empty(); },
     measured_profile},
    {CostSource::Analytic, "analytic", true, true, [](const Config&) { return true; }, profile_by_rates},
};

}  // namespace

const CostSourceRow& row_of(CostSource source) { return kSources[static_cast<int>(source)]; }

const CostSourceRow& cost_source_of(const Config& config) {
    const CostSourceRow* row = kSources;
    while (!row->is_asked_for(config))
        ++row;
    return *row;
}

ProfiledModel model_from_file(const Config& config) {
    const std::string& path = config.workload.model;
    if (model_file(path) == ModelFile::Instance)
        config.fail_at("workload.model", fmt::format("only `search` takes the instance '{}'", path),
                       "name a model with layers and times of their passes: a *.graph.txt or a *.yaml");
    const std::int64_t samples = config.search.profile_batch;
    if (samples > std::numeric_limits<int>::max())
        config.fail_at("search.profile_batch", fmt::format("the times of '{}' are for {} samples", path, samples),
                       "write the samples that they were measured with as search.profile_batch");
    std::error_code error;
    if (!std::filesystem::is_regular_file(path, error))
        config.fail_at("workload.model", fmt::format("there is no file '{}'", path),
                       "check the path; it starts at the folder of this file");
    return read_profiled_model(path, static_cast<int>(samples));
}

}  // namespace pw
