#include "cli/command.h"
#include "cli/file_kind.h"
#include "cli/streams.h"
#include "workloads/error.h"
#include "workloads/text/files.h"

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

// Returns the config in the folder of `path` whose name is nearest to the name in `path`. Empty if none is near.
std::string nearest_config(const std::string& path) {
    const std::filesystem::path wanted(path);
    const std::filesystem::path folder = wanted.has_parent_path() ? wanted.parent_path() : ".";
    std::vector<std::string> names;
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator(folder, error))
        if (const std::string suffix = entry.path().extension(); suffix == ".yaml" || suffix == ".yml")
            names.push_back(entry.path().filename().string());
    std::sort(names.begin(), names.end());
    const std::string name = wanted.filename().string(), small = in_small_letters(name);
    for (const std::string& other : names)
        if (const std::string known = in_small_letters(other);
            known == small || known == small + ".yaml" || known == small + ".yml")
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

void ConfigArguments::read_pipe() {
    if (path.starts_with("/dev/"))
        text = read_text(path, "name a YAML file that can be read");
}

Config ConfigArguments::load() const {
    if (!text) {
        require_file(path);
        require_config(path);
    }
    return load_with({});
}

void add_config(CLI::App& command, ConfigArguments& arguments) {
    command.add_option("CONFIG", arguments.path, "a config (YAML); - for standard input")
        ->required()
        ->type_name("")
        ->transform([](std::string path) { return path == "-" ? std::string("/dev/stdin") : path; });
    add_set(command, arguments.set);
}

void check_config_target(const std::string& path) {
    const std::string suffix = std::filesystem::path(path).extension().string();
    if (!suffix.empty() && suffix != ".yaml" && suffix != ".yml")
        fail("'{}' is no name of a config\n  help: give it the suffix .yaml, as in -o {}", path,
             std::filesystem::path(path).replace_extension(".yaml").string());
    check_target_file(path);
}

Job job_of(Config config) {
    Notices notices;
    Job job = make_job(std::move(config), notices);
    print_notes(notices);
    return job;
}

}  // namespace pw
