// Searches on devices of several makes, against every choice and every division of the blocks, simulated one by one.
#include "job/job.h"
#include "job/setup/rank_groups.h"
#include "job/transformer_job.h"
#include "report/report.h"
#include "search//clusters/choice_list.h"
#include "search/clusters/cluster_search.h"
#include "search/plans/choice_list.h"
#include "search/plans/makespan.h"
#include "tests/search/divisions.h"
#include "tests/search/trained_parts.h"
#include "tests/support/config_text.h"
#include "tests/support/thoroughness.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <vector>

namespace pw {
namespace {

// Calls `visit` with every order of some or all hosts in which equal hosts follow one another, in the order of the
// file.
void for_each_order(const std::vector<std::string>& rows, const std::function<void(const std::vector<int>&)>& visit) {
    std::vector<int> order;
    const auto row_of = [&](int host) -> const std::string& { return rows[static_cast<std::size_t>(host)]; };
    const std::function<void()> extend = [&] {
        if (!order.empty())
            visit(order);
        for (int host = 0; host < std::ssize(rows); ++host) {
            std::vector<int> equal;  // hosts with the same row before it, in the file
            for (int other = 0; other < host; ++other)
                if (row_of(other) == row_of(host))
                    equal.push_back(other);
            const auto alike = std::ranges::count_if(order, [&](int other) { return row_of(other) == row_of(host); });
            const bool follows = equal.empty() || (!order.empty() && order.back() == equal.back());
            if (alike != std::ssize(equal) || !follows || std::ranges::count(order, host) > 0)
                continue;
            order.push_back(host);
            extend();
            order.pop_back();
        }
    };
    extend();
}

struct RandomCluster {
    std::vector<std::string> rows;  // of the hosts
    std::string text;
    bool trained_in_part = false;
};

// Two or three hosts of random kinds, speeds and memories, and a few dimensions with two values each. Half of the
// models have an encoder, frozen layers or adapters.
RandomCluster random_cluster(std::mt19937& random) {
    const auto pick = [&](std::initializer_list<const char*> all) { return all.begin()[random() % all.size()]; };
    RandomCluster drawn;
    std::string hosts;
    const int count = 2 + static_cast<int>(random() % 2);
    for (int host = 0; host < count; ++host) {
        if (host > 0 && random() % 3 == 0)
            drawn.rows.push_back(drawn.rows.back());
        else
            drawn.rows.push_back(fmt::format("    - {{device: {}, devices: 2, speed: {}, memory: {}}}\n",
                                             pick({"h100-sxm-80", "a100-sxm-40", "a100-sxm-80"}),
                                             pick({"1", "1", "0.4", "1.7"}),
                                             pick({"80 GB", "40 GB", "16 GB", "9 GB"})));
        hosts += drawn.rows.back();
    }
    const bool is_looped = random() % 3 == 0;
    std::string text = fmt::format(
        R"(
workload: {{model: config.json, sequence_length: 1024TRAINED}}
cluster:
  hosts:
{}  between: {}
training: {{precision: bf16, optimizer: adamw}}
search: {{mini_batch: 12, tensor: [{}], pipeline: [{}], context: [1], chunks: [{}], schedules: [{}], zero: [{}],
         recompute: [{}], micro_batch_sizes: [1], slices: [2, 3]}}
)",
        hosts, pick({"hdr200", "ndr400", "{bandwidth: 1 GB/s, latency: 20 us}"}),
        pick({"1, 2", "1, 2", "1, [2, 1]", "[1, 2], [2, 1]", "2, [1, 2], [2, 1]"}), pick({"2", "1, 2"}),
        is_looped ? "2" : "1",
        is_looped ? pick({"interleaved", "zb-v", "v-half"})
                  : pick({"1f1b", "gpipe", "zb-h1", "chimera", "seq1f1b", "1f1b, seq1f1b"}),
        pick({"0", "1", "0, 1", "[1, 0]", "0, [3, 0]"}), pick({"none", "none", "[full, none]", "none, [norms, full]"}));
    // Stages of a model with an encoder have the same degrees, and its sequences are not cut.
    const bool may_have_encoder =
        text.find(", [") == text.npos && text.find("[[") == text.npos && text.find("seq1f1b") == text.npos;
    drawn.trained_in_part = random() % 2 == 0;
    const std::string trained = drawn.trained_in_part ? random_trained_parts(random, may_have_encoder) : "";
    drawn.text = text.replace(text.find("TRAINED"), 7, trained);
    return drawn;
}

// 200 spaces in four parts, which run side by side, with PIPEWRIGHT_SOAK=1 2000; PIPEWRIGHT_SPACES replaces the number.
constexpr int kParts = 4;

class UnlikeDevices : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Part, UnlikeDevices, testing::Range(0, kParts));

TEST_P(UnlikeDevices, SearchFindsTheBestOfAllChoices) {
    const char* wanted = std::getenv("PIPEWRIGHT_SPACES");
    const int rounds = (wanted == nullptr ? pw::rounds(200) : std::atoi(wanted)) / kParts;
    int unequal = 0, infeasible = 0, ordered = 0, idle = 0, by_stage = 0, in_part = 0;
    const TemporaryFolder folder;
    folder.write("config.json", kTinyModel);
    for (int round = GetParam() * rounds; round < (GetParam() + 1) * rounds; ++round) {
        std::mt19937 random(static_cast<unsigned>(round));
        const RandomCluster drawn = random_cluster(random);
        if (std::ranges::all_of(drawn.rows, [&](const std::string& row) { return row == drawn.rows.front(); }))
            continue;  // hosts that are alike are all used
        SCOPED_TRACE(fmt::format("round {}:\n{}", round, drawn.text));
        const Config given = load_config(folder.write("cfg.yaml", drawn.text), {});
        Ns best = std::numeric_limits<Ns>::max(), equal = best;
        const auto simulate_all = [&](const Config& config, const PlanChoice& choice) {
            const auto simulate = [&](const std::vector<int>& blocks) {
                PlanChoice own = choice;
                own.blocks = blocks;
                Notices notices;
                try {
                    const Report report = predicted_report(make_job(setup_of(config, own), notices), false);
                    if (!fits(report))
                        return;
                    best = std::min(best, report.metrics.step_time);
                    if (blocks.empty())
                        equal = std::min(equal, report.metrics.step_time);
                } catch (const Error&) {  // its schedule refuses it
                }
            };
            simulate({});
            if (choice.stages > 1)
                for_each_division(config.workload.all_blocks(), choice.stages, simulate);
        };
        for_each_order(drawn.rows, [&](const std::vector<int>& hosts) {
            Config config = given;
            choose_hosts(config, hosts);
            try {
                for (const PlanChoice& choice : cluster_choices(config))
                    simulate_all(config, choice);
            } catch (const Error&) {  // no choice takes this number of devices
            }
        });
        SearchResult result;
        try {
            result = search_cluster(given);
        } catch (const Error&) {  // no choice takes any number of devices
        }
        if (best == std::numeric_limits<Ns>::max()) {
            EXPECT_EQ(result.best(), nullptr);
            ++infeasible;
            continue;
        }
        EXPECT_EQ(result.lower_bound, best) << "the space is small: the best plan is proven";
        if (equal != std::numeric_limits<Ns>::max())
            EXPECT_LE(result.equal_bound, equal);
        ASSERT_NE(result.best(), nullptr) << best;
        EXPECT_EQ(result.best()->step_time, best);
        unequal += result.best()->step_time < equal;
        ordered += !result.best()->choice.hosts.empty();
        by_stage += !result.best()->choice.of_stages.empty();
        in_part += drawn.trained_in_part;
        idle += !result.best()->choice.hosts.empty() && result.best()->choice.hosts.size() < drawn.rows.size();
    }
    EXPECT_GT(unequal, rounds / 4);
    EXPECT_LT(infeasible, rounds / 2);
    EXPECT_GT(ordered, rounds / 8);
    EXPECT_GT(idle, 0);
    EXPECT_GT(by_stage, rounds / 8);
    EXPECT_GT(in_part, rounds / 4);
}

}  // namespace
}  // namespace pw
