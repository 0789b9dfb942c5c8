// The files of the source tree, for the tests of the house.
#pragma once

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace fs = std::filesystem;

inline const std::filesystem::path kRoot = PIPEWRIGHT_SOURCE_DIR;

inline std::string text_of(const std::filesystem::path& path) {
    std::ifstream file(path);
    std::stringstream text;
    text << file.rdbuf();
    return text.str();
}

// The folders that a folder may include besides itself.
inline const std::map<std::string, std::set<std::string>> kMayInclude = {
    {"workloads", {}},
    {"schedules", {"workloads"}},
    {"sim", {"schedules", "workloads"}},
    {"job", {"schedules", "sim", "workloads"}},
    {"search", {"job", "sim", "schedules", "workloads"}},
    {"exec", {"job", "schedules", "workloads"}},
    {"viz", {"schedules", "workloads"}},
    {"report", {"exec", "job", "schedules", "search", "sim", "viz", "workloads"}},
    {"cli", {"exec", "job", "report", "schedules", "search", "sim", "viz", "workloads"}},
    {"python", {"exec", "job", "report", "schedules", "search", "sim", "viz", "workloads"}},
};

inline bool is_source(const fs::path& path) {
    static const std::set<std::string> kEndings = {".cpp", ".h", ".cu", ".cuh"};
    return kEndings.contains(path.extension().string());
}

inline std::vector<fs::path> sources_below(const fs::path& folder) {
    std::vector<fs::path> sources;
    if (fs::exists(folder))
        for (const auto& entry : fs::recursive_directory_iterator(folder))
            if (entry.is_regular_file() && is_source(entry.path()))
                sources.push_back(entry.path());
    std::sort(sources.begin(), sources.end());
    return sources;
}
