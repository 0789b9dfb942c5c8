// The search below piper_partition: dynamic programming over sets of last layers, the devices that hold them and the
// sum of their replicas. It keeps only sets and stages that can be part of a split below a bound.
#pragma once

#include "search/deadline.h"
#include "search/downsets.h"
#include "search/piper/piper_stage.h"

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

namespace pw {

struct PiperSplitStage {
    std::vector<int> layers;  // ascending
    int degree = 1, replicas = 1, in_flight = 1;
};
using PiperSplit = std::vector<PiperSplitStage>;  // in the order of the data

class PiperSearch {
public:
    // `sets` are the downsets of the reversed graph.
    PiperSearch(const PiperInstance& instance, bool data_parallel, const Downsets& sets, Deadline& deadline);

    // Returns the split whose worst stage is least, among splits with all stages below `bound`. Returns nothing when
    // there is none, or the deadline passed.
    std::optional<PiperSplit> below(double bound, PiperGoal goal);
    // Returns the time of the worst stage of the last split.
    double most() const { return worst_; }
    std::int64_t stages_seen() const { return stages_seen_; }
    // Returns whether the table of states is small enough to be filled in acceptable time.
    bool is_feasible_size() const;

    // No split is faster than this.
    double work_bound() const { return work_.back() / instance_.devices; }

private:
    struct Load {  // the load of a stage in one tensor degree, with the fastest way of each layer
        double time = 0, parameters = 0;
        double border = 0;                               // bytes over the border
        double later = 0;                                // bytes that go to later stages
        double memory_each = 0, memory = 0;              // by the fastest ways
        double least_memory_each = 0, least_memory = 0;  // no way needs less
        std::array<double, 8> least_with{};              // likewise, with 1, 2 .. 8 micro-batches in flight
    };
    struct Visit {  // a set on the way from the first set
        int set;
        Load load;
        std::size_t next = 0;  // step to take
    };
    struct Layer {  // the least of every kind over a layer's ways in one degree
        bool exists = false;
        Load own;
        std::vector<double> sync_in, sync_out;
    };
    struct Reached {
        int devices, replicas;
        double most;
    };
    struct State {
        double most;
        std::int32_t from, degree, replicas;  // all three are of the stage that leads here
    };

    Layer least_of(const PiperLayer& layer, int degree);
    void extend_from(int set);
    void collect(int set);
    void extend(int first);
    Load with(int layer, Load load) const;
    bool may_grow(const Load& load) const;
    bool can_be(const Load& load, int replicas) const;
    static double memory_bound(const Load& load, int in_flight);
    double time_of(const Load& load, double border, int replicas) const;
    void offer(int next, const Load& load, int replicas);
    void reach(int next, const Reached& from, int replicas, double cost);
    bool is_worth(int next, const Reached& from, int replicas, double cost) const;
    bool can_finish(int next, int devices, int replicas) const;
    std::size_t state(int set, int devices, int replicas) const;
    PiperStage stage(int set, int next, int degree, int replicas) const;
    std::vector<int> layers_between(int set, int next) const;
    PiperSplit split() const;

    const PiperInstance& instance_;
    const Downsets& sets_;
    Deadline& deadline_;
    int most_replicas_;
    std::vector<int> replica_counts_;  // numbers of replicas that a stage may have, ascending
    std::vector<int> degrees_;
    std::vector<std::vector<Layer>> layers_;  // by degree, as in degrees_, and layer
    std::vector<bool> same_border_;           // all ways of a layer move the same bytes, by degree
    std::vector<double> work_;                // device time that each set needs at least
    std::vector<State> states_;
    std::vector<Reached> reached_;  // states of first_, ascending in replicas: no other state is as good in all
    std::vector<double> best_;      // for collect: the best by number of devices
    std::vector<std::int32_t> seen_;
    std::vector<Visit> way_;
    std::int32_t stamp_ = 0;
    int first_ = 0;  // the set of layers after the current stages
    std::size_t degree_ = 0;
    PiperGoal goal_ = PiperGoal::Least;
    double bound_ = 0, worst_ = 0;
    std::int64_t stages_seen_ = 0;
};

}  // namespace pw
