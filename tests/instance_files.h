// Public instances, which tests need but the tree does not hold.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>

namespace pw {

// The folder that PIPEWRIGHT_DATA names, else one beside the tree.
inline std::filesystem::path instance_folder() {
    const char* given = std::getenv("PIPEWRIGHT_DATA");
    return given ? std::filesystem::path(given) : std::filesystem::path(PIPEWRIGHT_SOURCE_DIR) / "../shared/data";
}

}  // namespace pw

// Skips the test aloud when the public instance is not there.
#define PW_INSTANCE_OR_SKIP(variable, file)                                 \
    const std::string variable = (pw::instance_folder() / (file)).string(); \
    if (!std::filesystem::exists(variable))                                 \
    GTEST_SKIP() << variable << " is not there: set PIPEWRIGHT_DATA to the folder of public instances"
