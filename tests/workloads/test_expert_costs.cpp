// Costs of experts against hand calculations.
#include "workloads/transformers/transformer_model.h"

#include "tests/support/transformer_jobs.h"

#include <gtest/gtest.h>

namespace pw {
namespace {

TEST(ExpertCosts, DivideExpertsAmongTheirRanks) {
    TransformerJob job = gpt_job(4096, 32, 32, 1, 1);
    job.model = *find_transformer("mixtral-8x7b");
    const double all = TransformerLayers(job).all(1)[1].parameters.experts;
    EXPECT_EQ(all, 8.0 * 3 * 4096 * 14'336);
    job.parallel.expert = 4;
    job.parallel.data = 4;
    EXPECT_EQ(TransformerLayers(job).all(1)[1].parameters.experts, all / 4);
}

// The rank with the most tokens has 1.5 times the mean: its experts compute 1.5 times the rows, and 1.5 times the
// tokens come and go, with nothing hidden. Of four ranks a rank has four times the mean at most.
TEST(ExpertCosts, WaitForTheFullestExperts) {
    TransformerJob job = gpt_job(4096, 32, 32, 1, 1);
    job.model = *find_transformer("mixtral-8x7b");
    job.tokens = 4096;
    job.parallel.release = Release::Megatron2021;  // hides nothing
    job.parallel.expert = job.parallel.data = 4;
    const KernelTimes kernels(job);
    const double copies = 2 * 4096.0 * 2, hidden = 4096, width = 14'336;  // two sequences, two experts per token
    const auto counted = [&](double load) {
        const double rows = load * copies / 2;  // two experts on each rank
        const double products =
            kernels.experts(2, rows, hidden, 2 * width).forward + kernels.experts(2, rows, width, hidden).forward;
        const double gated = kernels.moved(6 * load * copies * width);  // one kernel
        const double messages =
            2 * collective_seconds(Collective::AllToAll, 2 * load * copies * hidden, {4, 1}, job.fabric);
        return (products + gated + messages) / (1 - 0.0368);
    };
    const TransformerLayerCost even = cost_of_block(job, 2);
    job.parallel.expert_load = 1.5;
    const TransformerLayerCost uneven = cost_of_block(job, 2);
    EXPECT_NEAR(uneven.forward - even.forward, counted(1.5) - counted(1), 1e-9);
    // Two bytes each: the tokens as they come and sorted, both products and the output of the gate.
    EXPECT_NEAR(uneven.saved - even.saved, 0.5 * copies * (2 * 2 * hidden + 3 * 2 * width), 1);
    job.parallel.expert_load = 7;
    const double most = cost_of_block(job, 2).forward;
    job.parallel.expert_load = 4;
    EXPECT_EQ(cost_of_block(job, 2).forward, most);
}

// Mixtral's experts in a width of 1024. Each tensor rank has both matrices between the hidden size and this width, and
// multiplies its own tokens by them. Only the narrower tokens are sorted and sent, and kept as they come and sorted.
// The input of the product back is kept, too.
TEST(ExpertCosts, ComputeInANarrowerWidth) {
    TransformerJob job = gpt_job(4096, 32, 32, 1, 1);
    job.model = *find_transformer("mixtral-8x7b");
    job.tokens = 4096;
    job.parallel.release = Release::Megatron2021;  // hides nothing
    job.parallel.expert = job.parallel.data = 4;
    const KernelTimes kernels(job);
    const double tokens = 2 * 4096.0, copies = 2 * tokens, width = 14'336;
    const auto counted = [&](double inputs) {
        const double products = kernels.experts(2, copies / 2, inputs, 2 * width).forward +
                                kernels.experts(2, copies / 2, width, inputs).forward;
        const double messages = 2 * collective_seconds(Collective::AllToAll, 2 * copies * inputs, {4, 1}, job.fabric);
        const double sorting = kernels.moved(2 * 2 * 2 * copies * inputs * 0.67 / 0.5);
        return products + messages + sorting;
    };
    const TransformerLayerCost whole = cost_of_block(job, 2);
    job.model.experts->latent = 1024;
    const TransformerLayerCost narrow = cost_of_block(job, 2);
    EXPECT_EQ(narrow.parameters.experts, 8.0 / 4 * 3 * 1024 * width);
    EXPECT_EQ(narrow.parameters.dense - whole.parameters.dense, 2.0 * 4096 * 1024);
    const double around = kernels.linear(tokens, 4096, 1024).forward + kernels.linear(tokens, 1024, 4096).forward;
    EXPECT_NEAR(whole.forward - narrow.forward, (counted(4096) - counted(1024) - around - 2 * 2.2e-6) / (1 - 0.0368),
                1e-9);
    EXPECT_NEAR(whole.saved - narrow.saved, 2 * 2 * copies * (4096 - 1024) - 2 * tokens * 1024, 1);
    const auto dense = [&](int latent) {
        job.model.experts->latent = latent;
        return cost_of_block(job, 2).parameters.dense;
    };
    job.parallel.tensor = 2;
    job.parallel.sequence = true;
    EXPECT_EQ(dense(1024) - dense(0), 2.0 * 4096 * 1024);
}

// What each dispatcher sends grows with the width of the tokens it gets, and with nothing else of a layer.
TEST(ExpertCosts, SendTokensInTheirNarrowerWidth) {
    TransformerJob job = gpt_job(4096, 32, 32, 1, 1);
    job.model = *find_transformer("mixtral-8x7b");
    job.tokens = 4096;
    job.fabric.inside_name.clear();  // collectives without a table: a latency, and a share of the bandwidth
    job.parallel.release = Release::Megatron2021;
    job.parallel.expert = job.parallel.data = 4;
    for (const ExpertDispatcher dispatcher : {ExpertDispatcher::AllToAll, ExpertDispatcher::DeepEp}) {
        job.parallel.expert_dispatcher = dispatcher;
        const auto seconds = [&](int latent) {
            job.model.experts->latent = latent;
            return cost_of_block(job, 2).parts.experts;
        };
        const double quarter = seconds(1024), half = seconds(2048), whole = seconds(0);
        EXPECT_GT(half, quarter);
        EXPECT_NEAR(whole - half, 2 * (half - quarter), 1e-12);
    }
}

// By hand from rows of 40 experts with 616 tokens on an A100 PCIe: forward, gradients of inputs and of weights.
TEST(ExpertCosts, ComputeExpertsByGroupedProducts) {
    TransformerJob job = gpt_job(4096, 32, 32, 1, 1);
    const std::vector<DeviceKindFacts>& kinds = device_kinds();
    job.device = *find_device_kind(kinds, "a100-pcie-80");
    job.products = product_rates(job.device, Precision::Bf16);
    const LinearSeconds experts = KernelTimes(job).experts(40, 616, 5120, 3072);
    const double flops = 40 * 2.0 * 616 * 5120 * 3072;
    EXPECT_NEAR(experts.forward, flops / (0.6313 * 312e12), 1e-9);
    EXPECT_NEAR(experts.input, flops / (0.6791 * 312e12), 1e-9);
    EXPECT_NEAR(experts.weight, flops / (0.5197 * 312e12), 1e-9);
}

// Two experts on each rank have two products of their own tokens each, and an activation more than in one call, whose
// kernel takes 2.2 us in addition to its bytes.
TEST(ExpertCosts, ComputeExpertsOneAfterTheOther) {
    TransformerJob job = gpt_job(4096, 32, 32, 1, 1);
    job.model = *find_transformer("mixtral-8x7b");
    job.tokens = 4096;
    job.parallel.release = Release::Megatron2021;
    job.parallel.expert = job.parallel.data = 4;
    const double grouped = cost_of_block(job, 2).forward, rows = 2 * 4096.0 * 2 / 2;
    const KernelTimes kernels(job);
    const auto single = kernels.linear(rows, 4096, 2 * 14'336).forward + kernels.linear(rows, 14'336, 4096).forward;
    const auto in_one =
        kernels.experts(2, rows, 4096, 2 * 14'336).forward + kernels.experts(2, rows, 14'336, 4096).forward;
    job.parallel.expert_kernels = ExpertKernels::Sequential;
    EXPECT_NEAR(cost_of_block(job, 2).forward - grouped, (2 * single - in_one + 2.2e-6) / (1 - 0.0368), 1e-9);
    EXPECT_EQ(facts_of(Release::DeepSpeed2022).experts, ExpertKernels::Sequential);
}

// Weights of attention are gathered among all replicas, those of experts among the ranks with the same ones: of eight
// ranks two have the same two of eight experts. All of it is hidden, and slows computing down by 12.6 %. Megatron FSDP
// scatters gradients in bf16.
TEST(ExpertCosts, GatherExpertsAmongTheRanksThatHaveThem) {
    TransformerJob job = gpt_job(4096, 32, 32, 1, 1);
    job.model = *find_transformer("mixtral-8x7b");
    job.tokens = 4096;
    job.fabric.inside_name.clear();  // collectives without a table: 22 us, and 0.742 of the bandwidth
    job.parallel.release = Release::NeMo2024;
    job.parallel.zero = 3;
    job.parallel.data = 8;
    const double attention = 2.0 * 4096 * 4096 + 2.0 * 4096 * 1024, norms = 2 * 4096, router = 4096 * 8;
    const double dense = attention + norms + router, expert = 3.0 * 4096 * 14'336;
    const auto ring = [&](double bytes, double ranks) {
        return 22e-6 + bytes * (ranks - 1) / ranks / (0.742 * job.fabric.inside.bandwidth);
    };
    job.parallel.expert = 4;
    const double gather = ring(2 * dense, 8) + ring(2 * 2 * expert, 2);
    const double scatter = ring(2 * dense, 8) + ring(2 * 2 * expert, 2);
    EXPECT_NEAR(cost_of_block(job, 2).parts.weights, 0.126 * (2 * gather + scatter), 1e-9);
    EXPECT_EQ(cost_of_block(job, 2).gathered, 2 * (dense + 2 * expert));
    // With an expert on each rank nothing but the rest is gathered.
    job.parallel.expert = 8;
    EXPECT_NEAR(cost_of_block(job, 2).parts.weights, 0.126 * 3 * ring(2 * dense, 8), 1e-9);
    EXPECT_EQ(cost_of_block(job, 2).gathered, 2 * dense);
}

// Two groups of four ranks divide the states; experts are on two ranks of a group each. Gradients are scattered inside
// a group, summed between the groups, and weights are gathered inside a group.
TEST(ExpertCosts, SumExpertsInTheirGroups) {
    TransformerJob job = gpt_job(4096, 32, 32, 1, 1);
    job.model = *find_transformer("mixtral-8x7b");
    job.fabric.inside_name.clear();
    job.parallel.release = Release::Megatron2021;  // hides nothing
    job.parallel.zero = 1;
    job.parallel.data = 8;
    job.parallel.zero_group = 4;
    job.parallel.expert = 2;
    const ProfiledModel model = transformer_model(job, 1);
    const StageSplit split = split_even(model.model.layers, 1);
    const Costs costs = costs_of(model.model, split, model.profile, 1);
    const StageParts parts = stage_parts(job, split, costs.stage, 1)[0];
    double dense = 0, experts = 0;
    for (const TransformerLayerCost& layer : TransformerLayers(job).all(1)) {
        dense += layer.parameters.dense;
        experts += layer.parameters.experts;
    }
    ASSERT_EQ(experts, 32 * 4 * 3.0 * 4096 * 14'336);
    const auto ring = [&](double bytes, double ranks) {
        return 22e-6 + bytes * (ranks - 1) / ranks / (0.742 * job.fabric.inside.bandwidth);
    };
    // An all-reduce of two ranks moves twice what a ring does, after 22 us once.
    const double between = ring(2 * 4 * dense / 4, 2) + ring(2 * 4 * experts / 2, 2);
    EXPECT_NEAR(parts.sums, ring(4 * dense, 4) + ring(4 * experts, 2) + between, 1e-9);
    EXPECT_NEAR(parts.gathers, ring(2 * dense, 4) + ring(2 * experts, 2), 1e-9);

    job.parallel.zero = 3;  // gradients are scattered in the passes, where weights are gathered
    const StageParts all_divided = stage_parts(job, split, costs.stage, 1)[0];
    EXPECT_NEAR(all_divided.sums, between, 1e-9);
    EXPECT_EQ(all_divided.gathers, 0);
}

}  // namespace
}  // namespace pw
