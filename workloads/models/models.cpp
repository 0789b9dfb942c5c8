#include "workloads/models/models.h"

#include "workloads/error.h"

#include <algorithm>
#include <iterator>
#include <string>

namespace pw {

// Each row is defined where its layers are.
extern const BuiltInModel kResNet50, kMlp, kUNet, kGpt, kLlama;

namespace {

// The times of stages are in the config itself.
constexpr BuiltInModel kUniform{
    .name = "uniform", .keys = "", .image_size = kUsualImageSize, .labels = Labels::PerImage, .build = nullptr};

constexpr const BuiltInModel* kModels[] = {
    &kResNet50, &kMlp, &kUNet, &kGpt, &kLlama, &kUniform,
};

}  // namespace

std::span<const BuiltInModel* const> built_in_models() { return kModels; }

const BuiltInModel* find_model(std::string_view name) {
    const auto found = std::ranges::find(kModels, name, [](const BuiltInModel* model) { return model->name; });
    return found == std::end(kModels) ? nullptr : *found;
}

bool takes_key(const BuiltInModel& model, std::string_view key) {
    return fmt::format(" {} ", model.keys).find(fmt::format(" {} ", key)) != std::string::npos;
}

bool is_decoder(std::string_view name) {
    const BuiltInModel* model = find_model(name);
    return model != nullptr && model->labels == Labels::PerToken;
}

bool reads_images(const BuiltInModel& model) { return model.build != nullptr && model.labels != Labels::PerToken; }

}  // namespace pw
