#include "job/config_blocks.h"
#include "job/cost_source.h"
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

bool is_plain(const DeviceConfig& device, Bytes memory) {
    return device.name.empty() && device.host.empty() && device.speed == 1 && device.memory == memory;
}

// Prints the devices, as a number where that says it all.
void print_devices(const std::vector<DeviceConfig>& devices, std::string& out) {
    const Bytes memory = devices.empty() ? kUnlimited : devices.front().memory;
    if (std::all_of(devices.begin(), devices.end(),
                    [&](const DeviceConfig& device) { return is_plain(device, memory); })) {
        out += fmt::format("  devices: {}\n", devices.size());
        out += memory == kUnlimited ? "" : fmt::format("  memory: {}\n", exact_bytes(memory));
        return;
    }
    out += "  devices:\n";
    for (const DeviceConfig& device : devices)
        out += fmt::format("    - {{name: {}, speed: {}, memory: {}, host: {}}}\n", quoted(device.name), device.speed,
                           exact_bytes(device.memory), quoted(device.host));
}

void print_cluster(const ClusterConfig& cluster, std::string& out) {
    out += "cluster:\n";
    print_devices(cluster.devices, out);
    if (cluster.link_given)
        out += fmt::format("  {}: {{{}}}\n", cluster.between_hosts ? "inside" : "link", print_link(cluster.link));
    if (cluster.between_hosts)
        out += fmt::format("  between: {{{}}}\n", print_link(*cluster.between_hosts));
    out += print_network(cluster);
    if (cluster.dispatch)
        out += fmt::format("  dispatch: {}\n", exact_time(*cluster.dispatch));
    if (!cluster.rank_table.empty())
        out += fmt::format("  rank_table: {}\n", quoted(cluster.rank_table));
    if (!cluster.profile.empty())
        out += fmt::format("  profile: {}\n", quoted(cluster.profile));
}

// Rates count where costs are computed from them.
void print_rates(const Config& config, std::string& out) {
    const DeviceRates &rates = config.cluster.rates, usual;
    const bool computed = cost_source_of(config).source == CostSource::Analytic;
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
