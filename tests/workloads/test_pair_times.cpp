// How long two passes take together, against hand counts and the best order of all.
#include "workloads/transformers/pair_times.h"

#include "tests/support/dice.h"
#include "tests/support/transformer_jobs.h"
#include "workloads/transformers/transformer_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <tuple>
#include <vector>

namespace pw {
namespace {

PassStep computes(double seconds) { return {false, seconds}; }
PassStep sends(double seconds) { return {true, seconds}; }

double sum_of(const PassSteps& steps, bool with_computing, bool with_messages) {
    double sum = 0;
    for (const PassStep& step : steps)
        sum += (step.is_message ? with_messages : with_computing) ? step.seconds : 0;
    return sum;
}

// The least of all orders in which steps of both passes can start.
double best_of(const PassSteps& a, const PassSteps& b, std::array<std::size_t, 2> next = {},
               std::array<double, 2> ready = {}, std::array<double, 2> free = {}) {
    const std::array<const PassSteps*, 2> passes = {&a, &b};
    double best = 1e9;
    bool is_over = true;
    for (const std::size_t pass : {0u, 1u}) {
        if (next[pass] == passes[pass]->size())
            continue;
        is_over = false;
        const PassStep& step = (*passes[pass])[next[pass]];
        auto [later, until, busy] = std::tuple(next, ready, free);
        ++later[pass];
        until[pass] = busy[step.is_message] = std::max(ready[pass], free[step.is_message]) + step.seconds;
        best = std::min(best, best_of(a, b, later, until, busy));
    }
    return is_over ? std::max(ready[0], ready[1]) : best;
}

TEST(PairTimes, AreCountedByHand) {
    EXPECT_EQ(time_of_both({computes(3)}, {computes(4)}), 7);
    EXPECT_EQ(time_of_both({computes(3)}, {sends(4)}), 4);
    EXPECT_EQ(time_of_both({}, {computes(2), sends(1)}), 3);
    // The message of 0 to 2 is hidden. The step of 1 waits for the step of 5, and nothing hides the message after it.
    EXPECT_EQ(time_of_both({computes(5)}, {sends(2), computes(1), sends(2)}), 8);
    // As much computing as messages: both passes change their lanes at the same time, and all messages are hidden.
    const PassSteps forward = {computes(1), sends(1), computes(1), sends(1)},
                    backward = {sends(1), computes(1), sends(1), computes(1)};
    EXPECT_EQ(time_of_both(forward, backward), 4);
}

// A forward of attention, dispatch, experts and combine against its backward, twice as long, in several ratios.
TEST(PairTimes, AreTheBestForLayersOfExperts) {
    for (const double message : {0.25, 0.5, 1.0, 2.0, 4.0})
        for (const int layers : {1, 2}) {
            PassSteps forward, backward;
            for (int layer = 0; layer < layers; ++layer) {
                forward.insert(forward.end(), {computes(2), sends(message), computes(2), sends(message)});
                backward.insert(backward.end(), {sends(message), computes(4), sends(message), computes(4)});
            }
            EXPECT_EQ(time_of_both(forward, backward), best_of(forward, backward)) << message << ' ' << layers;
        }
}

TEST(PairTimes, AreNoBetterThanTheBestOrder) {
    Random random(3);
    int best_ones = 0;
    constexpr int kRounds = 400;
    for (int round = 0; round < kRounds; ++round) {
        const auto draw = [&] {
            PassSteps steps;
            for (int step = pick(random, 0, 6); step > 0; --step)
                steps.push_back({pick(random, 0, 1) == 1, static_cast<double>(pick(random, 0, 9))});
            return steps;
        };
        const PassSteps a = draw(), b = draw();
        const double time = time_of_both(a, b), best = best_of(a, b);
        ASSERT_GE(time, best);
        ASSERT_GE(time, std::max(sum_of(a, true, true), sum_of(b, true, true)));
        ASSERT_LE(time, sum_of(a, true, true) + sum_of(b, true, true));
        best_ones += time == best;
    }
    EXPECT_GT(best_ones, kRounds * 3 / 4);
}

TransformerJob mixtral() {
    TransformerJob job = job_on_host("h100-sxm-80", "nvlink4");
    job.model = *find_transformer("mixtral-8x7b");
    job.model.layers = 4;
    job.tokens = 4096;
    job.parallel.release = Release::Megatron2021;  // hides nothing
    job.parallel.expert = job.parallel.data = 8;
    return job;
}

StageSplit split_of(const TransformerJob& job, const std::vector<int>& starts) {
    return split_at_layers(transformer_model(job, 1).model.layers, starts);
}

// Messages of mixtral's experts inside a host are shorter than its computing: all are hidden. They slow computing down
// by 12.6 %, and passes take 3.68 % longer than what they are made of.
TEST(PairTimes, HideMessagesOfExperts) {
    const TransformerJob job = mixtral();
    const double copies = 2.0 * 4096 * 2;
    const double messages = 2 * collective_seconds(Collective::AllToAll, copies / 2 * 4096 * 2, {8, 1}, job.fabric);
    double sequential = 0;
    for (const TransformerLayerCost& layer : TransformerLayers(job).all(1))
        sequential += layer.forward + layer.backward_input + layer.backward_weight;
    const auto times = pair_times(job, split_of(job, {0}), {0}, 1);
    ASSERT_TRUE(times[0].has_value());
    const double hidden = 2 * 4 * messages / (1 - 0.0368);
    EXPECT_NEAR(static_cast<double>(*times[0]) * 1e-9, sequential - (1 - 0.126) * hidden, 1e-8);
}

TEST(PairTimes, AreAbsentWhereNothingIsHidden) {
    TransformerJob job = mixtral();
    job.parallel.overlap.emplace().expert = true;  // each pass hides its messages
    EXPECT_FALSE(pair_times(job, split_of(job, {0}), {0}, 1)[0].has_value());
    job.parallel.overlap.reset();
    // The head's stage has no experts, but its F hides messages of the partner's B.
    const auto of_two = pair_times(job, split_of(job, {0, 5}), {1, 0}, 1);
    EXPECT_TRUE(of_two[0].has_value());
    EXPECT_TRUE(of_two[1].has_value());
    EXPECT_FALSE(pair_times(job, split_of(job, {0, 5}), {0, 1}, 1)[1].has_value());
    job.parallel.expert = 1;
    EXPECT_FALSE(pair_times(job, split_of(job, {0}), {0}, 1)[0].has_value());
}

}  // namespace
}  // namespace pw
