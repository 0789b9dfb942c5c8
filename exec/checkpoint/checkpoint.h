// Checkpoints: all that a training goes on from, by the names of the parameters, whatever stages and devices there
// were.
//
//     DIR/step-00000012/model.safetensors      parameters and running averages, PyTorch's names and layouts;
//     __metadata__:
//                                              step, samples, seed, model, config
//     DIR/step-00000012/optimizer.safetensors  momentum, by the parameters' names
//     DIR/step-00000012/complete               written last: names, sizes and hashes of the other files
#pragma once

#include "exec/system/threads.h"
#include "job/config.h"
#include "workloads/models/parameters.h"

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace pw {

struct Checkpoint {
    int step = 0;              // mini-batches learnt from
    std::int64_t samples = 0;  // learnt from, in the order of the data
    std::int64_t seed = 0;
    std::string model, config;                     // the config for people
    std::vector<NamedTensor> parameters, momenta;  // by name
};

// Writes a checkpoint into a folder of its own under `root`, which is made. Whatever cuts it off leaves those before it
// as they are. Throws Error (RunFailed). Returns the folder.
std::string write_checkpoint(const std::string& root, const Checkpoint& checkpoint);

// Reads the checkpoint of a folder. Throws Error (CheckFailed) when it is not complete, or not as it was written.
Checkpoint read_checkpoint(const std::string& folder);

// Returns the checkpoint in `path`, or, where that is a folder of checkpoints, the latest that is whole, of those
// before the step `end`; `left_out` gets a line on each later one that is not whole. Throws Error (BadInput) when there
// is none, and as read_checkpoint() for one.
struct FoundCheckpoint {
    std::string folder;
    Checkpoint checkpoint;
};
FoundCheckpoint find_checkpoint(const std::string& path, std::vector<std::string>& left_out,
                                int end = std::numeric_limits<int>::max());
bool is_checkpoint(const std::string& path);  // or a folder of some

// Removes all but the `keep` latest whole checkpoints under `root`, and drafts that were cut off.
void remove_old_checkpoints(const std::string& root, int keep);

// Throws Error (BadInput) when the training of `config` is not the one of the checkpoint: another model or mini-batch.
void check_resumes(const Config& config, const FoundCheckpoint& found, const LayerGraph& graph);

// Writes checkpoints on a thread of its own, one at a time, which gives way to those that compute.
class CheckpointWriter {
public:
    CheckpointWriter(std::string root, int keep) : root_(std::move(root)), keep_(keep) {}
    ~CheckpointWriter();

    // Waits for the one before. `make` is called on the thread; what it throws, the next call does.
    void write(std::function<Checkpoint()> make);
    bool is_idle() const { return is_idle_; }
    // Waits until the last one is written. Returns why it, or one since the last call, could not be.
    std::vector<std::string> finish();

private:
    void wait();
    void write_it(const Checkpoint& checkpoint);

    const std::string root_;
    const int keep_;
    std::vector<std::string> failures_;
    std::exception_ptr cause_;  // why there was nothing to write
    std::atomic<bool> is_idle_{true};
    Thread thread_;
};

}  // namespace pw
