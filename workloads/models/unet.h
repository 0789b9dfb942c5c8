// U-Net: the tensors of the way down join the way up at the same size.
#pragma once

#include "workloads/models/layer_graph.h"

namespace pw {

// Builds a model with a label per pixel. A level is two 3x3 convolutions with batch norm and ReLU. `levels` max pools
// lead down while the channels double from `base_channels`. The way back up joins the tensors of the way down. Throws
// Error (BadInput) if the image cannot be halved `levels` times.
Model build_unet(int image_size, int base_channels, int levels, int classes, LayerKind loss = LayerKind::CrossEntropy);

}  // namespace pw
