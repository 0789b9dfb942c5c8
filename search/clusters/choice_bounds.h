// Bounds on all choices of a search for a cluster.
#pragma once

#include "search/clusters/cluster_choice.h"
#include "search/clusters/search_team.h"
#include "search/partition.h"

#include <cstddef>
#include <functional>
#include <limits>
#include <vector>

namespace pw {

struct ChoiceBounds {
    bool is_defined = false;  // false: the schedule refuses it, or the time was up
    bool fits = false;
    Ns step_time = 0;
    Shortage shortage;        // of the device that lacks most
    bool has_splits = false;  // its stages may have other numbers of blocks; the next four are for any numbers
    bool may_fit = false;
    Ns least_step = 0;
    bool has_balanced = false;  // balanced_blocks() are worth a try
    Ns balanced_step = 0;       // about their step: the bound less what they gain
    Ns least_of_splits() const { return has_splits && may_fit ? least_step : std::numeric_limits<Ns>::max(); }
};

// Works on the process's part of the numbers below `count`, perhaps on several threads and not on all.
using WorkOnAll =
    std::function<void(const std::string& doing, std::size_t count, const std::function<void(std::size_t)>& work)>;

struct BoundsOfChoices {
    std::vector<ChoiceBounds> of;  // by choice
    int without_memory = 0;        // choices without bounds, as there is not the memory for their plans
};
// The processes of `team` call it together and get the same bounds.
BoundsOfChoices bounds_of(const Config& config, const std::vector<ClusterChoice>& choices, const WorkOnAll& on_all,
                          const SearchTeam& team = {});

// Returns the numbers of blocks that balance the devices of a choice, of each stage (search/clusters/split_bounds.h).
std::vector<int> balanced_blocks(const Config& config, const ClusterChoice& choice);
// Returns choices with other numbers of blocks, as moves_of() does, of which it keeps `most`.
std::vector<ClusterChoice> moves_of(const Config& config, const ClusterChoice& choice, unsigned seed, std::size_t most);

// Returns the shortage of the device that lacks most, or has least left.
Shortage worst_of(const std::vector<Bytes>& needed, const std::vector<DeviceConfig>& devices);

}  // namespace pw
