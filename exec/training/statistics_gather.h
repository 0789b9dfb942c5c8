// The running averages of batch norm: the update of a stage takes in what the forwards of its mini-batch have left.
#pragma once

#include "exec/training/batch_statistics.h"
#include "exec/training/held_stage.h"

#include <map>
#include <memory>
#include <vector>

namespace pw {

// `closing` is the task that ends a mini-batch: S, the sum of gradients, if the stage has several holders, since only
// there all of them have run their micro-batches and none has begun others; else U, the update.
class StatisticsGather {
public:
    explicit StatisticsGather(const DeviceScope& on) : on_(on) {}

    // To be called once, when all devices have placed their buffers.
    void list();
    // Copies what kernels here do not read on other devices. It is there after the next Peers::fetch().
    void copy(const Task& closing);
    // Updates the running averages, after copy().
    void gather(const Task& closing);

private:
    struct Stage {
        StatisticsTable batches;
        std::vector<std::byte*> copies;  // [micro-batch]; null if read where F has left them
        std::unique_ptr<Memory> memory;  // of the copies
    };
    std::vector<std::byte*> readable(int stage, Stage& state) const;

    const DeviceScope on_;
    std::map<int, Stage> stages_;  // those with running averages that are updated
};

}  // namespace pw
