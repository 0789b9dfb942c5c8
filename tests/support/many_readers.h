// A model with tensors that many layers read, to be cut into stages that all read them.
#pragma once

#include "workloads/models/model_builder.h"

#include <fmt/format.h>

#include <string>

namespace pw {

// Six residual blocks that all add the stem, whose tensor has eight readers; the output of the second block has three.
// The layer `side` has an early number and can be in any stage.
inline Model model_of_many_readers() {
    constexpr int kChannels = 4;
    Model model{"many readers", {3, 8, 8}, 10, {}};
    Builder build(model);
    const int stem = build.batch_norm("stem.bn", build.convolution("stem.conv", kData, kChannels, 3, 1), true);
    const int side = build.convolution("side", stem, kChannels, 1, 1);
    int last = stem, second = stem;
    for (int block = 1; block <= 6; ++block) {
        const std::string name = fmt::format("block{}", block);
        last = build.convolution(name + ".conv", last, kChannels, 3, 1);
        last = build.batch_norm(name + ".bn", last, false);
        last = build.add_relu(name + ".add", last, stem);
        if (block == 2)
            second = last;
        if (block == 4 || block == 5)
            last = build.add_relu(name + ".again", last, second);
    }
    last = build.concat("join", last, side);
    last = build.linear("fc", build.average_pool("pool", last), 10);
    build.loss(LayerKind::CrossEntropy, last);
    return model;
}

inline constexpr const char* kManyReaders = R"(
workload: {model: resnet50, image_size: 32, classes: 10}
pipeline: {schedule: 1f1b, micro_batches: 4, micro_batch_size: 2}
training: {steps: 2, learning_rate: 0.05, seed: 3}
)";

}  // namespace pw
