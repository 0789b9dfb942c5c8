// The dump: the tensors with which a step can be checked against another framework, as .npy files in PyTorch's
// layouts.
#pragma once

#include <string>

namespace pw {

class Training;

// Writes FOLDER/initial, FOLDER/gradients and FOLDER/updated with one file per parameter, FOLDER/images.npy and
// FOLDER/labels.npy ([sample] or [sample][position]) of the first mini-batch, and FOLDER/loss.npy.
void write_dump(const std::string& folder, const Training& run, double loss);

}  // namespace pw
