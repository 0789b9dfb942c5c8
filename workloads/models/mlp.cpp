#include "workloads/models/mlp.h"

#include "workloads/error.h"
#include "workloads/models/model_builder.h"
#include "workloads/models/models.h"

namespace pw {

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

extern const BuiltInModel kMlp{.name = "mlp",
                               .keys = "hidden dropout",
                               .image_size = 0,
                               .labels = Labels::PerImage,
                               .build = [](const ModelOptions& options, int channels, LayerKind loss) {
                                   const Dims image{channels, options.image_size, options.image_size};
                                   return build_mlp(image, options.classes, options.hidden, loss, options.dropout);
                               }};

}  // namespace pw
