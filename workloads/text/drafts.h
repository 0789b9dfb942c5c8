// Drafts: the names under which files and folders are written until they are complete. A process that is killed leaves
// its drafts. The next process that writes into the same folder removes these drafts.
#pragma once

#include <functional>
#include <string>

namespace pw {

// Returns "FOLDER/.pipewright-HOST-PROCESS-NUMBER", of this process.
std::string draft_name(const std::string& folder, int number);

// Locks an open draft until it is closed, if the file system supports locks. Other processes then do not remove the
// draft, not even if processes of one host have numbers of their own, as in containers.
void hold_draft(int descriptor);

// Removes the drafts in `folder` whose process was on this host and has ended. Drafts of other processes stay, and so
// do links and pipes of such a name and drafts that cannot be removed.
void remove_dead_drafts(const std::string& folder);

// A new folder with the name of a draft in `home`.
class DraftFolder {
public:
    // `becomes` is the folder's name in messages. Throws Error (RunFailed) if the folder cannot be made.
    DraftFolder(const std::string& home, std::string becomes);
    ~DraftFolder();  // removes it, unless it was released
    DraftFolder(const DraftFolder&) = delete;
    DraftFolder& operator=(const DraftFolder&) = delete;

    const std::string& path() const { return path_; }
    // Calls `write` with the path. Errors name the file that the draft becomes.
    void fill(const std::function<void(const std::string& draft)>& write) const;
    void release();  // after it was renamed

private:
    std::string becomes_, path_;
    int descriptor_ = -1;
};

}  // namespace pw
