// Bounds on all choices of a search for a cluster.
#pragma once

#include "search/clusters/cluster_choice.h"
#include "search/clusters/search_team.h"
#include "search/partition.h"

#include <cstddef>
#include <functional>
#include <vector>

namespace pw {

struct ChoiceBounds {
    bool is_defined = false;  // false: the schedule refuses it, or the time was up
    bool fits = false;
    Ns step_time = 0;
    Shortage shortage;  // of the device that lacks most
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

// Returns the shortage of the device that lacks most, or has least left.
Shortage worst_of(const std::vector<Bytes>& needed, const std::vector<DeviceConfig>& devices);

}  // namespace pw
