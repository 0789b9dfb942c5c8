#include "workloads/text/drafts.h"

#include "workloads/error.h"
#include "workloads/process.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <optional>
#include <string_view>
#include <utility>

namespace pw {

namespace {

namespace fs = std::filesystem;

constexpr std::string_view kDraft = ".pipewright-";

// Removes "-NUMBER" from the end of a name.
std::optional<int> take_number(std::string_view& name) {
    const std::size_t dash = name.rfind('-');
    if (dash == std::string_view::npos)
        return {};
    int number = -1;
    const char* const end = name.data() + name.size();
    const auto read = std::from_chars(name.data() + dash + 1, end, number);
    name = name.substr(0, dash);
    return read.ptr == end && read.ec == std::errc() && number >= 0 ? std::optional(number) : std::nullopt;
}

bool is_dead_draft(std::string_view name) {
    if (!name.starts_with(kDraft))
        return false;
    name.remove_prefix(kDraft.size());
    const std::optional<int> number = take_number(name), process = take_number(name);
    return number && process && is_gone(std::string(name), *process);
}

// A process on a host of the same name may run in another container: then it has locked its draft.
bool is_held(const std::string& path) {
    const int file = open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (file < 0)
        return errno != ENOENT;
    const bool held = flock(file, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    close(file);
    return held;
}

}  // namespace

std::string draft_name(const std::string& folder, int number) {
    return (fs::path(folder) / fmt::format("{}{}-{}-{}", kDraft, host_name(), getpid(), number)).string();
}

void hold_draft(int descriptor) { flock(descriptor, LOCK_EX | LOCK_NB); }

void remove_dead_drafts(const std::string& folder) {
    if (fs::path(folder).filename().string().starts_with(kDraft))
        return;  // a draft itself, and fresh
    std::error_code error;
    for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
        const fs::file_type type = entry.symlink_status(error).type();
        const bool is_kind = type == fs::file_type::regular || type == fs::file_type::directory;
        if (is_kind && is_dead_draft(entry.path().filename().string()) && !is_held(entry.path().string()))
            fs::remove_all(entry.path(), error);  // follows no links
    }
}

DraftFolder::DraftFolder(const std::string& home, std::string becomes) : becomes_(std::move(becomes)) {
    remove_dead_drafts(home);
    int number = 0;
    do
        path_ = draft_name(home, number++);
    while (mkdir(path_.c_str(), 0777) != 0 && errno == EEXIST);
    descriptor_ = open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (descriptor_ < 0)
        fail_with(ExitCode::RunFailed, "cannot write '{}': {}", becomes_, std::strerror(errno));
    hold_draft(descriptor_);
}

DraftFolder::~DraftFolder() {
    std::error_code ignored;
    if (!path_.empty())
        fs::remove_all(path_, ignored);
    release();
}

void DraftFolder::fill(const std::function<void(const std::string& draft)>& write) const {
    try {
        write(path_);
    } catch (const Error& error) {
        std::string what = error.what();
        for (std::size_t at; (at = what.find(path_)) != std::string::npos;)
            what.replace(at, path_.size(), becomes_);
        throw Error(error.code(), what);
    }
}

void DraftFolder::release() {
    path_.clear();
    if (descriptor_ >= 0)
        close(std::exchange(descriptor_, -1));
}

}  // namespace pw
