// Arrays of floats as .npy files: NumPy's format, '<f4', C order.
#pragma once

#include <string>
#include <vector>

namespace pw {

// Writes version 1.0 of the format. Throws Error (RunFailed) that names the file.
void write_npy(const std::string& file, const std::vector<int>& shape, const std::vector<float>& values);

// These read versions 1.0 to 3.0. Both throw Error (BadInput) that names the file, its contents and the expected
// ones.
std::vector<int> read_npy_shape(const std::string& file);
std::vector<float> read_npy(const std::string& file);

}  // namespace pw
