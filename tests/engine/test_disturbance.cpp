// Measurements with and without disturbance by other programs.
#include "exec/engine/machine.h"
#include "exec/measuring/profile.h"
#include "exec/system/disturbance.h"
#include "tests/support/execution.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <chrono>
#include <ctime>
#include <thread>

namespace pw {
namespace {

void compute() {
    timespec until{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &until);
    until.tv_nsec += 2'000'000;
    for (timespec now{}; now.tv_sec * 1'000'000'000 + now.tv_nsec < until.tv_sec * 1'000'000'000 + until.tv_nsec;)
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
}

// Only the time between start and stop counts; the time between a stop and the next start is waiting.
TEST(CoreClock, CountsOnlyTheTimeOnTheCore) {
    CoreClock clock;
    EXPECT_EQ(clock.share(), 1);
    clock.start();
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    clock.stop();
    EXPECT_LT(clock.share(), 0.5);

    CoreClock busy;
    busy.start();
    compute();
    busy.stop();
    const double share = busy.share();
    EXPECT_GT(share, 0);
    EXPECT_LE(share, 1);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_EQ(busy.share(), share);
}

TEST(StolenTime, IsAShare) {
    const StolenTime stolen;
    compute();
    EXPECT_GE(stolen.share(), 0);
    EXPECT_LE(stolen.share(), 1);
}

TEST(Disturbance, IsReportedWithItsSize) {
    EXPECT_TRUE(warnings_of({}).empty());
    EXPECT_TRUE(warnings_of({.cpu_share = {0.99, 0.97}, .stolen = 0.01}).empty());
    const auto disturbed = warnings_of({.cpu_share = {0.98, 0.39}});
    ASSERT_EQ(disturbed.size(), 1u);
    EXPECT_EQ(disturbed[0],
              "the devices got 39 % of their cores: other programs are running; times are not comparable");
    const auto stolen = warnings_of({.cpu_share = {1}, .stolen = 0.2});
    ASSERT_EQ(stolen.size(), 1u);
    EXPECT_NE(stolen[0].find("took 20 % of its time"), std::string::npos);
    const auto shared = warnings_of({.cpu_share = {0.5, 0.5}, .shared_cores = true});
    ASSERT_EQ(shared.size(), 1u);
    EXPECT_NE(shared[0].find("the devices need more cores than there are"), std::string::npos);
}

TEST(Disturbance, IsReportedForTheSpreadOfAProfile) {
    EXPECT_TRUE(warnings_of_spread(0, 0).empty());
    EXPECT_TRUE(warnings_of_spread(1000, 300).empty());
    ASSERT_EQ(warnings_of_spread(155, 334).size(), 1u);
    EXPECT_NE(warnings_of_spread(155, 334)[0].find("215 %"), std::string::npos);
}

// Devices that compute on cores report their share of them; emulated ones have none.
TEST(Disturbance, IsMeasuredByRunsThatCompute) {
    const RunResult result = Execution(kMlp, {"cluster.devices=2"}).run();
    ASSERT_EQ(result.disturbance.cpu_share.size(), 2u);
    for (const double share : result.disturbance.cpu_share) {
        EXPECT_GT(share, 0);
        EXPECT_LE(share, 1);
    }
    const RunResult slept = Execution(kMlp, {"cluster.devices=2", "run.backend=emulated"}).run();
    EXPECT_TRUE(slept.disturbance.cpu_share.empty());
    EXPECT_TRUE(slept.warnings.empty());
}

std::vector<int> cores_of_this_thread() {
    cpu_set_t set;
    CPU_ZERO(&set);
    EXPECT_EQ(sched_getaffinity(0, sizeof set, &set), 0);
    std::vector<int> cores;
    for (int core = 0; core < CPU_SETSIZE; ++core)
        if (CPU_ISSET(static_cast<std::size_t>(core), &set))
            cores.push_back(core);
    return cores;
}

// The run reports the same places of devices as the system reports of their threads.
TEST(Places, AreThoseOfTheThreads) {
    if (usable_cores().size() < 2)
        GTEST_SKIP() << "there is one core, which devices share";
    std::vector<std::vector<int>> seen(2);
    RunOptions options;
    options.before_task = [&](int device, const Task&) {
        seen[static_cast<std::size_t>(device)] = cores_of_this_thread();
    };
    const RunResult result = Execution(kMlp, {"cluster.devices=2"}).run(options);
    char host[256] = {};
    gethostname(host, sizeof host - 1);
    ASSERT_EQ(result.places.size(), 2u);
    for (std::size_t device = 0; device < 2; ++device) {
        EXPECT_EQ(result.places[device].cores, seen[device]);
        EXPECT_EQ(result.places[device].host, host);
        EXPECT_EQ(result.places[device].rank, 0);
    }
    EXPECT_TRUE(Execution(kMlp, {"run.backend=emulated"}).run().places.empty());
}

TEST(Disturbance, IsKeptInTheProfile) {
    const Execution execution(kMlp, {"cluster.devices=1"});
    const Job job = execution.job();
    Profile profile = measure_profile(job.setup, *job.model, {1}, {});
    EXPECT_GT(profile.cpu_share, 0);
    EXPECT_LE(profile.cpu_share, 1);
    EXPECT_EQ(profile.precision, Precision::Fp32);
    TemporaryFolder folder;
    const std::string path = folder.write("profile.yaml", "");
    profile.cpu_share = 0.25;
    write_profile(profile, path);
    EXPECT_EQ(read_profile(path), profile);
}

}  // namespace
}  // namespace pw
