#include "exec/checkpoint/checkpoint.h"

#include "exec/checkpoint/safetensors.h"
#include "exec/system/threads.h"
#include "job/job.h"
#include "workloads/error.h"
#include "workloads/text/files.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <set>
#include <utility>

namespace pw {

namespace fs = std::filesystem;

namespace {

constexpr const char* kModel = "model.safetensors";
constexpr const char* kOptimizer = "optimizer.safetensors";
constexpr const char* kComplete = "complete";
constexpr std::string_view kPrefix = "step-";

std::string path_in(const std::string& folder, const char* file) { return (fs::path(folder) / file).string(); }

std::string folder_of(const std::string& root, int step) {
    return (fs::path(root) / fmt::format("{}{:08d}", kPrefix, step)).string();
}

// -1 when it is not the name of a checkpoint.
int step_in(const std::string& folder) {
    const std::string name = fs::path(folder).filename().string();
    if (!name.starts_with(kPrefix))
        return -1;
    int step = -1;
    const char* const end = name.data() + name.size();
    return std::from_chars(name.data() + kPrefix.size(), end, step).ptr == end ? step : -1;
}

// The whole text is compared, so that no bit of it can change.
std::string completeness_of(int step, const std::vector<std::pair<const char*, Digest>>& files) {
    std::string text = fmt::format("pipewright checkpoint 1, step {}\n", step);
    for (const auto& [name, digest] : files)
        text += fmt::format("{} {} bytes xxh3 {}\n", name, digest.bytes, digest.hash);
    return text;
}

[[noreturn]] void fail_check(const std::string& folder, const std::string& fact) {
    fail_with(ExitCode::CheckFailed,
              "checkpoint '{}' {}\n  help: name the folder of all checkpoints, of which the latest whole one is taken",
              folder, fact);
}

template <class Value>
Value number_in(const TensorFile& file, const std::string& folder, const char* key) {
    const auto found = file.metadata.find(key);
    Value value{};
    if (found == file.metadata.end() ||
        std::from_chars(found->second.data(), found->second.data() + found->second.size(), value).ec != std::errc())
        fail_check(folder, fmt::format("does not say its {}", key));
    return value;
}

std::string text_in(const TensorFile& file, const char* key) {
    const auto found = file.metadata.find(key);
    return found == file.metadata.end() ? "" : found->second;
}

// Folders of checkpoints under `root`, whole or not, the latest first.
std::vector<std::string> folders_in(const std::string& root) {
    std::vector<std::string> folders;
    std::error_code error;
    for (const fs::directory_entry& entry : fs::directory_iterator(root, error))
        if (entry.is_directory(error) && step_in(entry.path().string()) >= 0)
            folders.push_back(entry.path().string());
    std::ranges::sort(folders, std::greater<>(), step_in);
    return folders;
}

}  // namespace

std::string write_checkpoint(const std::string& root, const Checkpoint& checkpoint) {
    std::error_code error;
    fs::create_directories(root, error);
    if (error)
        fail_with(ExitCode::RunFailed, "cannot make the folder '{}': {}", root, error.message());
    const std::string folder = folder_of(root, checkpoint.step);
    if (fs::exists(path_in(folder, kComplete), error))
        fs::remove(path_in(folder, kComplete), error);  // it is written anew: until then it is not whole
    std::vector<std::pair<const char*, Digest>> files;
    NewFolder fresh(folder);
    fresh.fill([&](const std::string& draft) {
        const TensorMetadata about{{"format", "pt"},
                                   {"step", std::to_string(checkpoint.step)},
                                   {"samples", std::to_string(checkpoint.samples)},
                                   {"seed", std::to_string(checkpoint.seed)},
                                   {"model", checkpoint.model},
                                   {"config", checkpoint.config}};
        files.emplace_back(kModel, write_tensors(path_in(draft, kModel), checkpoint.parameters, about));
        files.emplace_back(kOptimizer,
                           write_tensors(path_in(draft, kOptimizer), checkpoint.momenta, {{"format", "pt"}}));
    });
    fresh.finish();
    write_file(path_in(folder, kComplete), completeness_of(checkpoint.step, files));
    return folder;
}

Checkpoint read_checkpoint(const std::string& folder) {
    std::error_code error;
    for (const char* file : {kComplete, kModel, kOptimizer})
        if (!fs::is_regular_file(path_in(folder, file), error))
            fail_check(folder, fmt::format("is not whole: there is no {}", file));
    constexpr std::uintmax_t kMost = 4096;
    if (const std::uintmax_t bytes = fs::file_size(path_in(folder, kComplete), error); error || bytes > kMost)
        fail_check(folder, fmt::format("is not as it was written: {} is too long", kComplete));
    const std::string told = read_text(path_in(folder, kComplete), "");
    const std::string is = completeness_of(step_in(folder), {{kModel, digest_of(path_in(folder, kModel))},
                                                             {kOptimizer, digest_of(path_in(folder, kOptimizer))}});
    if (told != is)
        fail_check(folder, "is not as it was written: sizes or hashes of its files are others");
    TensorFile model = read_tensors(path_in(folder, kModel));
    Checkpoint checkpoint;
    checkpoint.step = number_in<int>(model, folder, "step");
    checkpoint.samples = number_in<std::int64_t>(model, folder, "samples");
    checkpoint.seed = number_in<std::int64_t>(model, folder, "seed");
    checkpoint.model = text_in(model, "model");
    checkpoint.config = text_in(model, "config");
    checkpoint.parameters = std::move(model.tensors);
    checkpoint.momenta = read_tensors(path_in(folder, kOptimizer)).tensors;
    return checkpoint;
}

bool is_checkpoint(const std::string& path) { return step_in(path) >= 0 || !folders_in(path).empty(); }

FoundCheckpoint find_checkpoint(const std::string& path, std::vector<std::string>& left_out, int end) {
    const std::string plain = fs::path(path).filename().empty() ? fs::path(path).parent_path().string() : path;
    if (step_in(plain) >= 0)
        return {plain, read_checkpoint(plain)};
    for (const std::string& folder : folders_in(plain)) {
        if (step_in(folder) >= end)
            continue;
        try {
            return {folder, read_checkpoint(folder)};
        } catch (const Error& error) {
            const std::string text = error.what();
            left_out.push_back(text.substr(0, text.find('\n')));
        }
    }
    if (left_out.empty())
        fail("'{}' has no checkpoint\n  help: name a folder that `pipewright run --checkpoint` wrote", path);
    fail_with(ExitCode::CheckFailed, "'{}' has no whole checkpoint: {}\n  help: run without --resume", path,
              fmt::join(left_out, "; "));
}

void remove_old_checkpoints(const std::string& root, int keep) {
    int whole = 0;
    std::error_code error;
    for (const std::string& folder : folders_in(root))
        if (fs::exists(path_in(folder, kComplete), error) && ++whole > keep) {
            fs::remove(path_in(folder, kComplete), error);  // first: half a checkpoint is none
            fs::remove_all(folder, error);
        }
}

void check_resumes(const Config& config, const FoundCheckpoint& found, const LayerGraph& graph) {
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
                refuse(fmt::format("has no {}, which {} has", parameter.name, config.workload.model),
                       "resume with the model that it was made with");
            if (at->second->shape != parameter.shape)
                refuse(fmt::format("has {} of shape ({}), where the model has ({})", parameter.name,
                                   fmt::join(at->second->shape, ", "), fmt::join(parameter.shape, ", ")),
                       "resume with the model that it was made with");
            ++found_here;
        }
    if (found_here != by_name.size())
        refuse(fmt::format("has {} parameters that {} has not", by_name.size() - found_here, config.workload.model),
               "resume with the model that it was made with");
    if (checkpoint.samples != std::int64_t{checkpoint.step} * config.pipeline.mini_batch)
        refuse(fmt::format("has learnt from {} samples in {} steps, and a mini-batch is {} now", checkpoint.samples,
                           checkpoint.step, config.pipeline.mini_batch),
               "keep micro_batches x micro_batch_size, or pipeline.mini_batch");
    if (checkpoint.seed != config.training.seed)
        refuse(fmt::format("was made with training.seed {}, and it is {} now: data and dropout would be others",
                           checkpoint.seed, config.training.seed),
               fmt::format("write training.seed: {}", checkpoint.seed));
}

CheckpointWriter::~CheckpointWriter() {
    if (thread_.joinable())
        thread_.join();
}

void CheckpointWriter::wait() {
    if (thread_.joinable())
        thread_.join();
    if (cause_)
        std::rethrow_exception(std::exchange(cause_, nullptr));
}

void CheckpointWriter::write(std::function<Checkpoint()> make) {
    wait();
    is_idle_ = false;
    thread_ = start_thread("a checkpoint", [this, make = std::move(make)] {
        give_way();
        try {
            write_it(make());
        } catch (...) {
            cause_ = std::current_exception();
        }
        is_idle_ = true;
    });
}

void CheckpointWriter::write_it(const Checkpoint& checkpoint) {
    try {
        write_checkpoint(root_, checkpoint);
        remove_old_checkpoints(root_, keep_);
    } catch (const std::exception& error) {
        failures_.push_back(fmt::format("no checkpoint of step {}: {}", checkpoint.step, error.what()));
    }
}

std::vector<std::string> CheckpointWriter::finish() {
    wait();
    return std::exchange(failures_, {});
}

}  // namespace pw
