// The samples, labels and losses of a step, by micro-batch or slice of it.
#pragma once

#include "exec/kernels.h"
#include "exec/training/shared_array.h"
#include "schedules/plan/plan.h"
#include "workloads/costs/micro_batch_sizes.h"
#include "workloads/data/dataset.h"

#include <cstddef>
#include <functional>
#include <span>

namespace pw {

class BatchData {
public:
    BatchData(const Dataset& data, const MicroBatchSizes& sizes, const Shape& shape)
        : data_(data), sizes_(sizes), shape_(shape) {}

    // Make room for the data of a stage: a stage that reads data needs samples, one with the loss layer needs
    // labels and losses.
    void add_samples(const Kernels& kernels);
    void add_labels(const Kernels& kernels);

    // Sets the samples of a step and their labels. sample(microbatch, number) returns each sample.
    void set(const std::function<Sample(int microbatch, int number)>& sample);

    // Return the samples of a micro-batch, and their labels in the same order. The span is empty if there is no room
    // for them.
    std::span<const Sample> samples(int microbatch) const;
    std::span<const int> labels(int microbatch) const;
    // Returns the address of the sum of a micro-batch's losses, or null if there is no room for it.
    double* loss(int microbatch) const { return losses_.data() == nullptr ? nullptr : losses_.data() + microbatch; }

private:
    template <class Value>
    std::span<const Value> of(const Value* all, int per_sample, int microbatch) const;
    int samples_of(int microbatch) const { return sizes_.of(shape_.whole_of(microbatch)); }
    std::size_t count() const;  // the number of samples with micro-batches of full size

    const Dataset& data_;
    const MicroBatchSizes& sizes_;
    const Shape& shape_;
    SharedArray<Sample> samples_;
    SharedArray<int> labels_;  // [sample][position]
    SharedArray<double> losses_;
};

}  // namespace pw
