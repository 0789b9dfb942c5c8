// Models from files that know layers by times and sizes only: PipeDream's graph.txt, and layer graphs in YAML.
// Nothing can compute their layers; they are simulated, searched and emulated.
#pragma once

#include "workloads/costs/costs.h"

#include <string>

namespace pw {

struct ProfiledModel {
    Model model;      // layers of kind Profiled
    Profile profile;  // sizes as the file has them, not aligned
};

enum class ModelFile {
    None,      // a built-in model
    Graph,     // *.txt: PipeDream
    Layers,    // *.yaml, *.yml
    Instance,  // *.json: of a partitioning problem, not of layers with times of passes
};
ModelFile model_file(const std::string& model);

// Reads a model's file. `samples` is what the numbers are for where the file does not say. Throws Error (BadInput) with
// every mistake of the file and its line.  PipeDream: times in ms and bytes of one mini-batch. Data sources
// (`Input...`) stay as layers of no cost, since their time is that of loading; sinks (`__getitem__...`) go. Layers keep
// their names (`node12`) and stand in topological order, the smallest number first.  YAML: {samples, layers: [{name,
// inputs, forward, backward | backward_input, backward_weight, output, weights, saved}]}. `inputs` defaults to the
// layer before; times are one value, or {samples: time}.  A whole backward is halved between I and W where the layer
// has weights, else it is all I. Inputs stay until I.
ProfiledModel read_profiled_model(const std::string& path, int samples);

}  // namespace pw
