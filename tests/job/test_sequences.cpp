// Data sets of tokens, and the errors of configs with the models gpt and llama.
#include "job/build.h"
#include "job/config/config.h"
#include "job/load.h"
#include "tests/support/layer_of.h"
#include "tests/support/refusal.h"
#include "tests/support/temporary_folder.h"
#include "workloads/data/dataset.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

namespace pw {
namespace {

struct Sequence {
    std::vector<float> tokens;
    std::vector<int> labels;
};

Sequence sequence_at(const Dataset& data, int place) {
    Sequence read{std::vector<float>(static_cast<std::size_t>(data.input().elements())),
                  std::vector<int>(static_cast<std::size_t>(data.labels_per_sample()))};
    data.read_at({.place = place}, read.tokens);
    data.labels_at({.place = place}, read.labels);
    return read;
}

TEST(Sequences, AreWindowsOfTheStreamAndTheirLabelsTheNextTokens) {
    const Dataset data = Dataset::sequences({5, 3, 9, 0, 7, 2, 8, 1}, 3, 10, 1);
    EXPECT_EQ(data.input(), (Dims{1, 3, 1}));
    EXPECT_EQ(data.classes(), 10);
    EXPECT_EQ(data.labels_per_sample(), 3);
    ASSERT_EQ(data.samples(), 2);
    EXPECT_EQ(sequence_at(data, 0).tokens, (std::vector<float>{5, 3, 9}));
    EXPECT_EQ(sequence_at(data, 0).labels, (std::vector<int>{3, 9, 0}));
    EXPECT_EQ(sequence_at(data, 1).tokens, (std::vector<float>{0, 7, 2}));
    EXPECT_EQ(sequence_at(data, 1).labels, (std::vector<int>{7, 2, 8}));
}

TEST(Sequences, ComeOnceInEveryEpoch) {
    const Dataset data = Dataset::synthetic_text(16, 20, 3);
    std::set<int> places;
    for (int index = 0; index < data.samples(); ++index)
        places.insert(data.place(index));
    EXPECT_EQ(static_cast<int>(places.size()), data.samples());
}

TEST(SyntheticText, DependsOnlyOnTheSeed) {
    const Dataset first = Dataset::synthetic_text(8, 50, 1), same = Dataset::synthetic_text(8, 50, 1),
                  other = Dataset::synthetic_text(8, 50, 2);
    EXPECT_TRUE(std::ranges::equal(first.tokens(), same.tokens()));
    EXPECT_FALSE(std::ranges::equal(first.tokens(), other.tokens()));
    EXPECT_EQ(first.samples(), 2048);
    EXPECT_EQ(Dataset::synthetic_text(65'536, 50, 1).samples(), 64);
}

// Half of the time the first of four successors follows: a model can reach 7/4 bits per token.
TEST(SyntheticText, HasFourSuccessorsOfEveryToken) {
    constexpr int kVocabulary = 60;
    const Dataset data = Dataset::synthetic_text(64, kVocabulary, 7);
    std::map<int, std::map<int, int>> followed;
    for (std::size_t i = 0; i + 1 < data.tokens().size(); ++i) {
        ASSERT_GE(data.tokens()[i], 0);
        ASSERT_LT(data.tokens()[i], kVocabulary);
        ++followed[data.tokens()[i]][data.tokens()[i + 1]];
    }
    EXPECT_GT(followed.size(), kVocabulary / 2);
    for (const auto& [token, successors] : followed) {
        EXPECT_LE(successors.size(), 4u) << token;
        int all = 0, most = 0;
        for (const auto& [next, times] : successors) {
            all += times;
            most = std::max(most, times);
        }
        const bool is_common = all > 1000;
        EXPECT_TRUE(!is_common || most > all * 2 / 5) << token;
    }
}

TEST(Text, HasBytesAsTokens) {
    const TemporaryFolder folder;
    const Dataset data = Dataset::text(folder.write("a.txt",
                                                    "ab\xff"
                                                    "cde"),
                                       2, 256, 1);
    ASSERT_EQ(data.samples(), 2);  // the last two bytes are no window with a following token
    EXPECT_EQ(sequence_at(data, 0).tokens, (std::vector<float>{'a', 'b'}));
    EXPECT_EQ(sequence_at(data, 0).labels, (std::vector<int>{'b', 255}));
    EXPECT_EQ(sequence_at(data, 1).labels, (std::vector<int>{'c', 'd'}));
}

TEST(Text, NeedsAWindowAndOneMoreByte) {
    const TemporaryFolder folder;
    const std::string file = folder.write("short.txt", "12345678");
    EXPECT_EQ(Dataset::text(file, 7, 256, 1).samples(), 1);
    expect_says(refusal([&] { Dataset::text(file, 8, 256, 1); }), {"short.txt", "has 8 bytes", "take 9"});
    expect_says(refusal([&] { Dataset::text(file + ".no", 8, 256, 1); }), {"cannot read", "short.txt.no"});
}

Config config_of(const TemporaryFolder& folder, const std::string& workload, const std::string& model = "gpt") {
    return load_config(folder.write("config.yaml", "workload: {model: " + model + workload + "}\n"), {});
}

TEST(GptConfig, BuildsItsModel) {
    const TemporaryFolder folder;
    const Config config =
        config_of(folder, ", sequence_length: 12, vocabulary: 30, embedding: 18, blocks: 2, heads: 3");
    const Model model = build_model(config);
    EXPECT_EQ(model.input, (Dims{1, 12, 1}));
    EXPECT_EQ(model.classes, 30);
    EXPECT_EQ(model.layers[static_cast<std::size_t>(find_layer(model.layers, "h.1.attn.core"))].heads, 3);
    const Dataset data = open_dataset(config, model);
    EXPECT_EQ(data.input(), model.input);
    EXPECT_EQ(data.classes(), 30);
}

TEST(GptConfig, ReportsWhatDoesNotFit) {
    const TemporaryFolder folder;
    folder.write("few.txt", "hello");
    expect_says(refusal([&] { config_of(folder, ", embedding: 10, heads: 3"); }),
                {"10 cannot be divided into 3 heads", "config.yaml:1"});
    expect_says(refusal([&] { config_of(folder, ", dataset: text, vocabulary: 255"); }),
                {"its bytes, but the model has a vocabulary of only 255", "vocabulary: 256"});
    expect_says(refusal([&] { config_of(folder, ", dataset: cifar10"); }), {"gpt reads tokens", "dataset: text"});
    expect_says(refusal([&] {
                    const Config config = config_of(folder, ", dataset: text, path: few.txt");
                    open_dataset(config, build_model(config));
                }),
                {"few.txt' has 5 bytes", "config.yaml:1", "sequence_length"});
    expect_says(refusal([&] { load_config(folder.write("mlp.yaml", "workload: {model: mlp, dataset: text}\n"), {}); }),
                {"model: mlp cannot read"});
}

TEST(LlamaConfig, BuildsItsModel) {
    const TemporaryFolder folder;
    const Config config =
        config_of(folder,
                  ", sequence_length: 12, vocabulary: 30, embedding: 48, blocks: 2, heads: 6, key_value_heads: 3, "
                  "inner: 100, rotary_base: 500000",
                  "llama");
    const Model model = build_model(config);
    const auto layer = [&](const std::string& name) { return layer_of(model, "model.layers.1." + name); };
    EXPECT_EQ(layer("self_attn.core").heads, 6);
    EXPECT_EQ(layer("self_attn.core").key_value_heads, 3);
    EXPECT_EQ(layer("self_attn.v_proj").output, (Dims{1, 12, 24}));
    EXPECT_EQ(layer("self_attn.k_rotary").heads, 3);
    EXPECT_EQ(layer("self_attn.q_rotary").rotary_base, 500'000);
    EXPECT_EQ(layer("mlp.up_proj").output, (Dims{1, 12, 100}));
    EXPECT_EQ(open_dataset(config, model).input(), (Dims{1, 12, 1}));
    for (const char* printed : {"  key_value_heads: 3\n", "  inner: 100\n", "  rotary_base: 500000\n"})
        EXPECT_TRUE(contains(config.yaml, printed)) << config.yaml;
}

TEST(LlamaConfig, HasUsualWidthsWhereNoneAreGiven) {
    const TemporaryFolder folder;
    const Model model = build_model(config_of(folder, ", embedding: 1024, heads: 8", "llama"));
    EXPECT_EQ(layer_of(model, "model.layers.0.self_attn.k_proj").output.width, 1024);
    EXPECT_EQ(layer_of(model, "model.layers.0.mlp.up_proj").output.width, 2816);
    EXPECT_EQ(layer_of(model, "model.layers.0.self_attn.q_rotary").rotary_base, 10'000);
}

TEST(LlamaConfig, ReportsWhatDoesNotFit) {
    const TemporaryFolder folder;
    const auto says = [&](const std::string& workload, const std::vector<std::string>& parts) {
        expect_says(refusal([&] { config_of(folder, workload, "llama"); }), parts);
    };
    says(", embedding: 10, heads: 3", {"10 cannot be divided into 3 heads", "config.yaml:1"});
    says(", embedding: 12, heads: 4", {"4 heads of an embedding of 12 are 3 wide", "even width", "config.yaml:1"});
    says(", key_value_heads: 3",
         {"4 heads cannot share 3 heads of keys and values equally", "divides 4", "config.yaml:1"});
    says(", rotary_base: 1", {"'workload.rotary_base' is 1", "config.yaml:1"});
    says(", dropout: 0.1", {"'workload.dropout' is not for model: llama"});
    says(", dataset: cifar10", {"llama reads tokens", "dataset: text"});
    says(", dataset: text, vocabulary: 255", {"vocabulary: 256"});
    expect_says(refusal([&] { config_of(folder, ", key_value_heads: 2"); }),
                {"'workload.key_value_heads' is not for model: gpt"});
}

}  // namespace
}  // namespace pw
