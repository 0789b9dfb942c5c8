// Pipelines whose stages may be replicated, sharded and recomputed: layers with their costs per tensor-parallel degree.
// The format of the public instances of "Piper: Multidimensional Planner for DNN Parallelization" (NeurIPS 2021).
#pragma once

#include <map>
#include <string>
#include <vector>

namespace pw {

// An option is a way to run a layer on a tensor-parallel group of devices.
struct PiperOption {
    bool recompute = false;
    double time = 0;                    // per micro-batch, in any common unit
    double parameters = 0;              // bytes that replicas sum up
    double memory_each = 0;             // bytes per micro-batch in flight
    double memory = 0;                  // bytes in any case
    std::vector<double> sync_in = {};   // bytes more at each in-edge that leaves the stage, as in PiperLayer::in
    std::vector<double> sync_out = {};  // likewise
};

struct PiperLayer {
    std::string name;
    std::map<int, std::vector<PiperOption>> options;  // by tensor degree: one or two, unlike in `recompute`
    std::vector<int> in = {}, out = {};               // edges
};

struct PiperEdge {
    int from, to;  // layers
    double bytes;
};

struct PiperInstance {
    std::vector<PiperLayer> layers;
    std::vector<PiperEdge> edges;  // acyclic
    int devices = 1;
    int microbatches = 1;  // per batch
    double memory = 0;     // bytes of each device
    double bandwidth = 1;  // bytes per unit of time
};

PiperInstance read_piper_instance(const std::string& path);
PiperInstance parse_piper_instance(const std::string& text, const std::string& name);

}  // namespace pw
