// What tasks cost, per stage: times and bytes. Measured layer by layer into a profile, or derived
// from FLOPs and bytes.
#pragma once

#include "workloads/costs/convolution_choice.h"
#include "workloads/costs/precision.h"
#include "workloads/stages/stage_layout.h"

#include <limits>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace pw {

// Medians of repeated measurements, with the spread (p90 - p10) beside them.
struct Measured {
    Ns median = 0;
    Ns spread = 0;
    bool operator==(const Measured&) const = default;
};

struct LayerTimes {
    Measured forward, backward_input, backward_weight;
    Measured backward;    // B as one pass; not always I + W
    Measured accumulate;  // more, when weight gradients are added instead of written
    Measured recompute;
    bool operator==(const LayerTimes&) const = default;
};

struct LayerProfile {
    std::string name;
    std::map<int, LayerTimes> times = {};  // by micro-batch size
    std::map<int, LayerTimes> busy = {};   // with all other devices computing; empty: they do not matter
    std::map<int, LayerBytes> bytes = {};
    Measured update = {};  // optimizer, per step
    bool operator==(const LayerProfile&) const = default;
};

// A transfer occupies its lane for bytes / bandwidth and arrives `latency` later.
struct Link {
    Ns latency = 0;
    double bandwidth = std::numeric_limits<double>::infinity();  // bytes per second; of a hand-over by pointer
    bool operator==(const Link&) const = default;
};

// A versioned file. Times of sizes that were not measured are interpolated linearly between
// neighbours, and extrapolated from the nearest two; from a single size they are proportional
// (marked by `Costs::interpolated`).
struct Profile {
    static constexpr int kVersion = 1;
    std::string model, backend, machine, date;
    Dims input;
    int classes = 0;
    int threads_per_device = 1;
    std::optional<Precision> precision;  // none: not known
    double cpu_share = 1;                // of its cores that the measurement had; less: other programs were running
    std::vector<LayerProfile> layers;    // in forward order
    std::map<int, Measured> data;        // one micro-batch of input data, by its size
    std::map<int, Bytes> data_bytes;
    Measured dispatch;  // per task, whatever it does
    Link link;
    Link sums;                 // a ring over it takes as long as S does: devices may sum otherwise than by messages
    bool sent_copies = false;  // a transport that copies out of the sender
    std::vector<ConvolutionChoice> convolutions;  // of this precision; each shape once
    bool operator==(const Profile&) const = default;
};

Profile read_profile(const std::string& path);                        // throws Error (BadInput) with line
void write_profile(const Profile& profile, const std::string& path);  // YAML

// Time in which `holders` devices sum `bytes` that each has: in a ring, where each hands 1/r of the bytes to the next
// one 2 (r - 1) times, first adding and then copying. No way of summing sends fewer bytes per device
// (Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations", 2009).
Ns ring_sum(int holders, Bytes bytes, const Link& link);

// Everything per micro-batch.
struct StageCost {
    Ns forward = 0, backward = 0, backward_input = 0, backward_weight = 0, recompute = 0;
    Ns update = 0, sum_gradients = 0;
    Ns accumulate = 0;  // more for every B or W of a mini-batch but the stage's first
    StageCost& operator+=(const StageCost& other);
};

// Costs beside a plan: the simulator's second argument.
struct Costs {
    std::vector<StageCost> stage;
    std::vector<StageCost> busy;    // the same while all other devices compute; empty: no slower
    std::vector<StageBytes> bytes;  // per stage
    std::vector<EdgeBytes> edges;   // per boundary; absent pairs carry nothing
    // Of a mini-batch's last micro-batch when it is smaller; empty: it is not. Buffers are as large as the others'.
    std::vector<StageCost> last, busy_last;
    std::vector<EdgeBytes> last_edges;
    std::vector<double> speed;  // per device, relative; empty: 1
    Link link;                  // between any two devices
    Link sums;                  // the same for the ring of S
    std::vector<int> host;      // per device: devices of one host slow each other down (busy); empty: all of them do
    Ns dispatch = 0;            // per task
    bool sent_copies = true;    // the sender keeps a copy until the next send of its lane
    bool interpolated = false;  // some time was not measured at this micro-batch size
};

struct DeviceRates {
    double flops = 150e9;            // FLOP/s
    double memory_bandwidth = 15e9;  // B/s
};

inline constexpr Bytes kAlignment = 64;  // of every buffer, and of what lies in one
constexpr Bytes aligned(Bytes size) { return (size + kAlignment - 1) / kAlignment * kAlignment; }

// Plain fp32 sizes of a layer, each aligned.
LayerBytes analytic_bytes(const Layer& layer, int samples);
// Time of a pass = max(FLOPs / rate, bytes touched / bandwidth).
LayerTimes analytic_times(const Layer& layer, int samples, const DeviceRates& rates);

inline constexpr const char* kAnalytic = "analytic";  // Profile::backend of costs that nobody measured
bool is_measured(const Profile& profile);             // not analytic, and not times that a model's file brings

// A profile of `model` made of analytic costs at one micro-batch size.
Profile analytic_profile(const Model& model, int samples, const DeviceRates& rates);

// A layer's sizes as the profile has them, scaled to `samples` and not aligned.
LayerBytes raw_bytes(const LayerProfile& layer, int samples);

// Forward plus backward per layer: what `split_bottleneck` balances.
std::vector<Ns> layer_times(const Profile& profile, int samples);

// A profile at one micro-batch size, to be summed over the stages of many splits. Keeps references to
// both arguments. Throws Error (BadInput) when the profile was made for another model, shape or layer
// list, naming the first difference.
class CostTable {
public:
    CostTable(const Model& model, const Profile& profile, int samples);

    // By layer, without fetching the data batch.
    const std::vector<StageCost>& alone() const { return alone_; }
    const std::vector<StageCost>& busy() const { return busy_; }  // empty: no slower
    const std::vector<LayerBytes>& bytes() const { return bytes_; }

    // Without links and speeds; of the stages' bytes only the weights.
    Costs times_of(const StageSplit& split) const;
    // All but links and speeds.
    Costs costs_of(const StageSplit& split) const;

private:
    StageCost stage_cost(const std::vector<int>& layers, const std::vector<StageCost>& costs) const;

    const Model& model_;
    const Profile& profile_;
    std::vector<StageCost> alone_, busy_;
    std::vector<LayerBytes> bytes_;
    Ns data_time_ = 0;
    Bytes data_bytes_ = 0;
    bool interpolated_ = false;
};

// For one split.
Costs costs_of(const Model& model, const StageSplit& split, const Profile& profile, int samples);

}  // namespace pw
