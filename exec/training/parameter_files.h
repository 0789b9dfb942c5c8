// Parameters between runs: FOLDER/NAME.npy in PyTorch's names and layouts.
#pragma once

#include "job/config.h"
#include "workloads/models/parameters.h"

#include <string>
#include <vector>

namespace pw {

// All files appear together (NewFolder). Throws Error (RunFailed) naming the folder or the file.
void write_parameters(const std::string& folder, const std::vector<NamedTensor>& parameters);

// Of a layer, in the order of parameters_of: what LayerKernel::load takes. One that shares a table reads it too.
std::vector<std::vector<float>> read_parameters(const std::string& folder, const LayerGraph& graph, int layer);

// That `training.initial` has every parameter of the model in its shape. Throws Error (BadInput) naming the file,
// its shape and the expected one.
void check_initial(const Config& config, const Model& model);

}  // namespace pw
