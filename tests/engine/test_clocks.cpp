// Corrections of clocks from messages: random ranks whose clocks have random errors.
#include "exec/engine/clocks.h"

#include <gtest/gtest.h>

#include <random>

namespace pw {

namespace {

Ns after(const Transit& transit, const std::vector<Ns>& by) {
    return transit.took - by[static_cast<std::size_t>(transit.to)] + by[static_cast<std::size_t>(transit.from)];
}

}  // namespace

TEST(Clocks, NothingArrivesBeforeItWasSent) {
    int wrong = 0;
    for (unsigned seed = 0; seed < 2000; ++seed) {
        std::mt19937 random(seed);
        const auto draw = [&](int low, int high) { return std::uniform_int_distribution(low, high)(random); };
        const int ranks = draw(2, 8);
        std::vector<bool> fixed;
        std::vector<Ns> set_wrong;
        for (int rank = 0; rank < ranks; ++rank) {
            fixed.push_back(rank == 0 || draw(0, 3) == 0);
            set_wrong.push_back(fixed.back() ? 0 : draw(-500, 500));
        }
        std::vector<Transit> transits;
        for (int message = draw(0, 30); message-- > 0;) {
            const int from = draw(0, ranks - 1), to = draw(0, ranks - 1);
            if (from != to)
                transits.push_back({from, to, draw(0, 400) + set_wrong[to] - set_wrong[from]});
        }
        const std::vector<Ns> by = corrections(fixed, transits);
        ASSERT_EQ(by.size(), fixed.size());
        for (int rank = 0; rank < ranks; ++rank)
            EXPECT_TRUE(!fixed[rank] || by[rank] == 0) << "seed " << seed;
        for (const Transit& transit : transits) {
            wrong += transit.took < 0;
            EXPECT_GE(after(transit, by), 0) << "seed " << seed;
        }
    }
    EXPECT_GT(wrong, 1000);
}

TEST(Clocks, AreCorrectedAsLittleAsPossible) {
    const std::vector<bool> fixed = {true, false, false};
    EXPECT_EQ(corrections(fixed, {{0, 1, 5}, {1, 0, 7}}), (std::vector<Ns>{0, 0, 0}));
    EXPECT_EQ(corrections(fixed, {{0, 1, -5}, {1, 0, 70}}), (std::vector<Ns>{0, -5, 0}));
    EXPECT_EQ(corrections(fixed, {{1, 0, -5}, {0, 1, 70}}), (std::vector<Ns>{0, 5, 0}));
    EXPECT_EQ(corrections(fixed, {{1, 2, -5}}), (std::vector<Ns>{0, 0, -5}));
    EXPECT_EQ(corrections(fixed, {{1, 2, -5}, {0, 1, 3}, {2, 0, 2}}), (std::vector<Ns>{0, 3, -2}));
}

TEST(Clocks, AreUnchangedIfNoCorrectionExists) {
    EXPECT_EQ(corrections({true, false}, {{0, 1, -5}, {1, 0, 4}}), (std::vector<Ns>{0, 0}));
    EXPECT_EQ(corrections({true, true}, {{0, 1, -5}}), (std::vector<Ns>{0, 0}));
    EXPECT_EQ(corrections({true}, {}), (std::vector<Ns>{0}));
}

}  // namespace pw
