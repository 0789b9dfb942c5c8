// Encoders of published models and frozen parts of transformers, against counts by hand.
#include "workloads/models/encoder.h"

#include "tests/support/temporary_folder.h"
#include "tests/support/transformer_jobs.h"
#include "workloads/models/frozen_layers.h"
#include "workloads/transformers/transformer_model.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace pw {
namespace {

std::optional<Encoder> encoder_of(const std::string& text, int hidden) {
    const TemporaryFolder folder;
    Transformer decoder;
    decoder.hidden = hidden;
    return read_encoder_config(folder.write("config.json", text), decoder);
}

constexpr const char* kLlava = R"({"model_type": "llava", "vision_config": {"hidden_size": 1024, "image_size": 336,
 "intermediate_size": 4096, "model_type": "clip_vision_model", "num_attention_heads": 16, "num_hidden_layers": 24,
 "patch_size": 14, "projection_dim": 768, "vocab_size": 32000}})";

constexpr const char* kGemma3 = R"({"model_type": "gemma3", "mm_tokens_per_image": 256, "vision_config": {
 "hidden_size": 1152, "image_size": 896, "intermediate_size": 4304, "model_type": "siglip_vision_model",
 "num_attention_heads": 16, "num_hidden_layers": 27, "patch_size": 14, "vision_use_head": false}})";

constexpr const char* kQwen2 = R"({"model_type": "qwen2_vl", "vision_config": {"depth": 32, "embed_dim": 1280,
 "mlp_ratio": 4, "num_heads": 16, "in_chans": 3, "hidden_size": 3584, "patch_size": 14, "spatial_merge_size": 2,
 "spatial_patch_size": 14, "temporal_patch_size": 2}})";

constexpr const char* kQwen25 = R"({"model_type": "qwen2_5_vl", "vision_config": {"depth": 32, "hidden_act": "silu",
 "hidden_size": 1280, "intermediate_size": 3420, "num_heads": 16, "in_chans": 3, "out_hidden_size": 3584,
 "patch_size": 14, "spatial_merge_size": 2, "spatial_patch_size": 14, "window_size": 112,
 "fullatt_block_indexes": [7, 15, 23, 31], "tokens_per_second": 2, "temporal_patch_size": 2}})";

constexpr const char* kQwenAudio = R"({"model_type": "qwen2_audio", "audio_config": {"model_type":
 "qwen2_audio_encoder", "num_mel_bins": 128, "encoder_layers": 32, "encoder_attention_heads": 20,
 "encoder_ffn_dim": 5120, "d_model": 1280, "max_source_positions": 1500}})";

std::int64_t projector_of(const Encoder& encoder, int hidden) {
    return encoder.weights_of_projector(hidden) + encoder.other_of_projector;
}

// Counts by hand from the published shapes: CLIP ViT-L/14 at 336 pixels, LLaVA 1.5 7B less its decoder of 32064 words,
// SigLIP so400m less its head for whole images (428225600 at 384 pixels, whose head has 15238352), Gemma 3 4B, Qwen2-VL
// 7B and Qwen2.5-VL 7B with their mergers, Whisper large-v3.
TEST(Encoders, HaveTheParametersOfTheirShapes) {
    const Encoder clip = *encoder_of(kLlava, 4096);
    EXPECT_EQ(parameters_of(clip), 303'507'456);
    EXPECT_EQ(parameters_of(clip) + projector_of(clip, 4096), 7'063'427'072 - (6'738'415'616 + 2 * 64 * 4096));
    EXPECT_EQ(clip.tokens_of_decoder(), 576);

    const Encoder siglip = *encoder_of(kGemma3, 2560);
    const std::int64_t more_positions = (64 * 64 - 27 * 27) * 1152;
    EXPECT_EQ(parameters_of(siglip), 428'225'600 - 15'238'352 + more_positions);
    EXPECT_EQ(parameters_of(siglip) + projector_of(siglip, 2560), 4'300'079'472 - 3'880'263'168);
    EXPECT_EQ(siglip.tokens_of_decoder(), 256);

    const Encoder qwen2 = *encoder_of(kQwen2, 3584);
    EXPECT_EQ(parameters_of(qwen2) + projector_of(qwen2, 3584), 675'759'104);
    EXPECT_EQ(qwen2.tokens, 0);  // images have any size
    const Encoder qwen25 = *encoder_of(kQwen25, 3584);
    EXPECT_EQ(parameters_of(qwen25) + projector_of(qwen25, 3584), 676'550'144);
    EXPECT_EQ(qwen25.blocks.form(6).mixer, Mixer::Window);
    EXPECT_EQ(qwen25.blocks.form(7).mixer, Mixer::Attention);
    EXPECT_EQ(qwen25.blocks.window, 64);

    const Encoder whisper = *encoder_of(kQwenAudio, 4096);
    EXPECT_EQ(parameters_of(whisper), 636'968'960);
    EXPECT_EQ(projector_of(whisper, 4096), 1281 * 4096);
    EXPECT_EQ(whisper.tokens_of_decoder(), 750);
}

TEST(Encoders, AreNotReadOfUnknownForms) {
    EXPECT_FALSE(encoder_of(R"({"model_type": "llama"})", 8));
    EXPECT_FALSE(encoder_of(R"({"model_type": "llava", "vision_config": {"hidden_size": 8}})", 8));
}

// Llama 3 8B on A100s, after the encoder of LLaVA.
TransformerJob job_with(bool has_encoder, std::vector<std::string> frozen = {}) {
    TransformerJob job = job_on_host("a100-sxm-80", "nvlink3");
    job.model = *find_transformer("llama-3-8b");
    job.tokens = 4096;
    job.frozen = std::move(frozen);
    if (has_encoder)
        job.encoder = encoder_of(kLlava, job.model.hidden);
    return job;
}

std::vector<TransformerLayerCost> costs_of(const TransformerJob& job) { return TransformerLayers(job).all(1); }

double parameters_of(const std::vector<TransformerLayerCost>& layers) {
    double sum = 0;
    for (const TransformerLayerCost& layer : layers)
        sum += layer.parameters.dense + layer.frozen.dense;
    return sum;
}

TEST(Encoders, AddTheirLayersBeforeTheDecoder) {
    const std::vector<TransformerLayerCost> with = costs_of(job_with(true)), without = costs_of(job_with(false));
    ASSERT_EQ(with.size(), without.size() + 26);
    EXPECT_EQ(parameters_of(with), parameters_of(without) + 303'507'456 + 20'979'712);
    EXPECT_EQ(with[3].made, 2.0 * 577 * 1024);
    EXPECT_EQ(with[25].made, 2.0 * 576 * 4096);
    for (std::size_t layer = 0; layer < without.size(); ++layer)
        EXPECT_EQ(with[layer + 26].forward, without[layer].forward);
    const Model model = transformer_model(job_with(true), 1).model;
    EXPECT_EQ(model.layers[25].name, "projector");
    EXPECT_EQ(model.layers[26].name, "embedding");
}

// An image of 4096 tokens costs what a sequence of 4096 tokens costs, but for the causal half of attention.
TEST(Encoders, CostWhatDecodersOfTheirShapeCost) {
    TransformerJob job = job_with(true), causal = job;
    Encoder& encoder = *job.encoder;
    encoder.blocks = job.model;
    encoder.blocks.layers = 2;
    encoder.tokens = job.tokens;
    encoder.unread = 0;
    causal.encoder = encoder;
    encoder.blocks.causal = false;
    const TransformerLayerCost decoder = costs_of(causal)[5], alike = costs_of(causal)[1], own = costs_of(job)[1];
    EXPECT_EQ(alike.forward, decoder.forward);
    EXPECT_EQ(alike.backward_input, decoder.backward_input);
    EXPECT_EQ(alike.saved, decoder.saved);
    EXPECT_NEAR(own.parts.attention, 2 * alike.parts.attention, 1e-9 * own.parts.attention);
    EXPECT_NEAR(own.parts.products, alike.parts.products, 1e-9 * own.parts.products);
}

// A token of a block of CLIP multiplies with its parameters, and its query with 577 keys and values.
TEST(Encoders, AddTheFlopsOfTheirTokens) {
    const double without = model_flops_per_sequence(job_with(false)), tokens = 577;
    EXPECT_NEAR(without, 4096 * model_flops_per_token(*find_transformer("llama-3-8b"), 4096), 1e-9 * without);
    const double block = 24 * (2 * 12'596'224.0 + 4 * tokens * 1024), patch = 2.0 * 588 * 1024;
    const double projector = 576 * 2.0 * (1024 * 4096 + 4096 * 4096);
    EXPECT_NEAR(model_flops_per_sequence(job_with(true)) - without, tokens * (3 * block + 2 * patch) + 3 * projector,
                1e-9 * without);
    EXPECT_NEAR(model_flops_per_sequence(job_with(true, {"encoder"})) - without,
                tokens * (block + patch) + 3 * projector, 1e-9 * without);
}

// Nothing is trained before a frozen encoder: it only runs forwards, and saves nothing. The decoder does as before.
TEST(FrozenParts, RunForwardsOnlyBeforeWhatIsTrained) {
    const TransformerJob job = job_with(true, {"encoder"});
    const std::vector<TransformerLayerCost> frozen = costs_of(job), all = costs_of(job_with(true));
    for (std::size_t layer = 0; layer < 25; ++layer) {
        EXPECT_EQ(frozen[layer].forward, all[layer].forward) << layer;
        EXPECT_EQ(frozen[layer].backward_input + frozen[layer].backward_weight, 0) << layer;
        EXPECT_EQ(frozen[layer].saved, 0) << layer;
        EXPECT_EQ(frozen[layer].parameters.dense, 0) << layer;
        EXPECT_EQ(frozen[layer].frozen.dense, all[layer].parameters.dense) << layer;
    }
    for (std::size_t layer = 25; layer < all.size(); ++layer)
        EXPECT_EQ(frozen[layer].backward_weight, all[layer].backward_weight) << layer;
    const Model model = transformer_model(job, 1).model;
    EXPECT_FALSE(has_backward(model.layers[24]));
    EXPECT_TRUE(has_backward(model.layers[25]));
}

// A frozen decoder after a trained projector has gradients of inputs alone, and does not save the inputs of its
// matrices: of 4096 tokens the outputs of both norms, and the input of fc2, in two bytes.
TEST(FrozenParts, PassGradientsToWhatIsTrained) {
    const std::vector<TransformerLayerCost> frozen =
        costs_of(job_with(true, {"encoder", "embedding", "block", "head"}));
    const std::vector<TransformerLayerCost> all = costs_of(job_with(true));
    const TransformerLayerCost &block = frozen[27], &trained = all[27];
    EXPECT_EQ(block.backward_weight, 0);
    EXPECT_EQ(block.backward_input, trained.backward_input);
    EXPECT_NEAR(trained.saved - block.saved, 2.0 * 4096 * (2 * 4096 + 14'336), 1);
    EXPECT_GT(frozen[25].backward_weight, 0);
    EXPECT_EQ(frozen.back().parameters.dense, 0);
}

// Adapters freeze what `frozen` freezes, and add themselves.
TEST(FrozenParts, AreWhatAdaptersAreAddedTo) {
    TransformerJob lora = job_with(true);
    lora.lora = Lora{8};
    const std::vector<TransformerLayerCost> adapted = costs_of(lora);
    const std::vector<TransformerLayerCost> frozen =
        costs_of(job_with(true, {"encoder", "projector", "embedding", "block.0", "head"}));
    for (std::size_t layer = 0; layer < 27; ++layer) {
        EXPECT_EQ(adapted[layer].forward, frozen[layer].forward) << layer;
        EXPECT_EQ(adapted[layer].backward_input, 0) << layer;
        EXPECT_EQ(adapted[layer].frozen.dense, frozen[layer].frozen.dense) << layer;
    }
    EXPECT_EQ(adapted[27].frozen.dense, frozen[27].frozen.dense);
    EXPECT_GT(adapted[27].parameters.dense, 0);
}

}  // namespace
}  // namespace pw
