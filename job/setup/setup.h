// What a job is made of: workload, cluster, plan, training and run, with defaults filled in. There is a struct for each
// block of a config. The names of the block's closed choices follow the struct.
#pragma once

#include "schedules/orders/schedule.h"
#include "schedules/plan/lanes.h"
#include "schedules/plan/offloading.h"
#include "workloads/cluster/device_kinds.h"
#include "workloads/costs/calibration.h"
#include "workloads/costs/costs.h"
#include "workloads/costs/micro_batch_sizes.h"
#include "workloads/costs/slices.h"
#include "workloads/data/dataset.h"
#include "workloads/models/kept_bytes.h"
#include "workloads/models/models.h"
#include "workloads/models/precision.h"
#include "workloads/text/choice.h"
#include "workloads/text/yaml.h"
#include "workloads/transformers/parallel.h"

#include <limits>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace pw {

inline constexpr Bytes kUnlimited = std::numeric_limits<Bytes>::max();
inline constexpr std::int64_t kMostBatches = 1'000'000;  // micro-batches of a mini-batch

// A workload with `model: uniform` has no layers. It has a value per stage.
struct UniformWorkload {
    std::vector<Ns> forward{1000}, backward_input{1000}, backward_weight{1000};
    std::vector<Ns> pair;  // of F and B overlapped, by the stage of F (empty: not measured)
    // by this share of a device's time the last stage takes longer and the remaining stages take less (same mean)
    double imbalance = 0;
    std::vector<Bytes> activation{1'000'000}, activation_until_weight{0}, output{0}, weights{0};
    std::vector<int> frozen;  // stages whose weights are not trained, ascending
};

struct WorkloadConfig {
    std::string model;  // the name of a built-in model, or the absolute path of a file (model_file)
    ModelOptions options;
    std::string dataset = "synthetic";  // a name of data_sources()
    std::string path;                   // of the data set, made absolute from the config's folder
    ImageChanges changes;
    UniformWorkload uniform;
    std::vector<std::string> frozen;         // names of layers or blocks, with '*', whose parameters are not trained
    std::optional<Lora> lora;                // of a transformer
    std::optional<Transformer> transformer;  // a preset, or the model of a config.json
    std::optional<Encoder> encoder = {};     // before the transformer
    std::optional<int> mtp_layers = {};      // Transformer::mtp (absent: what the model's config.json says)
    // search.profile_batch: samples that the times in the file `model` are for, if the file lacks them (0: not given)
    std::int64_t profile_batch = 0;
    std::string memory_profile = {};  // absolute path of the sizes of a profile of Galvatron (empty: next to the times)

    // Return the blocks of a transformer and its encoder, and the greatest number of tensor ranks of both.
    int all_blocks() const { return transformer->layers + (encoder ? encoder->blocks.layers : 0); }
    int most_tensor_ranks() const {
        const int ranks = transformer->most_tensor_ranks();
        return encoder ? std::gcd(ranks, encoder->blocks.most_tensor_ranks()) : ranks;
    }
};

struct DeviceConfig {
    std::string name;
    double speed = 1;
    Bytes memory = kUnlimited;
    std::string host;
    std::string device = {}, profile = {};  // replace the kind and the profile of the cluster (empty: no replacement)
    bool memory_of_kind = false;            // `memory` follows from the kind of the device
    // The number of a row of ClusterConfig::makes, or in a transformer's plan of ParallelConfig::makes.
    int make = 0;
};

// What the devices of a make have in common, and the links of their hosts.
struct DeviceMake {
    std::string device;                   // the kind (empty: none is named)
    std::optional<DeviceKindFacts> kind;  // what is known of `device`
    std::string profile;                  // absolute path (empty: costs are analytic)
    DeviceRates rates;
    Link link;
    bool link_given = false;            // whether the config has a link (else a profile's measured link is used)
    std::optional<Link> between_hosts;  // of an adapter, between devices of different hosts, if that link is separate
    int adapters = 1;                   // of every host (a message between hosts takes a single adapter)
    bool own_inside = false, own_between = false;  // given for these hosts (`hosts`), not for the cluster
    int per_host = 1;                              // devices of the smallest host that has such devices
};

// A device without keys of a make has the make of the cluster.
struct ClusterConfig : DeviceMake {
    std::vector<DeviceConfig> devices;
    std::vector<DeviceMake> makes;  // of the devices, in the order of the first device of each (empty: one make)
    Bytes memory = kUnlimited;      // of devices that have no `memory` of their own
    bool memory_of_kind = false;    // `memory` follows from the kind of the devices
    bool link_of_kind = false;      // `link` follows from the kind of the devices
    struct PairLink {
        int from, to;  // devices
        Link link;
        bool operator==(const PairLink&) const = default;
    };
    std::vector<PairLink> links;    // of pairs that have their own
    std::optional<Link> host_link;  // of a device to the memory of its host, in each direction (absent: the profile's)
    struct Shared {
        std::vector<int> devices;  // ascending
        double bandwidth;          // of all messages from or to these devices
        bool operator==(const Shared&) const = default;
    };
    std::vector<Shared> shared;
    struct Switch {
        std::vector<std::string> hosts;
        double bandwidth;  // of all messages that leave the hosts, and again of all that enter
        bool operator==(const Switch&) const = default;
    };
    std::vector<Switch> switches;
    std::optional<Ns> dispatch;  // of each task, in addition to its work (absent: the profile's)
    // A dispatcher per device or per host, which issues the calls of its devices one at a time.
    enum class Dispatcher { PerDevice, PerHost } dispatcher = Dispatcher::PerDevice;
    std::string rank_table;    // absolute path of a file with the devices and their hosts (empty: none)
    std::string device_kinds;  // absolute path of a file with further kinds (empty: none)
    std::string products;      // absolute path of a file with products measured on the devices (empty: none)
    std::vector<std::shared_ptr<const ProductRates>> measured_products;  // of that file if it is there, by precision
    int domain = 0;  // devices that `link` connects, in several hosts (0: the devices of a host)
};

template <>
inline constexpr Choice<ClusterConfig::Dispatcher> kChoices<ClusterConfig::Dispatcher>[] = {
    {"per device", ClusterConfig::Dispatcher::PerDevice}, {"per host", ClusterConfig::Dispatcher::PerHost}};

struct PipelineConfig {
    std::string schedule = "1f1b";                 // a name, or the absolute path of a *.csv
    std::shared_ptr<const Schedule> own_schedule;  // of the caller, in no table: `schedule` may be its name
    int stages = 0;
    enum class Split { Auto, Even, Cuts, Lists, Layout, Counts } split = Split::Auto;
    std::vector<std::string> cuts;                // Split::Cuts
    std::vector<std::vector<std::string>> lists;  // Split::Lists
    std::string layout;                           // Split::Layout, in the notation of Megatron-LM
    std::vector<int> blocks;                      // Split::Counts: of the stages of device 0, of device 1, ...
    enum class CutAt { Layers, Blocks } cut_at = CutAt::Layers;  // before which the splits made here may cut
    int micro_batches = 1;
    int micro_batch_size = 1;
    // Samples of a mini-batch: fewer than micro_batches x micro_batch_size if the last micro-batch is smaller. The
    // replicas of a transformer share it: each has micro_batches x micro_batch_size samples.
    std::int64_t mini_batch = 1;
    std::vector<MicroBatchLength> micro_batch_lengths;  // by micro-batch (empty: all are equal)
    std::vector<int> replicas;                          // holders per stage (empty: `copies` each)
    int copies = 1;                                     // of the whole pipeline
    Recomputation recompute;
    std::vector<std::string> recompute_layers;  // names of layers or blocks, with '*' (empty: all layers of the stages)
    enum class Recompute { None, All };         // values of `recompute` and `offload` that are not a list
    Offloading offload;
    std::vector<std::string> offload_layers;                   // as recompute_layers
    double offload_share = 1;                                  // of what these layers save
    std::optional<WeightPolicy> weights;                       // absent: the schedule's default
    std::optional<Prediction> prediction;                      // of the policy latest (absent: the schedule's)
    enum class Rules { None, MindSpore } rules = Rules::None;  // MindSpore's are stricter
    double pair_exposed = 1;                                   // Costs::pair_exposed
    ScheduleOptions options;                                   // of the schedule
    std::string current_plan;                                  // for auto: the absolute path of a *.csv (empty: none)
    int slices = 0;                                            // of each micro-batch, 0: the schedule's number
    SliceLengths slice_lengths = SliceLengths::Even;
    std::vector<int> slice_tokens;  // by slice, instead of slice_lengths (empty: none)
};

template <>
inline constexpr Choice<PipelineConfig::Split> kChoices<PipelineConfig::Split>[] = {
    {"auto", PipelineConfig::Split::Auto}, {"even", PipelineConfig::Split::Even}};
template <>
inline constexpr Choice<PipelineConfig::CutAt> kChoices<PipelineConfig::CutAt>[] = {
    {"layers", PipelineConfig::CutAt::Layers}, {"blocks", PipelineConfig::CutAt::Blocks}};
template <>
inline constexpr Choice<PipelineConfig::Recompute> kChoices<PipelineConfig::Recompute>[] = {
    {"none", PipelineConfig::Recompute::None}, {"all", PipelineConfig::Recompute::All}};
template <>
inline constexpr Choice<PipelineConfig::Rules> kChoices<PipelineConfig::Rules>[] = {
    {"none", PipelineConfig::Rules::None}, {"mindspore", PipelineConfig::Rules::MindSpore}};

// Returns whether any stage has several devices.
bool is_replicated(const PipelineConfig& pipeline);

// The devices of a cluster on which a transformer is trained, by rank.
struct ClusterRanks {
    std::vector<DeviceConfig> devices;  // as the file has them
    std::vector<Bytes> usable;          // memory that a program can use
    std::vector<int> host;              // by number
    bool are_alike = true;              // all have the same make, speed and memory
};

// The devices that have the stages of a device of the plan: their makes, ascending, and their degrees.
struct PlanMake {
    std::vector<int> makes;  // numbers in ClusterConfig::makes
    Parallel degrees;        // of transformers
    bool operator==(const PlanMake&) const = default;
};

// How the devices of a cluster share a transformer. The plan has a device for each stage of the pipeline, which stands
// for the devices that have the stage: it is as fast as the slowest of them.
struct ParallelConfig {
    Parallel degrees;
    // complete() sets these.
    std::shared_ptr<const ClusterRanks> ranks = std::make_shared<const ClusterRanks>();
    int per_host = 1;           // devices of the largest host
    Bytes memory = kUnlimited;  // of the device that has least, as far as a program can use it
    // The degrees of each device of the plan, if they differ: of tensor and context, ZeRO, and what is recomputed.
    // Empty: all have `degrees`.
    std::vector<Parallel> of_stages;
    std::vector<int> stage_of;  // by layer of the split, for TransformerJob::stage_of
    // The narrowest links, and shares of what messages share, between ranks of a stage: on a host, and between hosts.
    // Infinite if nothing limits them but the links of hosts.
    double inside_limit = std::numeric_limits<double>::infinity(), between_limit = inside_limit;
    // What devices of the plan stand for: each different row. A device of the plan has the number of its row
    // (DeviceConfig::make).
    std::vector<PlanMake> makes;

    const Parallel& degrees_of(int device) const {
        return of_stages.empty() ? degrees : of_stages[static_cast<std::size_t>(device)];
    }
    // Returns the first rank that has the stages of a device of the plan.
    int first_rank_of(int device) const;
};

struct TrainingConfig {
    int steps = 20;
    OptimizerKind optimizer = OptimizerKind::Sgd;
    double learning_rate = 0.01, weight_decay = 0;
    std::optional<int> anneal_steps;           // of the division of rates by delays (absent: anneal_steps_of)
    double correction_decay = 0.135;           // of the steps that corrected weights average
    double momentum = 0.9;                     // of sgd
    std::vector<double> betas = {0.9, 0.999};  // two, of adamw
    double epsilon = 1e-8;                     // of adamw
    double clip_norm = 0;                      // largest L2 norm of all gradients together (0: no limit)
    enum class Loss { CrossEntropy, MeanSquaredError } loss = Loss::CrossEntropy;
    // Running averages of batch norm are updated in the order of micro-batches, once per micro-batch, or once per
    // mini-batch (Deferred).
    enum class BatchNorm { PerMicroBatch, Deferred } batch_norm = BatchNorm::PerMicroBatch;
    std::string initial;  // absolute path of a folder with initial parameters (empty: they are drawn from the seed)
    std::int64_t seed = 1;
    Precision precision = Precision::Fp32;  // of the backend cuda (all other backends compute in fp32)
    KeptTypes types;                        // of what is kept of each parameter (key_of_types)
    int zero = 0;                           // what the replicas of a stage divide, 0 to 3 (held_state)
};
template <>
inline constexpr Choice<TrainingConfig::Loss> kChoices<TrainingConfig::Loss>[] = {
    {"cross_entropy", TrainingConfig::Loss::CrossEntropy}, {"mse", TrainingConfig::Loss::MeanSquaredError}};
template <>
inline constexpr Choice<TrainingConfig::BatchNorm> kChoices<TrainingConfig::BatchNorm>[] = {
    {"per_micro_batch", TrainingConfig::BatchNorm::PerMicroBatch}, {"deferred", TrainingConfig::BatchNorm::Deferred}};

struct RunConfig {
    enum class Backend { Cpu, Reference, Cuda, Emulated } backend = Backend::Cpu;
    // Link and Mpi are for the backends cpu and reference, Nccl is for cuda. Auto is only in files: complete() replaces
    // it by Mpi (Nccl on cuda) if a launcher has started several ranks, else by Threads.
    enum class Transport { Threads, Link, Mpi, Nccl, Auto } transport = Transport::Threads;
    int threads_per_device = 1;
    Ns timeout = 30'000'000'000;
    enum class GradientOrder { Plan, MicroBatch } gradient_order = GradientOrder::Plan;
    // Which gradients of a tensor with several readers are summed first: the gradients within a stage, which then sends
    // a single gradient, or none.
    enum class FanOutGradients { Stage, Layer } fan_out_gradients = FanOutGradients::Stage;
    bool allow_nan = false;  // continue with losses and gradients that are not finite
    // The following keys are for the backend cuda.
    bool deterministic = true;  // chooses algorithms by shape, otherwise by timing
    std::vector<int> gpus;      // the GPU of each device (empty: devices are distributed over all GPUs)
    std::vector<int> sms;       // multiprocessors of each device on its GPU (empty: equal shares)
    // What is launched as a CUDA graph: nothing, each F, B, I, W and R, or a step. Absent: each of these tasks, if they
    // repeat.
    enum class Graph { None, Task, Step };
    std::optional<Graph> graph;
};

template <>
inline constexpr Choice<RunConfig::Backend> kChoices<RunConfig::Backend>[] = {
    {"cpu", RunConfig::Backend::Cpu},
    {"reference", RunConfig::Backend::Reference},
    {"cuda", RunConfig::Backend::Cuda},
    {"emulated", RunConfig::Backend::Emulated}};
template <>
inline constexpr Choice<RunConfig::Graph> kChoices<RunConfig::Graph>[] = {
    {"none", RunConfig::Graph::None}, {"task", RunConfig::Graph::Task}, {"step", RunConfig::Graph::Step}};
template <>
inline constexpr Choice<RunConfig::Transport> kChoices<RunConfig::Transport>[] = {
    {"threads", RunConfig::Transport::Threads},
    {"link", RunConfig::Transport::Link},
    {"mpi", RunConfig::Transport::Mpi},
    {"nccl", RunConfig::Transport::Nccl},
    {"auto", RunConfig::Transport::Auto}};
template <>
inline constexpr Choice<RunConfig::GradientOrder> kChoices<RunConfig::GradientOrder>[] = {
    {"plan", RunConfig::GradientOrder::Plan}, {"micro_batch", RunConfig::GradientOrder::MicroBatch}};
template <>
inline constexpr Choice<RunConfig::FanOutGradients> kChoices<RunConfig::FanOutGradients>[] = {
    {"stage", RunConfig::FanOutGradients::Stage}, {"layer", RunConfig::FanOutGradients::Layer}};

// What a job is made of. Reading a config makes a setup, and a search changes copies of the setup.
struct Setup {
    WorkloadConfig workload;
    ClusterConfig cluster;
    ParallelConfig parallel;
    PipelineConfig pipeline;
    TrainingConfig training;
    RunConfig run;
    TransferMode transfer;                   // except sent_copies, which comes from the costs
    SumAlgorithm sums = SumAlgorithm::Ring;  // transfer.sums: the algorithm of S, for the simulator only
    double mover_share = 0;  // transfer.multiprocessors: share of a device that a message uses while it travels
    Bytes sum_bucket = 0;    // bytes of gradients that are summed at once (0: all of a stage)
    Calibration calibration;

    // The positions of keys in the file, for errors found after loading.
    std::shared_ptr<Source> source;
    std::map<std::string, Place> places;  // "pipeline.split[1]" -> line and column
    std::set<std::string> absolute;       // keys with absolute paths in the file
    std::string yaml;                     // the effective configuration as canonical YAML

    // Throws Error (BadInput) at `key`, or at its closest parent that the file has.
    [[noreturn]] void fail_at(const std::string& key, const std::string& fact, const std::string& help) const;
};

// Returns the canonical YAML of a setup: without a search, but for the key that the workload reads
// (WorkloadConfig::profile_batch).
std::string print_setup(const Setup& setup);

// Returns the setup with its paths relative to `folder`, except those of the keys in `setup.absolute`. Its paths are
// then no longer valid for this process.
Setup with_paths_from(const Setup& setup, const std::string& folder);

// Returns the tokens of a sample, or 0 if the model reads no tokens.
int tokens_per_sample(const Setup& setup);

// Returns whether the workload has times of stages and no layers.
bool is_uniform(const Setup& setup);

// Returns whether the costs of layers are computed from FLOPs and bytes by the rates of the cluster.
bool has_analytic_costs(const Setup& setup);

// Returns the rate of the named kind of devices in the precision of the training, or nothing without a named kind.
std::optional<ProductRate> rate_of_kind(const Setup& setup);

// Returns the rates of products in the precision of the training: of cluster.products, else of the named kind of
// devices. Returns null without a named kind or its table, and where the file has cluster.compute. Throws Error
// (BadInput) if there is no file cluster.products, or if the file has no products in this precision.
std::shared_ptr<const ProductRates> product_rates_of(const Setup& setup);
// Returns the rates in bf16, for what a training in low precision computes in bf16.
std::shared_ptr<const ProductRates> head_rates_of(const Setup& setup);

// Returns whether layers keep gradients and states in blocks as large as the weights, as the backends do: without types
// in the config and with an optimizer that the backends have.
bool keeps_blocks(const Setup& setup);
// Returns what is kept of each parameter, of transformers by the program of the first device.
KeptBytes kept_of(const Setup& setup);
// Returns the size of weights that are `weights` bytes in the training's precision, with their master weights.
Bytes kept_weights(Bytes weights, const Setup& setup);

// Returns whether the devices of the run sleep instead of computing. Costs are then enough to run.
bool is_emulated(const Setup& setup);

// Returns the sizes in a mini-batch of the plan. For a transformer this is the mini-batch of a single replica.
MicroBatchSizes sizes_of(const PipelineConfig& pipeline);

}  // namespace pw
