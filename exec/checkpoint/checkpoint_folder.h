// The folder that a run writes its checkpoints into. It contains the checkpoints of one training. A single run at a
// time writes there.
#pragma once

#include "exec/checkpoint/checkpoint.h"
#include "exec/checkpoint/folder_lock.h"

#include <optional>
#include <string>

namespace pw {

// Throws Error (BadInput) if `root` contains entries that a run could mistake for its own checkpoints or would have
// to replace. Without `resumed`, or if it is in another folder, these are all checkpoints. If the run resumes from
// a checkpoint in `root`, these are checkpoints of another training, checkpoints of later steps, except the last step
// (`steps`), which may be repeated, and entries with the name of a later step that are not checkpoints of this
// training.
void check_own_folder(const std::string& root, const FoundCheckpoint* resumed, int steps);

class CheckpointFolder {
public:
    // Does not access the folder yet. `steps` is the number of steps of the whole training.
    CheckpointFolder(std::string root, int keep, int steps);
    ~CheckpointFolder();
    CheckpointFolder(const CheckpointFolder&) = delete;
    CheckpointFolder& operator=(const CheckpointFolder&) = delete;

    const std::string& root() const { return root_; }

    // Makes the folder, locks it until the object is destroyed, and removes the drafts of killed processes.
    // `resumed` is null if the training begins anew. Does nothing if it is open. Throws Error (RunFailed) if
    // another process has locked it, and as check_own_folder() does. The functions below need an open folder.
    void open(const FoundCheckpoint* resumed);

    // Writes a checkpoint of this training, and then removes all checkpoints of this training except the `keep`
    // latest. Throws as write_checkpoint() does.
    void write(Checkpoint checkpoint);

private:
    void remove_old(int latest) const;

    const std::string root_;
    const int keep_, steps_;
    bool is_made_ = false;  // whether this run has made the folder
    std::string training_;
    std::optional<FolderLock> lock_;
};

}  // namespace pw
