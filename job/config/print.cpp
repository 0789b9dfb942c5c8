#include "job/config/blocks.h"
#include "workloads/costs/link_yaml.h"
#include "workloads/models/models.h"

#include <algorithm>
#include <cctype>
#include <cstring>
#include <variant>

namespace pw {
namespace {

template <class T, class Print>
std::string list(const std::vector<T>& values, Print print) {
    std::vector<std::string> texts;
    for (const T& value : values)
        texts.push_back(print(value));
    return fmt::format("[{}]", fmt::join(texts, ", "));
}

std::string text_of(int value) { return fmt::format("{}", value); }
std::string text_of(const std::vector<int>& values) { return fmt::format("[{}]", fmt::join(values, ", ")); }
std::string text_of(double share) { return share == 0 ? "" : fmt::format("{}", share); }  // none: as if not there

void print_options(const WorkloadConfig& workload, std::string& out) {
    const BuiltInModel* model = find_model(workload.model);
    if (model == nullptr)
        return;
    for (const ModelKey& key : model_keys()) {
        const auto print = [&](auto option) { return text_of(workload.options.*option); };
        const std::string text = takes_key(*model, key.name) ? std::visit(print, key.value) : "";
        if (!text.empty())
            out += fmt::format("  {}: {}\n", key.name, text);
    }
}

void print_changes(const ImageChanges& changes, std::string& out) {
    if (changes.crop_padding > 0 || changes.flip)
        out += fmt::format("  augment: {{crop_padding: {}, flip: {}}}\n", changes.crop_padding, changes.flip);
    if (!changes.mean.empty())
        out += fmt::format("  normalise: {{mean: [{}], std: [{}]}}\n", fmt::join(changes.mean, ", "),
                           fmt::join(changes.deviation, ", "));
}

void print_workload(const Config& config, std::string& out) {
    const WorkloadConfig& workload = config.workload;
    out += fmt::format("workload:\n  model: {}\n", quoted(workload.model));
    const BuiltInModel* model = find_model(workload.model);
    if (model != nullptr && reads_images(*model))
        out += fmt::format("  image_size: {}\n  classes: {}\n", workload.options.image_size, workload.options.classes);
    if ((model != nullptr && model->build != nullptr) || workload.dataset != WorkloadConfig{}.dataset)
        out += fmt::format("  dataset: {}\n", workload.dataset);
    if (!workload.path.empty())
        out += fmt::format("  path: {}\n", quoted(workload.path));
    print_options(workload, out);
    print_changes(workload.changes, out);
    if (!is_uniform(config))
        return;
    const UniformWorkload& uniform = workload.uniform;
    out += fmt::format("  stages: {}\n", uniform.forward.size());
    out += fmt::format("  forward: {}\n", list(uniform.forward, exact_time));
    out += fmt::format("  backward_input: {}\n", list(uniform.backward_input, exact_time));
    out += fmt::format("  backward_weight: {}\n", list(uniform.backward_weight, exact_time));
    if (uniform.imbalance > 0)
        out += fmt::format("  imbalance: {}\n", uniform.imbalance);
    out += fmt::format("  activation: {}\n", list(uniform.activation, exact_bytes));
    out += fmt::format("  activation_until_weight: {}\n", list(uniform.activation_until_weight, exact_bytes));
    out += fmt::format("  output: {}\n", list(uniform.output, exact_bytes));
    out += fmt::format("  weights: {}\n", list(uniform.weights, exact_bytes));
}

// Returns the devices of each host where the hosts are those that `devices_per_host` makes, in its order; else 0.
std::size_t devices_per_host(const std::vector<DeviceConfig>& devices) {
    const auto other = std::find_if(devices.begin(), devices.end(),
                                    [&](const DeviceConfig& device) { return device.host != devices.front().host; });
    const auto each = static_cast<std::size_t>(other - devices.begin());
    for (std::size_t device = 0; device < devices.size(); ++device)
        if (devices[device].host != fmt::format("host {}", device / each))
            return 0;
    return each;
}

// Prints what a device has of its own: {} where it is like all others.
std::string own_keys(const DeviceConfig& device, bool says_host, Bytes memory) {
    std::vector<std::string> keys;
    if (!device.name.empty())
        keys.push_back(fmt::format("name: {}", quoted(device.name)));
    if (device.speed != 1)
        keys.push_back(fmt::format("speed: {}", device.speed));
    if (device.memory != memory)
        keys.push_back(fmt::format("memory: {}", exact_bytes(device.memory)));
    if (says_host && !device.host.empty())
        keys.push_back(fmt::format("host: {}", quoted(device.host)));
    return fmt::format("{{{}}}", fmt::join(keys, ", "));
}

// Prints the devices as a number, or as hosts, where that says it all; else one line each. A rank table has the names
// and the hosts that it gives them.
void print_devices(const ClusterConfig& cluster, std::string& out) {
    std::vector<DeviceConfig> devices = cluster.devices;
    if (!cluster.rank_table.empty())
        for (std::size_t rank = 0; rank < devices.size(); ++rank) {
            devices[rank].host.clear();
            if (devices[rank].name == fmt::format("rank {}", rank))
                devices[rank].name.clear();
        }
    const bool all_limited = std::all_of(devices.begin(), devices.end(),
                                         [](const DeviceConfig& device) { return device.memory != kUnlimited; });
    const Bytes memory = devices.empty() || !all_limited ? kUnlimited : devices.front().memory;
    const std::size_t each = devices_per_host(devices);
    std::vector<std::string> lines;
    for (const DeviceConfig& device : devices)
        lines.push_back(own_keys(device, each == 0, memory));
    const bool alike = std::all_of(lines.begin(), lines.end(), [](const std::string& keys) { return keys == "{}"; });
    const bool whole = each > 0 && devices.size() % each == 0;
    if (!alike)
        out += "  devices:\n";
    for (const std::string& keys : lines)
        out += alike ? "" : fmt::format("    - {}\n", keys);
    if (alike)
        out += whole ? fmt::format("  hosts: {}\n", devices.size() / each)
                     : fmt::format("  devices: {}\n", devices.size());
    if (each > 0)
        out += fmt::format("  devices_per_host: {}\n", each);
    if (memory != kUnlimited)
        out += fmt::format("  memory: {}\n", exact_bytes(memory));
}

void print_cluster(const ClusterConfig& cluster, std::string& out) {
    out += "cluster:\n";
    print_devices(cluster, out);
    if (cluster.link_given)
        out += fmt::format("  {}: {{{}}}\n", cluster.between_hosts ? "inside" : "link", print_link(cluster.link));
    if (cluster.between_hosts)
        out += fmt::format("  between: {{{}}}\n", print_link(*cluster.between_hosts));
    out += print_network(cluster);
    if (cluster.dispatch)
        out += fmt::format("  dispatch: {}\n", exact_time(*cluster.dispatch));
    if (cluster.dispatcher != ClusterConfig::Dispatcher::PerDevice)
        out += fmt::format("  dispatcher: {}\n", name_of(cluster.dispatcher));
    if (!cluster.rank_table.empty())
        out += fmt::format("  rank_table: {}\n", quoted(cluster.rank_table));
    if (!cluster.profile.empty())
        out += fmt::format("  profile: {}\n", quoted(cluster.profile));
}

// Rates count where costs are computed from them.
void print_rates(const Config& config, std::string& out) {
    const DeviceRates &rates = config.cluster.rates, usual;
    const bool computed = has_analytic_costs(config);
    if (computed || rates.flops != usual.flops)
        out += fmt::format("  compute: {}\n", exact_flops(rates.flops));
    if (computed || rates.memory_bandwidth != usual.memory_bandwidth)
        out += fmt::format("  memory_bandwidth: {}\n", exact_bandwidth(rates.memory_bandwidth));
}

std::string split_text(const PipelineConfig& pipeline) {
    const auto names = [](const std::vector<std::string>& layers) { return list(layers, quoted); };
    switch (pipeline.split) {
        case PipelineConfig::Split::Auto:
        case PipelineConfig::Split::Even:
            break;
        case PipelineConfig::Split::Cuts:
            return names(pipeline.cuts);
        case PipelineConfig::Split::Lists:
            return fmt::format("{{stages: {}}}", list(pipeline.lists, names));
    }
    return std::string(name_of(pipeline.split));
}

std::string recompute_text(const PipelineConfig& pipeline) {
    const std::vector<int>& stages = pipeline.recompute;
    using Recompute = PipelineConfig::Recompute;
    if (!stages.empty() && std::ssize(stages) != pipeline.stages)
        return fmt::format("[{}]", fmt::join(stages, ", "));
    return std::string(name_of(stages.empty() ? Recompute::None : Recompute::All));
}

void print_pipeline(const PipelineConfig& pipeline, std::string& out) {
    out += fmt::format("pipeline:\n  schedule: {}\n  stages: {}\n  split: {}\n", quoted(pipeline.schedule),
                       pipeline.stages, split_text(pipeline));
    out +=
        fmt::format("  micro_batches: {}\n  micro_batch_size: {}\n", pipeline.micro_batches, pipeline.micro_batch_size);
    if (pipeline.mini_batch != std::int64_t{pipeline.micro_batches} * pipeline.micro_batch_size)
        out += fmt::format("  mini_batch: {}\n", pipeline.mini_batch);
    if (!pipeline.micro_batch_lengths.empty())
        out += fmt::format("  micro_batch_lengths: {}\n", print_lengths(pipeline.micro_batch_lengths));
    if (!pipeline.replicas.empty())
        out += fmt::format("  replicas: [{}]\n", fmt::join(pipeline.replicas, ", "));
    if (pipeline.weights)
        out += fmt::format("  weights: {}\n", name_of(*pipeline.weights));
    if (pipeline.prediction != Prediction::None)
        out += fmt::format("  prediction: {}\n", name_of(pipeline.prediction));
    if (pipeline.rules != PipelineConfig::Rules::None)
        out += fmt::format("  rules: {}\n", name_of(pipeline.rules));
    if (pipeline.drain != ScheduleOptions::Drain::Own)
        out += fmt::format("  drain: {}\n", name_of(pipeline.drain));
    if (pipeline.group > 0)
        out += fmt::format("  group: {}\n", pipeline.group);
    out += fmt::format("  recompute: {}\n", recompute_text(pipeline));
}

}  // namespace

std::string quoted(const std::string& text) {
    const auto harmless = [](char c) {
        return std::isalnum(static_cast<unsigned char>(c)) || std::strchr("_./-+ ", c);
    };
    const bool plain = !text.empty() && std::isalpha(static_cast<unsigned char>(text[0])) && text.back() != ' ' &&
                       std::all_of(text.begin(), text.end(), [&](char c) { return c != '\0' && harmless(c); }) &&
                       text != "null" && text != "Null" && text != "NULL";
    if (plain || (text.size() > 1 && text[0] == '/' && text.find_first_of(" :#,[]{}\"'\\\n\r\t") == std::string::npos))
        return text;
    std::string result = "\"";
    for (const char c : text) {
        if (c == '"' || c == '\\')
            result += '\\';
        if (static_cast<unsigned char>(c) < 0x20)
            result += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
        else
            result += c;
    }
    return result + '"';
}

std::string print_config(const Config& config) {
    std::string out;
    print_workload(config, out);
    print_cluster(config.cluster, out);
    print_rates(config, out);
    print_pipeline(config.pipeline, out);
    const TrainingConfig& training = config.training;
    out += fmt::format(
        "training:\n  steps: {}\n  optimizer: {}\n  learning_rate: {}\n  momentum: {}\n  weight_decay: {}\n",
        training.steps, name_of(training.optimizer), training.learning_rate, training.momentum, training.weight_decay);
    if (training.clip_norm > 0)
        out += fmt::format("  clip_norm: {}\n", training.clip_norm);
    out += fmt::format("  loss: {}\n  batch_norm: {}\n", name_of(training.loss), name_of(training.batch_norm));
    if (!training.initial.empty())
        out += fmt::format("  initial: {}\n", quoted(training.initial));
    out += fmt::format("  seed: {}\n", training.seed);
    if (training.shard_optimizer)
        out += "  shard_optimizer: true\n";
    const RunConfig& run = config.run;
    out += fmt::format(
        "run:\n  backend: {}\n  transport: {}\n  threads_per_device: {}\n  timeout: {}\n  gradient_order: {}\n",
        name_of(run.backend), name_of(run.transport), run.threads_per_device, exact_time(run.timeout),
        name_of(run.gradient_order));
    if (run.fan_out_gradients != RunConfig{}.fan_out_gradients)
        out += fmt::format("  fan_out_gradients: {}\n", name_of(run.fan_out_gradients));
    if (run.allow_nan)
        out += "  allow_nan: true\n";
    if (run.backend == RunConfig::Backend::Cuda)
        out += fmt::format("  precision: {}\n  deterministic: {}\n  gpus: [{}]\n  sms: [{}]\n", name_of(run.precision),
                           run.deterministic, fmt::join(run.gpus, ", "), fmt::join(run.sms, ", "));
    if (run.graph)
        out += fmt::format("  graph: {}\n", *run.graph);
    const TransferMode& transfer = config.transfer;
    out += fmt::format("transfer:\n  communicator: {}\n  receive: {}\n  protocol: {}\n", name_of(transfer.communicator),
                       name_of(transfer.receive), name_of(transfer.protocol));
    if (transfer.eager_limit > 0)
        out += fmt::format("  eager_limit: {}\n", exact_bytes(transfer.eager_limit));
    if (transfer.blocks())
        out += fmt::format("  exchange: {}\n", name_of(transfer.exchange));
    if (config.sums != SumAlgorithm::Ring)
        out += fmt::format("  sums: {}\n", name_of(config.sums));
    if (config.mover_share > 0)
        out += fmt::format("  multiprocessors: {}\n", config.mover_share);
    if (config.sum_bucket > 0)
        out += fmt::format("  sum_bucket: {}\n", exact_bytes(config.sum_bucket));
    if (config.places.contains("search"))
        out += print_search(config.search);
    return out;
}

}  // namespace pw
