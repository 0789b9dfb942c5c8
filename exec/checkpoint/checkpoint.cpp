#include "exec/checkpoint/checkpoint.h"

#include "exec/checkpoint/safetensors.h"
#include "job/job.h"
#include "workloads/error.h"
#include "workloads/text/drafts.h"
#include "workloads/text/files.h"

#include <fcntl.h>
#include <unistd.h>

#include <fmt/ranges.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <utility>

namespace pw {

namespace fs = std::filesystem;

namespace {

constexpr const char* kModel = "model.safetensors";
constexpr const char* kOptimizer = "optimizer.safetensors";
constexpr const char* kComplete = "complete";
constexpr const char* kFiles[] = {kComplete, kModel, kOptimizer};
constexpr std::string_view kPrefix = "step-", kFirstWords = "pipewright checkpoint 1, step ", kTraining = "training ";

std::string path_in(const std::string& folder, const char* file) { return (fs::path(folder) / file).string(); }

std::string folder_of(const std::string& root, int step) {
    return (fs::path(root) / fmt::format("{}{:08d}", kPrefix, step)).string();
}

// The whole text is compared, so that a change of any bit is found.
std::string completeness_of(int step, const std::string& training,
                            const std::vector<std::pair<const char*, Digest>>& files) {
    std::string text = fmt::format("{}{}\n", kFirstWords, step);
    if (!training.empty())
        text += fmt::format("{}{}\n", kTraining, training);
    for (const auto& [name, digest] : files)
        text += fmt::format("{} {} bytes xxh3 {}\n", name, digest.bytes, digest.hash);
    if (!training.empty())
        text += fmt::format("all of this xxh3 {}\n", hash_of_text(text));
    return text;
}

// The text of a file `complete`, empty if there is none, or if it is too long.
std::string completeness_in(const std::string& folder) {
    constexpr std::uintmax_t kMost = 4096;
    try {
        return read_text(path_in(folder, kComplete), "", kMost);
    } catch (const Error&) {
        return "";
    }
}

// Empty if the text has no training, as in older versions.
std::string stored_training_in(const std::string& completeness) {
    const std::size_t line = completeness.find("\n" + std::string(kTraining));
    if (line == std::string::npos)
        return "";
    const std::size_t begin = line + 1 + kTraining.size();
    return completeness.substr(begin, completeness.find('\n', begin) - begin);
}

[[noreturn]] void fail_check(const std::string& folder, const std::string& fact) {
    fail_with(ExitCode::CheckFailed,
              "checkpoint '{}' {}\n  help: name the folder of all checkpoints: its latest complete one is used", folder,
              fact);
}

template <class Value>
Value number_in(const TensorFile& file, const std::string& folder, const char* key) {
    const auto found = file.metadata.find(key);
    const std::string text = found == file.metadata.end() ? "" : found->second;
    const char* const end = text.data() + text.size();
    Value value{};
    const auto read = std::from_chars(text.data(), end, value);
    if (text.empty() || read.ec != std::errc() || read.ptr != end)
        fail_check(folder, fmt::format("has no valid {}", key));
    return value;
}

std::string text_in(const TensorFile& file, const char* key) {
    const auto found = file.metadata.find(key);
    return found == file.metadata.end() ? "" : found->second;
}

// Adds the states of the optimizer. Older versions had one optimizer, and did not count its updates.
void add_optimizer(TensorFile file, const std::string& folder, Checkpoint& checkpoint) {
    checkpoint.updates = checkpoint.step;
    if (file.metadata.contains("optimizer")) {
        const std::optional<OptimizerKind> kind = parse_choice<OptimizerKind>(text_in(file, "optimizer"));
        if (!kind)
            fail_check(folder, "has no valid optimizer");
        checkpoint.optimizer = *kind;
        checkpoint.updates = number_in<std::int64_t>(file, folder, "updates");
        if (checkpoint.updates < 0)
            fail_check(folder, fmt::format("has an impossible number of updates, {}", checkpoint.updates));
    }
    checkpoint.states = std::move(file.tensors);
}

// Folders of checkpoints under `root`, complete or not, the latest first.
std::vector<std::string> folders_in(const std::string& root) {
    std::vector<std::string> folders = steps_in(root);
    std::error_code error;
    std::erase_if(folders, [&](const std::string& folder) { return !fs::is_directory(folder, error); });
    return folders;
}

[[noreturn]] void fail_to_write(const std::string& folder, const std::string& reason) {
    fail_with(ExitCode::RunFailed, "cannot write '{}': {}", folder, reason);
}

}  // namespace

int step_in(const std::string& folder) {
    const std::string name = fs::path(folder).filename().string();
    if (!name.starts_with(kPrefix))
        return -1;
    int step = -1;
    const char* const end = name.data() + name.size();
    return std::from_chars(name.data() + kPrefix.size(), end, step).ptr == end ? step : -1;
}

std::vector<std::string> steps_in(const std::string& root) {
    std::vector<std::string> steps;
    std::error_code error;
    for (const fs::directory_entry& entry : fs::directory_iterator(root, error))
        if (step_in(entry.path().string()) >= 0)
            steps.push_back(entry.path().string());
    std::ranges::sort(steps, [](const std::string& one, const std::string& other) {
        return std::pair(step_in(one), one) > std::pair(step_in(other), other);
    });
    return steps;
}

std::optional<std::string> training_in(const std::string& folder) {
    const std::string text = completeness_in(folder);
    return text.starts_with(kFirstWords) ? std::optional(stored_training_in(text)) : std::nullopt;
}

bool has_only_checkpoint(const std::string& folder) {
    std::error_code error;
    if (fs::symlink_status(folder, error).type() != fs::file_type::directory)
        return false;
    int found = 0;
    for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
        const std::string name = entry.path().filename().string();
        if (std::ranges::find(kFiles, name) == std::end(kFiles) || !entry.is_regular_file(error) ||
            entry.is_symlink(error))
            return false;
        ++found;
    }
    return !error && found > 0;
}

// The folder is renamed first: under its own name it is complete, or absent. It is moved into the draft as a
// folder, so that the draft is never mistaken for a checkpoint.
void remove_checkpoint(const std::string& folder) {
    if (!has_only_checkpoint(folder))
        return;
    const std::string root = fs::path(folder).parent_path().string();
    DraftFolder draft(root, root);
    const std::string aside = path_in(draft.path(), fs::path(folder).filename().c_str());
    if (std::rename(folder.c_str(), aside.c_str()) != 0)
        return;
    const std::string left = draft.path();
    draft.release();  // only these files are removed
    for (const char* file : kFiles)
        unlink(path_in(aside, file).c_str());
    rmdir(aside.c_str());
    rmdir(left.c_str());
    sync_folder(root);
}

std::string write_checkpoint(const std::string& root, const Checkpoint& checkpoint) {
    std::error_code error;
    make_folder(root, error);
    if (error)
        fail_with(ExitCode::RunFailed, "cannot make the folder '{}': {}", root, error.message());
    const std::string folder = folder_of(root, checkpoint.step);
    DraftFolder draft(root, root);
    const std::string fresh = folder_of(draft.path(), checkpoint.step);
    if (!fs::create_directory(fresh, error))
        fail_to_write(folder, error.message());
    draft.fill([&](const std::string&) {
        const TensorMetadata about{{"format", "pt"},
                                   {"step", std::to_string(checkpoint.step)},
                                   {"samples", std::to_string(checkpoint.samples)},
                                   {"seed", std::to_string(checkpoint.seed)},
                                   {"model", checkpoint.model},
                                   {"config", checkpoint.config}};
        std::vector<std::pair<const char*, Digest>> files;
        files.emplace_back(kModel, write_tensors(path_in(fresh, kModel), checkpoint.parameters, about));
        files.emplace_back(kOptimizer, write_tensors(path_in(fresh, kOptimizer), checkpoint.states,
                                                     {{"format", "pt"},
                                                      {"optimizer", std::string(name_of(checkpoint.optimizer))},
                                                      {"updates", std::to_string(checkpoint.updates)}}));
        write_file(path_in(fresh, kComplete), completeness_of(checkpoint.step, checkpoint.training, files));
    });
    if (training_in(folder) == checkpoint.training)
        remove_checkpoint(folder);
    if (std::rename(fresh.c_str(), folder.c_str()) != 0)  // it replaces an empty folder, nothing else
        fail_to_write(folder, std::strerror(errno));
    sync_folder(root);
    return folder;
}

Checkpoint read_checkpoint(const std::string& folder) {
    std::error_code error;
    for (const char* file : kFiles)
        if (!fs::is_regular_file(path_in(folder, file), error))
            fail_check(folder, fmt::format("is not complete: there is no {}", file));
    const std::string stored = completeness_in(folder), training = stored_training_in(stored);
    const std::string is = completeness_of(
        step_in(folder), training,
        {{kModel, digest_of(path_in(folder, kModel))}, {kOptimizer, digest_of(path_in(folder, kOptimizer))}});
    if (stored != is)
        fail_check(folder, "is not as it was written: sizes or hashes of its files are others");
    TensorFile model = read_tensors(path_in(folder, kModel));
    Checkpoint checkpoint;
    checkpoint.step = number_in<int>(model, folder, "step");
    if (checkpoint.step != step_in(folder))
        fail_check(folder, fmt::format("is of step {} by its contents, and of another by its name", checkpoint.step));
    checkpoint.samples = number_in<std::int64_t>(model, folder, "samples");
    if (checkpoint.samples < 0)
        fail_check(folder, fmt::format("has an impossible number of samples, {}", checkpoint.samples));
    checkpoint.seed = number_in<std::int64_t>(model, folder, "seed");
    checkpoint.model = text_in(model, "model");
    checkpoint.config = text_in(model, "config");
    checkpoint.training = training;
    checkpoint.parameters = std::move(model.tensors);
    add_optimizer(read_tensors(path_in(folder, kOptimizer)), folder, checkpoint);
    return checkpoint;
}

bool is_checkpoint(const std::string& path) { return step_in(path) >= 0 || !folders_in(path).empty(); }

FoundCheckpoint find_checkpoint(const std::string& path, std::vector<std::string>& left_out, int end) {
    const std::string plain = fs::path(path).filename().empty() ? fs::path(path).parent_path().string() : path;
    if (step_in(plain) >= 0)
        return {plain, read_checkpoint(plain)};
    std::vector<std::string> before, folders = folders_in(plain);
    // A run that writes there may have removed all listed folders: then there are newer folders.
    for (int tries = 100; tries > 0 && folders != before; --tries) {
        left_out.clear();
        for (const std::string& folder : folders) {
            if (step_in(folder) >= end)
                continue;
            try {
                return {folder, read_checkpoint(folder)};
            } catch (const Error& error) {
                left_out.push_back(error.fact());
            }
        }
        before = std::exchange(folders, folders_in(plain));
    }
    if (left_out.empty())
        fail("'{}' has no checkpoint\n  help: name a folder that `pipewright run --checkpoint` wrote", path);
    fail_with(ExitCode::CheckFailed,
              "'{}' has no complete checkpoint: {}\n  help: begin anew: without --resume, and with another folder",
              path, fmt::join(left_out, "; "));
}

void check_resumes(const Setup& setup, const FoundCheckpoint& found, const LayerGraph& graph) {
    const Checkpoint& checkpoint = found.checkpoint;
    const auto refuse = [&](const std::string& fact, const std::string& help) {
        fail("checkpoint '{}' {}\n  help: {}", found.folder, fact, help);
    };
    std::map<std::string, const NamedTensor*> by_name;
    for (const NamedTensor& tensor : checkpoint.parameters)
        by_name[tensor.name] = &tensor;
    std::size_t found_here = 0;
    for (std::size_t layer = 0; layer < boost::num_vertices(graph); ++layer)
        for (const ParameterShape& parameter : parameters_of(graph[layer])) {
            const auto at = by_name.find(parameter.name);
            if (at == by_name.end())
                refuse(fmt::format("has no {}, which {} has", parameter.name, setup.workload.model),
                       "resume with the model that it was made with");
            if (at->second->shape != parameter.shape)
                refuse(fmt::format("has {} of shape ({}), where the model has ({})", parameter.name,
                                   fmt::join(at->second->shape, ", "), fmt::join(parameter.shape, ", ")),
                       "resume with the model that it was made with");
            ++found_here;
        }
    if (found_here != by_name.size())
        refuse(
            fmt::format("has {} parameters that {} does not have", by_name.size() - found_here, setup.workload.model),
            "resume with the model that it was made with");
    if (checkpoint.samples != std::int64_t{checkpoint.step} * setup.pipeline.mini_batch)
        refuse(fmt::format("was trained on {} samples in {} steps, and a mini-batch is {} now", checkpoint.samples,
                           checkpoint.step, setup.pipeline.mini_batch),
               "keep micro_batches x micro_batch_size, or pipeline.mini_batch");
    if (checkpoint.seed != setup.training.seed)
        refuse(fmt::format("was made with training.seed {}, and it is {} now: data and dropout would differ",
                           checkpoint.seed, setup.training.seed),
               fmt::format("write training.seed: {}", checkpoint.seed));
    if (!checkpoint.states.empty() && checkpoint.optimizer != setup.training.optimizer)
        refuse(fmt::format("has the states of optimizer {}, and training.optimizer is {} now",
                           name_of(checkpoint.optimizer), name_of(setup.training.optimizer)),
               fmt::format("write training.optimizer: {}, or begin anew from its weights: run --save FOLDER, then "
                           "training.initial: FOLDER",
                           name_of(checkpoint.optimizer)));
}

}  // namespace pw
