// The layers of the layer tests, each with a name.
#pragma once

#include "tests/support/layer_rig.h"

#include <gtest/gtest.h>

#include <ostream>
#include <string>

namespace pw {

inline constexpr double kTolerance = 1e-5;  // of fp32 kernels, relative to the norm of a tensor

struct LayerCase {
    std::string name;
    Layer layer;
    int samples;
    int per_block = 0;  // channels in a block; 0 for what this machine has
};

inline void PrintTo(const LayerCase& tested, std::ostream* out) { *out << tested.name; }
inline std::string name_of_case(const testing::TestParamInfo<LayerCase>& tested) { return tested.param.name; }

inline Layer dropout(Dims input, double probability) {
    Layer layer = make_layer(LayerKind::Dropout, input, input.channels);
    layer.probability = probability;
    return layer;
}

}  // namespace pw
