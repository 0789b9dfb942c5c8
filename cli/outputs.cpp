#include "cli/outputs.h"

#include "job/launched_ranks.h"
#include "viz/plot.h"
#include "workloads/error.h"
#include "workloads/text/files.h"

#include <algorithm>
#include <filesystem>
#include <map>

namespace pw {

namespace {

// Rank 0 writes files and pictures. Every rank writes its own part of a folder.
void check_target(const Output& output) {
    if (output.kind != Output::Kind::Folder && !is_first_rank())
        return;
    switch (output.kind) {
        case Output::Kind::File:
            return check_target_file(output.path);
        case Output::Kind::Picture:
            return check_plot_file(output.path);
        case Output::Kind::Folder:
            return check_target_folder(output.path);
    }
}

}  // namespace

void check_outputs(const std::vector<Output>& outputs, const std::vector<std::string>& inputs) {
    std::map<std::string, std::string> read, written;  // by the place: the name, the option
    for (const std::string& path : inputs)
        read.emplace(place_of(path), path);
    for (const auto& [option, path, kind] : outputs) {
        const std::string place = place_of(path);
        if (place.empty())
            continue;
        if (const auto input = read.find(place); input != read.end())
            fail("{} '{}' would replace '{}', which the command reads\n  help: write to another {}", option, path,
                 input->second, kind == Output::Kind::Folder ? "folder" : "file");
        if (const auto [other, is_new] = written.emplace(place, option); !is_new)
            fail("{} and {} both write '{}'\n  help: give each a {} of its own", other->second, option, path,
                 kind == Output::Kind::Folder ? "folder" : "file");
    }
    for (const Output& output : outputs)
        check_target(output);
}

std::vector<std::string> inputs_of(const ConfigArguments& arguments, const Config& config,
                                   const std::vector<std::string>& more) {
    std::vector<std::string> paths = config.paths;
    paths.push_back(arguments.path);
    const std::filesystem::path folder = std::filesystem::absolute(arguments.path).parent_path();
    const auto add_if_there = [&](const std::string& value) {
        std::error_code error;
        if (const std::filesystem::path path = folder / value; std::filesystem::exists(path, error))
            paths.push_back(path.string());
    };
    for (const SweepAxis& axis : config.sweep)
        std::ranges::for_each(axis.texts, add_if_there);
    for (const std::string& override : more)
        add_if_there(override.substr(std::min(override.find('='), override.size() - 1) + 1));
    return paths;
}

Output csv_output(const std::string& file) { return {"--csv", file == "-" ? "" : file}; }

}  // namespace pw
