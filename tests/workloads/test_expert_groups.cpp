// Groups of expert tensor parallelism and messages to experts, against enumeration and hand calculations.
#include "tests/support/transformer_jobs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

namespace pw {
namespace {

TransformerJob mixtral_job() {
    TransformerJob job = gpt_job(4096, 32, 32, 1, 1);
    job.model = *find_transformer("mixtral-8x7b");
    job.tokens = 4096;
    job.fabric.inside_name.clear();                // collectives without a table
    job.parallel.release = Release::Megatron2021;  // hides nothing
    return job;
}

// Seconds of messages among ranks of a domain: 22 us, and 0.742 of the bandwidth, of all-to-alls 0.597.
double gather_seconds(double bytes, double ranks, const Fabric& fabric) {
    return 22e-6 + bytes * (ranks - 1) / ranks / (0.742 * fabric.inside.bandwidth);
}
double sent_seconds(double bytes, const Fabric& fabric) { return 22e-6 + bytes / (0.597 * fabric.inside.bandwidth); }

// Ranks of a stage as Megatron-LM numbers the ranks of experts: parts of an expert innermost, then experts.
std::vector<std::pair<int, int>> experts_by_rank(const Parallel& parallel) {
    std::vector<std::pair<int, int>> experts;
    for (int rank = 0; rank < parallel.holders(); ++rank)
        experts.emplace_back(rank / parallel.expert_tensor % parallel.expert, rank % parallel.expert_tensor);
    return experts;
}

// Returns the numbers of ranks and the distances of neighbours among ranks `first` to `first + count`, by what they
// have.
std::set<std::pair<int, int>> groups_among(const std::vector<std::pair<int, int>>& experts, int first, int count) {
    std::map<std::pair<int, int>, std::vector<int>> ranks;
    for (int rank = first; rank < first + count; ++rank)
        ranks[experts[static_cast<std::size_t>(rank)]].push_back(rank);
    std::set<std::pair<int, int>> groups;
    for (const auto& [expert, own] : ranks)
        groups.emplace(static_cast<int>(own.size()), own.size() > 1 ? own[1] - own[0] : 0);
    return groups;
}

TEST(ExpertGroups, AreTheRanksWithTheSamePartsOfTheSameExperts) {
    for (const int expert : {1, 2, 4, 8})
        for (const int parts : {1, 2, 4})
            for (const int zero_group : {4, 8}) {
                Parallel parallel{.tensor = 4, .context = 2, .expert = expert, .data = 4, .expert_tensor = parts};
                parallel.zero = 1;
                parallel.zero_group = zero_group;
                ASSERT_EQ(parallel.holders(), 32);
                const std::vector<std::pair<int, int>> experts = experts_by_rank(parallel);
                const auto has = [&](const RankGroup& group, int ranks) {
                    const auto found = groups_among(experts, 0, ranks);
                    EXPECT_EQ(found.size(), 1u);
                    EXPECT_EQ(found.begin()->first, group.ranks) << expert << " x " << parts;
                    if (group.ranks > 1) {
                        EXPECT_EQ(found.begin()->second, group.stride) << expert << " x " << parts;
                    }
                };
                has(parallel.all_replicas().experts, 32);
                has(parallel.sharing_ranks().experts, zero_group * 4);
            }
}

// Of 8 experts, 4 ranks have 2 each, and divide their width by 2.
TEST(ExpertGroups, DivideTheWidthOfExperts) {
    TransformerJob job = mixtral_job();
    job.parallel.tensor = 4;
    job.parallel.data = 2;
    job.parallel.sequence = true;
    job.parallel.expert = 4;
    const TransformerLayerCost whole = cost_of_block(job, 2);
    EXPECT_EQ(whole.parameters.experts, 2 * 3.0 * 4096 * 14'336);
    job.parallel.expert_tensor = 2;
    const TransformerLayerCost divided = cost_of_block(job, 2);
    EXPECT_EQ(divided.parameters.experts, 2 * 3.0 * 4096 * 14'336 / 2);
    EXPECT_EQ(divided.parameters.dense, whole.parameters.dense);
    // Twice as many copies of tokens come, two bytes each as they come and sorted. Products are half as wide.
    const double copies = 2 * 4096.0 / 4 * 2;
    EXPECT_NEAR(divided.saved - whole.saved, copies * 4096 * 2 * 2, 1);
    // A product of each width, of as many FLOPs. Copies are sorted at half of 0.67 of the bandwidth of plain kernels.
    const KernelTimes kernels(job);
    const auto products = [&](double parts) {
        return kernels.experts(2, parts * copies / 2, 4096, 2 * 14'336 / parts).forward +
               kernels.experts(2, parts * copies / 2, 14'336 / parts, 4096).forward;
    };
    const double sorting = kernels.moved(2 * 2 * 2 * copies * 4096) * 0.67 / 0.5;
    const double messages = divided.parts.experts / 2 - whole.parts.experts / 2;
    EXPECT_NEAR(divided.forward - whole.forward, (products(2) - products(1) + sorting + messages) / (1 - 0.0368), 1e-9);
}

// Megatron-Core's alltoall: a copy of a token goes to the ranks of each of its two experts, two ranks gather what they
// got, and add up and scatter what they computed. A backward has the same messages.
TEST(ExpertMessages, OfAllToAllGatherWhatHasCome) {
    TransformerJob job = mixtral_job();
    job.parallel.tensor = 4;
    job.parallel.data = 2;
    job.parallel.sequence = true;
    job.parallel.expert = 4;
    job.parallel.expert_tensor = 2;
    const double bytes = 2 * 4096.0 / 4 * 2 * 4096 * 2;
    const double all_to_all = sent_seconds(bytes * 3 / 4, job.fabric);
    const double gather = gather_seconds(2 * bytes, 2, job.fabric);
    EXPECT_NEAR(cost_of_block(job, 2).parts.experts, 2 * (2 * all_to_all + 2 * gather), 1e-9);
    job.parallel.expert = 1;  // nothing is sent but among the two ranks
    EXPECT_NEAR(cost_of_block(job, 2).parts.experts, 2 * 2 * gather, 1e-9);
    job.parallel.expert_tensor = 1;
    EXPECT_EQ(cost_of_block(job, 2).parts.experts, 0);
}

// torchtitan: the four tensor ranks gather their tokens before the experts and scatter the sums after them, as around
// attention. Each of two ranks with parts of an expert then sends the copies of all tokens.
TEST(ExpertMessages, OfGatheredTokensFollowAGather) {
    TransformerJob job = mixtral_job();
    job.parallel.tensor = 4;
    job.parallel.data = 2;
    job.parallel.sequence = true;
    job.parallel.expert = 2;
    job.parallel.expert_tensor = 4;
    const double tensor = cost_of_block(job, 2).parts.tensor;
    job.parallel.expert_dispatcher = ExpertDispatcher::Gathered;
    const double copies = 2 * 4096.0 * 2 * 4096 * 2;
    EXPECT_NEAR(cost_of_block(job, 2).parts.experts, 2 * 2 * sent_seconds(copies / 2, job.fabric), 1e-9);
    EXPECT_NEAR(cost_of_block(job, 2).parts.tensor, 2 * tensor, 1e-9);
    EXPECT_EQ(facts_of(Release::TorchTitan).dispatcher, ExpertDispatcher::Gathered);
    // Shared experts gather the same tokens.
    job.model = *find_transformer("deepseek-v2-lite");
    const double with_shared = TransformerLayers(job).all(2)[2].parts.tensor;
    job.parallel.expert_dispatcher = ExpertDispatcher::AllToAll;
    EXPECT_EQ(TransformerLayers(job).all(2)[2].parts.tensor, with_shared);
}

// Returns on how many of `parts` parts of 8 experts the two experts of a token are in the mean, by all 28 choices.
double mean_parts(int parts) {
    double sum = 0;
    for (int a = 0; a < 8; ++a)
        for (int b = a + 1; b < 8; ++b)
            sum += a * parts / 8 == b * parts / 8 ? 1 : 2;
    return sum / 28;
}

// DeepEP: of the 28 pairs of experts, 4 are on one of four ranks, so a token goes to 52/28 ranks, and 3/4 of them are
// other ranks. With two ranks for each expert it goes to 104/28, and 7/8 of them are other ranks.
TEST(ExpertMessages, OfDeepEpGoOnceToARank) {
    EXPECT_DOUBLE_EQ(mean_parts(4), 52.0 / 28);
    TransformerJob job = mixtral_job();
    job.parallel.data = 8;
    job.parallel.expert = 4;
    job.parallel.expert_dispatcher = ExpertDispatcher::DeepEp;
    const double tokens = 2 * 4096.0 * 4096 * 2;
    const auto seconds = [&](double sent) { return 4 * sent_seconds(sent * tokens, job.fabric); };
    EXPECT_NEAR(cost_of_block(job, 2).parts.experts, seconds(52.0 / 28 * 3 / 4), 1e-9);
    job.parallel.expert_tensor = 2;
    EXPECT_NEAR(cost_of_block(job, 2).parts.experts, seconds(104.0 / 28 * 7 / 8), 1e-9);
    job.parallel.expert_tensor = 1;
    for (const int expert : {2, 8}) {
        job.parallel.expert = expert;
        EXPECT_NEAR(cost_of_block(job, 2).parts.experts, seconds(mean_parts(expert) * (expert - 1) / expert), 1e-9);
    }
    // The fullest rank of four gets every token once, though it has four times the mean of all copies.
    job.parallel.expert = 4;
    job.parallel.expert_load = 4;
    EXPECT_NEAR(cost_of_block(job, 2).parts.experts, seconds(4 * 3.0 / 4), 1e-9);
    EXPECT_EQ(facts_of(Release::NeMo2025).dispatcher, ExpertDispatcher::DeepEp);
}

// Two domains of four ranks, with an expert on each: 12 of the 28 pairs of experts are in one domain, so a token goes
// to 44/28 domains, of which half are other domains. Each of its two ranks gets it over NVLink, but for the rank at the
// sender's place.
TEST(ExpertMessages, OfDeepEpLeaveADomainOnce) {
    EXPECT_DOUBLE_EQ(mean_parts(2), 44.0 / 28);
    TransformerJob job = mixtral_job();
    job.fabric.domain = job.fabric.per_host = job.fabric.adapters = 4;
    job.parallel.data = job.parallel.expert = 8;
    job.parallel.expert_dispatcher = ExpertDispatcher::DeepEp;
    const double tokens = 2 * 4096.0 * 4096 * 2;
    for (const double bandwidth : {25e9, 2500e9}) {  // either network is the slower one
        job.fabric.between = Link{.latency = 5000, .bandwidth = bandwidth};
        const double out = 44.0 / 28 / 2 * tokens / (0.96 * bandwidth);
        const double inside = 2 * 3.0 / 4 * tokens / (0.597 * job.fabric.inside.bandwidth);
        EXPECT_NEAR(cost_of_block(job, 2).parts.experts, 4 * (27e-6 + std::max(out, inside)), 1e-9);
    }
    // Two ranks for each of four experts: a domain has half of them.
    job.parallel.expert = 4;
    job.parallel.expert_tensor = 2;
    job.fabric.between = Link{.latency = 5000, .bandwidth = 25e9};
    EXPECT_NEAR(cost_of_block(job, 2).parts.experts, 4 * (27e-6 + 44.0 / 28 / 2 * tokens / (0.96 * 25e9)), 1e-9);
    // Eight ranks for each expert: each token goes to both domains, and to all ranks.
    job.parallel.expert = 1;
    job.parallel.expert_tensor = 8;
    EXPECT_NEAR(cost_of_block(job, 2).parts.experts, 4 * (27e-6 + tokens / (0.96 * 25e9)), 1e-9);
}

}  // namespace
}  // namespace pw
