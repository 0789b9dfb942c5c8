// The orders that `auto` chooses among when the simulator has rules that its own times leave out.
#include "job/job.h"
#include "sim/metrics.h"
#include "sim/simulate.h"
#include "tests/support/config_text.h"
#include "tests/support/dice.h"
#include "tests/support/thoroughness.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace pw {
namespace {

Metrics simulated(const std::string& text, const std::string& schedule) {
    Notices notices;
    const Job job = make_job(load(text, {"pipeline.schedule=" + schedule}), notices);
    return metrics_of(simulate(job.plan, job.costs, job.mode));
}

int most_held(const Metrics& metrics) {
    int most = 0;
    for (const DeviceMetrics& device : metrics.devices)
        most = std::max(most, device.peak_in_flight_until_weight);
    return most;
}

std::string random_config(Random& random, int limit, int devices, const char* aim) {
    std::string times[3];
    for (std::string& list : times)
        for (int stage = 0; stage < devices; ++stage)
            list += fmt::format("{}{} us", stage == 0 ? "" : ", ", pick(random, 500, 1500));
    return fmt::format(
        "workload: {{model: uniform, forward: [{}], backward_input: [{}], backward_weight: [{}], output: 1 MB}}\n"
        "cluster: {{devices: {}, dispatch: {} us, link: {{latency: {} us, bandwidth: 10 GB/s}}}}\n"
        "pipeline: {{schedule: auto, micro_batches: {}, activations: {}, aim: {}}}\n"
        "transfer: {{receive: {}, protocol: rendezvous, communicator: {}}}\n",
        times[0], times[1], times[2], devices, pick(random, 0, 50), pick(random, 0, 300), pick(random, 4, 20), limit,
        aim, pick(random, 0, 2) > 0 ? "deferred" : "early", pick(random, 0, 1) == 1 ? "one" : "direction");
}

TEST(AutoOrders, AreNeverLongerThanSchedulesThatFitWhereMessagesWait) {
    Random random(20261);
    int shorter = 0;
    for (int round = 0; round < rounds(12); ++round) {
        const int devices = pick(random, 2, 6), limit = pick(random, 1, 2) * devices;
        const bool by_span = pick(random, 0, 1) == 1;
        const std::string text = random_config(random, limit, devices, by_span ? "span" : "step");
        SCOPED_TRACE(text);
        const Metrics own = simulated(text, "auto");
        EXPECT_LE(most_held(own), limit);
        Ns best = std::numeric_limits<Ns>::max();
        const auto time = [&](const Metrics& metrics) { return by_span ? metrics.span : metrics.makespan; };
        for (const char* schedule : {"naive", "gpipe", "1f1b", "eager-1f1b", "zb-h1", "zb-h2"})
            if (const Metrics metrics = simulated(text, schedule); most_held(metrics) <= limit)
                best = std::min(best, time(metrics));
        EXPECT_LE(time(own), best);
        shorter += time(own) < best;
    }
    EXPECT_GT(shorter, 0);
}

}  // namespace
}  // namespace pw
