// The samples of the micro-batches of a training. Mini-batches follow each other in the endless sequence of samples
// without gaps. The last micro-batch of a mini-batch may be smaller than the rest.
#pragma once

#include "workloads/costs/costs.h"

#include <cstdint>
#include <string>
#include <vector>

namespace pw {

struct MicroBatchSizes {
    int full = 1;                 // samples of a micro-batch, except perhaps the last of a mini-batch
    int per_mini_batch = 1;       // micro-batches
    std::int64_t mini_batch = 1;  // samples

    // Returns the number of a micro-batch's first sample in the endless sequence. Micro-batches count on from
    // mini-batch to mini-batch.
    std::int64_t first_sample(std::int64_t microbatch) const {
        return microbatch / per_mini_batch * mini_batch + microbatch % per_mini_batch * full;
    }
    int of(std::int64_t microbatch) const {
        return static_cast<int>(first_sample(microbatch + 1) - first_sample(microbatch));
    }
    int last() const { return of(per_mini_batch - 1); }  // size of a mini-batch's last micro-batch
    bool is_even() const { return last() == full; }
    std::vector<int> different() const;  // sizes, ascending
};

std::string print(const MicroBatchSizes& sizes);  // "4 micro-batches of 3, the last of 1"

// Adds the costs of a mini-batch's last micro-batch if it is smaller. `last` are costs at its size. Its buffers are as
// large as a full micro-batch's.
void add_last(Costs& costs, const Costs& last);

// Returns the costs of a split, with a smaller last micro-batch if the mini-batch has one.
Costs costs_of(const Model& model, const StageSplit& split, const Profile& profile, const MicroBatchSizes& sizes);

}  // namespace pw
