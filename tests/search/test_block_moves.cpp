// Numbers of blocks on the stages of a transformer, against every division of a small model.
#include "job/job.h"
#include "job/transformer_job.h"
#include "report/report.h"
#include "search/clusters/cluster_search.h"
#include "tests/search/divisions.h"
#include "tests/support/config_text.h"
#include "tests/support/thoroughness.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

namespace pw {
namespace {

// Against every split of 16 blocks: the head takes as long as five blocks, and little memory makes the first stages
// shorter.
TEST(BlockMoves, FindNearlyTheFastestDivision) {
    struct Case {
        const char *schedule, *memory;
        int pipeline, chunks;
    };
    int unequal = 0, tried = 0;
    OneIn some(2);
    for (const auto& [schedule, memory, pipeline, chunks] :
         {Case{"1f1b", "17 GB", 4, 1}, Case{"1f1b", "80 GB", 4, 1}, Case{"interleaved", "80 GB", 2, 2},
          Case{"zb-h1", "80 GB", 4, 1}, Case{"v-half", "80 GB", 2, 2}, Case{"1f1b", "80 GB", 2, 1}}) {
        if (!some.picks())
            continue;
        ++tried;
        const std::string base = fmt::format(
            R"(
workload: {{model: llama-3.2-1b, sequence_length: 4096}}
cluster: {{hosts: 1, devices_per_host: {}, device: h100-sxm-80, memory: {}}}
training: {{precision: bf16, optimizer: adamw}}
search: {{mini_batch: 8, tensor: [1], pipeline: [{}], context: [1], chunks: [{}], schedules: [{}], zero: [0],
         recompute: [none], micro_batch_sizes: [1]}}
)",
            pipeline, memory, pipeline, chunks, schedule);
        SCOPED_TRACE(base);
        const Config config = load(base);
        const SearchResult result = search_cluster(config);
        Ns best = std::numeric_limits<Ns>::max(), even = best;
        const int stages = pipeline * chunks;
        for_each_division(16, stages, [&](const std::vector<int>& blocks) {
            PlanChoice choice = result.plans.front().choice;
            choice.blocks = blocks;
            Notices notices;
            const Report report = predicted_report(make_job(setup_of(config, choice), notices), false);
            if (!fits(report))
                return;
            best = std::min(best, report.metrics.step_time);
            if (blocks == even_blocks(16, stages))
                even = report.metrics.step_time;
        });
        EXPECT_LE(result.lower_bound, best);
        EXPECT_GE(static_cast<double>(result.lower_bound), 0.7 * static_cast<double>(best));
        ASSERT_NE(result.best(), nullptr);
        EXPECT_GE(result.best()->step_time, best);
        EXPECT_LE(static_cast<double>(result.best()->step_time), 1.005 * static_cast<double>(best));
        unequal += result.best()->step_time < even;
    }
    EXPECT_GE(3 * unequal, 2 * tried);
}

}  // namespace
}  // namespace pw
