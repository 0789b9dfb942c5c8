// Public profiles and instances, which are not part of this repository.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>

namespace pw {

// Returns the path of `name`; it is empty when the file is absent. PIPEWRIGHT_DATA names the folder.
inline std::string public_data(const std::string& name) {
    const char* folder = std::getenv("PIPEWRIGHT_DATA");
    const std::filesystem::path root =
        folder ? std::filesystem::path(folder) : std::filesystem::path(PIPEWRIGHT_SOURCE_DIR) / "../shared/data";
    std::error_code error;
    return std::filesystem::exists(root / name, error) ? (root / name).string() : "";
}

}  // namespace pw

#define PIPEWRIGHT_NEED_DATA(path, name)            \
    const std::string path = pw::public_data(name); \
    if (path.empty())                               \
    GTEST_SKIP() << name << " is not here: set PIPEWRIGHT_DATA to the folder of the public profiles and instances"
