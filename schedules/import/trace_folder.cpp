#include "schedules/import/trace_folder.h"

#include "schedules/trace/trace.h"
#include "workloads/error.h"
#include "workloads/text/printable.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <map>
#include <string_view>
#include <system_error>
#include <utility>

namespace pw {

namespace {

constexpr std::string_view kOfTensorBoard = ".pt.trace.json";

bool is_of_tensorboard(std::string_view name) {
    return name.ends_with(kOfTensorBoard) || name.ends_with(std::string(kOfTensorBoard) + ".gz");
}
bool is_json(std::string_view name) { return name.ends_with(".json") || name.ends_with(".json.gz"); }
bool is_binary_chakra(std::string_view name) { return name.ends_with(".et") || name.ends_with(".et.gz"); }
bool is_log_of_worker(std::string_view name) { return name.starts_with("workerlog."); }

// The first kind of which a folder has a file counts.
constexpr bool (*kKinds[])(std::string_view) = {is_of_tensorboard, is_json, is_binary_chakra, is_log_of_worker};

std::vector<std::string> names_in(const std::string& folder) {
    std::vector<std::string> names;
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator(folder, error))
        if (entry.is_regular_file(error))
            names.push_back(entry.path().filename().string());
    if (error)
        fail("folder '{}' cannot be read: {}", folder, error.message());
    std::sort(names.begin(), names.end());
    return names;
}

// Of each worker the file with the last time, which is the last name: times have the same number of digits.
std::vector<std::string> last_of_workers(const std::string& folder, const std::vector<std::string>& names,
                                         std::vector<std::string>& notes) {
    std::map<std::string, std::string> last;
    for (const std::string& name : names) {
        const std::string before = name.substr(0, name.find(kOfTensorBoard));
        last[before.substr(0, before.rfind('.'))] = name;
    }
    if (last.size() < names.size())
        notes.push_back(fmt::format("{} has {} files of {} workers: the last file of each worker is read", folder,
                                    names.size(), last.size()));
    std::vector<std::string> files;
    for (const auto& [worker, name] : last)
        files.push_back(name);
    return files;
}

std::vector<std::string> files_in(const std::string& folder, std::vector<std::string>& notes) {
    const std::vector<std::string> names = names_in(folder);
    for (const auto is_of_kind : kKinds) {
        std::vector<std::string> files;
        std::copy_if(names.begin(), names.end(), std::back_inserter(files), is_of_kind);
        if (files.empty())
            continue;
        if (is_of_kind == is_of_tensorboard)
            files = last_of_workers(folder, files, notes);
        for (std::string& file : files)
            file = (std::filesystem::path(folder) / file).string();
        return files;
    }
    fail(
        "'{}' is a folder without traces\n  help: name a folder that has the files of all ranks: *.pt.trace.json, "
        "*.json or *.et, all compressed or not, or workerlog.0",
        folder);
}

// Removes the last `before` of a name, if only digits follow it. Makes the name empty otherwise.
void remove_number(std::string& name, char before) {
    const std::size_t at = name.rfind(before);
    const bool is_numbered =
        at != name.npos && at + 1 < name.size() && name.find_first_not_of("0123456789", at + 1) == name.npos;
    name.resize(is_numbered ? at : 0);
}

}  // namespace

std::string host_of_worker(const std::string& path) {
    std::string name = std::filesystem::path(path).filename().string();
    if (!is_of_tensorboard(name))
        return "";
    name.resize(name.find(kOfTensorBoard));
    remove_number(name, '.');
    remove_number(name, '_');
    return shortened(name, kMostHostName);
}

std::vector<std::string> with_files_of_folders(const std::vector<std::string>& paths, std::vector<std::string>& notes) {
    std::vector<std::string> files;
    for (const std::string& path : paths) {
        if (!std::filesystem::is_directory(path)) {
            files.push_back(path);
            continue;
        }
        const std::vector<std::string> found = files_in(path, notes);
        files.insert(files.end(), found.begin(), found.end());
    }
    return files;
}

}  // namespace pw
