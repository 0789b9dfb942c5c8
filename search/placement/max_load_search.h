// The exact search below max_load_partition: dynamic programming over downsets, which keeps only the downsets and
// stages that can be part of a placement with all loads below a bound.
#pragma once

#include "search/deadline.h"
#include "search/placement/placement_groups.h"

#include <limits>
#include <optional>
#include <vector>

namespace pw {

struct Devices {
    int accelerators = 1, cpus = 0;
    double memory = std::numeric_limits<double>::infinity();  // bytes of each accelerator
};

struct PlacedGroups {
    std::vector<int> groups;  // ascending
    bool on_cpu = false;
    double load = 0;
};
using PlacedStages = std::vector<PlacedGroups>;  // in the order of the data

// Returns the least load B for which loads up to B could hold all work if groups could be cut and transfers were free.
double average_load(const PlacementGroups& graph, const Devices& devices);
// Returns the load of a device that holds these groups.
double load_of(const PlacementGroups& graph, const std::vector<int>& groups, bool on_cpu);

class MaxLoadSearch {
public:
    MaxLoadSearch(const PlacementGroups& graph, const Devices& devices, const Downsets& sets, Deadline& deadline);

    // Returns the placement of least maximum load among placements with all loads below `bound`. Returns nothing when
    // there is none, or the deadline passed.
    std::optional<PlacedStages> below(double bound);
    std::int64_t stages_seen() const { return stages_seen_; }

private:
    struct Load {  // the part of a stage's load that stays however the stage grows
        double accelerator = 0, cpu = 0, size = 0;
        double cut = 0;      // cost of nets that cross the border
        double earlier = 0;  // cost of nets that join the stage to earlier stages
        int cpu_only = 0;    // groups
    };
    struct Visit {  // a downset on the way from the first downset
        int set;
        Load load;
        int group;             // the group added last, or -1
        std::size_t next = 0;  // step to take
    };
    struct Reached {  // a downset, by these devices
        int cpus, accelerators;
        double most;
    };

    void start(double bound);
    void extend_from(int set);
    void collect(int set);
    void count_earlier(int set);
    void finish(int set);
    void extend(int first);
    void add(int group, Load& load);
    void remove(int group);
    void offer(int next, const Load& load, bool accelerator, bool cpu);
    void reach(int next, const Reached& from, bool on_cpu, double load);
    bool fits(const Load& load) const;
    std::size_t state(int set, int cpus, int accelerators) const;
    PlacedStages placement() const;
    std::vector<int> groups_between(int smaller, int bigger) const;

    const PlacementGroups& graph_;
    Devices devices_;
    const Downsets& sets_;
    Deadline& deadline_;
    double bound_ = 0;
    std::vector<double> work_;          // work of accelerators, in each downset
    std::vector<double> capacity_;      // capacity of the devices that are left after (cpus, accelerators)
    std::vector<double> most_;          // load on the way to each state (infinite: not reached)
    std::vector<std::int32_t> via_;     // the downset before, twice, plus one when a CPU filled the stage
    std::vector<Reached> reached_;      // states of first_ with two or more devices left
    std::vector<Reached> last_;         // states of first_ with a single device left
    double least_work_ = 0;             // least work in a downset that is worth reaching
    std::vector<int> before_, inside_;  // groups of each net before the stage and in it
    std::vector<Visit> way_;
    std::int32_t first_ = 0;          // the downset before the current stages
    std::vector<std::int32_t> seen_;  // the last first_ from which a downset was met
    std::int64_t stages_seen_ = 0;
};

}  // namespace pw
