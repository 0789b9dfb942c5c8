#include "job/setup/search_setup.h"

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

void Setup::fail_at(const std::string& key, const std::string& fact, const std::string& help) const {
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

bool searches_cluster(const SearchSetup& setup) {
    return setup.workload.transformer && setup.search.objective == SearchConfig::Objective::Makespan;
}

int tokens_per_sample(const Setup& setup) {
    const BuiltInModel* model = find_model(setup.workload.model);
    const bool reads_tokens =
        setup.workload.transformer.has_value() || (model != nullptr && model->labels == Labels::PerToken);
    return reads_tokens ? setup.workload.options.sequence_length : 0;
}

bool is_uniform(const Setup& setup) {
    const BuiltInModel* model = find_model(setup.workload.model);
    return model != nullptr && model->build == nullptr;
}

bool has_analytic_costs(const Setup& setup) {
    return !is_uniform(setup) && !setup.workload.transformer && model_file(setup.workload.model) == ModelFile::None &&
           setup.cluster.profile.empty();
}

std::optional<ProductRate> rate_of_kind(const Setup& setup) {
    return setup.cluster.kind ? product_rate(*setup.cluster.kind, setup.training.precision) : std::nullopt;
}

namespace {

// Returns the rates of cluster.products in a precision, or null. Kernels other than products have
// the rates of the kind.
std::shared_ptr<const ProductRates> measured_rates(const Setup& setup, Precision precision,
                                                   const ProductRates* of_kind) {
    for (const std::shared_ptr<const ProductRates>& measured : setup.cluster.measured_products)
        if (measured->table.precision == precision) {
            ProductRates rates = *measured;
            rates.chip_scale = of_kind ? of_kind->chip_scale : 1;
            if (rates.table.grouped.empty())
                rates.with_groups = &table_with_groups(setup.cluster.kind ? setup.cluster.kind->products : "");
            return std::make_shared<const ProductRates>(std::move(rates));
        }
    return nullptr;
}

[[noreturn]] void fail_without_products(const Setup& setup) {
    const std::string measure = fmt::format(
        "measure them with `pipewright profile CONFIG --gemm -o FILE --set training.precision={}`, or remove the key",
        name_of(setup.training.precision));
    std::vector<std::string_view> measured;
    for (const std::shared_ptr<const ProductRates>& rates : setup.cluster.measured_products)
        measured.push_back(name_of(rates->table.precision));
    setup.fail_at("cluster.products",
                  measured.empty()
                      ? fmt::format("there is no file '{}'", setup.cluster.products)
                      : fmt::format("'{}' has products in {}, and 'training.precision' is {}", setup.cluster.products,
                                    fmt::join(measured, " and "), name_of(setup.training.precision)),
                  measure);
}

}  // namespace

std::shared_ptr<const ProductRates> product_rates_of(const Setup& setup) {
    const Precision precision = setup.training.precision;
    const std::optional<ProductRate> rate = rate_of_kind(setup);
    const std::shared_ptr<const ProductRates> of_kind =
        rate && rate->flops == setup.cluster.rates.flops ? product_rates(*setup.cluster.kind, precision) : nullptr;
    if (setup.cluster.products.empty())
        return of_kind;
    if (auto measured = measured_rates(setup, precision, of_kind.get()))
        return measured;
    fail_without_products(setup);
}

std::shared_ptr<const ProductRates> head_rates_of(const Setup& setup) {
    const auto of_kind = product_rates(*setup.cluster.kind, Precision::Bf16);
    const auto measured = measured_rates(setup, Precision::Bf16, of_kind.get());
    return measured ? measured : of_kind;
}

bool keeps_blocks(const Setup& setup) {
    return !setup.training.types.any() && facts_of(setup.training.optimizer).has_kernels;
}

KeptBytes kept_of(const Setup& setup) {
    const TrainingConfig& training = setup.training;
    if (setup.workload.transformer)
        return kept_bytes(training.types, training.precision, training.optimizer,
                          setup.parallel.degrees.program().gradient);
    return keeps_blocks(setup) ? kept_in_blocks(training.optimizer)
                               : kept_bytes(training.types, training.precision, training.optimizer, kFloatBytes);
}

Bytes kept_weights(Bytes weights, const Setup& setup) {
    if (keeps_blocks(setup))
        return weights;
    const Bytes each = bytes_of(setup.training.precision).parameter();
    return (weights / each + (weights % each > 0 ? 1 : 0)) * kept_of(setup).weight;
}

bool is_emulated(const Setup& setup) { return setup.run.backend == RunConfig::Backend::Emulated; }

MicroBatchSizes sizes_of(const PipelineConfig& pipeline) {
    const std::int64_t full = std::int64_t{pipeline.micro_batches} * pipeline.micro_batch_size;
    return {pipeline.micro_batch_size, pipeline.micro_batches, std::min(pipeline.mini_batch, full)};
}

}  // namespace pw
