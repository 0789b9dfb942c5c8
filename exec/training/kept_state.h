// The state of a device that checkpoints contain.
#pragma once

#include "exec/training/held_stage.h"
#include "workloads/models/optimizer.h"
#include "workloads/models/parameters.h"

#include <map>
#include <memory>
#include <optional>
#include <vector>

namespace pw {

// `parameters` includes the statistics of the stages. `states` are the optimizer's: each is named by its parameter and
// state_suffix(), and is zero in the parts of other holders.
struct DeviceState {
    std::vector<NamedTensor> parameters, states;
};

// Returns what follows a parameter's name in the name of a state: OptimizerFacts::suffixes, and ".delta" for the
// average of the steps of weights.
std::string state_suffix(const OptimizerFacts& optimizer, int state);

class KeptState {
public:
    KeptState(const Kernels& kernels, int device, const HeldStages& stages, const Job& job)
        : kernels_(kernels),
          device_(device),
          stages_(stages),
          optimizer_(facts_of(job.setup.training.optimizer)),
          versions_(job.versions) {}

    std::vector<NamedTensor> newest_parameters() const { return parameters_in(newest()); }

    // Keeps the current state. With `copies`, for kernels whose work is done when a call returns, it copies the
    // blocks into memory that stays reserved, and take() makes the tensors later, while the device continues. Without
    // `copies` it makes the tensors at once.
    void keep(bool copies);
    bool is_kept() const { return is_kept_; }
    DeviceState take();  // called once after keep(), on any thread

private:
    struct Blocks {  // the blocks of a stage, null if the device does not have them
        const std::byte *weights = nullptr, *statistics = nullptr, *states = nullptr;
    };
    using BlocksOfStages = std::map<int, Blocks>;
    BlocksOfStages newest() const;
    template <class Act>
    void for_each_block(const BlocksOfStages& from, Act act) const;
    std::vector<NamedTensor> parameters_in(const BlocksOfStages& blocks) const;
    std::vector<NamedTensor> states_in(const BlocksOfStages& blocks) const;
    int states_of(int stage) const { return optimizer_.states + (versions_.corrects(stage) ? 1 : 0); }

    const Kernels& kernels_;
    const int device_;
    const HeldStages& stages_;
    const OptimizerFacts& optimizer_;
    const VersionTable& versions_;
    std::optional<DeviceState> tensors_;
    std::unique_ptr<Memory> memory_;  // of the copies
    BlocksOfStages copies_;
    bool is_kept_ = false;
};

}  // namespace pw
