// What is needed to check a step against another framework: .npy files in PyTorch's layouts.
#pragma once

#include "workloads/parameters.h"

#include <string>
#include <vector>

namespace pw {

class KernelWork;

// NumPy format 1.0, '<f4', C order. Throws Error (RunFailed) naming the file.
void write_npy(const std::string& file, const std::vector<int>& shape, const std::vector<float>& values);

// FOLDER/initial, FOLDER/gradients, FOLDER/updated with one file per parameter, FOLDER/images.npy,
// FOLDER/labels.npy ([sample] or [sample][position]) of the first mini-batch, FOLDER/loss.npy.
void write_dump(const std::string& folder, const KernelWork& run, double loss);

}  // namespace pw
