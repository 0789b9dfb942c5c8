// workload.encoder and workload.frozen of transformers: files, shapes, stages and mistakes.
#include "job/build.h"
#include "job/job.h"

#include "tests/support/config_text.h"
#include "tests/support/refusal.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

namespace pw {
namespace {

constexpr const char* kByHand =
    "{images: 4, tokens: 576, hidden: 1024, layers: 8, heads: 16, inner: 4096, inputs: 588}";

std::string encoder_text(const std::string& workload, const std::string& pipeline = "schedule: 1f1b, mini_batch: 8",
                         const std::string& parallel = "pipeline: 2") {
    return fmt::format(
        "{{workload: {{sequence_length: 4096, {}}}, cluster: {{hosts: 1, devices_per_host: 2, device: "
        "h100-sxm-80}}, parallel: {{{}}}, pipeline: {{{}}}, training: {{precision: bf16, optimizer: "
        "adamw}}}}",
        workload, parallel, pipeline);
}

std::string small_model(const std::string& more) { return "model: llama-3.2-1b, " + more; }
std::string by_hand(const std::string& more = "") { return small_model(fmt::format("encoder: {}{}", kByHand, more)); }

Job encoded_job(const std::string& text) {
    Notices notices;
    return make_job(load(text), notices);
}

constexpr const char* kLlavaFile =
    R"({"model_type": "llava", "text_config": {"model_type": "llama", "hidden_size": 4096,
 "num_hidden_layers": 32, "num_attention_heads": 32, "intermediate_size": 11008, "vocab_size": 32064},
 "vision_config": {"hidden_size": 1024, "image_size": 336, "intermediate_size": 4096, "model_type":
 "clip_vision_model", "num_attention_heads": 16, "num_hidden_layers": 24, "patch_size": 14}})";

TEST(EncoderKeys, TakeTheEncoderOfAConfigJson) {
    const TemporaryFolder folder;
    (void)folder.write("config.json", kLlavaFile);
    const auto loaded = [&](const std::string& encoder) {
        const std::string model = "model: config.json" + encoder;
        return load_config(folder.write("plan.yaml", encoder_text(model)), {});
    };
    EXPECT_FALSE(loaded("").workload.encoder);
    EXPECT_EQ(loaded("").workload.transformer->not_counted.size(), 1u);
    const Config config = loaded(", encoder: {images: 2}");
    ASSERT_TRUE(config.workload.encoder);
    EXPECT_EQ(config.workload.encoder->images, 2);
    EXPECT_EQ(config.workload.encoder->blocks.layers, 24);
    EXPECT_EQ(config.workload.encoder->unread, 1);
    EXPECT_TRUE(config.workload.transformer->not_counted.empty());
    EXPECT_EQ(config.workload.all_blocks(), 56);
    const Config again = load_config(folder.write("again.yaml", print_setup(config)), {});
    EXPECT_EQ(again.workload.encoder, config.workload.encoder);
}

TEST(EncoderKeys, DescribeAnEncoderByHand) {
    const Config config = load(encoder_text(by_hand()));
    ASSERT_TRUE(config.workload.encoder);
    EXPECT_EQ(config.workload.encoder->tokens_of_decoder(), 4 * 576);
    const TemporaryFolder folder;
    const Config again = load_config(folder.write("again.yaml", print_setup(config)), {});
    EXPECT_EQ(again.workload.encoder, config.workload.encoder);
}

// The first stage has the blocks of the encoder, and sends 4 x 576 tokens of 1024 values, or after its last block, too.
// Projector and embedding stay with the first block of the decoder.
TEST(EncoderKeys, CountBlocksOfTheEncoderFirst) {
    for (const char* split : {"split: [8, 16]", "split: 'Et*8|t*16L'"}) {
        const Job job = encoded_job(encoder_text(by_hand(), fmt::format("schedule: 1f1b, mini_batch: 8, {}", split)));
        ASSERT_EQ(job.split.stages(), 2);
        const int first = job.split.layers[1].front();
        EXPECT_EQ(job.model->layers[static_cast<std::size_t>(first)].name, "projector") << split;
        ASSERT_EQ(job.costs.edges.size(), 1u);
        EXPECT_EQ(job.costs.edges[0].forward, 2 * 4 * 576 * 1024);
    }
}

Ns longest_stage(const Job& job) {
    Ns longest = 0;
    for (const StageCost& cost : job.costs.stage)
        longest = std::max(longest, cost.forward + cost.backward);
    return longest;
}

// The default split against every division of the blocks: no longest stage is shorter.
TEST(EncoderKeys, BalanceStagesOfUnlikeBlocks) {
    for (const std::string& workload :
         {by_hand(), by_hand(", frozen: [encoder]"), by_hand(", lora: {rank: 8}"),
          small_model("frozen: [embedding, head, block.0-9]"), small_model("lora: {rank: 8}, frozen: [block.12-15]")}) {
        SCOPED_TRACE(workload);
        const Job usual = encoded_job(encoder_text(workload));
        const int blocks = usual.setup.workload.all_blocks();
        Ns best = longest_stage(usual);
        for (int first = 0; first <= blocks; ++first)
            best = std::min(
                best,
                longest_stage(encoded_job(encoder_text(
                    workload, fmt::format("schedule: 1f1b, mini_batch: 8, split: [{}, {}]", first, blocks - first)))));
        EXPECT_NEAR(static_cast<double>(longest_stage(usual)), static_cast<double>(best), 100) << "times are rounded";
    }
}

TEST(EncoderKeys, DivideAlikeBlocksEqually) {
    for (const char* trained : {"frozen: [embedding, head]", "frozen: [block]", "lora: {rank: 8}"}) {
        const Job job = encoded_job(encoder_text(small_model(trained)));
        EXPECT_EQ(job.model->layers[static_cast<std::size_t>(job.split.layers[1].front())].name, "block.8") << trained;
    }
}

TEST(EncoderKeys, TakeRangesOfBlocks) {
    const std::vector<std::string> expected = {"encoder.6", "encoder.7", "head", "embedding", "block.0"};
    const Config config = load(encoder_text(by_hand(", frozen: [encoder.6-7, head, embedding, block.0-0]")));
    EXPECT_EQ(config.workload.frozen, expected);
    const auto refused = [](const std::string& frozen) {
        return refusal([&] { (void)load(encoder_text(small_model(fmt::format("frozen: [{}]", frozen)))); });
    };
    expect_says(refused("block.5-2"), {"the range 5-2 of 'block.5-2' is empty", "write the smaller number first"});
    expect_says(refused("block.14-17"), {"no layer of llama-3.2-1b is called 'block.16'"});
}

// A stage of a frozen encoder runs forwards only, and its device holds weights of two bytes alone.
TEST(EncoderKeys, LetStagesRunForwardsOnly) {
    const Job job =
        encoded_job(encoder_text(by_hand(", frozen: [encoder]"), "schedule: 1f1b, mini_batch: 8, split: [8, 16]"));
    EXPECT_TRUE(job.plan.shape.runs_forwards_only(0));
    EXPECT_FALSE(job.plan.shape.runs_forwards_only(1));
    EXPECT_EQ(job.costs.edges[0].backward, 0);
    EXPECT_EQ(job.costs.bytes[0].until_input + job.costs.bytes[0].until_weight, 0);
    EXPECT_EQ(job.costs.bytes[0].weights, 0);
    EXPECT_NEAR(static_cast<double>(job.costs.bytes[0].frozen), 2.0 * (8 * 12'596'224 + 588 * 1024), 1e4);
    EXPECT_EQ(job.costs.stage[0].backward, 0);
    const Job adapted =
        encoded_job(encoder_text(by_hand(", lora: {rank: 8}"), "schedule: 1f1b, mini_batch: 8, split: [8, 16]"));
    EXPECT_TRUE(adapted.plan.shape.runs_forwards_only(0));
}

TEST(EncoderKeys, SayWhatIsWrong) {
    const auto refused = [](const std::string& workload, const std::string& pipeline = "schedule: 1f1b, mini_batch: 8",
                            const std::string& parallel = "pipeline: 2") {
        return refusal([&] { (void)encoded_job(encoder_text(workload, pipeline, parallel)); });
    };
    expect_says(refused(small_model("encoder: {images: 4}")), {"'workload.encoder' has no tokens", "write tokens"});
    expect_says(
        refused(small_model("encoder: {tokens: 577, merged: 4, hidden: 64, layers: 1, heads: 2, inner: 8, inputs: 4}")),
        {"577 tokens of an image are not merged by 4", "that `merged` divides"});
    expect_says(refused(small_model("encoder: {tokens: 16, hidden: 64, layers: 1, heads: 3, inner: 8, inputs: 4}")),
                {"3 heads of the encoder do not divide a hidden size of 64"});
    expect_says(
        refused(small_model("encoder: {images: 9, tokens: 576, hidden: 64, layers: 1, heads: 2, inner: 8, inputs: 4}")),
        {"9 images are 5184 tokens of the decoder, but sequences have 4096", "fewer images"});
    expect_says(refused(by_hand(), "schedule: 1f1b, mini_batch: 8", "context: 2"),
                {"has an encoder, and sequences with images are not divided"});
    expect_says(refused(small_model("encoder: {tokens: 16, hidden: 63, layers: 1, heads: 3, inner: 8, inputs: 4}"),
                        "schedule: 1f1b, mini_batch: 8", "tensor: 2"),
                {"the heads of llama-3.2-1b and of its encoder"});
    expect_says(refused(by_hand(), "schedule: vocab-1, mini_batch: 8"),
                {"models with an encoder have one head in this version"});
    expect_says(refused(by_hand(), "schedule: seq1f1b, slices: 2, mini_batch: 8"),
                {"an encoder are not cut into slices"});
    expect_says(refused(small_model("frozen: [encoder]")),
                {"no layer of llama-3.2-1b is called 'encoder'", "block.0-15, head"});
    expect_says(refused(small_model("frozen: ['*']")), {"nothing is trained", "leave a layer out"});
    expect_says(refused(small_model("frozen: [head]")),
                {"share their table, and only one of them is frozen", "name both"});
}

}  // namespace
}  // namespace pw
