// The choice of cores for the devices' threads.
#include "exec/engine/pin.h"
#include "tests/support/temporary_folder.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

namespace pw {
namespace {

// Two sockets of three cores each, whose numbers alternate; then their second threads.
const std::vector<UsableCore> kTwoNodes = {{0, 0}, {1, 1}, {2, 0}, {3, 1}, {4, 0},  {5, 1},
                                           {6, 0}, {7, 1}, {8, 0}, {9, 1}, {10, 0}, {11, 1}};

using Cores = std::vector<std::vector<int>>;

TEST(CorePlan, TakesCoresInTheirOrderWithoutNodes) {
    for (const std::vector<int>& nodes : {std::vector<int>{}, {-1, -1, -1}}) {
        const CorePlan plan = plan_cores(kTwoNodes, 3, 2, nodes);
        EXPECT_EQ(plan.cores, (Cores{{0, 1}, {2, 3}, {4, 5}}));
        EXPECT_FALSE(plan.shared);
    }
}

TEST(CorePlan, TakesCoresOfTheNearestNode) {
    EXPECT_EQ(plan_cores(kTwoNodes, 4, 2, {1, 1, 0, -1}).cores, (Cores{{1, 3}, {5, 7}, {0, 2}, {4, 6}}));
}

TEST(CorePlan, TakesOtherCoresIfANodeHasTooFew) {
    const CorePlan plan = plan_cores(kTwoNodes, 3, 4, {1, 1, 1});
    EXPECT_EQ(plan.cores, (Cores{{1, 3, 5, 7}, {0, 2, 4, 6}, {8, 9, 10, 11}}));
    EXPECT_FALSE(plan.shared);
    EXPECT_EQ(plan_cores(kTwoNodes, 1, 2, {7}).cores, (Cores{{0, 1}}));
}

TEST(CorePlan, SharesCoresIfThereAreTooFew) {
    const CorePlan plan = plan_cores({{0, 0}, {1, 1}}, 3, 1, {1, 1, 1});
    EXPECT_EQ(plan.cores, (Cores{{0}, {1}, {0}}));
    EXPECT_TRUE(plan.shared);
    EXPECT_TRUE(plan_cores(std::vector<UsableCore>{}, 2, 1, {}).shared);
}

TEST(CorePlan, TakesDifferentCoresOfThisMachine) {
    const CorePlan plan = plan_cores(1, 1);
    ASSERT_EQ(plan.cores.size(), 1u);
    EXPECT_EQ(plan.cores[0].size(), 1u);
    EXPECT_FALSE(plan.shared);
}

// CUDA writes addresses in upper case, the system in lower case.
TEST(NumaNode, IsThatOfTheSystem) {
    const TemporaryFolder folder;
    std::filesystem::create_directories(folder.path() / "0000:3b:00.0");
    std::filesystem::create_directories(folder.path() / "0000:af:00.0");
    std::filesystem::create_directories(folder.path() / "0000:b0:00.0");
    folder.write("0000:3b:00.0/numa_node", "1\n");
    folder.write("0000:af:00.0/numa_node", "-1\n");
    const std::string devices = folder.path().string();
    EXPECT_EQ(numa_node_of("0000:3B:00.0", devices), 1);
    EXPECT_EQ(numa_node_of("0000:AF:00.0", devices), -1);
    EXPECT_EQ(numa_node_of("0000:B0:00.0", devices), -1);
    EXPECT_EQ(numa_node_of("0000:FF:00.0", devices), -1);
    EXPECT_EQ(numa_node_of("0000:3B:00.0"), numa_node_of("0000:3b:00.0"));
}

}  // namespace
}  // namespace pw
