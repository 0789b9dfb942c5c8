#include "workloads/models/unet.h"

#include "workloads/error.h"
#include "workloads/models/model_builder.h"
#include "workloads/models/models.h"

namespace pw {

namespace {

// Two 3x3 convolutions, each with batch norm and ReLU.
int two_convolutions(Builder& build, const std::string& name, int input, int channels) {
    int last = input;
    for (int number = 1; number <= 2; ++number) {
        last = build.convolution(fmt::format("{}.conv{}", name, number), last, channels, 3, 1);
        last = build.batch_norm(fmt::format("{}.bn{}", name, number), last, true);
    }
    return last;
}

// Adds a level twice as high and wide, with half the channels, joined with `skip`.
int level_up(Builder& build, const std::string& name, int input, int skip) {
    const int channels = build.made_by(skip).channels;
    int last = build.upsample(name + ".upsample", input, 2);
    last = build.convolution(name + ".halve", last, channels, 3, 1);
    last = build.concat(name + ".concat", skip, last);
    return two_convolutions(build, name, last, channels);
}

void check_shape(int image_size, int base_channels, int levels, int classes) {
    if (base_channels < 1 || levels < 1 || levels > 8)
        fail("base_channels {}, levels {}: unet needs at least 1 channel and 1 to 8 levels", base_channels, levels);
    const int divisor = 1 << levels;
    if (image_size < divisor || image_size % divisor != 0)
        fail("image_size {}: unet with {} levels needs a multiple of {}, because it halves the image {} times",
             image_size, levels, divisor, levels);
    check_classes("unet", classes);
}

}  // namespace

Model build_unet(int image_size, int base_channels, int levels, int classes, LayerKind loss) {
    check_shape(image_size, base_channels, levels, classes);
    Model model{"unet", {3, image_size, image_size}, classes, {}};
    Builder build(model);
    std::vector<int> skips;
    int last = kData;
    for (int level = 1; level <= levels; ++level) {
        const std::string name = fmt::format("down{}", level);
        skips.push_back(two_convolutions(build, name, last, base_channels << (level - 1)));
        last = build.max_pool(name + ".pool", skips.back(), 2, 2);
    }
    last = two_convolutions(build, "bottom", last, base_channels << levels);
    for (int level = levels; level >= 1; --level)
        last = level_up(build, fmt::format("up{}", level), last, skips[static_cast<std::size_t>(level - 1)]);
    last = build.convolution("classifier", last, classes, 1, 1);
    build.loss(loss, last);
    return model;
}

extern const BuiltInModel kUNet{.name = "unet",
                                .keys = "base_channels levels",
                                .image_size = 64,
                                .labels = Labels::PerPixel,
                                .build = [](const ModelOptions& options, int, LayerKind loss) {
                                    return build_unet(options.image_size, options.base_channels, options.levels,
                                                      options.classes, loss);
                                }};

}  // namespace pw
