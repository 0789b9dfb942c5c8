// U-Net: what the way down saw at each size joins the way up at the same size.
#pragma once

#include "workloads/models/layer_graph.h"

namespace pw {

// Builds a model with a label per pixel. It has two 3x3 convolutions with batch norm and ReLU per level, down `levels`
// times by max pools while the channels double from `base_channels`, and back up beside the tensors of the way down.
// Throws Error (BadInput) when `levels` halvings do not divide the image.
Model build_unet(int image_size, int base_channels, int levels, int classes, LayerKind loss = LayerKind::CrossEntropy);

}  // namespace pw
