#include "workloads/text/files.h"

#include "workloads/error.h"
#include "workloads/text/drafts.h"
#include "workloads/text/gzip.h"
#include "workloads/text/printable.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <utility>

namespace pw {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kBuffer = std::size_t{1} << 20, kBlock = 4096;
constexpr const char* kMoving = ".pipewright-moving";

class Descriptor {
public:
    explicit Descriptor(int number) : number_(number) {}
    ~Descriptor() {
        if (number_ >= 0)
            close(number_);
    }
    Descriptor(const Descriptor&) = delete;
    Descriptor& operator=(const Descriptor&) = delete;
    operator int() const { return number_; }

private:
    int number_;
};

// The program's parent has opened such a file: it may be a pipe, and no other file may replace it.
bool is_open_already(const std::string& path) {
    for (const char* folder : {"/dev/std", "/dev/fd/", "/proc/self/fd/"})
        if (path.starts_with(folder))
            return true;
    return false;
}

const char* kind_of(mode_t mode) {
    return S_ISDIR(mode) ? "folder" : S_ISFIFO(mode) ? "pipe" : S_ISSOCK(mode) ? "socket" : "device";
}

[[noreturn]] void fail_to_read(const std::string& path, const std::string& reason, std::string_view help) {
    fail("cannot read '{}': {}\n  help: {}", escaped_line(path), reason, help);
}

[[noreturn]] void fail_too_large(const std::string& path, std::uintmax_t most, std::string_view help) {
    fail("'{}' is larger than {}, more than is read\n  help: {}", escaped_line(path),
         exact_bytes(static_cast<Bytes>(most)), help);
}

// Opens a file without waiting for the other end of a pipe.
int open_to_read(const std::string& path, std::string_view help, std::uintmax_t most, bool regular) {
    const int file = open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    struct stat state {};
    if (file < 0 || fstat(file, &state) != 0)
        fail_to_read(path, std::strerror(errno), help);
    const bool is_file = S_ISREG(state.st_mode);
    if (!is_file && (regular || S_ISDIR(state.st_mode) || !is_open_already(path))) {
        close(file);
        fail("'{}' is a {}, not a file\n  help: {}", escaped_line(path), kind_of(state.st_mode), help);
    }
    if (is_file && static_cast<std::uintmax_t>(state.st_size) > most) {
        close(file);
        fail_too_large(path, most, help);
    }
    fcntl(file, F_SETFL, 0);
    return file;
}

std::string folder_of(const std::string& path) {
    const fs::path folder = fs::path(path).parent_path();
    return folder.empty() ? "." : folder.string();
}

[[noreturn]] void fail_with_reason(const std::string& path, const std::string& reason) {
    fail_with(ExitCode::RunFailed, "cannot write '{}': {}", escaped_line(path), reason);
}

// Linux follows no link of a stranger in a sticky folder that all may write to, such as /tmp (fs.protected_symlinks):
// the link could name any file of this user. A rename onto a link's target escapes that rule.
bool is_link_of_a_stranger(const std::string& link) {
    struct stat state {};
    struct stat folder {};
    return lstat(link.c_str(), &state) == 0 && stat(folder_of(link).c_str(), &folder) == 0 &&
           (folder.st_mode & S_ISVTX) != 0 && (folder.st_mode & S_IWOTH) != 0 && state.st_uid != geteuid() &&
           state.st_uid != folder.st_uid;
}

// The target of a name: links to a file stay when the file is replaced.
std::string resolved_links(std::string path) {
    std::error_code error;
    for (int link = 0; link < 40 && !is_open_already(path) && fs::is_symlink(path, error); ++link) {
        if (is_link_of_a_stranger(path))
            fail_with_reason(path, "it is another user's link, in a folder that all users may write to");
        path = (fs::path(path).parent_path() / fs::read_symlink(path, error)).string();
    }
    return path;
}

void check_folder_is_writable(const std::string& path, const std::string& folder) {
    std::error_code error;
    if (!fs::exists(folder, error))
        fail_with_reason(path, fmt::format("there is no folder '{}'", folder));
    if (!fs::is_directory(folder, error))
        fail_with_reason(path, fmt::format("'{}' is no folder\n  help: name a folder", folder));
    if (access(folder.c_str(), W_OK | X_OK) != 0)
        fail_with_reason(path, fmt::format("the folder '{}': {}", folder, std::strerror(errno)));
}

// An operation that the file system does not support is not a failure.
bool reached_the_disk(int file) { return fsync(file) == 0 || errno == EINVAL || errno == ENOTSUP || errno == EROFS; }

}  // namespace

void sync_folder(const std::string& folder) {
    const Descriptor opened(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (opened >= 0)
        fsync(opened);
}

bool make_folder(const std::string& path, std::error_code& error) {
    const fs::path whole = fs::absolute(path, error).lexically_normal();
    const fs::file_status state = error ? fs::file_status() : fs::status(whole, error);
    if (!fs::status_known(state) || fs::is_directory(state))
        return false;
    const fs::path folder = whole.has_filename() ? whole : whole.parent_path();
    if (folder.has_relative_path() && !fs::exists(folder.parent_path(), error))
        make_folder(folder.parent_path().string(), error);
    const bool made = !error && fs::create_directory(folder, error);
    if (made)
        sync_folder(folder.parent_path().string());
    return made;
}

std::string read_text(const std::string& path, std::string_view help, std::uintmax_t most) {
    const Descriptor file(open_to_read(path, help, most, false));
    std::string text;
    std::string buffer(std::size_t{1} << 16, '\0');
    for (;;) {
        const ssize_t got = read(file, buffer.data(), buffer.size());
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            fail_to_read(path, std::strerror(errno), help);
        if (got == 0)
            return is_gzip(text) ? gunzip(text, path, help, most) : text;
        text.append(buffer, 0, static_cast<std::size_t>(got));
        if (text.size() > most)
            fail_too_large(path, most, help);
    }
}

std::ifstream open_file(const std::string& path, std::string_view help, std::uintmax_t most) {
    close(open_to_read(path, help, most, true));
    std::ifstream file(path, std::ios::binary);
    if (!file)
        fail_to_read(path, std::strerror(errno), help);
    return file;
}

std::string place_of(const std::string& path) {
    struct stat state {};
    if (path.empty())
        return "";
    if (stat(path.c_str(), &state) == 0)
        return S_ISREG(state.st_mode) || S_ISDIR(state.st_mode) ? fmt::format("{}:{}", state.st_dev, state.st_ino) : "";
    std::error_code error;
    const fs::path full = fs::absolute(resolved_links(path), error) / "";
    return fs::weakly_canonical(full, error).string();
}

void check_target_file(const std::string& path) {
    if (path.empty() || is_open_already(path))
        return;
    const std::string target = resolved_links(path);
    struct stat state {};
    const bool exists = stat(target.c_str(), &state) == 0;
    if ((exists && S_ISDIR(state.st_mode)) || path.ends_with('/'))
        fail_with_reason(path, "it is a folder");
    if (exists && access(target.c_str(), W_OK) != 0)
        fail_with_reason(path, std::strerror(errno));
    if (!exists || S_ISREG(state.st_mode))
        check_folder_is_writable(path, folder_of(target));
}

void check_target_folder(const std::string& path) {
    if (path.empty())
        return;
    std::error_code error;
    fs::path folder = fs::absolute(resolved_links(path), error);
    while (!fs::exists(folder, error) && folder.has_relative_path())
        folder = folder.parent_path();
    check_folder_is_writable(path, folder.string());
}

NewFile::NewFile(std::string path) : path_(std::move(path)), target_(resolved_links(path_)) {
    check_target_file(path_);
    buffer_.reset(static_cast<char*>(std::aligned_alloc(kBlock, kBuffer)));
    if (buffer_ == nullptr)
        fail_with_reason(path_, std::strerror(errno));
    struct stat state {};
    const bool exists = stat(target_.c_str(), &state) == 0;
    if (is_open_already(target_) || (exists && !S_ISREG(state.st_mode))) {
        descriptor_ = open(target_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    } else {
        remove_dead_drafts(folder_of(target_));
        for (int number = 0; descriptor_ < 0 && (number == 0 || errno == EEXIST); ++number) {
            draft_ = draft_name(folder_of(target_), number);
            descriptor_ = open(draft_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        }
        if (descriptor_ >= 0)
            hold_draft(descriptor_);
        if (descriptor_ >= 0 && exists)
            fchmod(descriptor_, state.st_mode & 07777);
    }
    if (descriptor_ < 0)
        fail_with_reason(path_, std::strerror(errno));
    if (is_gzip_name(path_))
        gzip_ = std::make_unique<GzipWriter>([this](std::string_view bytes) { write_plain(bytes); });
}

NewFile::~NewFile() {
    if (descriptor_ >= 0)
        close(descriptor_);
    if (!draft_.empty())
        unlink(draft_.c_str());
}

void NewFile::fail_to_write() const { fail_with_reason(path_, std::strerror(errno)); }

bool NewFile::set_direct(bool direct) {
    const int flags = fcntl(descriptor_, F_GETFL);
    const bool is_set = flags >= 0 && fcntl(descriptor_, F_SETFL, direct ? flags | O_DIRECT : flags & ~O_DIRECT) == 0;
    is_direct_ = is_set ? direct : is_direct_;
    return is_set;
}

void NewFile::bypass_cache() {
    if (!draft_.empty())
        set_direct(true);
}

void NewFile::write(std::string_view bytes) {
    if (gzip_)
        gzip_->write(bytes);
    else
        write_plain(bytes);
}

void NewFile::write_plain(std::string_view bytes) {
    while (!bytes.empty()) {
        const std::size_t taken = std::min(bytes.size(), kBuffer - buffered_);
        std::memcpy(buffer_.get() + buffered_, bytes.data(), taken);
        buffered_ += taken;
        bytes.remove_prefix(taken);
        if (buffered_ == kBuffer)
            flush();
    }
}

// Only whole blocks bypass the cache. A rest, also after a short write, goes through the cache.
void NewFile::flush() {
    for (std::size_t done = 0; done < buffered_;) {
        const std::size_t left = buffered_ - done;
        if (is_direct_ && (done % kBlock != 0 || left % kBlock != 0) && !set_direct(false))
            fail_to_write();
        const ssize_t wrote = ::write(descriptor_, buffer_.get() + done, left);
        const bool is_refused = wrote < 0 && errno == EINVAL && is_direct_;
        if (wrote < 0 && errno != EINTR && !(is_refused && set_direct(false)))
            fail_to_write();
        done += static_cast<std::size_t>(std::max<ssize_t>(wrote, 0));
    }
    buffered_ = 0;
}

void NewFile::finish() {
    if (gzip_)
        gzip_->finish();
    flush();
    if (!draft_.empty() && !reached_the_disk(descriptor_))
        fail_to_write();
    if (close(std::exchange(descriptor_, -1)) != 0)
        fail_to_write();
    if (draft_.empty())
        return;
    if (std::rename(draft_.c_str(), target_.c_str()) != 0)
        fail_to_write();
    draft_.clear();
    sync_folder(folder_of(target_));
}

void write_file(const std::string& path, std::string_view text) {
    NewFile file(path);
    file.write(text);
    file.finish();
}

NewFolder::NewFolder(std::string path) : path_(std::move(path)) {
    check_target_folder(path_);
    std::error_code error;
    path_ = resolved_links(path_);
    if (path_.ends_with('/') && path_.size() > 1)
        path_.pop_back();
    fresh_ = !fs::exists(path_, error);
    const std::string home = fresh_ ? folder_of(path_) : path_;
    if (fresh_ && !make_folder(home, error) && error)
        fail_with_reason(path_, error.message());
    draft_.emplace(home, path_);
}

// Another process may have made the folder meanwhile.
bool NewFolder::is_renamed() const {
    std::error_code error;
    if (fresh_)
        fs::rename(draft(), path_, error);
    if (error && error != std::errc::directory_not_empty && error != std::errc::file_exists)
        fail_with_reason(path_, error.message());
    return fresh_ && !error;
}

void NewFolder::finish() {
    const bool renamed = is_renamed();
    if (renamed)
        draft_->release();
    else
        move_files();
    sync_folder(renamed ? folder_of(path_) : path_);
}

// One process at a time: all files of a folder are of the same run.
void NewFolder::move_files() {
    const Descriptor target(open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    while (target >= 0 && flock(target, LOCK_EX) != 0 && errno == EINTR) {
    }
    try {
        const fs::path moving = fs::path(path_) / kMoving;
        fs::remove_all(moving);
        fs::rename(draft(), moving);
        draft_->release();
        for (const auto& entry : fs::recursive_directory_iterator(moving)) {
            const fs::path place = fs::path(path_) / entry.path().lexically_relative(moving);
            if (entry.is_directory())
                fs::create_directories(place);
            else
                fs::rename(entry.path(), place);
        }
        fs::remove_all(moving);
    } catch (const fs::filesystem_error& error) {
        fail_with_reason(path_, error.code().message());
    }
}

bool is_half_moved(const std::string& folder) {
    std::error_code error;
    return fs::exists(fs::path(folder) / kMoving, error);
}

}  // namespace pw
