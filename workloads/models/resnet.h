// Residual networks of bottleneck blocks. Layers carry torchvision's names.
#pragma once

#include "workloads/models/layer_graph.h"

#include <array>
#include <string>

namespace pw {

// Builds version 1.5: the 3x3 convolution has the stride (torchvision). Throws Error (BadInput) for images below 32x32.
Model build_resnet50(int image_size, int classes, LayerKind loss = LayerKind::CrossEntropy);

// The differences within the family: bottleneck blocks per group, and channels of the first group's inner convolutions.
struct ResNetShape {
    std::array<int, 4> blocks = {3, 4, 6, 3};
    int width = 64;
};
Model build_resnet(const std::string& name, const ResNetShape& shape, int image_size, int classes,
                   LayerKind loss = LayerKind::CrossEntropy);

}  // namespace pw
