// Names of layers with '*', and which layers they mark.
#include "workloads/models/recomputed_layers.h"

#include <gtest/gtest.h>

namespace pw {
namespace {

TEST(RecomputedLayers, MatchNamesBlocksAndStars) {
    for (const auto& [name, pattern] : {std::pair("fc1", "fc1"),
                                        {"layer3.0.conv1", "layer3"},
                                        {"layer3.0.conv1", "layer3.0"},
                                        {"h.0.mlp.act", "*.act"},
                                        {"h.0.mlp.act", "h.*.mlp"},
                                        {"h.12.mlp.act", "h.1*"},
                                        {"abab", "*ab"},
                                        {"a", "*"},
                                        {"a.b", "a*"},
                                        {"aab", "a*b"},
                                        {"ab", "a*b"},
                                        {"a", "a**"}})
        EXPECT_TRUE(matches(name, pattern)) << name << ' ' << pattern;
    for (const auto& [name, pattern] : {std::pair("fc11", "fc1"),
                                        {"fc1", "fc11"},
                                        {"layer30.conv1", "layer3"},
                                        {"h.0.mlp.act", "*.ac"},
                                        {"h.0.mlp", "h.*.mlp.act"},
                                        {"aba", "a*b"},
                                        {"a", ""}})
        EXPECT_FALSE(matches(name, pattern)) << name << ' ' << pattern;
}

}  // namespace
}  // namespace pw
