// What tasks cost, per stage: times and bytes. Measured layer by layer into a profile, or derived
// from FLOPs and bytes.
#pragma once

#include "workloads/costs/convolution_choice.h"
#include "workloads/costs/link.h"
#include "workloads/costs/precision.h"
#include "workloads/costs/stage_cost.h"
#include "workloads/costs/sums.h"
#include "workloads/stages/stage_layout.h"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace pw {

// These are medians of repeated measurements, with the spread (p90 - p10) beside them.
struct Measured {
    Ns median = 0;
    Ns spread = 0;
    bool operator==(const Measured&) const = default;
};

struct LayerTimes {
    Measured forward, backward_input, backward_weight;
    Measured backward;    // B as one pass; not always I + W, for inputs and for weights
    Measured accumulate;  // more, when weight gradients are added instead of written
    Measured recompute;
    bool operator==(const LayerTimes&) const = default;
};

struct LayerProfile {
    std::string name;
    std::map<int, LayerTimes> times = {};  // by micro-batch size
    std::map<int, LayerTimes> busy = {};   // with other devices computing; empty when they do not matter
    std::map<int, LayerBytes> bytes = {};
    Measured update = {};  // optimizer, per step
    bool operator==(const LayerProfile&) const = default;
};

// Returns whether a layer's times at a size are as they were measured. Times of other sizes are interpolated linearly
// between neighbours, and extrapolated from the nearest two; from a single size they are proportional.
bool knows_times(const LayerProfile& layer, int samples);

// A profile is a versioned file.
struct Profile {
    static constexpr int kVersion = 1;
    std::string model, backend, machine, date;
    Dims input;
    int classes = 0;
    int threads_per_device = 1;
    int neighbours = 0;  // devices that computed beside the busy times; 0: not known, all others of a plan's host
    std::optional<Precision> precision;  // absent when not known
    double cpu_share = 1;  // share of its cores that the measurement had; less than 1 when other programs were running
    std::vector<LayerProfile> layers;  // in forward order
    std::map<int, Measured> data;      // one micro-batch of input data, by its size
    std::map<int, Bytes> data_bytes;
    Measured
        reference;  // work that is always the same (exec/measuring/yardstick.h), while this was measured; 0: not known
    Measured dispatch;  // per task, whatever it does
    Link link;          // between two devices, or, where that is another one, of a host
    std::optional<Link> between_hosts;
    Link sums;  // a ring over it takes as long as S, the sum of gradients, does: devices may sum otherwise than by
                // messages
    bool sent_copies = false;                     // a transport that copies out of the sender
    std::vector<ConvolutionChoice> convolutions;  // choices of this precision; each shape once
    std::vector<std::string> notes;               // for people; files do not keep them
    bool any_size = false;  // a model's file has times of one micro-batch, whatever its size; profiles do not
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

// How long a micro-batch is, as multiples of what the costs of a micro-batch say: sequences differ in tokens, and
// attention grows faster with them than the rest.
struct MicroBatchLength {
    double forward = 1;                              // times of F and R
    double backward_input = 1, backward_weight = 1;  // times of I and W; B takes both
    double bytes = 1;                                // activations, messages and workspaces
    auto operator<=>(const MicroBatchLength&) const = default;
};

// Returns a size of a micro-batch that is this long.
Bytes scaled_bytes(Bytes bytes, double length);

// What some messages share while they are under way: those that leave a group of devices, that enter it, or that have
// an end in it, in whatever direction, such as those on a bus.
struct Capacity {
    enum class Of : std::uint8_t { Leaving, Entering, Touching } of = Of::Touching;
    std::vector<int> devices;  // ascending
    double bandwidth = 0;      // bytes per second
    bool operator==(const Capacity&) const = default;
};

// Costs stand beside a plan: they are the simulator's second argument.
struct Costs {
    std::vector<StageCost> stage;
    std::vector<StageCost> busy;    // the same while `neighbours` compute, or more; empty when they are no slower
    std::vector<StageBytes> bytes;  // per stage
    std::vector<EdgeBytes> edges;   // per boundary; absent pairs carry nothing
    // These are costs of a mini-batch's last micro-batch when it is smaller; they are empty when it is not. Buffers are
    // as large as the others'.
    std::vector<StageCost> last, busy_last;
    std::vector<EdgeBytes> last_edges;
    // By micro-batch of a step, and so again in every step; when empty, all are as long as these costs say.
    std::vector<MicroBatchLength> lengths;
    std::vector<double> speed;  // per device, relative; when empty, 1
    Link link;                  // between two devices
    // Between devices of different hosts, where that is another link. The messages that leave a host share its
    // bandwidth, and those that come in do.
    std::optional<Link> between_hosts;
    std::map<std::pair<int, int>, Link> own_links;  // instead of these, from a device to another that has its own
    std::vector<Capacity> shared;                   // beside what leads out of hosts and into them
    Link sums;                                      // the same as `link` for S
    // How S of each stage moves its bytes; when empty, S is a task of a known length that shares nothing.
    std::vector<StageSum> stage_sums;
    Bytes sum_bucket =
        0;  // at most so many gradients are summed at once, as soon as they are there; 0: all, at the end
    // Of a device's multiprocessors: the share that a message under way takes at both of its ends, and a sum of
    // gradients on each of its devices, since kernels move them, as NCCL's do. Tasks that compute meanwhile have the
    // rest.
    double mover_share = 0;
    bool shard_optimizer =
        false;  // a holder keeps the optimizer's states of its part of a stage only (ZeRO-1), so that
    std::vector<StageSum> stage_gathers;  // U ends with these; empty where it does not, or where nothing can be shared
    std::vector<int> host;  // per device: devices of one host slow each other down (busy); when empty, all of them do
    int neighbours = 0;     // 0: all other devices of the host
    Ns dispatch = 0;        // per task
    bool dispatch_by_host = false;  // one dispatcher per host issues the calls of all its devices, one at a time
    bool sent_copies = true;        // the sender keeps a copy until the next send of its lane
    bool interpolated = false;      // some time was not measured at this micro-batch size

    MicroBatchLength length_of(int microbatch) const {
        return lengths.empty() ? MicroBatchLength{} : lengths[static_cast<std::size_t>(microbatch) % lengths.size()];
    }
    bool are_apart(int device, int other) const {  // on different hosts
        return !host.empty() && device >= 0 && other >= 0 && host[device] != host[other];
    }
    const Link& link_of(int from, int to) const {  // devices
        if (!own_links.empty())
            if (const auto own = own_links.find({from, to}); own != own_links.end())
                return own->second;
        return between_hosts && are_apart(from, to) ? *between_hosts : link;
    }
};

struct DeviceRates {
    double flops = 150e9;            // FLOP/s
    double memory_bandwidth = 15e9;  // B/s
};

inline constexpr Bytes kAlignment = 64;  // alignment of every buffer, and of what lies in one
constexpr Bytes aligned(Bytes size) { return (size + kAlignment - 1) / kAlignment * kAlignment; }

// Returns the plain fp32 sizes of a layer, each aligned.
LayerBytes analytic_bytes(const Layer& layer, int samples);
// Returns the times of passes, each max(FLOPs / rate, bytes touched / bandwidth).
LayerTimes analytic_times(const Layer& layer, int samples, const DeviceRates& rates);

inline constexpr const char* kAnalytic = "analytic";  // Profile::backend of costs that nobody measured
bool is_measured(const Profile& profile);             // not analytic, and not times that a model's file brings

// Makes a profile of `model` from analytic costs at one micro-batch size.
Profile analytic_profile(const Model& model, int samples, const DeviceRates& rates);

// Returns a layer's sizes as the profile has them, scaled to `samples` and not aligned.
LayerBytes raw_bytes(const LayerProfile& layer, int samples);

// Returns forward plus backward per layer, which is what `split_bottleneck` balances.
std::vector<Ns> layer_times(const Profile& profile, int samples);

// Throws Error (BadInput) when the profile was made for another model, shape or layer list, naming the first difference
// and the way out.
void check_profile(const Model& model, const Profile& profile);

// A cost table is a profile at one micro-batch size, to be summed over the stages of many splits. Keeps references to
// both arguments. Throws Error (BadInput) when the profile was made for another model, shape or layer list, naming the
// first difference.
class CostTable {
public:
    CostTable(const Model& model, const Profile& profile, int samples);

    // These are costs by layer, without fetching the data batch.
    const std::vector<StageCost>& alone() const { return alone_; }
    const std::vector<StageCost>& busy() const { return busy_; }  // empty when they are no slower
    const std::vector<LayerBytes>& bytes() const { return bytes_; }

    // Returns costs without links and speeds; of the stages' bytes they have only the weights.
    Costs times_of(const StageSplit& split) const;
    // Returns all costs but links and speeds.
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

// Returns the costs of one split.
Costs costs_of(const Model& model, const StageSplit& split, const Profile& profile, int samples);

}  // namespace pw
