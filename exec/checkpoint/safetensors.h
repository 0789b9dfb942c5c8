// Tensors in one file, in the format that the Python package `safetensors` reads and writes: eight bytes with the
// length of a JSON header, the header, the values.
#pragma once

#include "workloads/models/parameters.h"

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace pw {

using TensorMetadata = std::map<std::string, std::string>;  // the header's __metadata__

struct TensorFile {
    std::vector<NamedTensor> tensors;  // float32
    TensorMetadata metadata;
};

// The digest of a file's contents: their number of bytes and their XXH3 hash.
struct Digest {
    std::uintmax_t bytes = 0;
    std::string hash;  // 16 hexadecimal digits
    bool operator==(const Digest&) const = default;
};

// Writes the complete file or none. Throws Error (RunFailed) as NewFile does. Returns the digest of the written
// bytes.
Digest write_tensors(const std::string& path, const std::vector<NamedTensor>& tensors, const TensorMetadata& metadata);

// Reads a file, in time linear in its size. Throws Error (BadInput) that names the path and the fault: a header
// that is cut off or wrong, values of another type than F32, a repeated name, tensors that overlap or leave a gap.
TensorFile read_tensors(const std::string& path);
Digest digest_of(const std::string& path);  // throws as read_tensors() does
std::string hash_of_text(std::string_view text);

}  // namespace pw
