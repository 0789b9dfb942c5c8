#include "job/config/config.h"

#include "workloads/costs/profiled_model.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

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

bool searches_cluster(const Config& config) {
    return is_transformer(config) && config.search.objective == SearchConfig::Objective::Makespan;
}

int tokens_per_sample(const Config& config) {
    const BuiltInModel* model = find_model(config.workload.model);
    const bool reads_tokens = is_transformer(config) || (model != nullptr && model->labels == Labels::PerToken);
    return reads_tokens ? config.workload.options.sequence_length : 0;
}

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

namespace {

// Returns the rates of cluster.products in a precision, or null; kernels other than products are those of the kind.
std::shared_ptr<const ProductRates> measured_rates(const Config& config, Precision precision,
                                                   const ProductRates* of_kind) {
    for (const std::shared_ptr<const ProductRates>& measured : config.cluster.measured_products)
        if (measured->table.precision == precision) {
            ProductRates rates = *measured;
            rates.chip_scale = of_kind ? of_kind->chip_scale : 1;
            if (rates.table.grouped.empty())
                rates.with_groups = &table_with_groups(config.cluster.kind ? config.cluster.kind->products : "");
            return std::make_shared<const ProductRates>(std::move(rates));
        }
    return nullptr;
}

[[noreturn]] void fail_without_products(const Config& config) {
    const std::string measure = fmt::format(
        "measure them with `pipewright profile CONFIG --gemm -o FILE --set training.precision={}`, or remove the key",
        name_of(config.training.precision));
    std::vector<std::string_view> measured;
    for (const std::shared_ptr<const ProductRates>& rates : config.cluster.measured_products)
        measured.push_back(name_of(rates->table.precision));
    config.fail_at("cluster.products",
                   measured.empty()
                       ? fmt::format("there is no file '{}'", config.cluster.products)
                       : fmt::format("'{}' has products in {}, and 'training.precision' is {}", config.cluster.products,
                                     fmt::join(measured, " and "), name_of(config.training.precision)),
                   measure);
}

}  // namespace

std::shared_ptr<const ProductRates> product_rates_of(const Config& config) {
    const Precision precision = config.training.precision;
    const std::optional<ProductRate> rate = rate_of_kind(config);
    const std::shared_ptr<const ProductRates> of_kind =
        rate && rate->flops == config.cluster.rates.flops ? product_rates(*config.cluster.kind, precision) : nullptr;
    if (config.cluster.products.empty())
        return of_kind;
    if (auto measured = measured_rates(config, precision, of_kind.get()))
        return measured;
    fail_without_products(config);
}

std::shared_ptr<const ProductRates> head_rates_of(const Config& config) {
    const auto of_kind = product_rates(*config.cluster.kind, Precision::Bf16);
    const auto measured = measured_rates(config, Precision::Bf16, of_kind.get());
    return measured ? measured : of_kind;
}

bool is_emulated(const Config& config) { return config.run.backend == RunConfig::Backend::Emulated; }

MicroBatchSizes sizes_of(const PipelineConfig& pipeline) {
    const std::int64_t full = std::int64_t{pipeline.micro_batches} * pipeline.micro_batch_size;
    return {pipeline.micro_batch_size, pipeline.micro_batches, std::min(pipeline.mini_batch, full)};
}

}  // namespace pw
