#include "exec/checkpoint/folder_lock.h"

#include "exec/system/threads.h"
#include "workloads/error.h"
#include "workloads/process.h"
#include "workloads/text/printable.h"
#include "workloads/units.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace pw {

namespace {

constexpr const char* kLock = "pipewright.lock";

// Returns whether the name still refers to the open file: its last holder may have removed it.
bool is_named(const std::string& path, int file) {
    struct stat held {};
    struct stat named {};
    return fstat(file, &held) == 0 && lstat(path.c_str(), &named) == 0 && held.st_ino == named.st_ino &&
           held.st_dev == named.st_dev;
}

// Whether the lock is another name of a file, which writing to the lock would change.
bool has_other_names(int file) {
    struct stat held {};
    return fstat(file, &held) == 0 && held.st_nlink > 1;
}

// Returns the text that the holder wrote: "process 4711 on host a".
std::string holder_in(int file) {
    char text[300] = {};
    const ssize_t bytes = pread(file, text, sizeof text - 1, 0);
    return bytes > 0 ? shortened(text, 280) : "another process";
}

// Returns the open file if it is now locked. Otherwise returns -1, and `holder` is the process that has the lock.
int try_to_lock(const std::string& folder, const std::string& path, std::string& holder) {
    for (;;) {
        const int file = open(path.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0666);
        if (file < 0)
            fail_with(ExitCode::RunFailed, "cannot lock the folder '{}': {}: {}", folder, kLock, std::strerror(errno));
        if (flock(file, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
            holder = holder_in(file);
            close(file);
            return -1;
        }
        if (is_named(path, file) && !has_other_names(file))
            return file;
        const bool stays = is_named(path, file);
        close(file);
        if (stays)
            fail_with(ExitCode::RunFailed,
                      "cannot lock the folder '{}': {} is a hard link, and another name of its file would change, too\n"
                      "  help: remove it",
                      folder, kLock);
    }
}

}  // namespace

FolderLock::FolderLock(const std::string& folder) : path_(folder + "/" + kLock) {
    constexpr Ns kPatience = 2'000'000'000, kLook = 20'000'000;
    std::string holder;
    for (Ns waited = 0; (descriptor_ = try_to_lock(folder, path_, holder)) < 0; waited += kLook) {
        if (waited >= kPatience)
            fail_with(ExitCode::RunFailed,
                      "'{0}' is in use by another run: {1} writes its checkpoints there\n  help: wait until it has "
                      "ended and add "
                      "--resume {0}, or name another folder",
                      folder, holder);
        sleep_for(kLook);
    }
    const std::string own = fmt::format("process {} on host {}", getpid(), host_name());
    if (ftruncate(descriptor_, 0) != 0 || pwrite(descriptor_, own.data(), own.size(), 0) < 0) {
        const int reason = errno;
        close(std::exchange(descriptor_, -1));
        fail_with(ExitCode::RunFailed, "cannot lock the folder '{}': {}", folder, std::strerror(reason));
    }
}

FolderLock::~FolderLock() {
    if (descriptor_ < 0)
        return;
    unlink(path_.c_str());  // before the lock is released: a process that has opened the file checks its name
    close(descriptor_);
}

}  // namespace pw
