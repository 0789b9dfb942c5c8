// Parameters by name, in PyTorch's names and layouts, whatever a backend's own layout is.
#pragma once

#include "workloads/models/layer_graph.h"

#include <cstdint>
#include <string>
#include <vector>

namespace pw {

// The values of a parameter before the first update.
struct Start {
    enum class Spread { Constant, Normal, Uniform };
    Spread spread = Spread::Constant;
    double size = 0;  // by spread: the value, the deviation from 0, the bound on both sides of 0
};

struct ParameterShape {
    std::string name;        // "layer3.0.conv2.weight": layer name and PyTorch's suffix
    std::vector<int> shape;  // OIHW, {out, in} or {channels}
    bool trained = true;     // false: running_mean, running_var
    Start start = {};
    std::int64_t elements() const;
};

// Returns the parameters in the order weight, bias, running_mean, running_var, as far as the layer has them
// (LayerFacts::parameters). A layer that shares another layer's table has none.
std::vector<ParameterShape> parameters_of(const Layer& layer);

// Returns initial values by ParameterShape::start. Random values depend only on the name and the seed.
std::vector<float> initial_values(const ParameterShape& parameter, std::int64_t seed);

// Tensors in plain layout, ordered by name. The hash and the dumps consist of them.
struct NamedTensor {
    std::string name;
    std::vector<int> shape;
    std::vector<float> values;
};

// Returns 16 hexadecimal digits of xxHash64 over names, shapes and values, in order of layer names.
std::string hash_of(std::vector<NamedTensor> tensors);

}  // namespace pw
