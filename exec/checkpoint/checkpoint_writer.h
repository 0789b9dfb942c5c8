// Writes checkpoints, one at a time, on a thread of its own whose priority is lower than the priority of
// threads that compute.
#pragma once

#include "exec/checkpoint/checkpoint_folder.h"
#include "exec/system/threads.h"

#include <atomic>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace pw {

// Why checkpoints could not be written.
struct LostCheckpoints {
    std::vector<std::string> earlier;
    std::string last;  // empty if the last checkpoint was written
};

class CheckpointWriter {
public:
    // `folder` is null if nothing is to be written.
    explicit CheckpointWriter(std::shared_ptr<CheckpointFolder> folder) : folder_(std::move(folder)) {}
    ~CheckpointWriter();

    // Waits until the previous checkpoint is written. `make` is called on the thread. The next call throws its
    // exception.
    void write(std::function<Checkpoint()> make);
    bool is_idle() const { return is_idle_; }
    // Waits until the last checkpoint is written. Returns the checkpoints since the last call that could not be
    // written.
    LostCheckpoints finish();

private:
    void wait();
    void write_it(Checkpoint checkpoint);

    const std::shared_ptr<CheckpointFolder> folder_;
    LostCheckpoints lost_;
    std::exception_ptr cause_;  // the exception of `make`
    std::atomic<bool> is_idle_{true};
    Thread thread_;
};

}  // namespace pw
