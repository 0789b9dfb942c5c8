// The lock of a folder of checkpoints: only one process at a time writes there.
#pragma once

#include <string>

namespace pw {

// Holds flock(2) on the file `pipewright.lock` of a folder, which names the process. The system releases the lock
// when the process ends, in whatever way. A file that is left over locks nothing. If the file system has no such
// locks, the object does nothing.
class FolderLock {
public:
    // Waits up to two seconds for a process that is about to end. Throws Error (RunFailed) that names the host and
    // the number of the process that has the lock.
    explicit FolderLock(const std::string& folder);
    ~FolderLock();
    FolderLock(const FolderLock&) = delete;
    FolderLock& operator=(const FolderLock&) = delete;

private:
    std::string path_;
    int descriptor_ = -1;
};

}  // namespace pw
