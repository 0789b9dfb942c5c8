// Drawn loads of experts against limits, hand counts and enumerations.
#include "workloads/transformers/expert_load.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

namespace pw {
namespace {

constexpr double kManyTokens = 1e12;

Experts experts_of(int count, int active) {
    Experts experts;
    experts.count = count;
    experts.active = active;
    return experts;
}

TEST(ExpertLoad, IsEvenForManyTokensAndEqualExperts) {
    EXPECT_NEAR(expected_load(experts_of(64, 1), 16, kManyTokens, {}), 1, 1e-4);
    EXPECT_NEAR(expected_load(experts_of(64, 6), 16, kManyTokens, {}), 1, 0.01);
}

TEST(ExpertLoad, IsEvenOnASingleRankAndIfEveryTokenChoosesAllExperts) {
    EXPECT_EQ(expected_load(experts_of(8, 2), 1, 5, {2, 3}), 1);
    EXPECT_NEAR(expected_load(experts_of(8, 8), 4, 5, {2, 3}), 1, 1e-12);
}

// Nearly all tokens choose the most popular expert: the sum of k^-10 for k of 1 to 8 is 1.000994.
TEST(ExpertLoad, IsTheNumberOfRanksIfOneExpertTakesAll) {
    double all = 0;
    for (int k = 1; k <= 8; ++k)
        all += std::pow(k, -10);
    EXPECT_NEAR(expected_load(experts_of(8, 1), 8, kManyTokens, {10, 0}), 8 / all, 1e-4);
}

// One token with two of three experts fills two ranks of three: 1 of a mean of 2/3. The most popular of three experts
// in proportion to 6, 3 and 2 is left out if the token chooses the second and the third, in either order.
TEST(ExpertLoad, CountsDifferentExpertsOfAToken) {
    EXPECT_NEAR(expected_load(experts_of(3, 2), 3, 1, {}), 1.5, 1e-12);
    const double left_out = 3.0 / 11 * 2 / 8 + 2.0 / 11 * 3 / 9;
    EXPECT_NEAR(expected_load(experts_of(3, 2), 3, kManyTokens, {1, 0}), (1 - left_out) / (2.0 / 3), 0.005);
}

// Every token on every expert, with every placement of the experts.
double enumerated(int experts, int ranks, int tokens, double skew) {
    std::vector<int> place(static_cast<std::size_t>(experts));
    std::iota(place.begin(), place.end(), 0);
    double all = 0, sum = 0, placements = 0;
    for (int k = 1; k <= experts; ++k)
        all += std::pow(k, -skew);
    do {
        ++placements;
        for (int choices = 0; choices < static_cast<int>(std::pow(experts, tokens)); ++choices) {
            std::vector<double> loads(static_cast<std::size_t>(ranks), 0);
            double chance = 1;
            for (int token = 0, rest = choices; token < tokens; ++token, rest /= experts) {
                chance *= std::pow(rest % experts + 1, -skew) / all;
                ++loads[static_cast<std::size_t>(place[static_cast<std::size_t>(rest % experts)] * ranks / experts)];
            }
            sum += chance * *std::max_element(loads.begin(), loads.end()) * ranks / tokens;
        }
    } while (std::next_permutation(place.begin(), place.end()));
    return sum / placements;
}

TEST(ExpertLoad, IsTheMeanOfAllDraws) {
    EXPECT_NEAR(enumerated(2, 2, 2, 0), 1.5, 1e-12);
    for (const double skew : {0.0, 0.5, 1.5})
        for (const int tokens : {1, 2, 4})
            for (const int ranks : {2, 4})
                EXPECT_NEAR(expected_load(experts_of(4, 1), ranks, tokens, {skew, 7}),
                            enumerated(4, ranks, tokens, skew), 0.03)
                    << skew << ' ' << tokens << ' ' << ranks;
}

TEST(ExpertLoad, FallsWithTheTokensAndGrowsWithTheSkew) {
    double before = 64;
    for (const double tokens : {8.0, 64.0, 512.0, 4096.0, 32'768.0}) {
        const double load = expected_load(experts_of(64, 4), 64, tokens, {});
        EXPECT_LT(load, before);
        before = load;
    }
    for (const double skew : {0.2, 0.5, 1.0, 2.0}) {
        const double load = expected_load(experts_of(64, 4), 64, 32'768, {skew, 0});
        EXPECT_GT(load, before);
        before = load;
    }
}

TEST(ExpertLoad, DependsOnTheSeedOnly) {
    const Experts experts = experts_of(16, 2);
    EXPECT_EQ(expected_load(experts, 8, 16, {0.5, 1}), expected_load(experts, 8, 16, {0.5, 1}));
    EXPECT_NE(expected_load(experts, 8, 16, {0.5, 1}), expected_load(experts, 8, 16, {0.5, 2}));
}

}  // namespace
}  // namespace pw
