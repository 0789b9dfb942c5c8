#include "job/config/config.h"

#include "workloads/costs/profiled_model.h"

#include <algorithm>

namespace pw {

bool is_replicated(const PipelineConfig& pipeline) {
    return pipeline.copies > 1 ||
           std::any_of(pipeline.replicas.begin(), pipeline.replicas.end(), [](int replicas) { return replicas > 1; });
}

bool searches_all_schedules(const SearchConfig& search) {
    return search.schedules.size() == 1 && search.schedules.front() == kAllSchedules;
}

void Config::fail_at(const std::string& key, const std::string& fact, const std::string& help) const {
    Place place;
    for (std::string at = key; !at.empty();) {
        if (const auto found = places.find(at); found != places.end()) {
            place = found->second;
            break;
        }
        const std::size_t end = at.find_last_of(".[");
        at.erase(end == std::string::npos ? 0 : end);
    }
    // a copy, since the caller may catch the error and continue
    Source report = source ? *source : Source("configuration", "");
    report.complain(place, fact, help, key);
    report.throw_if_mistaken();
    throw Error(ExitCode::BadInput, fact);
}

bool is_transformer(const Config& config) { return config.workload.transformer.has_value(); }

bool is_uniform(const Config& config) {
    const BuiltInModel* model = find_model(config.workload.model);
    return model != nullptr && model->build == nullptr;
}

bool has_analytic_costs(const Config& config) {
    return !is_uniform(config) && !is_transformer(config) && model_file(config.workload.model) == ModelFile::None &&
           config.cluster.profile.empty();
}

std::optional<ProductRate> rate_of_kind(const Config& config) {
    return config.cluster.kind ? product_rate(*config.cluster.kind, config.training.precision) : std::nullopt;
}

std::shared_ptr<const ProductRates> product_rates_of(const Config& config) {
    const std::optional<ProductRate> rate = rate_of_kind(config);
    return rate && rate->flops == config.cluster.rates.flops
               ? product_rates(*config.cluster.kind, config.training.precision)
               : nullptr;
}

bool is_emulated(const Config& config) { return config.run.backend == RunConfig::Backend::Emulated; }

MicroBatchSizes sizes_of(const PipelineConfig& pipeline) {
    return {pipeline.micro_batch_size, pipeline.micro_batches, pipeline.mini_batch};
}

}  // namespace pw
