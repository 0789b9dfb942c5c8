// Plans that vendors published for the training of transformers (recipes.yaml).
#pragma once

#include "workloads/models/precision.h"
#include "workloads/models/transformer.h"
#include "workloads/transformers/parallel.h"

#include <string>
#include <vector>

namespace pw {

struct Recipe {
    Transformer model;
    std::string device;  // a kind (workloads/cluster/device_kinds.h)
    std::vector<Precision> precisions;
    std::vector<int> devices;  // of the clusters that ran it
    int tensor = 1, pipeline = 1, context = 1, expert = 1;
    int chunks = 1;  // stages of each device
    int micro_batch_size = 1, zero = 0;
    ModuleSet recompute = {};
    std::string source;
};

// Returns the recipes of this build, in the order of the file.
const std::vector<Recipe>& recipes();

// Returns the recipe for a model of these shapes on this kind of device: one of the same precision if there is any,
// with the nearest number of devices by their ratio. Null if there is none.
const Recipe* nearest_recipe(const Transformer& model, std::string_view device, Precision precision, int devices);

}  // namespace pw
