// Values of pipeline.split and pipeline.cuts, against splits by hand and a loop over all of them.
#include "job/build.h"
#include "job/job.h"
#include "tests/support/config_text.h"
#include "tests/support/refusal.h"
#include "workloads/models/blocks.h"
#include "workloads/stages/stage_split.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

namespace pw {
namespace {

StageSplit split_made(const Config& config) {
    const Model model = build_model(config);
    return make_split(config, model, profile_of(config, model));
}

Config transformer(const std::string& pipeline, const std::vector<std::string>& set = {}) {
    return pw::load(
        "{workload: {model: llama-3.2-1b, sequence_length: 4096}, cluster: {hosts: 1, devices_per_host: 4, "
        "device: h100-sxm-80}, parallel: {pipeline: 4}, pipeline: {mini_batch: 32, " +
            pipeline + "}, training: {precision: bf16, optimizer: adamw}}",
        set);
}

std::vector<int> blocks_of_stages(const Config& config) {
    const Model model = build_model(config);
    std::vector<int> blocks;
    for (const std::vector<int>& layers : split_made(config).layers)
        blocks.push_back(static_cast<int>(std::count_if(layers.begin(), layers.end(), [&](int layer) {
            return model.layers[static_cast<std::size_t>(layer)].part == LayerPart::Block;
        })));
    return blocks;
}

}  // namespace

TEST(Splits, AreReadInTheNotationOfMegatron) {
    EXPECT_EQ(blocks_of_stages(transformer(R"(schedule: interleaved, split: "Et|(ttt|)*2tt|tt|tt|tt|tL")")),
              (std::vector{1, 3, 3, 2, 2, 2, 2, 1}));
    // The config that is printed has the same split.
    const Config layout = transformer(R"(split: "Et*3|t*4|t*4|t*5L")");
    EXPECT_EQ(split_made(pw::load(layout.yaml)).layers, split_made(layout).layers);
    EXPECT_EQ(blocks_of_stages(layout), (std::vector{3, 4, 4, 5}));
    EXPECT_EQ(blocks_of_stages(transformer(R"(split: "E|t*8|t*8|L")")), (std::vector{0, 8, 8, 0}));
}

TEST(Splits, OfALayoutMustFitTheModel) {
    expect_says(refusal([] { split_made(transformer(R"(split: "Et*3|t*4|t*4|t*4L")")); }),
                {"15 transformer layers, the model 16", "cfg.yaml"});
    expect_says(refusal([] { transformer(R"(split: "Et*8|t*8L", stages: 4)"); }), {"makes 2 stages"});
    expect_says(refusal([] { transformer("split: Even"); }), {"a layout such as \"Et*2|tt|t*2L\""});
    expect_says(refusal([] { split_made(pw::load("{workload: {model: resnet50}, pipeline: {split: \"Et|tL\"}}")); }),
                {"no embedding"});
}

// Primus's decoder_pipeline_manual_split_list: the chunks of rank 0, then the chunks of rank 1, ...
TEST(Splits, AreReadAsBlocksByRank) {
    EXPECT_EQ(blocks_of_stages(transformer("split: [3, 4, 4, 5]")), (std::vector{3, 4, 4, 5}));
    EXPECT_EQ(blocks_of_stages(transformer("schedule: interleaved, split: [1, 2, 3, 2, 3, 2, 2, 1]")),
              (std::vector{1, 3, 3, 2, 2, 2, 2, 1}));
    const Config config = transformer("schedule: interleaved, split: [1, 2, 3, 2, 3, 2, 2, 1]");
    EXPECT_EQ(split_made(pw::load(config.yaml)).layers, split_made(config).layers);
    expect_says(refusal([] { split_made(transformer("split: [3, 4, 4, 4]")); }),
                {"15 transformer layers, the model 16"});
}

TEST(Splits, OfTransformersMayHaveEmptyStages) {
    const Config layout = transformer(R"(split: "Et*4||t*8|t*4L")");
    EXPECT_EQ(blocks_of_stages(layout), (std::vector{4, 0, 8, 4}));
    EXPECT_EQ(split_made(transformer("split: [4, 0, 8, 4]")).layers, split_made(layout).layers);
    const Config lists = transformer(
        "split: {stages: [[embedding, block.0, block.1, block.2, block.3, block.4, block.5, block.6, block.7], [], [], "
        "[block.8, block.9, block.10, block.11, block.12, block.13, block.14, block.15, head]]}");
    EXPECT_EQ(blocks_of_stages(lists), (std::vector{8, 0, 0, 8}));
    EXPECT_EQ(split_made(pw::load(lists.yaml)).layers, split_made(lists).layers);
    expect_says(refusal([] { split_made(transformer("split: {stages: [[], [embedding, block.0]]}")); }),
                {"layer 'block.1' is in no stage"});
    const std::string all = R"(, blocks: 4}, pipeline: {micro_batches: 4, split: )";
    for (const char* split : {"[2, 0, 2]", R"("Ett||ttL")"})
        expect_says(refusal([&] { split_made(pw::load("{workload: {model: gpt" + all + split + "}}")); }),
                    {"stage 1 gets no layer, and only transformers on a cluster may have empty stages"});
}

TEST(Splits, HaveTheNamesOfOtherPrograms) {
    for (const char* key : {"pipeline_model_parallel_layout", "decoder_pipeline_manual_split_list"}) {
        expect_says(refusal([&] { transformer(std::string(key) + ": 3"); }), {key, "here it is 'split'"});
        expect_says(refusal([&] { transformer("stages: 4", {"parallel." + std::string(key) + "=3"}); }),
                    {key, "pipeline.split"});
    }
}

// Every way to cut the layers in four, with the devices in their order.
TEST(Splits, GiveFasterDevicesMoreWork) {
    for (const std::string model :
         {"gpt, blocks: 2", "resnet50, image_size: 32", "mlp, hidden: [64, 64, 64, 64, 64, 64]"})
        for (const std::vector<double>& speeds :
             {std::vector<double>{1, 1, 1}, {2, 1, 1}, {1, 1, 2}, {1, 0.25, 1}, {0.5, 3, 1}}) {
            const Config config = pw::load(fmt::format(
                "{{workload: {{model: {}}}, cluster: {{devices: [{{speed: {}}}]}}, pipeline: {{stages: 3}}}}", model,
                fmt::join(speeds, "}, {speed: ")));
            const Model graph = build_model(config);
            const std::vector<Ns> time = layer_times(graph.layers, profile_of(config, graph), 1);
            const auto longest = [&](const std::vector<int>& starts) {
                double most = 0;
                for (std::size_t stage = 0; stage < 3; ++stage) {
                    double sum = 0;
                    for (int layer = starts[stage]; layer < starts[stage + 1]; ++layer)
                        sum += static_cast<double>(time[static_cast<std::size_t>(layer)]);
                    most = std::max(most, sum / speeds[stage]);
                }
                return most;
            };
            const int layers = static_cast<int>(time.size());
            double least = std::numeric_limits<double>::max();
            for (int first = 1; first + 1 < layers; ++first)
                for (int second = first + 1; second < layers; ++second)
                    least = std::min(least, longest({0, first, second, layers}));
            const StageSplit split = split_made(config);
            EXPECT_NEAR(longest({0, split.layers[1].front(), split.layers[2].front(), layers}), least, 2)
                << model << " " << fmt::format("{}", fmt::join(speeds, " "));
        }
}

TEST(Splits, AreBetweenBlocksIfAsked) {
    for (const char* model : {"gpt, blocks: 6", "llama, blocks: 6", "resnet50, image_size: 32", "unet, image_size: 32"})
        for (const char* pipeline : {"stages: 3", "stages: 3, split: even", "stages: 4, schedule: interleaved"}) {
            const Config config = pw::load(
                fmt::format("{{workload: {{model: {}}}, cluster: {{devices: {}}}, pipeline: {{cuts: blocks, {}}}}}",
                            model, contains(pipeline, "interleaved") ? 2 : 3, pipeline));
            const std::vector<int> starts = starts_of_blocks(build_model(config).layers);
            for (const std::vector<int>& layers : split_made(config).layers)
                EXPECT_TRUE(std::binary_search(starts.begin(), starts.end(), layers.front())) << model << pipeline;
        }
    const std::string gpt = "{workload: {model: gpt}, cluster: {devices: 2}, pipeline: {cuts: blocks, ";
    EXPECT_EQ(split_made(pw::load(gpt + "split: [h.1]}}")).stages(), 2);
    expect_says(refusal([&] { split_made(pw::load(gpt + "split: [h.1.ln_2]}}")); }),
                {"'h.1.ln_1' and 'h.1.ln_2' are of one block, but in stages 0 and 1", "cuts: layers"});
    expect_says(refusal([&] { split_made(pw::load(gpt + "stages: 9}}", {"cluster.devices=9"})); }),
                {"9 stages for 8 blocks"});
}

}  // namespace pw
