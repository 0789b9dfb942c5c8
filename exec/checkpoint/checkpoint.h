// Checkpoints: all that a training goes on from, by the names of the parameters, whatever stages and devices there
// were.
//
//     DIR/step-00000012/model.safetensors      parameters and running averages, PyTorch's names and layouts;
//     __metadata__:
//                                              step, samples, seed, model, config
//     DIR/step-00000012/optimizer.safetensors  momentum, by the parameters' names
//     DIR/step-00000012/complete               the training, names, sizes and hashes of the other files
#pragma once

#include "job/config/config.h"
#include "workloads/models/parameters.h"

#include <cstdint>
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
    std::string model, config;  // the config for people
    std::string training;       // 16 hexadecimal digits: its first run drew them; empty in those of older versions
    std::vector<NamedTensor> parameters, momenta;  // by name
};

// Writes a checkpoint into a folder of its own under `root`, which is made. The folder appears with all its files at
// once. A checkpoint of the same training and step is replaced; throws Error (RunFailed) where anything else has the
// name, and when it cannot be written. Returns the folder.
std::string write_checkpoint(const std::string& root, const Checkpoint& checkpoint);

// Reads the checkpoint of a folder. Throws Error (CheckFailed) when it is not complete, not as it was written, or of
// another step than its name says; Error (BadInput) as read_tensors() does.
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

int step_in(const std::string& folder);  // in the name of a checkpoint's folder; -1 when it is not such a name

// Returns the training of the checkpoint in `folder`, whole or not, without reading its tensors; nothing where that is
// not said.
std::optional<std::string> training_in(const std::string& folder);

// Returns the entries of `root` that have the name of a checkpoint, whatever they are, the latest first.
std::vector<std::string> steps_in(const std::string& root);

// Returns whether a folder, not a link to one, holds a checkpoint's files and nothing else.
bool has_only_checkpoint(const std::string& folder);

// Removes the files of the checkpoint in `folder`, by their names, and the folder. At no time it holds a part of them.
// What holds anything else stays, as does what cannot be removed.
void remove_checkpoint(const std::string& folder);

// Throws Error (BadInput) when the training of `config` is not the one of the checkpoint: another model or mini-batch.
void check_resumes(const Config& config, const FoundCheckpoint& found, const LayerGraph& graph);

}  // namespace pw
