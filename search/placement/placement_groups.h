// The units of a contiguous placement: nodes that must share a device become one group, and the groups form an acyclic
// graph of forward dependencies. Tensors that may cross devices become nets over groups.
#pragma once

#include "search/downsets.h"
#include "search/placement/placement_instance.h"

#include <vector>

namespace pw {

struct PlacementGroup {
    std::vector<int> nodes;  // nodes of the instance, ascending, with backward nodes
    double cpu_time = 0, accelerator_time = 0, size = 0;
    bool on_accelerator = true;
    std::vector<int> nets;  // nets that the group touches, ascending
};

// A net joins the maker and the readers of some tensors. A device that holds some of them, but not all, pays the cost
// once.
struct PlacementNet {
    std::vector<int> groups;  // two or more, ascending
    double cost = 0;
};

struct PlacementGroups {
    std::vector<PlacementGroup> groups;
    std::vector<PlacementNet> nets;
    Successors successors;  // forward dependencies, acyclic
};

// The nodes of a group share a device. Nodes of a colour are joined. If this makes a cycle, the nodes of the cycle are
// joined, with backward nodes without a forward mate mirrored into the forward graph. A group that costs nothing is
// joined with the only group that it is connected to.
PlacementGroups group(const PlacementInstance& instance);

}  // namespace pw
