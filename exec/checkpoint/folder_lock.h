// One process at a time writes checkpoints into a folder.
#pragma once

#include <string>

namespace pw {

// Holds flock(2) on the file `pipewright.lock` of a folder, which says whose it is. The system lets go of it with the
// process, however that ends: what is left of the file then keeps nobody out. Where the file system has no such locks
// it does nothing.
class FolderLock {
public:
    // Gives a process that ends two seconds. Throws Error (RunFailed) naming the host and the number of the process
    // that has it.
    explicit FolderLock(const std::string& folder);
    ~FolderLock();
    FolderLock(const FolderLock&) = delete;
    FolderLock& operator=(const FolderLock&) = delete;

private:
    std::string path_;
    int descriptor_ = -1;
};

}  // namespace pw
