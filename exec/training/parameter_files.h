// Files of parameters: FOLDER/NAME.npy, with PyTorch's names and layouts.
#pragma once

#include "job/setup/setup.h"
#include "workloads/models/parameters.h"

#include <string>
#include <vector>

namespace pw {

// Writes the files, which appear all together (NewFolder). Throws Error (RunFailed) that names the folder or the
// file.
void write_parameters(const std::string& folder, const std::vector<NamedTensor>& parameters);

// Reads the parameters of a layer in the order of parameters_of(), as LayerKernel::load takes them. A layer that
// shares a table reads it, too.
std::vector<std::vector<float>> read_parameters(const std::string& folder, const LayerGraph& graph, int layer);

// Checks that `training.initial` has every parameter of the model in its shape. Throws Error (BadInput) that names
// the file, its shape and the expected one.
void check_initial(const Setup& setup, const Model& model);

}  // namespace pw
