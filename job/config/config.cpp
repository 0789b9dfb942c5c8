#include "job/config/config.h"

#include "job/config/blocks.h"
#include "job/config/other_names.h"
#include "job/config/rank_table.h"
#include "workloads/costs/profiled_model.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <utility>

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

RunConfig read_run(const Yaml& at) {
    at.allow({"backend", "transport", "threads_per_device", "timeout", "gradient_order", "fan_out_gradients",
              "allow_nan", "precision", "deterministic", "gpus", "sms", "graph"},
             kOtherNames);
    RunConfig run;
    run.backend = at["backend"].choice(run.backend);
    run.transport = at["transport"].choice(RunConfig::Transport::Auto);
    run.threads_per_device = static_cast<int>(at["threads_per_device"].integer(run.threads_per_device, 1, 4096));
    run.timeout = read_time(at["timeout"], run.timeout, 1'000'000);
    run.gradient_order = at["gradient_order"].choice(run.gradient_order);
    if (run.gradient_order != RunConfig::GradientOrder::Plan)
        not_in_this_version(at["gradient_order"], "gradient_order: micro_batch", "write gradient_order: plan");
    run.fan_out_gradients = at["fan_out_gradients"].choice(run.fan_out_gradients);
    run.allow_nan = at["allow_nan"].boolean(run.allow_nan);
    read_cuda(at, run);
    return run;
}

}  // namespace

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

WrittenConfig read_config(std::shared_ptr<Source> source, const std::string& folder,
                          const std::vector<std::string>& set) {
    WrittenConfig written{Yaml::parse(std::move(source), set), {}, {}};
    const Yaml& root = written.root;
    Config& config = written.config;
    root.allow({"workload", "cluster", "pipeline", "training", "run", "transfer", "search", "sweep"}, kOtherNames);
    config.workload = read_workload(root["workload"], folder, written.claims);
    config.cluster = read_cluster(root["cluster"], folder);
    config.pipeline = read_pipeline(root["pipeline"], folder, written.claims);
    config.training = read_training(root["training"], folder);
    config.run = read_run(root["run"]);
    config.transfer = read_transfer(root["transfer"]);
    config.sums = root["transfer"]["sums"].choice(config.sums);
    config.mover_share = root["transfer"]["multiprocessors"].number(0, 0, 0.5);
    config.sum_bucket = root["transfer"]["sum_bucket"].bytes(0);
    if (config.training.shard_optimizer && config.sums == SumAlgorithm::Tree)
        root["training"]["shard_optimizer"].complain(
            "the optimizer is sharded, and a tree sums no parts (transfer.sums)",
            "write sums: ring or sums: two_level, or leave shard_optimizer out");
    config.search = read_search(root["search"]);
    config.sweep = read_sweep(root["sweep"]);
    if (config.pipeline.schedule.ends_with(".csv"))
        config.pipeline.schedule = absolute_path(folder, config.pipeline.schedule);

    for (const PathKey& row : kPathKeys)
        if (const Yaml at = root[row.block][row.key]; at.is_text() && std::filesystem::path(at.text()).is_absolute())
            config.absolute.insert(fmt::format("{}.{}", row.block, row.key));
    config.source = root.shared_source();
    collect_places(root, config.places);
    return written;
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
    constexpr std::string_view kHelp = "\n  help: ";
    const std::size_t own = fact.find(kHelp);
    report.complain(place, fact.substr(0, own), own == std::string::npos ? help : fact.substr(own + kHelp.size()));
    report.throw_if_mistaken();
    throw Error(ExitCode::BadInput, fact);
}

bool is_uniform(const Config& config) {
    const BuiltInModel* model = find_model(config.workload.model);
    return model != nullptr && model->build == nullptr;
}

bool has_analytic_costs(const Config& config) {
    return !is_uniform(config) && model_file(config.workload.model) == ModelFile::None &&
           config.cluster.profile.empty();
}

bool is_emulated(const Config& config) { return config.run.backend == RunConfig::Backend::Emulated; }

MicroBatchSizes sizes_of(const PipelineConfig& pipeline) {
    return {pipeline.micro_batch_size, pipeline.micro_batches, pipeline.mini_batch};
}

}  // namespace pw
