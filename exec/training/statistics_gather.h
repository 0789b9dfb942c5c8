// The running averages of batch norm, which the statistics of a mini-batch's forwards update.
#pragma once

#include "exec/training/batch_statistics.h"
#include "exec/training/held_stage.h"

#include <map>
#include <memory>
#include <vector>

namespace pw {

// `closing` is the task that ends a mini-batch. If the stage has several holders, it is S, the sum of gradients:
// only there all holders have run their micro-batches and none has begun the next ones. Otherwise it is U, the
// update, which for a stage that runs forwards only stands for the end of the step.
class StatisticsGather {
public:
    explicit StatisticsGather(const DeviceScope& on) : on_(on) {}

    // Called once, when all devices have placed their buffers.
    void list();
    // Copies the blocks of other devices that kernels here cannot read. The copies are complete after the next
    // Peers::fetch().
    void copy(const Task& closing);
    // Updates the running averages, after copy().
    void gather(const Task& closing);

private:
    struct Stage {
        StatisticsTable batches;
        std::vector<std::byte*> copies;  // [micro-batch], null if the block is read without a copy
        std::unique_ptr<Memory> memory;  // of the copies
    };
    std::vector<std::byte*> readable(int stage, Stage& state) const;

    const DeviceScope on_;
    std::map<int, Stage> stages_;  // the stages with running averages
};

}  // namespace pw
