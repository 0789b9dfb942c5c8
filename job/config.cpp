#include "job/config.h"

#include "job/config_blocks.h"
#include "job/launched_ranks.h"
#include "job/other_names.h"
#include "job/plan.h"
#include "job/rank_table.h"
#include "workloads/costs/profiled_model.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <numeric>
#include <set>

namespace pw {
namespace {

void collect_places(const Yaml& at, std::map<std::string, Place>& places) {
    if (!at.path().empty())
        places[at.path()] = at.place();
    if (at.is_map())
        for (const auto& [key, value] : at.entries())
            collect_places(value, places);
    if (at.is_list())
        for (const Yaml& item : at.items())
            collect_places(item, places);
}

TrainingConfig read_training(const Yaml& at, const std::string& folder) {
    at.allow({"steps", "optimizer", "learning_rate", "momentum", "weight_decay", "clip_norm", "loss", "batch_norm",
              "initial", "seed", "shard_optimizer"},
             kOtherNames);
    TrainingConfig training;
    training.steps = static_cast<int>(at["steps"].integer(training.steps, 1, 1'000'000'000));
    training.learning_rate = at["learning_rate"].number(training.learning_rate, 0, 1e6);
    training.momentum = at["momentum"].number(training.momentum, 0, 1);
    training.weight_decay = at["weight_decay"].number(training.weight_decay, 0, 1e6);
    training.seed = at["seed"].integer(training.seed, 0, std::numeric_limits<std::int64_t>::max());
    training.optimizer = at["optimizer"].choice(training.optimizer);
    training.shard_optimizer = at["shard_optimizer"].boolean(training.shard_optimizer);
    training.clip_norm = at["clip_norm"].number(0, 0, 1e30);
    training.loss = at["loss"].choice(training.loss);
    training.batch_norm = at["batch_norm"].choice(training.batch_norm);
    training.initial = absolute_path(folder, at["initial"].text());
    return training;
}

void read_cuda(const Yaml& at, RunConfig& run) {
    run.precision = at["precision"].choice(run.precision);
    run.deterministic = at["deterministic"].boolean(run.deterministic);
    if (at["graph"].present())
        run.graph = at["graph"].boolean(false);
    if (at["sms"].present())
        for (const Yaml& share : at["sms"].items())
            run.sms.push_back(static_cast<int>(share.integer(8, 8, 1 << 16)));
    if (at["gpus"].present())
        for (const Yaml& gpu : at["gpus"].items())
            run.gpus.push_back(static_cast<int>(gpu.integer(0, 0, 1023)));
    if (run.backend == RunConfig::Backend::Cuda)
        return;
    for (const char* key : {"precision", "deterministic", "gpus", "sms", "graph"})
        if (at[key].present())
            at[key].complain(fmt::format("'run.{}' is for run.backend cuda, not {}", key, name_of(run.backend)),
                             "remove the key, or set run.backend: cuda");
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

RunConfig read_run(const Yaml& at, const ClusterConfig& cluster) {
    at.allow({"backend", "transport", "threads_per_device", "timeout", "gradient_order", "fan_out_gradients",
              "allow_nan", "precision", "deterministic", "gpus", "sms", "graph"},
             kOtherNames);
    RunConfig run;
    run.backend = at["backend"].choice(run.backend);
    run.transport = at["transport"].choice(RunConfig::Transport::Auto);
    if (run.transport == RunConfig::Transport::Auto)
        run.transport = launched_ranks().size <= 1                ? RunConfig::Transport::Threads
                        : run.backend == RunConfig::Backend::Cuda ? RunConfig::Transport::Nccl
                                                                  : RunConfig::Transport::Mpi;
    run.threads_per_device = static_cast<int>(at["threads_per_device"].integer(run.threads_per_device, 1, 4096));
    run.timeout = read_time(at["timeout"], run.timeout, 1'000'000);
    run.gradient_order = at["gradient_order"].choice(run.gradient_order);
    if (run.gradient_order != RunConfig::GradientOrder::Plan)
        not_in_this_version(at["gradient_order"], "gradient_order: micro_batch", "write gradient_order: plan");
    run.fan_out_gradients = at["fan_out_gradients"].choice(run.fan_out_gradients);
    run.allow_nan = at["allow_nan"].boolean(run.allow_nan);
    read_cuda(at, run);
    check_transport(at["transport"], run, cluster);
    return run;
}

}  // namespace

bool runs_on_ranks(const RunConfig& run) {
    return run.transport == RunConfig::Transport::Mpi ||
           (run.transport == RunConfig::Transport::Nccl && launched_ranks().size > 1);
}

TransferMode read_transfer(const Yaml& at) {
    at.allow(
        {"communicator", "receive", "protocol", "eager_limit", "exchange", "sums", "sum_bucket", "multiprocessors"});
    TransferMode transfer;
    transfer.communicator = at["communicator"].choice(transfer.communicator);
    transfer.receive = at["receive"].choice(transfer.receive);
    transfer.protocol = at["protocol"].choice(transfer.protocol);
    transfer.eager_limit = at["eager_limit"].bytes(0);
    if (transfer.eager_limit > 0 && transfer.protocol == TransferMode::Protocol::Eager)
        at["eager_limit"].complain("with protocol: eager every message leaves at once, whatever its size",
                                   "write protocol: rendezvous, or remove the key");
    transfer.exchange = at["exchange"].choice(transfer.exchange);
    return transfer;
}

namespace {

// What a schedule from a file says goes before what follows from other keys.
void apply_file(const Yaml& root, const PlanDefaults& file, Config& config, std::vector<StageClaim>& claims) {
    if (file.stages == 0)
        return;
    const Yaml schedule = root["pipeline"]["schedule"];
    claims.insert(claims.begin(), {schedule, file.stages, fmt::format("the plan has {} stages", file.stages)});
    const auto agree = [&](const Yaml& key, int said, int in_file) {
        if (key.present() && said != in_file)
            key.complain(fmt::format("'{}' is {}, but the plan has {}", key.path(), said, in_file),
                         fmt::format("write {}, or remove the key", in_file));
    };
    agree(root["cluster"]["devices"], static_cast<int>(config.cluster.devices.size()), file.devices);
    if (const Yaml table = root["cluster"]["rank_table"];
        table.present() && std::ssize(config.cluster.devices) != file.devices)
        table.complain(fmt::format("the rank table has {} devices, but the plan has {}", config.cluster.devices.size(),
                                   file.devices),
                       "take the table of the devices that run the plan, or remove the key");
    agree(root["pipeline"]["micro_batches"], config.pipeline.micro_batches, file.micro_batches);
    const Yaml mini_batch = root["pipeline"]["mini_batch"];
    if (!mini_batch.present())
        config.pipeline.mini_batch = std::int64_t{file.micro_batches} * config.pipeline.micro_batch_size;
    else if (!root["pipeline"]["micro_batches"].present() && config.pipeline.micro_batches != file.micro_batches)
        mini_batch.complain(
            fmt::format("{} samples are {} micro-batches of {}, but the plan has {}", config.pipeline.mini_batch,
                        config.pipeline.micro_batches, config.pipeline.micro_batch_size, file.micro_batches),
            fmt::format("write {} to {} samples, or remove the key",
                        std::int64_t{file.micro_batches - 1} * config.pipeline.micro_batch_size + 1,
                        std::int64_t{file.micro_batches} * config.pipeline.micro_batch_size));
    config.pipeline.micro_batches = file.micro_batches;
    if (config.cluster.devices.empty())
        config.cluster.devices.resize(static_cast<std::size_t>(file.devices), {"", 1, config.cluster.memory, ""});
}

void check_lengths(const Yaml& at, const PipelineConfig& pipeline) {
    const std::size_t count = pipeline.micro_batch_lengths.size();
    if (count == 0 || count == static_cast<std::size_t>(pipeline.micro_batches))
        return;
    at["micro_batch_lengths"].complain(
        fmt::format("'pipeline.micro_batch_lengths' has the lengths of {} micro-batch{}, and there {} {}", count,
                    count == 1 ? "" : "es", pipeline.micro_batches == 1 ? "is" : "are", pipeline.micro_batches),
        fmt::format("write one length per micro-batch, or micro_batches: {}", count));
}

// A key with the path of a file or a folder, and where the config has it.
struct PathKey {
    const char* block;
    const char* key;
    std::string& (*of)(Config&);
};
constexpr PathKey kPathKeys[] = {
    {"workload", "model", [](Config& config) -> std::string& { return config.workload.model; }},
    {"workload", "path", [](Config& config) -> std::string& { return config.workload.path; }},
    {"cluster", "profile", [](Config& config) -> std::string& { return config.cluster.profile; }},
    {"cluster", "rank_table", [](Config& config) -> std::string& { return config.cluster.rank_table; }},
    {"pipeline", "schedule", [](Config& config) -> std::string& { return config.pipeline.schedule; }},
    {"training", "initial", [](Config& config) -> std::string& { return config.training.initial; }}};

// The first claim holds; the others must agree with it. Without any, every device has `chunks` stages.
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

// Devices that the file leaves out: one for every replica of a stage, else as many as the stages fill.
void resolve_devices(const Yaml& root, int chunks, Config& config) {
    const PipelineConfig& pipeline = config.pipeline;
    std::vector<DeviceConfig>& devices = config.cluster.devices;
    const auto replicas = std::accumulate(pipeline.replicas.begin(), pipeline.replicas.end(), std::size_t{0});
    const std::size_t needed =
        is_replicated(pipeline) ? replicas : static_cast<std::size_t>(std::max(1, pipeline.stages / chunks));
    if (devices.empty())
        devices.assign(std::min<std::size_t>(needed, kMostDevices), {"", 1, config.cluster.memory, ""});
    if (!is_replicated(pipeline) || devices.size() == needed)
        return;
    const bool ranked = !config.cluster.rank_table.empty();
    root["pipeline"]["replicas"].complain(
        fmt::format("'pipeline.replicas' makes {} devices, but {} {}", needed,
                    ranked ? "the rank table has" : "'cluster.devices' is", devices.size()),
        ranked ? "write replicas that add up to its devices"
               : fmt::format("write cluster.devices: {}, or other replicas", needed));
}

}  // namespace

std::string absolute_path(const std::string& folder, const std::string& path) {
    return path.empty() ? path : (std::filesystem::path(folder) / path).lexically_normal().string();
}

Config with_paths_from(Config config, const std::string& folder) {
    const auto from = std::filesystem::absolute(folder).lexically_normal();
    for (const PathKey& row : kPathKeys) {
        std::string& text = row.of(config);  // a name, of a model or a schedule, is not absolute
        if (std::filesystem::path(text).is_absolute() &&
            !config.absolute.contains(fmt::format("{}.{}", row.block, row.key)))
            text = std::filesystem::path(text).lexically_proximate(from).string();
    }
    return config;
}

void not_in_this_version(const Yaml& at, const std::string& what, const std::string& help) {
    at.complain(fmt::format("{} is not in this version", what), help);
}

Config load_config(const std::string& path, const std::vector<std::string>& set) {
    const std::string folder = std::filesystem::absolute(path).parent_path().string();
    const Yaml root = Yaml::load(path, set);
    root.allow({"workload", "cluster", "pipeline", "training", "run", "transfer", "search", "sweep"}, kOtherNames);
    Config config;
    std::vector<StageClaim> claims;
    config.workload = read_workload(root["workload"], folder, claims);
    config.cluster = read_cluster(root["cluster"], folder);
    config.pipeline = read_pipeline(root["pipeline"], folder, claims);
    config.training = read_training(root["training"], folder);
    config.run = read_run(root["run"], config.cluster);
    config.transfer = read_transfer(root["transfer"]);
    config.sums = root["transfer"]["sums"].choice(config.sums);
    config.mover_share = root["transfer"]["multiprocessors"].number(0, 0, 0.5);
    config.sum_bucket = root["transfer"]["sum_bucket"].bytes(0);
    if (config.training.shard_optimizer && config.sums == SumAlgorithm::Tree)
        root["training"]["shard_optimizer"].complain(
            "the optimizer is sharded, and a tree sums no parts (transfer.sums)",
            "write sums: ring or sums: two_level, or leave shard_optimizer out");
    config.sweep = read_sweep(root["sweep"]);

    std::string& schedule = config.pipeline.schedule;
    if (schedule.ends_with(".csv"))
        schedule = absolute_path(folder, schedule);
    const PlanDefaults defaults = defaults_of(schedule);
    apply_file(root, defaults, config, claims);
    check_lengths(root["pipeline"], config.pipeline);
    config.pipeline.stages = resolve_stages(claims, config.cluster.devices.size(), defaults.chunks);
    config.search = read_search(root["search"], config.pipeline.mini_batch);
    config.pipeline.recompute = read_recompute(root["pipeline"]["recompute"], config.pipeline.stages);
    if (defaults.stages == 0)  // else the plan says which devices hold a stage
        resolve_devices(root, defaults.chunks, config);
    if (is_uniform(config)) {
        spread_uniform(config.workload.uniform, config.pipeline.stages);
        if (!config.pipeline.cuts.empty() || !config.pipeline.lists.empty())
            root["pipeline"]["split"].complain(fmt::format("model: {} has no layers to split", config.workload.model),
                                               "remove 'pipeline.split'");
    }
    root.source().throw_if_mistaken();

    for (const PathKey& row : kPathKeys)
        if (std::filesystem::path(root[row.block][row.key].text()).is_absolute())
            config.absolute.insert(fmt::format("{}.{}", row.block, row.key));
    config.source = root.shared_source();
    collect_places(root, config.places);
    config.yaml = print_config(config);
    return config;
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
    Source report = source ? *source : Source("configuration", "");  // a copy: the caller may catch and go on
    report.complain(place, fact, help, key);
    report.throw_if_mistaken();
    throw Error(ExitCode::BadInput, fact);
}

bool is_uniform(const Config& config) {
    const BuiltInModel* model = find_model(config.workload.model);
    return model != nullptr && model->build == nullptr;
}

bool is_emulated(const Config& config) { return config.run.backend == RunConfig::Backend::Emulated; }

MicroBatchSizes sizes_of(const PipelineConfig& pipeline) {
    return {pipeline.micro_batch_size, pipeline.micro_batches, pipeline.mini_batch};
}

}  // namespace pw
