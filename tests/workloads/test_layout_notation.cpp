// Stages in the notation of Megatron-LM, and the blocks of models, against splits written by hand.
#include "tests/support/refusal.h"
#include "workloads/models/blocks.h"
#include "workloads/models/gpt.h"
#include "workloads/models/resnet.h"
#include "workloads/models/unet.h"
#include "workloads/stages/layout_notation.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace pw {

namespace {

using Texts = std::vector<std::string>;

LayerGraph gpt_of(int blocks) {
    return build_gpt({.sequence_length = 8, .vocabulary = 16, .width = 8, .blocks = blocks, .heads = 2},
                     LayerKind::CrossEntropy)
        .layers;
}

Texts names_at(const LayerGraph& graph, const std::vector<int>& layers) {
    Texts names;
    for (const int layer : layers)
        names.push_back(graph[static_cast<std::size_t>(layer)].name);
    return names;
}

Texts first_layers(const LayerGraph& graph, const StageSplit& split) {
    Texts names;
    for (const std::vector<int>& layers : split.layers)
        names.push_back(layers.empty() ? "" : graph[static_cast<std::size_t>(layers.front())].name);
    return names;
}

std::string refusal_of_layout(const std::string& layout) {
    return refusal([&] { stages_of_layout(layout); });
}

}  // namespace

// As megatron.core.transformer.pipeline_parallel_layer_layout expands them
TEST(LayoutNotation, RepeatsLettersAndGroups) {
    EXPECT_EQ(stages_of_layout("Et*2|(tt|)*3tL"), (Texts{"Ett", "tt", "tt", "tt", "tL"}));
    EXPECT_EQ(stages_of_layout("E,t*3 | t,t,t,L"), (Texts{"Ettt", "tttL"}));
    EXPECT_EQ(stages_of_layout("E|t|L"), (Texts{"E", "t", "L"}));
    EXPECT_EQ(stages_of_layout("Et|(tt|)*30L").size(), 32u);
    EXPECT_EQ(stages_of_layout("EtL"), Texts{"EtL"});
}

TEST(LayoutNotation, RefusesWhatNoPlanHas) {
    expect_says(refusal_of_layout("|Ett|tL"), {"begins with nothing"});
    expect_says(refusal_of_layout("Ett|tL|"), {"stage 1 of the layout is tL", "last letter of the last stage"});
    expect_says(refusal_of_layout("Ett|t|"), {"ends with nothing"});
    expect_says(refusal_of_layout("Et|tEt|L"), {"stage 1 of the layout is tEt", "first letter"});
    expect_says(refusal_of_layout("EtL|tt"), {"stage 0 of the layout is EtL", "last letter"});
    expect_says(refusal_of_layout("tt|tL"), {"begins with tt", "begin it with E"});
    expect_says(refusal_of_layout("Et|tt"), {"ends with tt", "end it with L"});
    expect_says(refusal_of_layout("Et|mtL"), {"stage 1 of the layout is mtL", "a layer t comes after m"});
    expect_says(refusal([] { split_by_layout(gpt_of(2), stages_of_layout("Et|tmL"), true); }),
                {"the layout has 1 modules m of further tokens, the model 0"});
    expect_says(refusal_of_layout("Et|(tt|L"), {"not closed"});
    expect_says(refusal_of_layout("Et)|tL"), {"has ')' at another place"});
    expect_says(refusal_of_layout("Et*|tL"), {"repeats something '' times"});
    expect_says(refusal_of_layout("Et*0|tL"), {"repeats something '0' times"});
    expect_says(refusal_of_layout("Et*99999(t*99999)*99999L"), {"at another place"});
    expect_says(refusal_of_layout("E(tttttttttttttttt)*99999L"), {"more than 1000000 letters"});
}

TEST(LayoutNotation, IsToldFromOtherValues) {
    for (const char* layout : {"Et|tL", "Et*2|(tt|)*3tL", "Etm"})
        EXPECT_TRUE(is_layout(layout)) << layout;
    for (const char* other : {"auto", "even", "layer3.0", "EL", "", "h.3"})
        EXPECT_FALSE(is_layout(other)) << other;
}

TEST(LayoutNotation, SplitsAModelAndIsWrittenBack) {
    const LayerGraph graph = gpt_of(4);
    for (const auto& [layout, first] : {std::pair<std::string, Texts>{"Ett|tt|L", {"wte", "h.2.ln_1", "ln_f"}},
                                        {"E|t|ttt|L", {"wte", "h.0.ln_1", "h.1.ln_1", "ln_f"}},
                                        {"Et*3|tL", {"wte", "h.3.ln_1"}},
                                        {"Et||t*3||L", {"wte", "", "h.1.ln_1", "", "ln_f"}},
                                        {"Et*4L", {"wte"}}}) {
        const StageSplit split = split_by_layout(graph, stages_of_layout(layout), true);
        EXPECT_EQ(first_layers(graph, split), first) << layout;
        EXPECT_EQ(layout_of(graph, split, true), layout == "Ett|tt|L" ? layout : layout_of(graph, split, true));
        EXPECT_EQ(stages_of_layout(layout_of(graph, split, true)), stages_of_layout(layout)) << layout;
    }
    expect_says(refusal([&] { split_by_layout(graph, stages_of_layout("Et|tL"), true); }),
                {"has 2 transformer layers, the model 4"});
}

// Megatron-Core, docs of multi-token prediction: m may be on a stage of its own before L, or with L.
TEST(LayoutNotation, PlacesModulesOfFurtherTokens) {
    LayerGraph graph;
    for (const auto& [name, part] : {std::pair{"embedding", LayerPart::Embedding},
                                     {"block.0", LayerPart::Block},
                                     {"block.1", LayerPart::Block},
                                     {"mtp.0", LayerPart::Mtp},
                                     {"mtp.1", LayerPart::Mtp},
                                     {"head", LayerPart::Head}}) {
        Layer layer;
        layer.name = name;
        layer.part = part;
        boost::add_vertex(layer, graph);
    }
    for (const auto& [layout, first] : {std::pair<std::string, Texts>{"Ett|mmL", {"embedding", "mtp.0"}},
                                        {"Et|t|mm|L", {"embedding", "block.1", "mtp.0", "head"}},
                                        {"Et|tm|mL", {"embedding", "block.1", "mtp.1"}}}) {
        const StageSplit split = split_by_layout(graph, stages_of_layout(layout), true);
        EXPECT_EQ(first_layers(graph, split), first) << layout;
        EXPECT_EQ(layout_of(graph, split, true), layout);
    }
    expect_says(refusal([&] { split_by_layout(graph, stages_of_layout("Ett|mL"), true); }),
                {"the layout has 1 modules m of further tokens, the model 2"});
}

TEST(Blocks, EndAtTheFirstNumberOfAName) {
    for (const auto& [name, block] : {std::pair{"h.3.attn.c_attn", "h.3"},
                                      {"model.layers.10.mlp.up_proj", "model.layers.10"},
                                      {"layer3.0.conv1", "layer3.0"},
                                      {"transformer.h.3.2", "transformer.h.3"},
                                      {"h.3", "h.3"},
                                      {"down1.conv1", "down1"},
                                      {"bottom.conv1", "bottom.conv1"},
                                      {"conv1", "conv1"},
                                      {"lm_head", "lm_head"},
                                      {"0", "0"}})
        EXPECT_EQ(block_of(name), block) << name;
}

// A loss is no module, so that no cut is before it.
TEST(Blocks, AreRangesOfTheForwardOrder) {
    const LayerGraph gpt = gpt_of(3);
    EXPECT_EQ(names_at(gpt, starts_of_blocks(gpt)),
              (Texts{"wte", "wpe", "h.0.ln_1", "h.1.ln_1", "h.2.ln_1", "ln_f", "lm_head"}));
    const LayerGraph resnet = build_resnet50(32, 10, LayerKind::CrossEntropy).layers;
    const Texts names = names_at(resnet, starts_of_blocks(resnet));
    EXPECT_EQ(names.size(), 3u + 16u + 2u);  // conv1, bn1, maxpool; 16 blocks; avgpool, fc
    EXPECT_EQ(names[3], "layer1.0.conv1");
    EXPECT_EQ(names.back(), "fc");
}

TEST(Blocks, ThatAlternateAreOne) {
    LayerGraph graph;
    std::vector<int> last;
    for (const char* name : {"a.0.x", "b.0.x", "a.0.y", "b.0.y", "c"})
        last = {
            add_layer(graph, {.name = name, .kind = LayerKind::Relu, .input = {1, 1, 1}, .output = {1, 1, 1}}, last)};
    EXPECT_EQ(names_at(graph, starts_of_blocks(graph)), (Texts{"a.0.x", "c"}));
}

}  // namespace pw
