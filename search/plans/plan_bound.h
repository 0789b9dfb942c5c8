// Lower bounds on the time and memory of a plan in which a stage is a given piece of the model, whatever the other
// stages are.
#pragma once

#include "job/setup/setup.h"
#include "search/exposed_work.h"
#include "search/plans/stage_space.h"
#include "workloads/costs/slices.h"

#include <algorithm>
#include <set>
#include <vector>

namespace pw {

// Returns the number of micro-batches of length 1 that take no longer than the micro-batches of a step, whatever the
// operation.
double least_micro_batches(const std::vector<MicroBatchLength>& lengths, int micro_batches);

// The work of a step that flushes, on all layers at speed 1.
struct StepWork {
    Ns passes = 0;          // of each micro-batch
    Ns accumulate = 0;      // of a micro-batch whose gradients are added to earlier gradients
    Ns update = 0;          // of all parameters
    int micro_batches = 1;  // whose gradients are added: with each holder of a stage all but its first
    int holders = 1;        // of a stage, at most
    int zero = 0;           // TrainingConfig::zero
};

// Returns a lower bound on the step time if devices whose speeds add up to `speeds` share this work. `lengths` is
// least_micro_batches(). `rounded` is the number of tasks of a device whose times are rounded, by half a nanosecond
// each, because its speed or their length is not 1.
Ns time_of_shared_work(const StepWork& work, double lengths, double speeds, double rounded);

// The best properties of some devices, which may come from different devices.
struct BestDevice {
    double speed = 0;
    Bytes memory = 0;
    bool one_speed = true;  // whether all have speed 1, so that no time is rounded
};
BestDevice best_of(const std::vector<DeviceConfig>& devices);

// Where the slices of all splits end: the earliest and the latest. Empty: micro-batches are whole.
struct SliceEndRange {
    SliceEnds earliest, latest;
};

class PlanBound {
public:
    // The length of micro-batches and slices, added up: the multiple of a time without causal attention that they take,
    // and of a time that is all attention. Times between both take a mean of both.
    struct Length {
        double plain = 0, attention = 0;
        double least() const { return std::min(plain, attention); }
        Length& operator+=(const Length& more) {
            plain += more.plain;
            attention += more.attention;
            return *this;
        }
    };
    // The numbers of tasks of a stage on a path through its device's list: in list order, or from F, forward, over the
    // later stages to the backward of the same micro-batch.
    struct PathCounts {
        int forwards = 0, backwards = 0, weights = 0, recomputes = 0;
        int wholes = 0;  // B, if the plan also has I and W (for any order, W or the rest of B)
        int jumps = 0;
        int hidden = 0;  // the F in pairs, of which only the exposed share counts: the B of a pair counts as a whole
        // The lengths of their micro-batches, added up. Used where these are unequal.
        Length forward, backward, weight, recompute, whole, hidden_length;
        double jump = 0;
    };
    void count(const Task& task, PathCounts& counts) const;

    // `plan` gives the order of tasks, whatever its edges, or is plan_of_any_order(). `setup` gives the schedule, the
    // devices and the sharding of the optimizer.
    PlanBound(const Plan& plan, Ns dispatch, const Setup& setup, const SliceEndRange& slices);

    // Returns a lower bound on the step time of splits in which `stage` is this piece.
    Ns time(int stage, const Piece& piece) const;
    // Return the stage's time on its device: up to its last backward, and in all.
    Ns until_last_backward(int stage, const Piece& piece) const;
    Ns whole_time(int stage, const Piece& piece) const;
    // Return the time of a path without jumps, and of the update.
    Ns time_of(const PathCounts& counts, int stage, const Piece& piece) const {
        return time_of(counts, piece, stages_[stage], 0);
    }
    Ns update_time(int stage, const Piece& piece) const;
    // Return the least total time of `parts` stages from `stage` on, on devices as fast as its own, if this piece is
    // cut into them: up to their last backwards, and in all.
    Ns until_last_backwards_in_parts(int stage, const Piece& piece, int parts) const;
    Ns whole_time_in_parts(int stage, const Piece& piece, int parts) const;
    // Returns a lower bound on the step time of plans with this plan's tasks in which some stage is this piece and has
    // `replicas` devices of its own, none better than `best`.
    Ns time_on(int replicas, const Piece& piece, const BestDevice& best) const;
    // Returns the bytes that the device needs for this stage alone.
    Bytes memory(int stage, const Piece& piece) const;
    Bytes available(int stage) const { return stages_[stage].available; }
    // Returns a lower bound on the step time of all splits of the whole model: all devices share its work.
    Ns of_work(const Pieces& pieces) const;
    StepWork work_of(const Piece& model) const;  // no work: not bounded
    Ns passes_of(const Piece& piece) const;      // time of the passes of a micro-batch that the plan runs
    // Returns a bound that holds for any speeds of the other devices: a micro-batch takes the longest path on the
    // fastest device.
    Ns of_path(const Pieces& pieces) const;
    int device_of(int stage) const { return stages_[stage].device; }
    bool has_lengths() const { return !lengths_.empty(); }  // of micro-batches or slices that are not alike
    bool any_order() const { return any_order_; }           // the bounds hold for any order of the tasks
    // Returns whether each stage of the device is bounded as on a device of its speed.
    bool has_speed_of_stages(int device, const Shape& shape) const;
    bool trains() const { return stages_.front().all.backwards > 0; }
    // Return the time of a path of layers on the fastest devices: of the shortest micro-batch, of the stage's first
    // micro-batch, and of the micro-batch whose backward the stage runs last.
    Ns path(Ns time) const { return path(time, shortest_); }
    // Returns a bound on the sum of path() of pieces that together take this time.
    Ns longest(Ns time) const { return static_cast<Ns>(static_cast<double>(time) * shortest_ / best_.speed) + 1; }
    Ns head(int stage, const Piece& piece) const { return path(piece.head, stages_[stage].first); }
    Ns tail(int stage, const Piece& piece) const { return path(piece.tail, stages_[stage].last); }
    // Returns a lower bound on the step time of all splits: the time in which a shared dispatcher issues its calls, or
    // 0.
    Ns of_calls() const { return calls_; }

private:
    struct Stage {
        int device = 0;
        double speed = 1;
        Bytes available = kUnlimited;
        std::vector<PathCounts> paths;  // paths to the last backward, first the list itself
        PathCounts all;                 // the path to the update
        bool updates = false;
        int versions = 1;
        double held = 0;             // micro-batches whose activations are held at once, as the sum of their lengths
        double first = 1, last = 1;  // lengths of the micro-batches of the first F and the last backward
        int shards = 1;              // of the optimizer's states (a device keeps and updates one shard)
    };
    struct Scale {
        double speed;
        Ns dispatch;
        Ns operator()(Ns time) const;
    };
    struct Lengths {
        Length forward{1, 1}, backward{1, 1};
        double both() const { return std::min(forward.least(), backward.least()); }
    };
    // The length of a micro-batch or slice as its operations without attention have it, and with nothing else.
    struct TaskLength {
        MicroBatchLength plain, attention;
        double shortest() const;  // of any operation
    };
    static std::vector<TaskLength> lengths_of(const Setup& setup, const SliceEndRange& slices);
    Lengths lengths_of(const Task& task) const;
    double bytes_of(const Task& task) const;  // length of its micro-batch or slice
    Ns path(Ns time, double length) const { return path(time, length, best_.speed); }
    Ns path(Ns time, double length, double speed) const;
    Ns passes(int count, const Length& length, Ns time, const Stage& stage) const;
    Ns forwards(const PathCounts& counts, Ns time, const Stage& stage) const;
    Ns exposed(Ns forward) const { return hidden_.empty() ? forward : exposed_work(forward, exposed_); }
    Ns rests(int count, const Length& length, Ns time, const Stage& stage) const;
    Ns round_trips(const PathCounts& counts, Ns time) const;
    void note_lengths(const std::vector<Task>& tasks, Stage& stage) const;
    Ns calls_of(const Plan& plan, const Setup& setup) const;
    template <class JumpsAt>
    PathCounts path_to(const std::vector<Task>& tasks, std::size_t end, JumpsAt jumps_at) const;
    std::vector<PathCounts> paths_through(const std::vector<Task>& tasks) const;
    Ns time_of(const PathCounts& counts, const Piece& piece, const Stage& stage, Ns mid) const;
    // Returns whether a stage that is this piece has no backwards, which the plan of the other pieces has.
    bool runs_forwards_only(const Piece& piece) const { return piece.with_backward == 0 && trains(); }
    Ns between_updates(const Piece& piece) const;
    Ns accumulation(const Piece& piece, int shards) const;    // replicas add to the gradients that they keep
    Bytes frozen_part(const Piece& piece, int shards) const;  // that a device holds
    Ns time_on_average(int replicas, const Piece& piece, const BestDevice& best, Ns update) const;
    Ns rounding_of(const Stage& stage, int parts) const;

    KeptBytes kept_;
    bool asynchronous_ = false;
    int zero_ = 0;            // TrainingConfig::zero
    bool any_order_ = false;  // the bounds hold for any order: a stage may hold one micro-batch, and run I and W as B
    bool moves_recomputes_ = false;  // the costs, or an order that is not known, decide where R run
    bool mixed_ = false;
    std::vector<TaskLength> lengths_;    // Costs::lengths, each cut as Costs::slices (empty where all are alike)
    double shortest_ = 1, longest_ = 1;  // of any operation: none is longer than the longest
    double longest_bytes_ = 1;
    double least_ = 1;  // least_micro_batches()
    Ns calls_ = 0;
    int micro_batches_ = 1, most_holders_ = 1;  // micro-batches or slices
    Ns dispatch_ = 0;
    double exposed_ = 1;          // the share of an F in a pair that counts
    std::set<Task> hidden_;       // the F in pairs (empty if each F counts as a whole)
    BestDevice best_;             // of the plan's devices
    std::vector<double> speeds_;  // by device
    double all_speeds_ = 0;
    double rounded_ = 0;  // see time_of_shared_work
    std::vector<Stage> stages_;
    std::vector<PathCounts> between_updates_;  // paths of an asynchronous plan, on the last stage
};

}  // namespace pw
