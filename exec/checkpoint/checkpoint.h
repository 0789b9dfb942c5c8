// Checkpoints: the state from which a training resumes, by the names of the parameters, independent of stages and
// devices.
//
//     DIR/step-00000012/model.safetensors      parameters and running averages, PyTorch's names and layouts.
//                                              __metadata__: step, samples, seed, model, config
//     DIR/step-00000012/optimizer.safetensors  the optimizer's states, by the parameters' names.
//                                              __metadata__: optimizer, updates
//     DIR/step-00000012/complete               the training, names, sizes and hashes of the other files
#pragma once

#include "job/setup/setup.h"
#include "workloads/models/parameters.h"

#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace pw {

struct Checkpoint {
    int step = 0;              // mini-batches trained on
    std::int64_t samples = 0;  // samples trained on, in the order of the data
    std::int64_t updates = 0;  // of every stage (several in a step of an asynchronous plan)
    std::int64_t seed = 0;
    std::string model, config;  // the config is for information only
    std::string training;       // 16 random hexadecimal digits of its first run, empty in checkpoints of older versions
    OptimizerKind optimizer = OptimizerKind::Sgd;
    std::vector<NamedTensor> parameters;  // by name
    std::vector<NamedTensor> states;      // of the optimizer, by the parameter's name and OptimizerFacts::suffixes
};

// Writes a checkpoint into a folder of its own under `root`, which is created if necessary. The folder appears with
// all its files at once. A checkpoint of the same training and step is replaced. Throws Error (RunFailed) if
// anything else has the name, and if the checkpoint cannot be written. Returns the folder.
std::string write_checkpoint(const std::string& root, const Checkpoint& checkpoint);

// Reads the checkpoint of a folder. Throws Error (CheckFailed) if it is not complete, not as it was written, or of
// another step than its name has. Throws Error (BadInput) as read_tensors() does.
Checkpoint read_checkpoint(const std::string& folder);

// Returns the checkpoint in `path`. If `path` is a folder of checkpoints, returns the latest complete checkpoint
// before the step `end`. `left_out` gets a line on each later checkpoint that is not complete. Throws Error (BadInput)
// if there is none, and as read_checkpoint() does for a single checkpoint.
struct FoundCheckpoint {
    std::string folder;
    Checkpoint checkpoint;
};
FoundCheckpoint find_checkpoint(const std::string& path, std::vector<std::string>& left_out,
                                int end = std::numeric_limits<int>::max());
bool is_checkpoint(const std::string& path);  // or a folder of checkpoints

int step_in(const std::string& folder);  // from the name of a checkpoint's folder (-1 for another name)

// Returns the training of the checkpoint in `folder`, complete or not, without reading its tensors, or nothing if
// it is not stored.
std::optional<std::string> training_in(const std::string& folder);

// Returns the entries of `root` with the name of a checkpoint, whatever they contain, the latest first.
std::vector<std::string> steps_in(const std::string& root);

// Returns whether a folder, not a link to a folder, contains a checkpoint's files and nothing else.
bool has_only_checkpoint(const std::string& folder);

// Removes the files of the checkpoint in `folder`, by their names, and the folder. The folder never contains only a
// part of them. A folder with other contents stays, as does a folder that cannot be removed.
void remove_checkpoint(const std::string& folder);

// Throws Error (BadInput) if the model, mini-batch, seed or optimizer of `setup` and of the checkpoint differ.
void check_resumes(const Setup& setup, const FoundCheckpoint& found, const LayerGraph& graph);

}  // namespace pw
