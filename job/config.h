// The effective configuration: one struct per block of the YAML file, defaults filled in.
#pragma once

#include "workloads/costs/costs.h"
#include "workloads/costs/micro_batch_sizes.h"
#include "workloads/data/dataset.h"
#include "workloads/text/yaml.h"

#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace pw {

inline constexpr Bytes kUnlimited = std::numeric_limits<Bytes>::max();

// model: uniform. One value per stage.
struct UniformWorkload {
    std::vector<Ns> forward, backward_input, backward_weight;
    std::vector<Bytes> activation, activation_until_weight, output, weights;
};

struct WorkloadConfig {
    std::string model;  // resnet50 | mlp | unet | gpt | uniform | the absolute path of a file (model_file)
    int image_size = 224;
    int classes = 10;
    std::string dataset = "synthetic";  // synthetic | cifar10 | mnist | text
    std::string path;                   // of the data set; made absolute against the config's folder
    ImageChanges changes;
    std::vector<int> hidden{512, 512};  // mlp: widths of the layers before the last
    int base_channels = 16, levels = 3;  // unet: of the first level; times the image is halved
    // gpt
    int sequence_length = 64, vocabulary = 256, embedding = 128, blocks = 4, heads = 4;
    double dropout = 0;  // mlp, gpt
    UniformWorkload uniform;
};

struct DeviceConfig {
    std::string name;
    double speed = 1;
    Bytes memory = kUnlimited;
    std::string host;
};

struct ClusterConfig {
    std::vector<DeviceConfig> devices;
    Bytes memory = kUnlimited;  // of devices that do not say
    Ns link_latency = 0;
    double link_bandwidth = std::numeric_limits<double>::infinity();  // bytes per second
    bool link_given = false;   // else a profile's measured link counts
    std::string profile;       // path, absolute; empty: analytic costs
    std::string rank_table;    // path, absolute: devices and their hosts come from it; empty: none
    DeviceRates rates;
};

struct PipelineConfig {
    std::string schedule;  // a name, or the absolute path of a *.csv
    int stages = 0;
    enum class Split { Auto, Even, Cuts, Lists } split = Split::Auto;
    std::vector<std::string> cuts;                // Split::Cuts
    std::vector<std::vector<std::string>> lists;  // Split::Lists
    int micro_batches = 1;
    int micro_batch_size = 1;
    // Samples of a mini-batch; fewer than micro_batches x micro_batch_size when the last one is smaller.
    std::int64_t mini_batch = 1;
    std::vector<int> replicas;  // per stage; empty: 1 each
    std::vector<int> recompute;  // stages that run R, ascending
    std::string weights;        // policy; empty: the schedule's own
    std::string prediction;     // of weights, by latest: none | spectrain | pipeoptim
    std::string rules;          // empty, or mindspore: its stricter rules
    std::string drain;          // gpipe, bfs: fifo | lifo; empty: the schedule's own
    int group = 0;              // interleaved, zb1p: micro-batches per group; 0: PyTorch's rule
};

// Whether some stage has several devices.
bool is_replicated(const PipelineConfig& pipeline);

struct TrainingConfig {
    int steps = 20;
    double learning_rate = 0.01, momentum = 0.9, weight_decay = 0;
    double clip_norm = 0;                // largest L2 norm of all gradients together; 0: any
    std::string loss = "cross_entropy";  // cross_entropy | mse
    // Running averages of batch norm: once per micro-batch, in their order, or `deferred`, once per mini-batch.
    std::string batch_norm = "per_micro_batch";
    std::string initial;  // path, absolute: a folder of parameters to start from; empty: they come from the seed
    std::int64_t seed = 1;
};

struct RunConfig {
    std::string backend = "cpu";  // cpu | reference | emulated | cuda
    std::string transport = "threads";  // threads | link (cpu, reference) | nccl (cuda)
    int threads_per_device = 1;
    Ns timeout = 30'000'000'000;
    std::string gradient_order = "plan";  // plan | micro_batch
    bool allow_nan = false;               // go on with losses and gradients that are not finite
    // cuda
    std::string precision = "fp32";  // fp32 | tf32 | bf16
    bool deterministic = true;       // algorithms by shape; else by timing
    std::vector<int> gpus;           // the GPU of each device; empty: spread over all
    std::vector<int> sms;            // multiprocessors of each device, on its GPU; empty: equal shares
    std::optional<bool> graph;       // a step is launched as one CUDA graph; silent: where it can be one
};

struct TransferConfig {
    std::string communicator = "edge";  // edge | direction | one
    std::string receive = "early";      // early | deferred
    std::string protocol = "eager";     // eager | rendezvous
};

// Where the file is silent, the search keeps what the pipeline says.
struct SearchConfig {
    std::string objective = "makespan";  // makespan | max-load | pipedream | piper
    std::vector<std::string> schedules;  // names, or only "all"; empty: the pipeline's
    std::vector<int> micro_batch_sizes;  // empty: the pipeline's
    std::int64_t mini_batch = 0;         // samples per update; by default the pipeline's
    std::vector<int> stages;             // numbers of stages to try; empty: the pipeline's
    bool replicas = false;               // a stage may live on several devices
    std::string recompute = "none";      // none | all | auto
    bool tensor_parallel = true;         // piper: a layer may be shared by several devices
    std::int64_t profile_batch = 0;      // samples that a file's times are for; by default a mini-batch
    // pipedream
    struct Level {
        int devices = 1;
        double bandwidth = 0;  // bytes per second, between the groups of the level below
        bool operator==(const Level&) const = default;
    };
    std::string p2p = "charged";  // charged | free
    bool straight = false;        // one device per stage
    bool memory_limit = false;
    std::vector<Level> levels;  // innermost first; empty: all devices on one
};

// One key of the block `sweep` and the values that it takes.
struct SweepAxis {
    std::string key;                 // "pipeline.micro_batches"
    std::vector<std::string> texts;  // YAML of one line each: key=text is an override
};

struct Config {
    WorkloadConfig workload;
    ClusterConfig cluster;
    PipelineConfig pipeline;
    TrainingConfig training;
    RunConfig run;
    TransferConfig transfer;
    SearchConfig search;
    std::vector<SweepAxis> sweep;  // in the order of the file; empty: none

    // For errors found after loading: where a key stands in the file.
    std::shared_ptr<Source> source;
    std::map<std::string, Place> places;  // "pipeline.split[1]" -> line and column
    std::string yaml;                     // the effective configuration, canonical YAML

    // Throws Error (BadInput) pointing at `key` (or its closest present parent). A fact that brings its own way out,
    // "...\n  help: ...", keeps it.
    [[noreturn]] void fail_at(const std::string& key, const std::string& fact, const std::string& help) const;
};

// Loads `path`, applies the overrides, checks every key of the contract and reports all mistakes at
// once. Keys of later parts of the contract that this build does not serve are errors that say so.
Config load_config(const std::string& path, const std::vector<std::string>& set);

// The canonical YAML of an effective configuration.
std::string print_config(const Config& config);

// Whether the devices of the run sleep instead of computing: then costs are enough to run.
bool is_emulated(const Config& config);

MicroBatchSizes sizes_of(const PipelineConfig& pipeline);

}  // namespace pw
