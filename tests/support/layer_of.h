// A layer of a model by its name.
#pragma once

#include "workloads/models/layer_graph.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string_view>

namespace pw {

inline const Layer& layer_of(const Model& model, std::string_view name) {
    const int number = find_layer(model.layers, name);
    EXPECT_GE(number, 0) << name;
    return model.layers[static_cast<std::size_t>(std::max(number, 0))];
}

}  // namespace pw
