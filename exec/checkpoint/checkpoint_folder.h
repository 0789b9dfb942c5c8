// The folder that a run writes its checkpoints into. It holds those of one training, of one run at a time.
#pragma once

#include "exec/checkpoint/checkpoint.h"
#include "exec/checkpoint/folder_lock.h"

#include <optional>
#include <string>

namespace pw {

// Throws Error (BadInput) when `root` holds what a run that writes there could take for its own or would have to
// replace. Without `resumed`, or when that lies elsewhere, any checkpoint is such. When it goes on from one in `root`,
// those of another training are, those of later steps but the last, `steps`, which may be done again, and what is no
// checkpoint of this training under the name of a later step.
void check_own_folder(const std::string& root, const FoundCheckpoint* resumed, int steps);

class CheckpointFolder {
public:
    // Touches nothing yet. `steps`: of the whole training.
    CheckpointFolder(std::string root, int keep, int steps);
    ~CheckpointFolder();
    CheckpointFolder(const CheckpointFolder&) = delete;
    CheckpointFolder& operator=(const CheckpointFolder&) = delete;

    const std::string& root() const { return root_; }

    // Makes the folder, locks it until the object ends, and removes the drafts of killed processes; `resumed` is null
    // where the training begins. Does nothing when it is open. Throws Error (RunFailed) when another process has it,
    // and as check_own_folder() does. It is to be open for all that follows.
    void open(const FoundCheckpoint* resumed);

    // Writes a checkpoint of this training, and then removes all of this training but the `keep` latest. Throws as
    // write_checkpoint() does.
    void write(Checkpoint checkpoint);

private:
    void remove_old(int latest) const;

    const std::string root_;
    const int keep_, steps_;
    bool is_made_ = false;  // by this run
    std::string training_;
    std::optional<FolderLock> lock_;
};

}  // namespace pw
