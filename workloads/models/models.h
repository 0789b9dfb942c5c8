// The built-in models: a row of facts for each. The config's reader and printer, `list` and the choice of a data set
// use the rows. No other code names a model. A model is a file, which defines its row, and a line in models.cpp.
#pragma once

#include "workloads/models/layer_graph.h"

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace pw {

// The default number of pixels per side of an image.
inline constexpr int kUsualImageSize = 224;

// The keys of a config's workload block that give the shape of a model.
struct ModelOptions {
    int image_size = kUsualImageSize;  // per side
    int classes = 10;
    std::vector<int> hidden{512, 512};   // widths of the linear layers before the last
    int base_channels = 16, levels = 3;  // channels of the first level, times the image is halved
    int sequence_length = 64, vocabulary = 256, embedding = 128, blocks = 4, heads = 4;
    int key_value_heads = 0, inner = 0;  // 0: as many as heads, and LLaMA's width
    double rotary_base = 10'000;
    double dropout = 0;  // share of the values that are dropped, 0: no such layers
};

// The labels that a model is trained on: images with one label each, images with a label per pixel, or sequences of
// tokens, each labelled with the next token.
enum class Labels { PerImage, PerPixel, PerToken };

struct BuiltInModel {
    std::string_view name;
    std::string_view keys;  // of the workload block that only some models take, separated by blanks
    int image_size;         // default, 0: the data set's, whatever it is
    Labels labels;
    // Builds the model. Null for a model with times of stages and no layers. `channels` is the number of channels of
    // the data set's images, for models that take any number. Throws Error (BadInput) for options that do not fit
    // together.
    Model (*build)(const ModelOptions& options, int channels, LayerKind loss);
    // Returns the name of a layer or block in the model's common implementation in PyTorch. Null: the name is the same.
    std::string (*module_of)(const std::string& name) = nullptr;
};

// Returns all rows, in the order in which they are listed.
std::span<const BuiltInModel* const> built_in_models();
// Returns the row of this name, or null if there is none.
const BuiltInModel* find_model(std::string_view name);

bool takes_key(const BuiltInModel& model, std::string_view key);
bool reads_images(const BuiltInModel& model);
// Returns whether a built-in model of this name predicts the next token.
bool is_decoder(std::string_view name);

}  // namespace pw
