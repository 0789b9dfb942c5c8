// Writes checkpoints on a thread of its own, one at a time, which gives way to those that compute.
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
    std::string last;  // empty: it was
};

class CheckpointWriter {
public:
    // `folder` is null where nothing is written.
    explicit CheckpointWriter(std::shared_ptr<CheckpointFolder> folder) : folder_(std::move(folder)) {}
    ~CheckpointWriter();

    // Waits for the one before. `make` is called on the thread; what it throws, the next call does.
    void write(std::function<Checkpoint()> make);
    bool is_idle() const { return is_idle_; }
    // Waits until the last one is written. Returns which since the last call could not be.
    LostCheckpoints finish();

private:
    void wait();
    void write_it(Checkpoint checkpoint);

    const std::shared_ptr<CheckpointFolder> folder_;
    LostCheckpoints lost_;
    std::exception_ptr cause_;  // why there was nothing to write
    std::atomic<bool> is_idle_{true};
    Thread thread_;
};

}  // namespace pw
