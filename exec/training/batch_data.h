// The samples, labels and losses of a step, by micro-batch.
#pragma once

#include "exec/kernels.h"
#include "exec/training/shared_array.h"
#include "workloads/costs/micro_batch_sizes.h"
#include "workloads/data/dataset.h"

#include <cstddef>
#include <functional>
#include <span>

namespace pw {

class BatchData {
public:
    BatchData(const Dataset& data, const MicroBatchSizes& sizes, int microbatches)
        : data_(data), sizes_(sizes), microbatches_(microbatches) {}

    // Make room for what a stage needs: one that reads data needs samples, one with the loss layer labels and losses.
    void add_samples(const Kernels& kernels);
    void add_labels(const Kernels& kernels);

    // Sets the samples of a step, of which sample(micro-batch, number in it) returns each, and their labels.
    void set(const std::function<Sample(int microbatch, int number)>& sample);

    // Return those of a micro-batch, labels in their order; nothing if there is no room.
    std::span<const Sample> samples(int microbatch) const;
    std::span<const int> labels(int microbatch) const;
    // Returns where the sum of the losses of a micro-batch is written; null if there is no room.
    double* loss(int microbatch) const { return losses_.data() == nullptr ? nullptr : losses_.data() + microbatch; }

private:
    template <class Value>
    std::span<const Value> of(const Value* all, int per_sample, int microbatch) const;
    std::size_t count() const;  // of samples, with micro-batches of full size

    const Dataset& data_;
    const MicroBatchSizes& sizes_;
    const int microbatches_;
    SharedArray<Sample> samples_;
    SharedArray<int> labels_;  // [sample][position]
    SharedArray<double> losses_;
};

}  // namespace pw
