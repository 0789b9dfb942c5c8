#include "cli/command.h"
#include "cli/file_kind.h"
#include "cli/streams.h"
#include "job/load.h"
#include "workloads/error.h"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <utility>

namespace pw {

void add_set(CLI::App& command, std::vector<std::string>& set) {
    command.add_option("--set", set, "override a key of the config: --set pipeline.micro_batches=8; may be repeated")
        ->type_name("KEY=VALUE")
        ->allow_extra_args(false);
}

namespace {

std::string in_small_letters(std::string text) {
    std::transform(text.begin(), text.end(), text.begin(), [](unsigned char letter) { return std::tolower(letter); });
    return text;
}

// Returns the config in the folder of `path` whose name is nearest to its own; empty if none is near.
std::string nearest_config(const std::string& path) {
    const std::filesystem::path wanted(path);
    const std::filesystem::path folder = wanted.has_parent_path() ? wanted.parent_path() : ".";
    std::vector<std::string> names;
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator(folder, error))
        if (const std::string suffix = entry.path().extension(); suffix == ".yaml" || suffix == ".yml")
            names.push_back(entry.path().filename().string());
    std::sort(names.begin(), names.end());
    const std::string name = wanted.filename().string();
    for (const std::string& other : names)
        if (in_small_letters(other) == in_small_letters(name))
            return (wanted.parent_path() / other).string();
    const auto near = nearest(name, std::vector<std::string_view>(names.begin(), names.end()));
    return near ? (wanted.parent_path() / *near).string() : "";
}

void require_file(const std::string& path) {
    std::error_code error;
    if (std::filesystem::exists(path, error) || error)
        return;
    if (const std::string near = nearest_config(path); !near.empty())
        fail("there is no file '{}'\n  help: did you mean '{}'?", path, near);
}

}  // namespace

Config ConfigArguments::load() const {
    require_file(path);
    require_config(path);
    return load_config(path, set);
}

void add_config(CLI::App& command, ConfigArguments& arguments) {
    command.add_option("CONFIG", arguments.path, "a config (YAML); - for standard input")
        ->required()
        ->type_name("")
        ->transform([](std::string path) { return path == "-" ? std::string("/dev/stdin") : path; });
    add_set(command, arguments.set);
}

Job job_of(Config config) {
    Notices notices;
    Job job = make_job(std::move(config), notices);
    print_notes(notices);
    return job;
}

}  // namespace pw
