// The built-in models. Layers carry torchvision's names.
#include "workloads/error.h"
#include "workloads/layer_graph.h"

namespace pw {

namespace {

constexpr int kLeastImage = 32;  // ResNet divides height and width by 32
constexpr int kData = -1;      // as an input: the data batch
constexpr int kExpansion = 4;  // output channels of a bottleneck block per inner channel

// Adds layers to a model; each call returns the number of the new layer.
class Builder {
public:
    explicit Builder(Model& model) : model_(model), graph_(model.layers) {}

    int convolution(const std::string& name, int input, int channels, int kernel, int stride) {
        const Dims in = made_by(input);
        return add({.name = name,
                    .kind = LayerKind::Convolution,
                    .input = in,
                    .output = {channels, windows(in.height, kernel, stride), windows(in.width, kernel, stride)},
                    .kernel = kernel,
                    .stride = stride,
                    .padding = kernel / 2},
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

    int max_pool(const std::string& name, int input, int kernel, int stride) {
        const Dims in = made_by(input);
        return add({.name = name,
                    .kind = LayerKind::MaxPool,
                    .input = in,
                    .output = {in.channels, windows(in.height, kernel, stride), windows(in.width, kernel, stride)},
                    .kernel = kernel,
                    .stride = stride,
                    .padding = kernel / 2},
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

    int loss(LayerKind kind, int input) {
        return add({.name = "loss", .kind = kind, .input = made_by(input), .output = {1, 1, 1}}, {input});
    }

private:
    // Places of a window padded by half its size.
    static int windows(int extent, int kernel, int stride) { return (extent + 2 * (kernel / 2) - kernel) / stride + 1; }

    Dims made_by(int layer) const { return layer == kData ? model_.input : graph_[layer].output; }

    int add(Layer layer, std::vector<int> inputs) {
        std::erase(inputs, kData);
        return add_layer(graph_, std::move(layer), inputs);
    }

    Model& model_;
    LayerGraph& graph_;
};

// 1x1, 3x3 (with the stride), 1x1, beside a shortcut that is projected where the shape changes.
int bottleneck(Builder& build, const std::string& name, int input, int channels, int stride, bool project) {
    int main = build.convolution(name + ".conv1", input, channels, 1, 1);
    main = build.batch_norm(name + ".bn1", main, true);
    main = build.convolution(name + ".conv2", main, channels, 3, stride);
    main = build.batch_norm(name + ".bn2", main, true);
    main = build.convolution(name + ".conv3", main, kExpansion * channels, 1, 1);
    main = build.batch_norm(name + ".bn3", main, false);
    int shortcut = input;
    if (project) {
        shortcut = build.convolution(name + ".downsample.0", input, kExpansion * channels, 1, stride);
        shortcut = build.batch_norm(name + ".downsample.1", shortcut, false);
    }
    return build.add_relu(name + ".add", main, shortcut);
}

void check_classes(const std::string& model, int classes) {
    if (classes < 1)
        fail("classes {}: {} needs at least 1", classes, model);
}

}  // namespace

Model build_resnet50(int image_size, int classes, LayerKind loss) {
    if (image_size < kLeastImage)
        fail("image_size {}: resnet50 needs at least {}, because it halves the image five times", image_size,
             kLeastImage);
    check_classes("resnet50", classes);
    Model model{"resnet50", {3, image_size, image_size}, classes, {}};
    Builder build(model);
    int last = build.convolution("conv1", kData, 64, 7, 2);
    last = build.batch_norm("bn1", last, true);
    last = build.max_pool("maxpool", last, 3, 2);
    const int blocks[] = {3, 4, 6, 3};
    for (int group = 0; group < 4; ++group)
        for (int block = 0; block < blocks[group]; ++block)
            last = bottleneck(build, fmt::format("layer{}.{}", group + 1, block), last, 64 << group,
                              group > 0 && block == 0 ? 2 : 1, block == 0);
    last = build.average_pool("avgpool", last);
    last = build.linear("fc", last, classes);
    build.loss(loss, last);
    return model;
}

Model build_mlp(Dims input, int classes, const std::vector<int>& hidden, LayerKind loss) {
    if (input.channels < 1 || input.height < 1 || input.width < 1)
        fail("input {}x{}x{}: mlp needs at least 1x1x1", input.channels, input.height, input.width);
    check_classes("mlp", classes);
    Model model{"mlp", input, classes, {}};
    Builder build(model);
    int last = kData;
    std::vector<int> widths = hidden;
    widths.push_back(classes);
    for (std::size_t number = 1; number <= widths.size(); ++number) {
        last = build.linear(fmt::format("fc{}", number), last, widths[number - 1]);
        last = build.relu(fmt::format("relu{}", number), last);
    }
    build.loss(loss, last);
    return model;
}

}  // namespace pw
