// The files of the source tree, for the tests of the house.
#pragma once

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

inline const std::filesystem::path kRoot = PIPEWRIGHT_SOURCE_DIR;

inline std::string text_of(const std::filesystem::path& path) {
    std::ifstream file(path);
    std::stringstream text;
    text << file.rdbuf();
    return text.str();
}
