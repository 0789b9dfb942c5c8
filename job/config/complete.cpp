// Defaults that depend on the schedule, the launcher and other keys.
#include "job/config/blocks.h"
#include "job/config/read.h"
#include "job/setup/rank_groups.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <utility>

namespace pw {
namespace {

// Ranks of a launcher use MPI, or NCCL on GPUs. Devices of one process need neither.
RunConfig::Transport usual_transport(RunConfig::Backend backend, int ranks) {
    if (ranks <= 1)
        return RunConfig::Transport::Threads;
    return backend == RunConfig::Backend::Cuda ? RunConfig::Transport::Nccl : RunConfig::Transport::Mpi;
}

void check_transport(const Yaml& at, const RunConfig& run, const ClusterConfig& cluster) {
    using Backend = RunConfig::Backend;
    using Transport = RunConfig::Transport;
    const bool on_host = run.backend == Backend::Cpu || run.backend == Backend::Reference;
    if (run.transport == Transport::Mpi && !on_host)
        at.complain(fmt::format("the transport mpi is for run.backend cpu or reference, not {}", name_of(run.backend)),
                    run.backend == Backend::Cuda ? "write transport: nccl, which also goes between ranks"
                                                 : "write transport: threads, or set run.backend: cpu");
    if (run.transport == Transport::Nccl && run.backend != Backend::Cuda)
        at.complain(fmt::format("the transport nccl is for run.backend cuda, not {}", name_of(run.backend)),
                    "write transport: threads, or set run.backend: cuda");
    if (run.transport == Transport::Link && !on_host)
        at.complain(fmt::format("the transport link is for run.backend cpu or reference, not {}", name_of(run.backend)),
                    "write transport: threads, or set run.backend: cpu");
    else if (run.transport == Transport::Link && !cluster.link_given)
        at.complain("'run.transport' is link, but there is no cluster.link to emulate",
                    "write cluster: {link: {bandwidth: .., latency: ..}}, or transport: threads");
}

// The numbers of a schedule from a file precede those that follow from other keys.
void apply_file(const Yaml& root, const PlanDefaults& file, Config& config, std::vector<StageClaim>& claims) {
    if (file.stages == 0)
        return;
    const Yaml schedule = root["pipeline"]["schedule"];
    claims.insert(claims.begin(), {schedule, file.stages, fmt::format("the plan has {} stages", file.stages)});
    const auto agree = [&](const Yaml& key, int value, int in_file) {
        if (key.present() && value != in_file)
            key.complain(fmt::format("'{}' is {}, but the plan has {}", key.path(), value, in_file),
                         fmt::format("write {}, or remove the key", in_file));
    };
    agree(root["cluster"]["devices"], static_cast<int>(config.cluster.devices.size()), file.devices);
    if (const Yaml table = root["cluster"]["rank_table"];
        table.present() && std::ssize(config.cluster.devices) != file.devices)
        table.complain(fmt::format("the rank table has {} devices, but the plan has {}", config.cluster.devices.size(),
                                   file.devices),
                       "use the table of the devices that run the plan, or remove the key");
    agree(root["pipeline"]["micro_batches"], config.pipeline.micro_batches, file.micro_batches);
    const Yaml mini_batch = root["pipeline"]["mini_batch"];
    const std::int64_t size = config.pipeline.micro_batch_size;
    const std::int64_t full = file.micro_batches * size * config.parallel.degrees.data;
    const std::int64_t least = is_transformer(config) ? full : full - size + 1;
    if (!mini_batch.present())
        config.pipeline.mini_batch = full;
    else if (!root["pipeline"]["micro_batches"].present() && config.pipeline.micro_batches != file.micro_batches)
        mini_batch.complain(
            fmt::format("{} samples are {} micro-batches of {}, but the plan has {}", config.pipeline.mini_batch,
                        config.pipeline.micro_batches, config.pipeline.micro_batch_size, file.micro_batches),
            fmt::format("write {}{} samples, or remove the key", least == full ? "" : fmt::format("{} to ", least),
                        full));
    config.pipeline.micro_batches = file.micro_batches;
    if (config.cluster.devices.empty())
        config.cluster.devices.resize(static_cast<std::size_t>(file.devices), usual_device(config.cluster));
}

void check_lengths(const Yaml& at, const PipelineConfig& pipeline) {
    const std::size_t count = pipeline.micro_batch_lengths.size();
    if (count == 0 || count == static_cast<std::size_t>(pipeline.micro_batches))
        return;
    at["micro_batch_lengths"].complain(
        fmt::format("'pipeline.micro_batch_lengths' has the lengths of {} micro-batch{}, but there {} {}", count,
                    count == 1 ? "" : "es", pipeline.micro_batches == 1 ? "is" : "are", pipeline.micro_batches),
        fmt::format("write one length per micro-batch, or micro_batches: {}", count));
}

// The first claim is used, and later claims must agree with it. Without claims, every device has `chunks` stages.
int resolve_stages(const std::vector<StageClaim>& claims, std::size_t devices, int chunks) {
    const StageClaim* first = nullptr;
    for (const StageClaim& claim : claims) {
        if (claim.stages < 1)
            continue;  // a mistake already noted
        if (!first)
            first = &claim;
        else if (claim.stages != first->stages)
            claim.at.complain(fmt::format("{}, but {}", claim.what, first->what),
                              fmt::format("make both the same, or remove '{}'", claim.at.path()));
    }
    return first ? first->stages : std::max<int>(1, static_cast<int>(devices)) * chunks;
}

// Adds the devices that the file leaves out: one for every replica of a stage, else as many as the stages fill.
void resolve_devices(const Yaml& root, int chunks, Config& config) {
    const PipelineConfig& pipeline = config.pipeline;
    std::vector<DeviceConfig>& devices = config.cluster.devices;
    const auto copies = static_cast<std::size_t>(pipeline.copies);
    const auto replicas = std::accumulate(pipeline.replicas.begin(), pipeline.replicas.end(), std::size_t{0});
    const bool listed = copies == 1 && is_replicated(pipeline);
    const std::size_t needed =
        listed ? replicas : static_cast<std::size_t>(std::max(1, pipeline.stages / chunks)) * copies;
    if (devices.empty())
        devices.assign(std::min<std::size_t>(needed, kMostDevices), usual_device(config.cluster));
    const bool ranked = !config.cluster.rank_table.empty();
    const Yaml at = root["pipeline"]["replicas"];
    if (copies > 1 && is_transformer(config))
        at.complain(
            fmt::format("the replicas of {} follow from 'cluster.devices' and 'parallel'", config.workload.model),
            "remove the key");
    else if (listed && devices.size() != needed)
        at.complain(fmt::format("'pipeline.replicas' makes {} devices, but {} {}", needed,
                                ranked ? "the rank table has" : "'cluster.devices' is", devices.size()),
                    ranked ? "write replicas that add up to its devices"
                           : fmt::format("write cluster.devices: {}, or other replicas", needed));
    else if (devices.size() % copies != 0)
        at.complain(
            fmt::format("'pipeline.replicas' is {}, which does not divide the {} devices", copies, devices.size()),
            fmt::format("write a divisor of {}{}", devices.size(),
                        ranked ? "" : fmt::format(", or cluster.devices: {}", needed)));
}

// Refuses keys that devices of several makes do not have.
void check_makes(const Yaml& root, const Config& config) {
    const ClusterConfig& cluster = config.cluster;
    const Yaml at = root["cluster"];
    for (const char* key : {"compute", "memory_bandwidth", "products"})
        if (at[key].present() && std::ranges::any_of(cluster.makes, [&](const DeviceMake& make) {
                return make.kind && make.device != cluster.makes.front().device;
            }))
            at[key].complain(fmt::format("'cluster.{}' is of all devices, but they are of several kinds", key),
                             "remove the key, or describe the kinds in a file of yours (cluster.device_kinds)");
    if (is_transformer(config) || is_uniform(config))
        for (const DeviceMake& make : cluster.makes)
            if (!make.profile.empty() && make.profile != cluster.profile)
                at["hosts"].complain(fmt::format("'{}' has no layers whose times a profile has, and devices have the "
                                                 "profile '{}'",
                                                 config.workload.model, make.profile),
                                     "remove the key profile of the devices, or name a model with layers");
}

// Gives analytic costs the rates of named kinds of devices where the file has none.
void take_rates_of_kind(const Yaml& root, Config& config) {
    ClusterConfig& cluster = config.cluster;
    const Yaml at = root["cluster"];
    const DeviceRates given = cluster.rates;
    const auto take = [&](DeviceMake& make, bool needs_rates) {
        make.rates = given;
        if (!make.kind)
            return;
        if (!at["memory_bandwidth"].present())
            make.rates.memory_bandwidth = make.kind->memory_bandwidth;
        if (at["compute"].present())
            return;
        if (const std::optional<ProductRate> rate = product_rate(*make.kind, config.training.precision)) {
            make.rates.flops = rate->flops;
            return;
        }
        if (!needs_rates)
            return;
        std::vector<std::string_view> known;
        for (const auto& [precision, rate] : make.kind->peak)
            known.push_back(precision);
        root["training"]["precision"].complain(
            fmt::format("devices of kind {} have no rate in {}", make.device, name_of(config.training.precision)),
            fmt::format("write cluster.compute, or another precision (known: {})", fmt::join(known, ", ")));
    };
    const bool computes = is_transformer(config) || has_analytic_costs(config);
    take(cluster, computes && cluster.makes.empty());
    for (DeviceMake& make : cluster.makes)
        take(make, computes && (is_transformer(config) || make.profile.empty()));
}

}  // namespace

Config complete(WrittenConfig written, const PlanDefaults& schedule, int ranks) {
    const Yaml& root = written.root;
    Config& config = written.config;
    RunConfig& run = config.run;
    if (run.transport == RunConfig::Transport::Auto)
        run.transport = usual_transport(run.backend, is_transformer(config) ? 1 : ranks);  // no rank runs a transformer
    check_transport(root["run"]["transport"], run, config.cluster);
    check_makes(root, config);
    take_rates_of_kind(root, config);
    if (is_transformer(config))
        group_devices(root, config);
    apply_file(root, schedule, config, written.claims);
    check_lengths(root["pipeline"], config.pipeline);
    config.pipeline.stages =
        resolve_stages(written.claims, config.cluster.devices.size() / static_cast<std::size_t>(config.pipeline.copies),
                       schedule.chunks);
    if (!root["search"]["mini_batch"].present())
        config.search.mini_batch = config.pipeline.mini_batch;
    config.pipeline.recompute.stages = read_recompute(root["pipeline"]["recompute"], config.pipeline.stages);
    config.pipeline.offload.stages = read_recompute(root["pipeline"]["offload"], config.pipeline.stages);
    config.pipeline.offload.states = read_recompute(root["pipeline"]["offload_states"], config.pipeline.stages);
    if (schedule.stages == 0)  // otherwise the plan determines which devices hold a stage
        resolve_devices(root, schedule.chunks, config);
    if (is_uniform(config)) {
        spread_uniform(config.workload.uniform, config.pipeline.stages);
        config.workload.uniform.frozen = read_stages(root["workload"]["frozen"], config.pipeline.stages);
        using Split = PipelineConfig::Split;
        if (config.pipeline.split != Split::Auto && config.pipeline.split != Split::Even)
            root["pipeline"]["split"].complain(fmt::format("model: {} has no layers to split", config.workload.model),
                                               "remove 'pipeline.split'");
    }
    root.source().throw_if_mistaken();
    config.yaml = print_config(config);
    return std::move(config);
}

}  // namespace pw
