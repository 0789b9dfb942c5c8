// The blocks of the config, each with its keys, and helpers that they share.
#pragma once

#include "job/config/config.h"
#include "job/config/key.h"
#include "workloads/data/data_sources.h"

#include <fmt/format.h>

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace pw {

inline constexpr int kMostDevices = 1'000'000;
inline constexpr int kMostStages = 65'536;
inline constexpr Bytes kLargestSize = Bytes{1} << 50;  // largest size of a tensor or a set of weights
inline constexpr int kMostAdapters = 1024;             // of a host

// When a block is printed. IfSet: if a key of the block is.
enum class BlockShown { Always, IfGiven, IfSet };

struct ConfigBlock {
    std::string_view name;
    std::span<const ConfigKey> keys;
    // Reads values that depend on several keys, and checks keys against each other. May be null.
    void (*finish)(const Yaml& at, Config& config, KeyReading& reading);
    BlockShown shown = BlockShown::Always;
    KeyReader reader = KeyReader::All;

    KeyReader reader_of(const ConfigKey& key) const { return key.reader == KeyReader::OfBlock ? reader : key.reader; }
};
ConfigBlock workload_block();
ConfigBlock cluster_block();
ConfigBlock parallel_block();
ConfigBlock pipeline_block();
ConfigBlock training_block();
ConfigBlock run_block();
ConfigBlock transfer_block();
ConfigBlock calibration_block();
ConfigBlock search_block();
// Returns the blocks in the order of a printed config. `sweep` has no keys of its own and is not among them.
std::span<const ConfigBlock> config_blocks();

// Keys that are only for the backend cuda. read_config refuses them with other backends.
inline constexpr KeyLimit<Config> kOnGpus{
    [](const Config& config, std::string_view) { return config.run.backend == RunConfig::Backend::Cuda; },
    [](std::string_view) { return std::string(name_of(RunConfig::Backend::Cuda)); }};

// Precisions other than fp32: of the backend cuda, or of costs by the rates of a named kind of devices, even if there
// is no kind of this name.
inline constexpr KeyLimit<Config> kPrecisions{
    [](const Config& config, std::string_view key) {
        return kOnGpus.is_for(config, key) || !config.cluster.device.empty();
    },
    [](std::string_view key) { return fmt::format("{}, or with cluster.device", kOnGpus.words(key)); }};

// Keys of `cluster` that the costs of transformers do not count: finish_cluster() refuses them.
inline constexpr KeyLimit<Config> kNotOfTransformers{
    [](const Config& config, std::string_view) { return !is_transformer(config); },
    [](std::string_view) { return std::string("all workloads but transformers"); }};

inline constexpr KeyLimit<Config> kOfTransformers{
    [](const Config& config, std::string_view) { return config.workload.model.empty() || is_transformer(config); },
    [](std::string_view) { return std::string("transformers"); }};

// Keys of `search` that choose how the devices of a cluster share a transformer.
inline constexpr KeyLimit<Config> kOfClusters{
    [](const Config& config, std::string_view) { return searches_cluster(config); },
    [](std::string_view) { return std::string("transformers"); }, Elsewhere::Idle};

void read_block(const ConfigBlock& block, const Yaml& at, Config& config, KeyReading& reading);

// Notes the mistake that "X is not in this version".
void not_in_this_version(const Yaml& at, const std::string& what, const std::string& help);

// Gives every stage its entry where the times of a uniform workload are a single number.
void spread_uniform(UniformWorkload& uniform, int stages);

// Reads the devices, their hosts, and their makes but for links and rates.
void read_devices(const Yaml& at, ClusterConfig& cluster, KeyReading& reading);
struct PrintedDevices {  // by key (a key that is not printed is empty)
    std::string devices, hosts, devices_per_host, memory;
};
PrintedDevices print_devices(const ClusterConfig& cluster);
std::string device_schema();
// Returns a device without keys of its own.
DeviceConfig usual_device(const ClusterConfig& cluster);

// Hosts that differ: the rows of cluster.hosts.
struct HostConfig {
    std::string name;  // of a host, whose devices name it, empty: `count` hosts with `devices` devices
    int count = 1, devices = 0;
    std::string device, profile;  // of the devices
    double speed = 1;
    std::optional<Bytes> memory;
    std::optional<Link> inside, between;
    int adapters = 1;
};
std::vector<HostConfig> read_host_rows(const Yaml& hosts, KeyReading& reading);
std::string print_host_row(const HostConfig& row);
std::string host_schema();

// Returns the facts of the kind with this name. Notes a mistake at the key if there is none.
std::optional<DeviceKindFacts> read_kind_of(const Yaml& key, const std::string& name, const std::string& file);
// Gives every device its make, by its keys and the row of its host. `row_of_device` has -1 for a host without a row.
void find_makes(const Yaml& at, ClusterConfig& cluster, const std::vector<HostConfig>& rows,
                const std::vector<int>& row_of_device);
// Completes the links of the makes. The links of the cluster must be known.
void complete_makes(const Yaml& at, ClusterConfig& cluster);

// Reads a link: its name, or a map, which may have additional keys.
Link read_link(const Yaml& at, std::vector<std::string_view> further = {});
// Reads the link of an adapter, by name or by its numbers, and how many adapters a host has.
Link read_between(const Yaml& at, int& adapters);
std::string print_between(const Link& between, int adapters);
// Reads links, shared and switches of the block `cluster` once its devices and hosts are known.
void read_network(const Yaml& at, ClusterConfig& cluster);
std::string print_pairs(const ClusterConfig& cluster);
std::string print_shared(const ClusterConfig& cluster);
std::string print_switches(const ClusterConfig& cluster);
std::string link_schema();
std::string between_schema();
std::string pair_schema();
std::string shared_schema();
std::string switch_schema();

// Note a model and a data set of which only one has tokens, and heads that do not divide a token's vector.
void check_tokens(const Yaml& at, const WorkloadConfig& workload, const DataSource& source);
// Refuses a path without a data set that reads it: the model would train on synthetic data.
void check_path(const Yaml& at, const BuiltInModel* model);
void check_heads(const Yaml& at, const BuiltInModel* model, const ModelOptions& options);

// Read pipeline.micro_batch_lengths: from a CSV, or from the key, which is a list or the path of a CSV.
std::vector<MicroBatchLength> read_lengths_file(const std::string& path);
std::vector<MicroBatchLength> read_lengths(const Yaml& lengths, KeyReading& reading);
std::string print_lengths(const std::vector<MicroBatchLength>& lengths);
std::string lengths_schema();
// Read the name of a layer, and a list of such names. None may be empty.
std::string read_layer_name(const Yaml& at);
std::vector<std::string> read_layer_names(const Yaml& at);
// Read and print pipeline.split.
void read_split(const KeyDomain& domain, const Yaml& split, Config& config, KeyReading& reading);
std::string print_split(const Config& config);
// Read and print Recomputation::ahead: a number, or a word for by costs.
int read_ahead(const KeyDomain& domain, const Yaml& at);
std::string print_ahead(int ahead);
// Read and print workload.frozen and workload.lora. The stages of a uniform workload are read once their number is
// known.
void read_frozen(const KeyDomain& domain, const Yaml& at, Config& config, KeyReading& reading);
std::string print_frozen(const Config& config);
void read_lora(const KeyDomain& domain, const Yaml& at, Config& config, KeyReading& reading);
std::string print_lora(const Config& config);
std::string lora_schema();
void read_encoder(const KeyDomain& domain, const Yaml& at, Config& config, KeyReading& reading);
std::string print_encoder(const Config& config);
std::string encoder_schema();
// Note mistakes of workload.encoder, and of what workload.frozen and workload.lora leave of a transformer. `at` is the
// block.
void check_encoder_of(const Yaml& at, Config& config);
void check_trained_layers(const Yaml& at, const WorkloadConfig& workload);
// Reads a list of stages. Returns them ascending, each once.
std::vector<int> read_stages(const Yaml& list, int stages);
// Reads pipeline.recompute once the number of stages is known.
std::vector<int> read_recompute(const Yaml& recompute, int stages);

// Makes the plan's devices from the cluster's devices: a device for each stage of the pipeline. Notes mistakes of
// degrees that do not fit the cluster, the model or the mini-batch.
void group_devices(const Yaml& root, Config& config);

// Reads the block `sweep`. Every axis has values. Whether the key of an axis exists is checked when an override is
// loaded.
std::vector<SweepAxis> read_sweep(const Yaml& sweep);

}  // namespace pw
