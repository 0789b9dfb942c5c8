// Models from files, whose layers have only times and sizes. No backend can compute them. Such models are simulated,
// searched and emulated.
#pragma once

#include "workloads/costs/costs.h"

#include <string>

namespace pw {

struct ProfiledModel {
    Model model;               // layers of kind Profiled
    Profile profile;           // sizes as the file has them, not aligned
    bool says_samples = true;  // whether the file has the number of samples of its times and sizes
};

enum class ModelFile {
    None,      // a built-in model
    Graph,     // *.txt: PipeDream
    Layers,    // *.yaml, *.yml
    JsonFile,  // *.json: a layer graph, a profile of Metis or Galvatron, or an instance of a partitioning problem
    Table,     // *.csv: layers, a row for each
};
ModelFile model_file(const std::string& model);
// Returns whether a model's name is the name of a JSON file with an instance of a partitioning problem instead of
// layers with times of their passes. False for a file that cannot be read.
bool is_instance(const std::string& model);

// Returns whether a model's name is the name of a profile of Galvatron, or of a JSON file that cannot be read.
bool may_be_galvatron(const std::string& model);

// What is said of a model besides its file.
struct FileModelOptions {
    int samples = 1;  // of the file's times and sizes, if the file does not say it
    // Of profiles of Galvatron. 0: blocks and width as transformers of this build have them, the only length of
    // sequences in the file. Without a path the sizes are next to the times, memory_*.json for computation_*.json.
    int blocks = 0, embedding = 0, sequence_length = 0;
    std::string memory_profile = {};
};

// Reads a model's file. Throws Error (BadInput) with every mistake of the file and its line.
//
// PipeDream: times in ms and bytes of one mini-batch. Data sources (`Input...`) stay as layers of no cost, since their
// time is the loading time. Sinks (`__getitem__...`) go. Layers keep their names (`node12`) and are listed in
// topological order, the smallest number first.
//
// YAML and JSON: {samples, layers: [{name, inputs, forward, backward | backward_input, backward_weight, output,
// weights, saved, ...}]}. `inputs` defaults to the layer above. Times are one value, or {samples: time}. CSV: the same
// keys as columns, a chain of layers.
//
// Metis: execution_time.layer_compute_total_ms and model.parameters.parameters_per_layer_bytes, a chain of layers. A
// third of each time is the forward. The number of samples is in the file's name (`..._bs4.json`).
//
// Galvatron: layertype_0_bsz1_seq4096 and layertype_other_bsz1_seq4096 in ms for a sample, a chain of an embedding,
// equal blocks and a head. Sizes are in a second file.
//
// A whole backward is halved between I and W where the layer has weights, else it is all I. Inputs stay until I.
ProfiledModel read_profiled_model(const std::string& path, const FileModelOptions& options);

}  // namespace pw
