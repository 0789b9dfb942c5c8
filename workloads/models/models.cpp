// The built-in models. Layers carry torchvision's names.
#include "workloads/error.h"
#include "workloads/models/model_builder.h"

namespace pw {

namespace {

constexpr int kLeastImage = 32;  // ResNet divides height and width by 32
constexpr int kExpansion = 4;  // output channels of a bottleneck block per inner channel

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

}  // namespace

Model build_resnet50(int image_size, int classes, LayerKind loss) {
    return build_resnet("resnet50", {}, image_size, classes, loss);
}

Model build_resnet(const std::string& name, const ResNetShape& shape, int image_size, int classes, LayerKind loss) {
    if (image_size < kLeastImage)
        fail("image_size {}: {} needs at least {}, because it halves the image five times", image_size, name,
             kLeastImage);
    check_classes(name, classes);
    Model model{name, {3, image_size, image_size}, classes, {}};
    Builder build(model);
    int last = build.convolution("conv1", kData, shape.width, 7, 2);
    last = build.batch_norm("bn1", last, true);
    last = build.max_pool("maxpool", last, 3, 2);
    for (int group = 0; group < 4; ++group)
        for (int block = 0; block < shape.blocks[group]; ++block)
            last = bottleneck(build, fmt::format("layer{}.{}", group + 1, block), last, shape.width << group,
                              group > 0 && block == 0 ? 2 : 1, block == 0);
    last = build.average_pool("avgpool", last);
    last = build.linear("fc", last, classes);
    build.loss(loss, last);
    return model;
}

Model build_mlp(Dims input, int classes, const std::vector<int>& hidden, LayerKind loss, double dropout) {
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
        if (dropout > 0 && number < widths.size())
            last = build.dropout(fmt::format("dropout{}", number), last, dropout);
    }
    build.loss(loss, last);
    return model;
}

}  // namespace pw
