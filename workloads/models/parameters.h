// Parameters by name, in PyTorch's names and layouts, whatever a backend does with them inside.
#pragma once

#include "workloads/models/layer_graph.h"

#include <cstdint>
#include <string>
#include <vector>

namespace pw {

struct ParameterShape {
    std::string name;            // "layer3.0.conv2.weight": layer name and PyTorch's suffix
    std::vector<int> shape;      // OIHW, {out, in} or {channels}
    bool trained = true;         // false: running_mean, running_var
    std::int64_t elements() const;
};

// weight; weight, bias, running_mean, running_var; weight, bias; in this order.
std::vector<ParameterShape> parameters_of(const Layer& layer);

// Initial values from the name and the seed alone: He normal (fan out) for convolutions, ones and
// zeros for batch norm, uniform +-1/sqrt(fan in) for linear layers: torchvision's choices.
std::vector<float> initial_values(const Layer& layer, const ParameterShape& parameter, std::int64_t seed);

// Tensors in plain layout, ordered by name: what the hash and the dumps are made of.
struct NamedTensor {
    std::string name;
    std::vector<int> shape;
    std::vector<float> values;
};

// 16 hexadecimal digits of xxHash64 over names, shapes and values, in order of layer names.
std::string hash_of(std::vector<NamedTensor> tensors);

}  // namespace pw
