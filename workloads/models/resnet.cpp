#include "workloads/models/resnet.h"

#include "workloads/error.h"
#include "workloads/models/model_builder.h"
#include "workloads/models/models.h"

namespace pw {

namespace {

constexpr int kLeastImage = 32;  // ResNet divides height and width by 32
constexpr int kExpansion = 4;    // output channels of a bottleneck block per inner channel

// 1x1, 3x3 (with the stride), 1x1, and a shortcut that is projected where the shape changes.
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

Model build_resnet50(int image_size, int classes, LayerKind loss) {
    return build_resnet("resnet50", {}, image_size, classes, loss);
}

extern const BuiltInModel kResNet50{.name = "resnet50",
                                    .keys = "",
                                    .image_size = kUsualImageSize,
                                    .labels = Labels::PerImage,
                                    .build = [](const ModelOptions& options, int, LayerKind loss) {
                                        return build_resnet50(options.image_size, options.classes, loss);
                                    }};

}  // namespace pw
