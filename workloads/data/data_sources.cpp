#include "workloads/data/data_sources.h"

#include "workloads/error.h"

#include <algorithm>
#include <iterator>

namespace pw {

namespace {

constexpr int kBytes = 256;  // the tokens of a text

Dataset open_cifar10(const std::string& path, const Model& model, std::int64_t seed) {
    return Dataset::cifar10(path, model.input.height, seed);
}

Dataset open_mnist(const std::string& path, const Model& model, std::int64_t seed) {
    return Dataset::mnist(path, model.input, seed);
}

Dataset open_text(const std::string& path, const Model& model, std::int64_t seed) {
    return Dataset::text(path, model.input.height, model.classes, seed);
}

constexpr DataSource kDataSources[] = {
    {"synthetic", std::nullopt, {1, 28, 28}, 0, nullptr},
    {"cifar10", Labels::PerImage, {3, 32, 32}, 10, open_cifar10},
    {"mnist", Labels::PerImage, {1, 28, 28}, 10, open_mnist},
    {"text", Labels::PerToken, {}, kBytes, open_text},
};

}  // namespace

std::span<const DataSource> data_sources() { return kDataSources; }

const DataSource& data_source(std::string_view name) {
    const auto found = std::ranges::find(kDataSources, name, &DataSource::name);
    if (found == std::end(kDataSources))
        fail("there is no data set '{}'", name);
    return *found;
}

Dataset made_up(Labels labels, const Model& model, std::int64_t seed) {
    switch (labels) {
        case Labels::PerPixel:
            return Dataset::segmentation(model.input, model.classes, seed);
        case Labels::PerToken:
            return Dataset::synthetic_text(model.input.height, model.classes, seed);
        case Labels::PerImage:
            break;
    }
    return Dataset::synthetic(model.input, model.classes, seed);
}

int default_image_size(const BuiltInModel& model, const DataSource& source) {
    return model.image_size > 0 ? model.image_size : source.image.height;
}

}  // namespace pw
