// What tasks cost, per stage: times and bytes. Measured layer by layer into a profile, or derived
// from FLOPs and bytes.
#pragma once

#include "workloads/cluster/cluster.h"
#include "workloads/costs/convolution_choice.h"
#include "workloads/costs/products.h"
#include "workloads/costs/stage_cost.h"
#include "workloads/costs/sums.h"
#include "workloads/models/kept_bytes.h"
#include "workloads/models/optimizer.h"
#include "workloads/models/precision.h"
#include "workloads/stages/stage_layout.h"

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace pw {

// The median of repeated measurements and their spread (p90 - p10).
struct Measured {
    Ns median = 0;
    Ns spread = 0;
    bool operator==(const Measured&) const = default;
};

struct LayerTimes {
    Measured forward, backward_input, backward_weight;
    Measured backward;    // B as a whole, not always I + W (for inputs and for weights)
    Measured accumulate;  // additional time of weight gradients that are added instead of written
    Measured recompute;
    bool operator==(const LayerTimes&) const = default;
};

struct LayerProfile {
    std::string name;
    std::map<int, LayerTimes> times = {};  // by micro-batch size
    std::map<int, LayerTimes> busy = {};   // while other devices compute, empty if that makes no difference
    std::map<int, LayerBytes> bytes = {};
    Measured update = {};  // optimizer, per step
    bool operator==(const LayerProfile&) const = default;
};

// Returns whether a layer's times at a size were measured. Times at other sizes are interpolated linearly between
// neighbours, and extrapolated from the nearest two. With a single size, times are proportional to the size.
bool has_times(const LayerProfile& layer, int samples);

// A profile is a versioned file.
struct Profile {
    static constexpr int kVersion = 1;
    std::string model, backend, machine, date;
    Dims input;
    int classes = 0;
    int threads_per_device = 1;
    int neighbours = 0;  // devices that computed during the busy times (0: not known, the rest of a plan's host)
    std::optional<Precision> precision;            // absent when not known
    OptimizerKind optimizer = OptimizerKind::Sgd;  // whose updates were measured
    double cpu_share = 1;              // share of its cores that the measurement had, less than 1 if other programs ran
    std::vector<LayerProfile> layers;  // in forward order
    std::map<int, Measured> data;      // one micro-batch of input data, by its size
    std::map<int, Bytes> data_bytes;
    Measured reference;  // fixed work (exec/measuring/reference_work.h), during the measurement (0: not known)
    Measured dispatch;   // per task, whatever it does
    Link link;           // between two devices, of the same host if `between_hosts` is given
    std::optional<Link> between_hosts;
    Link host_link;  // of a device to the memory of its host, of unlimited bandwidth where it was not measured
    Link sums;       // a ring over this link takes as long as S, the sum of gradients (maybe without messages)
    bool sent_copies = false;                     // a transport that copies out of the sender
    std::vector<ConvolutionChoice> convolutions;  // choices of this precision, each shape once
    std::vector<std::string> notes;               // for the user; files do not contain them
    bool any_size = false;  // times are of a micro-batch, whatever its size (only model files have such times)
    // The times on every make of devices (DeviceKind::times), instead of the times in `layers`, which has the sizes.
    // Empty if makes differ in speed only. Files do not contain these times.
    std::vector<std::vector<LayerProfile>> of_makes;
    bool operator==(const Profile&) const = default;
};

Profile read_profile(const std::string& path);                        // throws Error (BadInput) with line
void write_profile(const Profile& profile, const std::string& path);  // YAML
// The same without a file.
Profile profile_in(const std::string& text);
std::string text_of(const Profile& profile);

// Returns the time in which `holders` devices sum `bytes` that each has in a ring (SumAlgorithm::Ring) over equal
// links.
Ns ring_sum(int holders, Bytes bytes, const Link& link);

// Returns a size, scaled to a micro-batch of this length.
Bytes scaled_bytes(Bytes bytes, double length);

// Returns the cluster of costs that name no cluster: equal devices on one host, whose messages take no time.
std::shared_ptr<const Cluster> default_cluster();

// The costs of the stages of a plan on devices of a single make.
struct MakeCosts {
    std::vector<StageCost> stage;
    std::vector<StageCost> busy;  // the same while `neighbours` or more devices compute, empty if no slower
    // The costs of a mini-batch's last micro-batch if it is smaller, else empty. Its buffers are as large as a full
    // micro-batch's.
    std::vector<StageCost> last, busy_last;
    std::vector<StageBytes> sizes;  // of stages on these devices if they differ from Costs::bytes, else empty
};

// Costs are separate from a plan: they are the simulator's second argument.
struct Costs : MakeCosts {
    // The times on every make of devices (DeviceKind::times), if makes differ in more than speed, else empty. The times
    // above are then the shortest of all makes.
    std::vector<MakeCosts> of_makes;
    std::vector<StageBytes> bytes;      // per stage
    std::vector<EdgeBytes> edges;       // per boundary, absent pairs carry nothing
    std::vector<EdgeBytes> last_edges;  // of the last micro-batch if it is smaller, else empty
    // By micro-batch of a step, the same in every step. If empty, all micro-batches have length 1.
    std::vector<MicroBatchLength> lengths;
    // [slice][stage]: the length of a slice of a micro-batch as a share of the whole. If empty, micro-batches are
    // whole.
    std::vector<std::vector<MicroBatchLength>> slices;
    std::vector<StageCost> attention;  // by stage: the part of `stage` that is causal attention, empty if not known
    std::shared_ptr<const Cluster> cluster = default_cluster();
    // How S of each stage moves its bytes. If empty, S is a task of a known length that shares nothing.
    std::vector<StageSum> stage_sums;
    // By stage, how long after the last F of the stages that are joined with it (Shape::joined) their sum ends. Empty:
    // at once.
    std::vector<Ns> joined_sums;
    Bytes sum_bucket = 0;  // gradients that are summed at once, as soon as they are ready (0: all, at the end)
    // The share of a device's multiprocessors that move data, if kernels move it, as NCCL's do. A message under way
    // takes this share at both ends, and a sum of gradients takes it on each of its devices. Tasks that compute
    // meanwhile have the rest.
    double mover_share = 0;
    OptimizerKind optimizer = OptimizerKind::Sgd;
    KeptBytes kept = {};                  // StageBytes::weights are of KeptBytes::weight bytes for each parameter
    bool has_arena = true;                // whether the program that runs the plan has all its tensors in one arena
    int zero = 0;                         // what the holders of a stage divide, 0 to 3 (held_state)
    std::vector<StageSum> stage_gathers;  // the end of U with ZeRO-1 and 2, empty without or if gathers share nothing
    // With ZeRO-2 and 3, by stage: the bytes in memory during a pass of what the pass exchanges. Else empty.
    struct Exchanged {
        Bytes weights = 0, gradients = 0;  // weights gathered for F, R, B and I, gradients made by B and W
    };
    std::vector<Exchanged> exchanged;
    int neighbours = 0;  // devices of a host that slow each other down (busy), 0: all of the host
    Ns dispatch = 0;     // per task
    // A pair of overlapped tasks takes as long as the longer task and this share of the shorter task, where the pair's
    // time is not measured (StageCost::pair). 1: as long as both in sequence.
    double pair_exposed = 1;
    bool sent_copies = true;    // the sender keeps a copy until the next send of its lane
    bool interpolated = false;  // some time was not measured at this micro-batch size

    // Returns the times on a device, before its speed counts.
    const MakeCosts& times_on(int device) const {
        return of_makes.empty() ? *this : of_makes[static_cast<std::size_t>(cluster->times_of(device))];
    }
    // Returns the length of a micro-batch, or of the slice with this number (schedules/plan/plan.h), on a stage.
    MicroBatchLength length_of(int microbatch, int on_stage) const;
};

// Returns what each of the `holders` of a stage keeps from step to step.
HeldState held_state_of(int stage, int holders, const Costs& costs);

// Calls visit() with the times of costs, and with the times of every make.
template <class Visit>
void for_each_make(Costs& costs, Visit visit) {
    visit(static_cast<MakeCosts&>(costs));
    for (MakeCosts& times : costs.of_makes)
        visit(times);
}

// Returns whether some pair of tasks takes a time that differs from both tasks in sequence.
bool overlaps_pairs(const Costs& costs);

// Changes the cluster of costs. The costs get a new cluster at the end of the edit: `ClusterEdit(costs)->link = link;`.
class ClusterEdit {
public:
    explicit ClusterEdit(Costs& costs) : costs_(costs), facts_(*costs.cluster) {}
    ~ClusterEdit() { costs_.cluster = std::make_shared<const Cluster>(std::move(facts_)); }
    ClusterEdit(const ClusterEdit&) = delete;
    ClusterEdit& operator=(const ClusterEdit&) = delete;
    ClusterFacts* operator->() { return &facts_; }

private:
    Costs& costs_;
    ClusterFacts facts_;
};

struct DeviceRates {
    double flops = 150e9;            // FLOP/s
    double memory_bandwidth = 15e9;  // B/s
    // The rates of linear layers, by the shapes of their products. If null, linear layers have the rate `flops`, too.
    std::shared_ptr<const ProductRates> products = nullptr;
};

// What a model is trained in and by.
struct TrainingKind {
    Precision precision = Precision::Fp32;
    OptimizerKind optimizer = OptimizerKind::Sgd;
    KeptTypes types = {};

    KeptBytes kept() const { return kept_bytes(types, precision, optimizer, kFloatBytes); }
};

inline constexpr Bytes kAlignment = 64;  // alignment of every buffer, and of what a buffer contains
constexpr Bytes aligned(Bytes size) { return (size + kAlignment - 1) / kAlignment * kAlignment; }

// Returns the sizes of a layer in plain layout, each aligned.
LayerBytes analytic_bytes(const Layer& layer, int samples, Precision precision = Precision::Fp32);
// Returns the times of passes, each max(FLOPs / rate, bytes touched / bandwidth).
LayerTimes analytic_times(const Layer& layer, int samples, const DeviceRates& rates,
                          Precision precision = Precision::Fp32, Bytes gradient = kFloatBytes);

inline constexpr const char* kAnalytic = "analytic";  // Profile::backend of costs that were not measured
bool is_measured(const Profile& profile);             // neither analytic nor times of a model's file

// Makes a profile of `model` from analytic costs at a micro-batch size.
Profile analytic_profile(const Model& model, int samples, const DeviceRates& rates, const TrainingKind& training = {});

// Returns a layer's sizes as the profile has them, scaled to `samples` and not aligned.
LayerBytes raw_bytes(const LayerProfile& layer, int samples);

// Returns forward plus backward per layer, which is what `split_bottleneck` balances.
std::vector<Ns> layer_times(const LayerGraph& graph, const Profile& profile, int samples);

// Throws Error (BadInput) when the profile was made for another model, shape or layer list, naming the first difference
// and the way out.
void check_profile(const Model& model, const Profile& profile);

// A cost table is a profile at one micro-batch size, to be summed over the stages of many splits. Keeps references to
// both arguments. Throws Error (BadInput) when the profile was made for another model, shape or layer list, naming the
// first difference.
class CostTable {
public:
    CostTable(const Model& model, const Profile& profile, int samples);

    // These are costs by layer, without fetching the data batch. Each time is the shortest of all makes.
    const std::vector<StageCost>& alone() const { return shortest_.alone; }
    const std::vector<StageCost>& busy() const { return shortest_.busy; }  // empty when no slower
    const std::vector<LayerBytes>& bytes() const { return bytes_; }

    // Returns costs without links and speeds. Their bytes of stages have only the weights.
    Costs times_of(const StageSplit& split) const;
    // Returns all costs but links and speeds.
    Costs costs_of(const StageSplit& split) const;

private:
    struct LayerCosts {
        std::vector<StageCost> alone, busy;
        std::vector<LayerBytes> bytes;  // empty: the sizes of all makes
    };
    LayerCosts costs_of(const std::vector<LayerProfile>& layers, int samples) const;
    std::vector<const LayerCosts*> all_costs() const;
    StageCost stage_cost(const std::vector<int>& layers, const std::vector<StageCost>& costs) const;
    MakeCosts times_of(const StageSplit& split, const LayerCosts& costs) const;

    const Model& model_;
    const Profile& profile_;
    bool has_neighbours_;  // some make has busy times
    LayerCosts shortest_;
    std::vector<LayerCosts> of_makes_;
    std::vector<LayerBytes> bytes_;
    Ns data_time_ = 0;
    Bytes data_bytes_ = 0;
    bool interpolated_ = false;
};

// Returns the costs of a split.
Costs costs_of(const Model& model, const StageSplit& split, const Profile& profile, int samples);

}  // namespace pw
