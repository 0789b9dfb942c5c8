// A builder that adds layers in sequence. The built-in models use the builder.
#pragma once

#include "workloads/error.h"
#include "workloads/models/layer_graph.h"

#include <string>
#include <utility>
#include <vector>

namespace pw {

constexpr int kData = -1;  // as an input: the data batch

// Adds layers to a model. Each call returns the number of the new layer.
class Builder {
public:
    explicit Builder(Model& model) : model_(model), graph_(model.layers) {}

    // Convolutions are padded by half the kernel.
    int convolution(const std::string& name, int input, int channels, int kernel, int stride) {
        const Dims in = made_by(input);
        const int padding = kernel / 2;
        return add({.name = name,
                    .kind = LayerKind::Convolution,
                    .input = in,
                    .output = {channels, windows(in.height, kernel, stride, padding),
                               windows(in.width, kernel, stride, padding)},
                    .kernel = kernel,
                    .stride = stride,
                    .padding = padding},
                   {input});
    }

    int batch_norm(const std::string& name, int input, bool relu) {
        const Dims in = made_by(input);
        return add({.name = name, .kind = LayerKind::BatchNorm, .input = in, .output = in, .relu = relu}, {input});
    }

    int relu(const std::string& name, int input) {
        const Dims in = made_by(input);
        return add({.name = name, .kind = LayerKind::Relu, .input = in, .output = in}, {input});
    }

    int add_relu(const std::string& name, int first, int second) {
        const Dims in = made_by(first);
        return add({.name = name, .kind = LayerKind::Add, .input = in, .output = in, .relu = true}, {first, second});
    }

    // Pools are padded as convolutions are where windows overlap.
    int max_pool(const std::string& name, int input, int kernel, int stride) {
        const Dims in = made_by(input);
        const int padding = kernel > stride ? kernel / 2 : 0;
        return add({.name = name,
                    .kind = LayerKind::MaxPool,
                    .input = in,
                    .output = {in.channels, windows(in.height, kernel, stride, padding),
                               windows(in.width, kernel, stride, padding)},
                    .kernel = kernel,
                    .stride = stride,
                    .padding = padding},
                   {input});
    }

    int average_pool(const std::string& name, int input) {
        const Dims in = made_by(input);
        return add({.name = name, .kind = LayerKind::AveragePool, .input = in, .output = {in.channels, 1, 1}}, {input});
    }

    int linear(const std::string& name, int input, int channels) {
        return add({.name = name, .kind = LayerKind::Linear, .input = made_by(input), .output = {channels, 1, 1}},
                   {input});
    }

    int concat(const std::string& name, int first, int second) {
        const Dims in = made_by(first);
        return add({.name = name,
                    .kind = LayerKind::Concat,
                    .input = in,
                    .output = {in.channels + made_by(second).channels, in.height, in.width}},
                   {first, second});
    }

    int upsample(const std::string& name, int input, int times) {
        const Dims in = made_by(input);
        return add({.name = name,
                    .kind = LayerKind::Upsample,
                    .input = in,
                    .output = {in.channels, in.height * times, in.width * times},
                    .stride = times},
                   {input});
    }

    int dropout(const std::string& name, int input, double probability) {
        const Dims in = made_by(input);
        return add({.name = name, .kind = LayerKind::Dropout, .input = in, .output = in, .probability = probability},
                   {input});
    }

    int loss(LayerKind kind, int input) {
        return add({.name = "loss", .kind = kind, .input = made_by(input), .output = {1, 1, 1}}, {input});
    }

    Dims made_by(int layer) const { return layer == kData ? model_.input : graph_[layer].output; }

    // Adds a layer of any kind.
    int add(Layer layer, std::vector<int> inputs) {
        std::erase(inputs, kData);
        return add_layer(graph_, std::move(layer), inputs);
    }

private:
    static int windows(int extent, int kernel, int stride, int padding) {
        return (extent + 2 * padding - kernel) / stride + 1;
    }

    Model& model_;
    LayerGraph& graph_;
};

inline void check_classes(const std::string& model, int classes) {
    if (classes < 1)
        fail("classes {}: {} needs at least 1", classes, model);
}

}  // namespace pw
