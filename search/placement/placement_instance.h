// Device placement: operators of a model, with their costs, for some accelerators and CPUs. The format of the public
// instances of "Efficient Algorithms for Device Placement of DNN Graph Operators" (NeurIPS 2020).
#pragma once

#include <string>
#include <vector>

namespace pw {

struct PlacementNode {
    std::string name;
    double cpu_time = 0, accelerator_time = 0;  // in any common unit
    double transfer_time = 0;                   // time that its output takes between two devices
    double size = 0;                            // bytes
    int colour = -1;                            // nodes of the same colour share a device (-1: free)
    bool backward = false;
    bool on_accelerator = true;  // whether an accelerator can run it (a CPU runs everything)
};

struct PlacementEdge {
    int from, to;  // numbers of nodes, never from a backward to a forward node
};

struct PlacementInstance {
    std::vector<PlacementNode> nodes;
    std::vector<PlacementEdge> edges;
    int accelerators = 1, cpus = 0;
    double memory = 0;  // bytes of each accelerator
};

PlacementInstance read_placement_instance(const std::string& path);
PlacementInstance parse_placement_instance(const std::string& text, const std::string& name);

}  // namespace pw
