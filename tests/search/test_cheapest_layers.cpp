// Layers that save most memory for their time, against all subsets.
#include "search/plans/cheapest_layers.h"
#include "tests/search/random_problem.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace pw {
namespace {

TEST(CheapestLayers, NoOthersSaveAsMuchInLessTime) {
    Random random(12);
    int compared = 0;
    for (int round = 0; round < 60; ++round) {
        const Model model = random_model(random);
        const Profile profile = random_profile(model, random);
        const CostTable costs(model, profile, 1);
        const std::vector<Bytes> bytes = recomputable_bytes(model.layers, costs.bytes());
        const auto saved_in = [&](const auto& has) {
            std::pair<Bytes, Ns> sum{0, 0};
            for (std::size_t layer = 0; layer < bytes.size(); ++layer)
                if (has(layer)) {
                    sum.first += bytes[layer];
                    sum.second += costs.alone()[layer].recompute;
                }
            return sum;
        };
        const Bytes all = saved_in([](std::size_t) { return true; }).first;
        const std::vector<std::vector<std::string>> lists = cheapest_layers(model.layers, costs);
        ASSERT_FALSE(lists.empty());
        EXPECT_TRUE(lists.back().empty());  // all layers
        for (std::size_t number = 0; number + 1 < lists.size(); ++number) {
            const auto [saved, time] = saved_in(
                [&](std::size_t layer) { return std::ranges::count(lists[number], model.layers[layer].name) > 0; });
            EXPECT_GE(saved * 4, all * static_cast<Bytes>(number + 1));
            for (unsigned subset = 0; subset < 1u << bytes.size(); ++subset) {
                const auto [other, taken] = saved_in([&](std::size_t layer) { return (subset >> layer & 1) != 0; });
                ASSERT_FALSE(other >= saved && taken < time) << round << ' ' << number << ' ' << subset;
                ASSERT_FALSE(other > saved && taken <= time) << round << ' ' << number << ' ' << subset;
            }
            ++compared;
        }
    }
    EXPECT_GT(compared, 60);
}

}  // namespace
}  // namespace pw
