#include "exec/checkpoint/checkpoint_folder.h"

#include "workloads/error.h"
#include "workloads/text/drafts.h"
#include "workloads/text/files.h"

#include <fmt/ranges.h>

#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <random>
#include <utility>
#include <vector>

namespace pw {

namespace {

namespace fs = std::filesystem;

std::string name_of_entry(const std::string& path) { return fs::path(path).filename().string(); }

std::string fresh_training() {
    std::random_device random;
    return fmt::format("{:016x}", (std::uint64_t{random()} << 32) | random());
}

bool is_whole(const std::string& folder) {
    try {
        (void)read_checkpoint(folder);
        return true;
    } catch (const Error&) {
        return false;
    }
}

bool is_empty_folder(const std::string& path) {
    std::error_code error;
    return fs::symlink_status(path, error).type() == fs::file_type::directory && fs::is_empty(path, error);
}

// Returns whether the checkpoint is in the folder, by whatever path.
bool lies_in(const std::string& root, const FoundCheckpoint* found) {
    if (found == nullptr)
        return false;
    std::error_code error;
    const fs::path home = fs::path(found->folder).parent_path();
    return fs::equivalent(home.empty() ? "." : home, root, error);
}

void check_free(const std::string& root) {
    std::vector<std::string> names;
    for (const std::string& entry : steps_in(root))
        if (!is_empty_folder(entry))
            names.push_back(name_of_entry(entry));
    constexpr std::size_t kShown = 3;
    const std::size_t more = names.size() - std::min(names.size(), kShown);
    names.resize(names.size() - more);
    if (!names.empty())
        fail("'{0}' has checkpoints already: {1}{2}\n  help: add --resume {0}, or name another folder", root,
             fmt::join(names, ", "), more > 0 ? fmt::format(" and {} more", more) : "");
}

}  // namespace

void check_own_folder(const std::string& root, const FoundCheckpoint* resumed, int steps) {
    if (!lies_in(root, resumed))
        return check_free(root);
    for (const std::string& entry : steps_in(root)) {
        const std::optional<std::string> training = training_in(entry);
        const bool is_own = training == resumed->checkpoint.training;
        if (training && !is_own)
            fail(
                "'{}' has checkpoints of two trainings: {} is not of the same training as {}\n  help: name another "
                "folder with "
                "--checkpoint",
                root, name_of_entry(entry), name_of_entry(resumed->folder));
        if (step_in(entry) <= resumed->checkpoint.step || is_empty_folder(entry))
            continue;
        if (!is_own || !has_only_checkpoint(entry))
            fail(
                "'{}' has the name of a later checkpoint, but is not only a checkpoint of this training\n  help: move "
                "it, or "
                "name another folder with --checkpoint",
                entry);
        if (step_in(entry) != steps && is_whole(entry))
            fail(
                "'{0}' has a later checkpoint, {1}, which would be replaced\n  help: resume from it with --resume "
                "{0}, or name another folder with --checkpoint",
                root, name_of_entry(entry));
    }
}

CheckpointFolder::CheckpointFolder(std::string root, int keep, int steps)
    : root_(std::move(root)), keep_(keep), steps_(steps) {}

CheckpointFolder::~CheckpointFolder() {
    lock_.reset();
    if (is_made_)
        rmdir(root_.c_str());  // succeeds only if it is empty
}

void CheckpointFolder::open(const FoundCheckpoint* resumed) {
    if (lock_)
        return;
    std::error_code error;
    is_made_ = make_folder(root_, error);
    if (error)
        fail_with(ExitCode::RunFailed, "cannot make the folder '{}': {}", root_, error.message());
    lock_.emplace(root_);
    try {
        check_own_folder(root_, resumed, steps_);
    } catch (...) {
        lock_.reset();
        throw;
    }
    remove_dead_drafts(root_);
    training_ = resumed == nullptr ? "" : resumed->checkpoint.training;
    if (training_.empty())
        training_ = fresh_training();
}

void CheckpointFolder::write(Checkpoint checkpoint) {
    checkpoint.training = training_;
    write_checkpoint(root_, checkpoint);
    remove_old(checkpoint.step);
}

// Entries of other trainings, and entries later than the latest written checkpoint, stay.
void CheckpointFolder::remove_old(int latest) const {
    int own = 0;
    for (const std::string& entry : steps_in(root_))
        if (step_in(entry) <= latest && training_in(entry) == training_ && ++own > keep_)
            remove_checkpoint(entry);
}

}  // namespace pw
