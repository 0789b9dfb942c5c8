// Costs of transformers against published figures and hand calculations.
#include "workloads/transformers/transformer_model.h"

#include "tests/support/transformer_jobs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

namespace pw {
namespace {

// Equation 2 of the paper: s b h (10 + 24/t + 5 a s / (h t)) bytes with tensor parallelism; equation 4 with sequence
// parallelism: all of it divided by t; with selective recomputation in addition: s b h 34 / t. The input of a block,
// 2 s b h, is the output of the one before it.
TEST(TransformerCosts, SaveWhatThePaperCounts) {
    const double s = 2048, h = 12'288, a = 96, t = 8;
    TransformerJob job = gpt_job(12'288, 96, 96, 8, 8);
    const double input = 2 * s * h;
    EXPECT_NEAR(cost_of_block(job, 1).saved + input, s * h * (10 + 24 / t + 5 * a * s / (h * t)), 1e-3 * s * h);
    job.parallel.sequence = true;
    EXPECT_NEAR(cost_of_block(job, 1).saved + input / t, s * h / t * (34 + 5 * a * s / h), 1e-3 * s * h);
    job.parallel.recompute = set_of(BlockModule::CoreAttention);
    EXPECT_NEAR(cost_of_block(job, 1).saved + input / t, s * h / t * 34, 1e-3 * s * h);
    job.parallel.recompute = set_of(BlockModule::Block);
    EXPECT_EQ(cost_of_block(job, 1).saved, 0);
    EXPECT_GT(cost_of_block(job, 1).scratch, 0);
}

// The first n tokens of a sequence are a sequence of n tokens. Only its backward also adds the gradients of n keys and
// values of 8 heads of 128 that later slices left: reads both and writes the sum, two bytes each, at 0.75 of 2.039
// TB/s.
TEST(TransformerCosts, OfTheFirstSliceAreThoseOfAShorterSequence) {
    TransformerJob job = gpt_job(4096, 32, 4, 4, 1);
    job.parallel.sequence = true;
    job.parallel.release = Release::NeMo2025;
    TransformerJob shorter = job;
    job.tokens = 32'768;
    shorter.tokens = 8192;
    const std::vector<TransformerLayerCost> slice = TransformerLayers(job, {0, 8192}).all(1),
                                            sequence = TransformerLayers(shorter).all(1);
    for (std::size_t layer = 0; layer < slice.size(); ++layer) {
        EXPECT_DOUBLE_EQ(slice[layer].forward, sequence[layer].forward);
        const bool is_block = layer > 0 && layer + 1 < slice.size();
        const double added = is_block ? 3 * 2.0 * 8192 * 2 * 8 * 128 / (0.75 * 2.039e12) / (1 - 0.0368) : 0;
        EXPECT_NEAR(slice[layer].backward_input, sequence[layer].backward_input + added, 1e-12);
        EXPECT_DOUBLE_EQ(slice[layer].backward_weight, sequence[layer].backward_weight);
        EXPECT_DOUBLE_EQ(slice[layer].saved, sequence[layer].saved);
    }
}

// Attention of later slices grows by their keys: n queries attend to n more keys per slice, twice the pairs of the
// first slice. A window of w tokens ends the growth: n w pairs from the token w on.
TEST(TransformerCosts, OfLaterSlicesGrowByTheirKeys) {
    TransformerJob job = gpt_job(4096, 32, 4, 4, 1);
    job.parallel.release = Release::NeMo2025;
    job.tokens = 32'768;
    const double n = 8192;
    const KernelTimes kernels(job);
    const PassSeconds first = kernels.attention({0, n}, 1, 8, 128, 128, 0);  // n^2 / 2 pairs
    for (int slice = 1; slice < 4; ++slice) {
        const PassSeconds later = kernels.attention({slice * n, (slice + 1) * n}, 1, 8, 128, 128, 0);
        EXPECT_NEAR(later.forward, (2 * slice + 1) * first.forward, 1e-12);
        EXPECT_NEAR(later.backward, (2 * slice + 1) * first.backward, 1e-12);
        // A block also appends to a copy of the keys and values: read and written, two bytes each.
        const double forward = TransformerLayers(job, {slice * n, (slice + 1) * n}).all(1)[1].forward -
                               TransformerLayers(job, {0, n}).all(1)[1].forward;
        const double copied = 2 * 2.0 * (slice + 1) * n * 2 * 8 * 128 / (0.75 * 2.039e12);
        EXPECT_NEAR(forward, (2 * slice * first.forward + copied) / (1 - 0.0368), 1e-12);
    }
    const double rate = n * n / 2 / first.forward;  // pairs per second
    EXPECT_NEAR(kernels.attention({n, 2 * n}, 1, 8, 128, 128, 4096).forward, n * 4096 / rate, 1e-12);
    EXPECT_NEAR(kernels.attention({0, n}, 1, 8, 128, 128, 4096).forward, (n * 4096 - 4096 * 2048) / rate, 1e-12);
}

// Two layer norms read and write 2048 x 6144 values of two bytes, the GELU half of 2048 x 24576 ones, on an A100 at
// 0.75 of 2.039 TB/s; each of the three kernels takes 2.2 us more.
TEST(TransformerCosts, RecomputeNormsAndActivationsOnly) {
    TransformerJob job = gpt_job(6144, 64, 48, 2, 1);
    job.parallel.recompute = *parse_modules("norms");
    const double bytes = 2 * 4.0 * 2048 * 6144 + 4.0 * 2048 * 24'576 / 2;
    EXPECT_NEAR(cost_of_block(job, 1).parts.again, bytes / (0.75 * 2.039e12) + 3 * 2.2e-6, 1e-9);
}

// Table 5 of the paper in the first edition: seconds of a forward and backward of one layer of the 22B model with
// micro-batches of four. What is checked is the order of the four ways, and their distance.
TEST(TransformerCosts, OrderTheWaysToRecomputeAsThePaperDoes) {
    TransformerJob job = gpt_job(6144, 64, 48, 8, 1);
    const auto seconds = [&](bool sequence, ModuleSet kind) {
        job.parallel.sequence = sequence;
        job.parallel.recompute = kind;
        const TransformerLayerCost cost = cost_of_block(job, 4);
        return cost.forward + cost.backward_input + cost.backward_weight;
    };
    const double none = seconds(false, ModuleSet{});
    const double full = seconds(false, set_of(BlockModule::Block));
    const double selective = seconds(false, set_of(BlockModule::CoreAttention));
    const double with_sequence = seconds(true, set_of(BlockModule::CoreAttention));
    EXPECT_GT(full / none, 1.25);  // the paper: 39 % more
    EXPECT_LT(full / none, 1.45);
    EXPECT_LT(selective / none, 1.12);  // 7 % more
    EXPECT_LT(with_sequence, selective);
}

// The 22B model of the paper with eight tensor ranks: rows are 4 x 2048 tokens; queries, keys and values are 3 x 6144 /
// 8 wide, the MLP 4 x 6144 / 8, the head 51200 / 8. Separate kernels of attention multiply the 4 x 8 x 2048 queries of
// 8 heads, 96 wide, with the keys of 2048 tokens, and their probabilities with the values.
TEST(TransformerCosts, ListTheProductsOfADevice) {
    const LinearShape linear[] = {{8192, 6144, 2304}, {8192, 768, 6144},  {8192, 6144, 3072}, {8192, 3072, 6144},
                                  {8192, 6144, 6400}, {65'536, 96, 2048}, {65'536, 2048, 96}};
    std::set<Product> expected;
    for (const LinearShape& shape : linear)
        for (const ProductLayout layout : {ProductLayout::TN, ProductLayout::NN, ProductLayout::NT})
            expected.insert(shape.product(layout));
    const std::vector<Product> products = products_of(gpt_job(6144, 64, 48, 8, 1), 4);
    EXPECT_EQ(std::set<Product>(products.begin(), products.end()), expected);
    EXPECT_EQ(products.size(), expected.size());
}

TEST(TransformerCosts, DivideTheParametersOfAModel) {
    for (const char* name : {"llama-3-70b", "gpt3-175b", "mixtral-8x7b", "deepseek-v3"}) {
        TransformerJob job = gpt_job(4096, 32, 32, 1, 1);
        job.model = *find_transformer(name);
        job.model.vocabulary = (job.model.vocabulary + 127) / 128 * 128;  // as frameworks pad it
        double all = 0;
        for (const TransformerLayerCost& layer : TransformerLayers(job).all(1))
            all += layer.parameters.dense + layer.parameters.experts;
        EXPECT_NEAR(all, static_cast<double>(parameters_of(job.model).total), 2e-4 * all) << name;
    }
}

// Megatron-LM's rule for mixed precision: 18 bytes for each parameter with gradients in fp32, 6 + 12 / d with states
// divided among d replicas; ZeRO-3 divides all of it.
TEST(TransformerCosts, KeepEighteenBytesForEachParameter) {
    TransformerJob job = gpt_job(4096, 32, 32, 1, 1);
    job.fabric.between = find_named_link("hdr200")->link;
    job.parallel.data = 4;
    for (const int zero : {0, 1, 2, 3}) {
        job.parallel.zero = zero;
        const ProfiledModel model = transformer_model(job, 1);
        StageSplit split = split_even(model.model.layers, 1);
        Costs costs = costs_of(model.model, split, model.profile, 1);
        add_replicas(costs, {{job}}, split, 1);
        double parameters = 0;
        for (const TransformerLayerCost& layer : TransformerLayers(job).all(1))
            parameters += layer.parameters.dense;
        const StageBytes& bytes = costs.bytes[0];
        const auto per_parameter = [&](Bytes size) { return static_cast<double>(size) / parameters; };
        EXPECT_NEAR(per_parameter(bytes.weights), zero == 3 ? 2.0 / 4 : 2, 1e-3) << zero;
        EXPECT_NEAR(per_parameter(bytes.training->gradients), zero >= 2 ? 4.0 / 4 : 4, 1e-3) << zero;
        EXPECT_NEAR(per_parameter(bytes.training->states), zero >= 1 ? 12.0 / 4 : 12, 1e-3) << zero;
    }
}

// Published counts of FLOPs per token, forward and backward: 448.8 GFLOP for Llama 3 70B at 8192 tokens with the causal
// half (NVIDIA's Megatron-Bridge), and 6 N + 6 L h s for a GPT.
TEST(TransformerCosts, CountThePublishedFlops) {
    EXPECT_NEAR(model_flops_per_token(*find_transformer("llama-3-70b"), 8192) * 1e-9, 448.8, 4.5);
    const Transformer gpt = *find_transformer("gpt3-175b");
    const double matrices = 12.0 * gpt.layers * gpt.hidden * gpt.hidden + 1.0 * gpt.vocabulary * gpt.hidden;
    EXPECT_NEAR(model_flops_per_token(gpt, 2048), 6 * matrices + 6.0 * gpt.layers * gpt.hidden * 2048, 1e9);
}

// NVIDIA's Megatron-Bridge (docs/performance-summary.md, container 26.06.01) reports 1640 TFLOP/s for 6304 tokens per
// second of DeepSeek-V3 in sequences of 4096: 260.2 GFLOP per token, with one module that predicts a further token.
// Without the module its count is 4 % less. For Nemotron 3 Nano it reports 849 TFLOP/s for 38102 tokens per second in
// sequences of 8192, and for Nemotron 3 Super with two modules 783 TFLOP/s for 9243. Its program counts an inner width
// of Mamba-2 of twice the hidden size, which Super has and Nano has not, and 7 FLOPs in the scan for each number of the
// state. It counts neither routers nor the products before modules (NVIDIA/Megatron-LM@d98e8a6,
// megatron/training/training.py, hybrid_flops).
TEST(TransformerCosts, CountTheFlopsOfFurtherTokensAndOfMamba) {
    Transformer model = *find_transformer("deepseek-v3");
    const double published = 1640e12 / 6304, without = model_flops_per_token(model, 4096);
    EXPECT_GT(published, 1.03 * without);
    model.mtp = 1;
    EXPECT_NEAR(model_flops_per_token(model, 4096), published, 0.005 * published);
    // By hand: the module's products, the head's once more, and a layer's causal pairs with 128 heads of 192 and 128.
    const double module = static_cast<double>(parameters_of(model).active) -
                          static_cast<double>(parameters_of(*find_transformer("deepseek-v3")).active);
    EXPECT_NEAR(model_flops_per_token(model, 4096) - without,
                6 * (module + 7168.0 * 129'280) + 6 * 2048.0 * 128 * (192 + 128), 1);
    const auto counted_there = [](const Transformer& hybrid, double mambas, double routers) {
        const double hidden = hybrid.hidden, wider = 2 * hidden - static_cast<double>(hybrid.mamba->inner());
        const double scan = 7 * 2 * hidden * 128 - hybrid.mamba->scan_flops();
        return model_flops_per_token(hybrid, 8192) + mambas * (6 * 3 * hidden * wider + 3 * scan) -
               6 * (routers * hidden * hybrid.experts->count + hybrid.mtp * 2 * hidden * hidden);
    };
    const double nano = 849e12 / 38'102, super = 783e12 / 9'243;
    EXPECT_NEAR(counted_there(*find_transformer("nemotron-3-nano"), 23, 23), nano, 0.002 * nano);
    model = *find_transformer("nemotron-3-super");
    model.mtp = 2;
    EXPECT_NEAR(counted_there(model, 40, 42), super, 0.002 * super);
    EXPECT_NEAR(model_flops_per_token(model, 8192), super, 0.01 * super);
}

// A module on a stage of its own: an embedding, three norms, a product from twice the hidden size, and a block. Its
// parameters are the block's, the product's, the norms' and a copy of the embedding's table. The head computes two
// losses.
TEST(TransformerCosts, OfFurtherTokensAreABlockMoreAndAHeadMore) {
    TransformerJob job = gpt_job(4096, 32, 2, 1, 1);
    const std::vector<TransformerLayerCost> without = TransformerLayers(job).all(1);
    job.model.mtp = 1;
    const std::vector<TransformerLayerCost> layers = TransformerLayers(job).all(1);
    ASSERT_EQ(layers.size(), 5U);
    const double own = 2.0 * 4096 * 4096 + 3 * 2 * 4096, table = 51'200.0 * 4096;
    EXPECT_EQ(layers[3].parameters.dense, layers[2].parameters.dense + own);
    job.parallel.pipeline = 2;
    EXPECT_EQ(TransformerLayers(job).all(1)[3].parameters.dense, layers[2].parameters.dense + own + table);
    EXPECT_GT(layers[3].forward, layers[2].forward + layers[0].forward);
    EXPECT_NEAR(layers[4].parts.products, 2 * without[3].parts.products, 1e-12);
    // Logits of the second loss, and its input.
    EXPECT_EQ(layers[4].scratch, without[3].scratch);
    EXPECT_GT(layers[4].saved, 1.9 * without[3].saved - 2 * 2 * 2048.0 * 4096);
    const ProfiledModel model = transformer_model(job, 1);
    const double output = 2 * 2048.0 * 4096;
    EXPECT_EQ(static_cast<double>(model.profile.layers[2].bytes.at(1).output), output);
    EXPECT_EQ(static_cast<double>(model.profile.layers[3].bytes.at(1).output), 2 * output);
}

// A layer of a tiny model waits for its host: 27.45 us for each kernel of a forward, twice in the backward.
// What a graph launches is not waited for, and what is computed stays.
TEST(TransformerCosts, OfCudaGraphsDoNotWaitForLaunches) {
    TransformerJob job = gpt_job(256, 4, 2, 1, 1);
    job.parallel.release = Release::NeMo2025;
    job.model.experts = Experts{.count = 8, .active = 2, .width = 256};
    const auto with = [&](CudaGraphs graphs) {
        job.parallel.cuda_graphs = graphs;
        return cost_of_block(job, 1);
    };
    const TransformerLayerCost one_by_one = with(CudaGraphs::None), dense = with(CudaGraphs::Dense),
                               all = with(CudaGraphs::All);
    EXPECT_EQ(all.parts.launches, 0);
    EXPECT_GT(dense.parts.launches, 0);
    EXPECT_EQ(all.parts.products, one_by_one.parts.products);
    // Routed experts launch two products for each of 8 experts, and one activation: 17 kernels.
    EXPECT_NEAR(dense.forward, 17 * 27.45e-6 / (1 - 0.0368), 1e-9);
    const double routing = 40, rest = one_by_one.forward * (1 - 0.0368) / 27.45e-6 - 17 - routing;
    EXPECT_NEAR(rest, std::round(rest), 1e-6);  // whole kernels
    job.model.experts.reset();
    EXPECT_EQ(with(CudaGraphs::Dense).forward, with(CudaGraphs::All).forward);
}

// Attention and MLP that read the same input send one message each way instead of two (GPT-NeoX, arXiv 2204.06745,
// section 2.1).
TEST(TransformerCosts, OfParallelAttentionAndMlpHaveHalfTheMessages) {
    TransformerJob job = gpt_job(6144, 64, 4, 8, 1);
    job.parallel.release = Release::Megatron2021;  // hides nothing
    const double in_turn = cost_of_block(job, 1).parts.tensor;
    const double saved = cost_of_block(job, 1).saved;
    job.model.parallel = true;
    EXPECT_NEAR(cost_of_block(job, 1).parts.tensor, in_turn / 2, 1e-12);
    EXPECT_NEAR(cost_of_block(job, 1).saved, saved - 2 * 2048.0 * 6144, 1);  // no residual stream between the parts
}

// Gemma 2 has two norms more, each with its input saved: 2 x 2048 x 4096 values of two bytes.
TEST(TransformerCosts, OfNormsAfterThePartsAreSaved) {
    TransformerJob job = gpt_job(4096, 32, 2, 1, 1);
    const TransformerLayerCost plain = cost_of_block(job, 1);
    job.model.post_norms = true;
    const TransformerLayerCost more = cost_of_block(job, 1);
    EXPECT_EQ(more.saved, plain.saved + 2 * 2 * 2048.0 * 4096);
    EXPECT_EQ(more.parameters.dense, plain.parameters.dense + 2 * 2 * 4096);
    const double bytes = 2 * 2048.0 * 4096 * (4 + 6);  // two more norms, forward and backward
    EXPECT_NEAR(more.parts.moved - plain.parts.moved, bytes / (0.75 * 2.039e12) + 2 * 3 * 2.2e-6, 1e-9);
}

TransformerJob mamba_job() {  // a layer of Nemotron-H-8B, in sequences of 8192
    TransformerJob job = gpt_job(4096, 32, 2, 1, 1);
    job.model.mamba = Mamba{.heads = 128, .head_width = 64, .groups = 8, .state = 128, .kernel = 4, .chunk = 128};
    job.model.forms = {{Mixer::Mamba, Feed::None}, {Mixer::None, Feed::Mlp}};
    job.model.norm = NormKind::RmsNorm;
    job.model.bias = false;
    job.tokens = 8192;
    job.parallel.release = Release::NeMo2025;
    return job;
}

// Per token by hand: within a chunk of 128 each token meets 64 others in the mean, 2 x 128 FLOPs for each of 8 groups
// and 2 x 64 for each of 128 heads. Into the states and out of them: twice 2 x 64 x 128 FLOPs for each head.
TEST(TransformerCosts, OfMambaCountItsScan) {
    EXPECT_EQ(mamba_job().model.mamba->scan_flops(), 64 * (8 * 2 * 128 + 128 * 2 * 64) + 128 * 2 * 2 * 64 * 128);
}

// 109,635,968 parameters without the norm before it: see test_transformer_families.cpp. Saved are the input of the
// first product, its 2 x 8192 + 2 x 1024 + 128 outputs, the output of the scan and the input of the last product.
TEST(TransformerCosts, OfMambaFollowFromItsShapes) {
    TransformerJob job = mamba_job();
    const TransformerLayerCost whole = cost_of_block(job, 1);
    EXPECT_EQ(whole.parameters.dense, 109'635'968 + 4096);
    EXPECT_EQ(whole.saved, 2 * 8192.0 * (4096 + 18'560 + 2 * 8192));
    EXPECT_EQ(whole.scratch, 4 * 8192.0 / 128 * 8192 * 128);
    EXPECT_EQ(whole.keys_and_values, 0);
    EXPECT_EQ(whole.parts.attention, 0);
    std::set<Product> expected;
    for (const LinearShape& shape : {LinearShape{8192, 4096, 18'560}, LinearShape{8192, 8192, 4096}})
        for (const ProductLayout layout : {ProductLayout::TN, ProductLayout::NN, ProductLayout::NT})
            expected.insert(shape.product(layout));
    const std::vector<Product> products = products_of(job, 1);
    for (const Product& product : expected)
        EXPECT_EQ(std::count(products.begin(), products.end(), product), 1);
    // Twice the tokens take twice the scan, where causal attention takes four times.
    job.tokens = 16'384;
    EXPECT_NEAR(cost_of_block(job, 1).parts.moved / whole.parts.moved, 2, 0.02);
}

// Tensor ranks divide heads and groups: an eighth of all but the norm. One message each way, as for attention alone.
TEST(TransformerCosts, OfMambaAreDividedAmongTensorRanks) {
    TransformerJob job = mamba_job();
    const TransformerLayerCost whole = cost_of_block(job, 1);
    job.parallel.tensor = 8;
    job.parallel.sequence = true;
    const TransformerLayerCost part = cost_of_block(job, 1);
    EXPECT_EQ(part.parameters.dense - 4096, (whole.parameters.dense - 4096) / 8);
    EXPECT_NEAR(part.saved, whole.saved / 8, 1);
    const double of_mamba = part.parts.tensor;
    job.model.forms = {{Mixer::Attention, Feed::None}};
    EXPECT_NEAR(cost_of_block(job, 1).parts.tensor, of_mamba, 0.1 * of_mamba);
    job.model.forms = {{Mixer::Mamba, Feed::Mlp}};
    EXPECT_NEAR(cost_of_block(job, 1).parts.tensor, 2 * of_mamba, 0.1 * of_mamba);
}

TEST(TransformerCosts, TakeAPartOfTheAttentionWithAWindow) {
    TransformerJob job = gpt_job(4096, 32, 2, 1, 1);
    job.tokens = 8192;
    job.parallel.attention = AttentionKernels::Flash;
    job.model.window = 1024;
    job.model.forms = {{Mixer::Window, Feed::Mlp}, {Mixer::Attention, Feed::Mlp}};
    const std::vector<TransformerLayerCost> layers = TransformerLayers(job).all(1);
    ASSERT_TRUE(job.model.has_window(0));
    ASSERT_FALSE(job.model.has_window(1));
    // Pairs of queries and keys: 8192 (1024 - 1024^2 / 16384) of 8192^2 / 2.
    EXPECT_NEAR(layers[1].parts.attention / layers[2].parts.attention, (1024 - 64) / 4096.0, 1e-12);
}

TEST(TransformerCosts, HideTheSumsOfGradientsInTheLastBackward) {
    TransformerJob job = gpt_job(4096, 32, 32, 1, 1);
    job.fabric.between = find_named_link("hdr200")->link;
    job.fabric.adapters = 8;
    job.parallel.data = 64;
    const auto update = [&](bool overlaps) {
        job.parallel.overlap = Overlap{.data = overlaps};
        const ProfiledModel model = transformer_model(job, 4);
        StageSplit split = split_even(model.model.layers, 1);
        Costs costs = costs_of(model.model, split, model.profile, 4);
        add_replicas(costs, {{job}}, split, 4);
        return costs.stage[0].update;
    };
    EXPECT_GT(update(false), 2 * update(true));
}

// With one adapter of 100 Gbit/s for the eight devices of a host, gathers inside a host save most of the messages.
TEST(TransformerCosts, GatherAmongTheReplicasThatShareTheState) {
    TransformerJob job = gpt_job(4096, 32, 32, 1, 1);
    job.fabric.between = find_named_link("roce100")->link;
    job.parallel.data = 64;
    job.parallel.zero = 1;
    const auto update = [&](int group) {
        job.parallel.zero_group = group;
        const ProfiledModel model = transformer_model(job, 1);
        StageSplit split = split_even(model.model.layers, 1);
        Costs costs = costs_of(model.model, split, model.profile, 1);
        add_replicas(costs, {{job}}, split, 1);
        return static_cast<double>(costs.stage[0].update) * 1e-9;
    };
    double parameters = 0;
    for (const TransformerLayerCost& layer : TransformerLayers(job).all(1))
        parameters += layer.parameters.dense;
    const double out = 0.96 * 12.5e9;  // of a host
    // All replicas: 4 bytes are scattered and 2 gathered by all 64 through eight adapters' worth of one.
    EXPECT_NEAR(update(0), 6 * parameters * 63 / 64 / out, 0.1 * update(0));
    // Groups of a host: sums of an eighth each, among eight hosts, twice.
    EXPECT_NEAR(update(8), 2 * 4 * parameters * 7 / 8 / out, 0.1 * update(8));
}

TEST(TransformerCosts, NameEveryRelease) {
    for (const auto& [name, release] : kChoices<Release>)
        EXPECT_EQ(facts_of(release).release, release) << name;
}

// Links between stages: 4 devices of a stage on hosts of 8, two stages on each host.
TEST(TransformerCosts, SendBetweenHostsWhereStagesAreOnTwo) {
    TransformerJob job = gpt_job(4096, 32, 32, 4, 4);
    job.fabric.between = find_named_link("hdr200")->link;
    job.fabric.adapters = 8;
    const ClusterFacts facts = pipeline_cluster(job);
    EXPECT_EQ(facts.link.bandwidth, 300e9);
    EXPECT_FALSE(facts.own_links.contains({0, 1}));
    ASSERT_TRUE(facts.own_links.contains({1, 2}));
    EXPECT_NEAR(facts.own_links.at({1, 2}).bandwidth, 0.96 * 8 * 25e9 / 4, 1);
    job.parallel.data = 4;
    EXPECT_NEAR(pipeline_cluster(job).link.bandwidth, 0.96 * 25e9, 1);
}

}  // namespace
}  // namespace pw
