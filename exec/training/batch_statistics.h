// The batch statistics that the forwards of a stage write for its updates.
#pragma once

#include "exec/kernels.h"

#include <memory>
#include <vector>

namespace pw {

// The table lists the blocks of a stage's micro-batches, in memory that the kernels of one device can read. It is
// made before the first step.
class StatisticsTable {
public:
    StatisticsTable() = default;
    // `blocks` and `samples` are by micro-batch. The blocks may be on any device.
    StatisticsTable(const Kernels& kernels, const std::vector<std::byte*>& blocks, const std::vector<int>& samples);

    // Returns the statistics of the micro-batches `first` to `last`.
    BatchStatistics of(int first, int last, bool deferred) const;

private:
    std::unique_ptr<Memory> memory_;
    std::span<const std::byte* const> blocks_;
    std::span<const int> samples_;
};

}  // namespace pw
