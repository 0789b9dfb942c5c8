// What is needed to check a step against another framework: .npy files in PyTorch's layouts.
#pragma once

#include <string>

namespace pw {

class Training;

// FOLDER/initial, FOLDER/gradients, FOLDER/updated with one file per parameter, FOLDER/images.npy,
// FOLDER/labels.npy ([sample] or [sample][position]) of the first mini-batch, FOLDER/loss.npy.
void write_dump(const std::string& folder, const Training& run, double loss);

}  // namespace pw
