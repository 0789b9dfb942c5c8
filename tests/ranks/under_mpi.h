// Small plans on ranks, under every installed MPI.
#pragma once

#include "tests/support/mpi_rig.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace pw {

class UnderMpi : public MpiRig {
protected:
    void SetUp() override {
        MpiRig::SetUp();
        write("four.yaml", R"(
workload: {model: mlp, hidden: [32, 32, 32, 32, 32, 32, 32]}
cluster: {devices: 4}
pipeline: {schedule: 1f1b, micro_batches: 8, micro_batch_size: 2}
training: {steps: 3}
run: {timeout: 60 s}
)");
        write("gpt.yaml", R"(
workload: {model: gpt, sequence_length: 16, vocabulary: 64, embedding: 32, blocks: 4, heads: 2}
cluster: {devices: 4}
pipeline: {schedule: 1f1b, micro_batches: 4, micro_batch_size: 2}
training: {steps: 3}
run: {timeout: 60 s}
)");
        write("unet.yaml", R"(
workload: {model: unet, image_size: 16, classes: 4, base_channels: 16, levels: 2}
cluster: {devices: 4}
pipeline: {schedule: 1f1b, split: even, stages: 2, replicas: [2, 2], micro_batches: 4, micro_batch_size: 2}
training: {steps: 2}
run: {timeout: 60 s}
)");
    }
};

// What depends on the MPI: its launcher, how it ends ranks, its messages and clocks.
class UnderEveryMpi : public UnderMpi {};

}  // namespace pw
