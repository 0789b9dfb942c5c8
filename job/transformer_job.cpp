#include "job/transformer_job.h"

#include "job/build.h"
#include "job/makes.h"
#include "job/plan.h"
#include "workloads/cluster/named_links.h"
#include "workloads/transformers/expert_load.h"
#include "workloads/transformers/layer_list.h"
#include "workloads/transformers/transformer_model.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <string>

namespace pw {

namespace {

// Returns the name of a link with these numbers; collectives of a named link may have been measured.
std::string name_of_link(const Link& link) {
    const auto found = std::find_if(std::begin(kNamedLinks), std::end(kNamedLinks),
                                    [&](const NamedLink& one) { return one.link == link; });
    return found == std::end(kNamedLinks) ? "" : std::string(found->name);
}

// The share of a vendor's peak that the fastest products reach: the median of the 17 kinds of devices where one was
// measured.
constexpr double kReached = 0.8;

double reached_flops(const ProductRate& rate) { return rate.is_measured ? rate.flops : kReached * rate.flops; }

// Returns rates with the proportions of an A100's and this rate of the fastest product.
std::shared_ptr<const ProductRates> rates_like_others(double flops) {
    const std::vector<DeviceKindFacts>& kinds = device_kinds();
    const DeviceKindFacts& measured = *find_device_kind(kinds, "a100-pcie-80");
    ProductRates rates = *product_rates(measured, Precision::Bf16);
    rates.scale = rates.chip_scale = flops / product_rate(measured, Precision::Bf16)->flops;
    return std::make_shared<const ProductRates>(std::move(rates));
}

double peak_flops_of(const DeviceMake& make, Precision precision) {
    for (const std::string_view name : {rate_name(precision), name_of(Precision::Bf16)})
        if (const auto rate = make.kind->peak.find(name); rate != make.kind->peak.end())
            return rate->second;
    return make.rates.flops;
}

// The tokens of a micro-batch on all ranks that divide the experts.
double tokens_of_experts(const Setup& setup) {
    const Parallel& parallel = setup.parallel.degrees;
    const double tokens = 1.0 * setup.pipeline.micro_batch_size * setup.workload.options.sequence_length;
    return tokens * parallel.expert_ranks() / (parallel.context * parallel.tensor);
}

void check_encoder(const Setup& setup, int parts) {
    if (!setup.workload.encoder)
        return;
    const char* const key = "workload.encoder";
    if (parts > 1)
        setup.fail_at(key,
                      fmt::format("schedule {} divides the head among all devices, and models with an encoder have one "
                                  "head in this version",
                                  setup.pipeline.schedule),
                      "choose another schedule, such as 1f1b, or remove the key");
    if (!setup.parallel.of_stages.empty())
        setup.fail_at(key, "stages of a model with an encoder have the same degrees in this version",
                      "write one degree for all stages, or remove the key");
}

TransformerJob job_on_one_make(const Setup& setup) {
    const ClusterConfig& cluster = setup.cluster;
    TransformerJob job;
    job.model = *setup.workload.transformer;
    job.tokens = setup.workload.options.sequence_length;
    job.parallel = setup.parallel.degrees;
    if (const std::optional<ExpertDraw>& draw = job.parallel.expert_draw; draw && job.model.experts)
        job.parallel.expert_load =
            expected_load(*job.model.experts, job.parallel.expert, tokens_of_experts(setup), *draw);
    job.parts = parts_of_ends(setup);
    if (job.parts > 1 && job.model.mtp > 0)
        setup.fail_at("workload.mtp_layers",
                      fmt::format("schedule {} divides the head among all devices, and modules that predict further "
                                  "tokens have passes of the head, too",
                                  setup.pipeline.schedule),
                      "write mtp_layers: 0, or choose another schedule, such as 1f1b");
    job.corrected = job.parts > 1 ? schedule_of(setup).corrected : 0;
    job.stage_of = setup.parallel.stage_of;
    job.lora = setup.workload.lora;
    job.frozen = setup.workload.frozen;
    job.encoder = setup.workload.encoder;
    check_encoder(setup, job.parts);
    job.precision = setup.training.precision;
    job.optimizer = setup.training.optimizer;
    job.types = setup.training.types;
    job.device = *cluster.kind;
    job.device.memory_bandwidth = cluster.rates.memory_bandwidth;
    job.flops = cluster.rates.flops;
    job.products = product_rates_of(setup);
    if (is_low(job.precision)) {
        job.head_products = head_rates_of(setup);
        if (const std::optional<ProductRate> rate = product_rate(job.device, Precision::Bf16))
            job.head_flops = reached_flops(*rate);
    }
    if (!setup.places.contains("cluster.compute")) {
        const std::optional<ProductRate> rate = rate_of_kind(setup);
        if (rate && !rate->is_measured)
            job.flops *= kReached;
        if (!job.products)
            job.products = rates_like_others(job.flops);
        if (!job.head_products && job.head_flops > 0)
            job.head_products = rates_like_others(job.head_flops);
    }
    job.fabric.inside_name = name_of_link(cluster.link);
    if (job.fabric.inside_name.empty())
        job.fabric.inside_name = name_of_link(cluster.kind->link);
    job.fabric.inside = cluster.link;
    job.fabric.per_host = setup.parallel.per_host;
    job.fabric.domain = cluster.domain > 0 ? cluster.domain : setup.parallel.per_host;
    job.fabric.between = cluster.between_hosts;
    job.fabric.adapters = cluster.adapters;
    job.fabric.inside.bandwidth = std::min(job.fabric.inside.bandwidth, setup.parallel.inside_limit);
    if (job.fabric.between && setup.parallel.between_limit < job.fabric.adapters * job.fabric.between->bandwidth) {
        job.fabric.adapters = 1;
        job.fabric.between->bandwidth = setup.parallel.between_limit;
    }
    job.calibration = setup.calibration;
    job.fabric.inside = slower_link(job.fabric.inside, setup.calibration.inside);
    if (job.fabric.between)
        job.fabric.between = slower_link(*job.fabric.between, setup.calibration.between);
    return job;
}

}  // namespace

TransformerJob transformer_job_of(const Setup& setup) {
    const std::vector<PlanMake> makes = makes_of_plan(setup);
    if (makes.empty())
        return job_on_one_make(setup);
    return job_on_one_make(of_make(setup, makes.front().makes.front(), makes.front()));
}

std::vector<std::vector<TransformerJob>> transformer_jobs_of(const Setup& setup) {
    std::vector<std::vector<TransformerJob>> jobs;
    for (const PlanMake& together : makes_of_plan(setup)) {
        std::vector<TransformerJob>& own = jobs.emplace_back();
        for (const int make : together.makes)
            own.push_back(job_on_one_make(of_make(setup, make, together)));
    }
    if (jobs.empty())
        jobs.emplace_back().push_back(job_on_one_make(setup));
    return jobs;
}

namespace {

// The layers of a workload, and what is trained of them.
TransformerJob layers_of(const WorkloadConfig& workload) {
    TransformerJob job;
    job.model = *workload.transformer;
    job.tokens = workload.options.sequence_length;
    job.encoder = workload.encoder;
    job.lora = workload.lora;
    job.frozen = workload.frozen;
    return job;
}

}  // namespace

double model_flops_per_sample(const Setup& setup, bool trains) {
    return model_flops_per_sequence(layers_of(setup.workload), trains);
}

bool has_unlike_blocks(const Setup& setup) {
    std::vector<LayerPasses> passes;
    for (const ListedLayer& layer : listed_layers(layers_of(setup.workload)))
        if (layer.is_block())
            passes.push_back(layer.passes);
    return setup.workload.encoder || std::ranges::adjacent_find(passes, std::ranges::not_equal_to{}) != passes.end();
}

double peak_flops(const Setup& setup) {
    const ClusterConfig& cluster = setup.cluster;
    if (cluster.makes.empty())
        return peak_flops_of(cluster, setup.training.precision);
    double sum = 0;
    for (const DeviceConfig& device : setup.parallel.ranks->devices)
        sum += peak_flops_of(cluster.makes[static_cast<std::size_t>(device.make)], setup.training.precision);
    return sum / static_cast<double>(setup.parallel.ranks->devices.size());
}

int slots_of_stages(int blocks, int stages) {
    const bool counts_ends = blocks % stages != 0 && (blocks + 2) % stages == 0;
    return counts_ends ? blocks + 2 : blocks;
}

std::vector<int> even_blocks(int blocks, int stages) {
    const int slots = slots_of_stages(blocks, stages);
    std::vector<int> of_stages;
    for (int stage = 0; stage < stages; ++stage)
        of_stages.push_back(slots / stages + (stage < slots % stages ? 1 : 0));
    if (slots > blocks) {
        --of_stages.front();
        --of_stages.back();
    }
    return of_stages;
}

}  // namespace pw
