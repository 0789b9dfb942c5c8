// S, the sum of gradients over the holders of a stage and over stages that share a parameter.
#pragma once

#include "exec/training/held_stage.h"
#include "exec/training/layouts.h"

#include <cstddef>
#include <memory>
#include <vector>

namespace pw {

class BucketedSum;
class StatisticsGather;

// Every device sums its share of the bytes of all blocks, and copies the remaining shares from the devices that have
// summed them. A device first fetches the bytes that its kernels cannot read.
class GradientSum {
public:
    explicit GradientSum(const DeviceScope& on) : on_(on) {}

    // Reserves memory for fetched summands. Called once, when all devices have placed their buffers.
    void reserve();
    Bytes reserved() const { return fetched_ ? fetched_->size() : 0; }

    // Does an S. The first S of the device in its barrier sums all of its stages there. Between the first and the
    // last wait at the barrier every device may read the blocks of all devices, and no device writes bytes that
    // another device reads. `buckets` is not null if the bucket thread sums the stage.
    void sum(int node, StatisticsGather& statistics, BucketedSum* buckets);
    // Completes the gradients of a stage before its U. A stage without S has one holder, and shares no table with
    // other stages.
    void complete(int stage);

    // The steps of a sum. list() lists the device's share of the bytes of a stage, or of a table, as an addition,
    // and requests the fetches of its summands. add() does the listed additions. copy() copies the shares of the
    // remaining devices.
    void list(int stage, const Extent& bytes);
    void copy(int stage, const Extent& bytes);
    void list(const SharedTable& table);
    void copy(const SharedTable& table);
    void add();

private:
    struct Addition {
        std::vector<const std::byte*> from;  // the summands, in their order
        std::byte* to = nullptr;
        Bytes bytes = 0;
    };
    Addition& next_addition(std::byte* to, Bytes bytes);
    const std::byte* readable(int device, const std::byte* block, Bytes bytes);
    std::byte* gradient_of(int device, int layer) const;

    const DeviceScope on_;
    std::vector<Addition> additions_;
    std::size_t listed_ = 0;           // number of additions in use
    std::unique_ptr<Memory> fetched_;  // summands of other devices
    Bytes used_ = 0;                   // the part of fetched_ in use
};

}  // namespace pw
