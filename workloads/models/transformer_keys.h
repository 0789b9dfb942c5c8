// Keys of a config.json by the names of all families, and what the code of a family fixes.
#pragma once

#include "workloads/models/transformer.h"
#include "workloads/text/yaml.h"

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

namespace pw {

// What the code of a family has where its files do not say otherwise.
struct Family {
    std::string_view type;  // the beginning of model_type
    bool is_whole = false;  // `type` is the whole model_type
    NormKind norm = NormKind::RmsNorm;
    PositionKind position = PositionKind::Rotary;
    bool gated = true;
    bool bias = false;
    bool attention_bias = false;
    bool normed_heads = false;
    bool tied = false;
    bool post_norms = false;
    bool parallel = false;
    int ffn_of_hidden = 0;  // width of the MLP in hidden sizes, 0: files say it
    int full_every = 0;     // distance of layers with full attention, the last of each group, 0: all have the window
    int heads = 0, key_value_heads = 0, head_width = 0, vocabulary = 0;  // 0: files say them
    Mixer mixer = Mixer::Attention;                                      // of layers that no key describes
    Feed feed = Feed::Mlp;
};
// Returns the family of `at`, which is the file or its part for text. The MLP of another type may have other matrices
// if the function between them is not llama's: a mistake.
const Family& family_of(const Yaml& root, const Yaml& at);
// Notes the mistake that the model has layers of other kinds, or an encoder.
void refuse_other_kinds(const Yaml& root, const Yaml& at, const Family& family);
// Returns the parts of the file that change costs and are not counted, each in a few words.
std::vector<std::string> parts_not_counted(const Yaml& root, const Yaml& at, const Family& family);

// Bounds with which the parameters of a model stay far below 2^63.
inline constexpr std::int64_t kMostHidden = 1 << 17, kMostWidth = 1 << 20, kMostHeads = 1 << 12,
                              kMostHeadWidth = 1 << 12, kMostExperts = 1 << 12, kMostTransformerLayers = 1 << 10,
                              kMostWords = 1 << 24, kMostPatch = 1 << 10, kMostImage = 1 << 15,
                              kMostPositions = 1 << 30, kMostTransformerParameters = 1'000'000'000'000'000;

using KeyNames = std::initializer_list<std::string_view>;

// Returns the value under the first of the names that has one.
Yaml first_of(const Yaml& at, KeyNames names);
// Returns the number under one of the names, whose values must be equal.
int number_or(const Yaml& at, KeyNames names, std::int64_t fallback, std::int64_t least, std::int64_t most);
// The same for a number that the file must have, unless the family has a fallback above 0.
int needed_number(const Yaml& at, KeyNames names, std::int64_t most, int fallback = 0);
bool flag_or(const Yaml& value, bool fallback);

// Read what the layers of a model have, whose width and number are known.
void read_experts(const Yaml& at, Transformer& model);
void read_mamba(const Yaml& at, const Family& family, Transformer& model);
void read_forms(const Yaml& at, const Family& family, Transformer& model);

}  // namespace pw
