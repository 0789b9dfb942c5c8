// The orders that `auto` chooses among when the simulator has rules that its own times leave out.
#include "job/job.h"
#include "schedules/csv/csv.h"
#include "sim/metrics.h"
#include "sim/simulate.h"
#include "tests/support/config_text.h"
#include "tests/support/dice.h"
#include "tests/support/refusal.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/thoroughness.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <vector>

namespace pw {
namespace {

Metrics simulated(const std::string& text, const std::vector<std::string>& set) {
    Notices notices;
    const Job job = make_job(load(text, set), notices);
    return metrics_of(simulate(job.plan, job.costs, job.mode));
}

int most_held(const Metrics& metrics) {
    int most = 0;
    for (const DeviceMetrics& device : metrics.devices)
        most = std::max(most, device.peak_in_flight_until_weight);
    return most;
}

Bytes most_reserved(const Metrics& metrics) {
    Bytes most = 0;
    for (const DeviceMetrics& device : metrics.devices)
        most = std::max(most, device.needed_memory());
    return most;
}

constexpr const char* kNamed[] = {"naive", "gpipe", "1f1b", "eager-1f1b", "zb-h1", "zb-h2"};

std::string random_config(Random& random, int devices, int copies = 1) {
    std::string times[3];
    for (std::string& list : times)
        for (int stage = 0; stage < devices; ++stage)
            list += fmt::format("{}{} us", stage == 0 ? "" : ", ", pick(random, 500, 1500));
    return fmt::format(
        "workload: {{model: uniform, forward: [{}], backward_input: [{}], backward_weight: [{}], output: 1 MB, "
        "activation: 3 MB, activation_until_weight: 1 MB, weights: 5 MB}}\n"
        "cluster: {{devices: {}, dispatch: {} us, link: {{latency: {} us, bandwidth: 10 GB/s}}}}\n"
        "pipeline: {{schedule: auto, micro_batches: {}, replicas: {}}}\n"
        "transfer: {{receive: {}, protocol: rendezvous, communicator: {}}}\n",
        times[0], times[1], times[2], devices * copies, pick(random, 0, 50), pick(random, 0, 300),
        pick(random, 4, 20) * copies, copies, pick(random, 0, 2) > 0 ? "deferred" : "early",
        pick(random, 0, 1) == 1 ? "one" : "direction");
}

TEST(AutoOrders, AreNeverLongerThanSchedulesThatFitWhereMessagesWait) {
    Random random(20261);
    int shorter = 0;
    for (int round = 0; round < rounds(12); ++round) {
        const int devices = pick(random, 2, 6), limit = pick(random, 1, 2) * devices;
        const bool by_span = pick(random, 0, 1) == 1;
        const std::string text = random_config(random, devices, pick(random, 1, 2));
        SCOPED_TRACE(text);
        const Metrics own = simulated(text, {"pipeline.schedule=auto", fmt::format("pipeline.activations={}", limit),
                                             by_span ? "pipeline.aim=span" : "pipeline.aim=step"});
        EXPECT_LE(most_held(own), limit);
        Ns best = std::numeric_limits<Ns>::max();
        const auto time = [&](const Metrics& metrics) { return by_span ? metrics.span : metrics.makespan; };
        for (const std::string schedule : kNamed)
            if (const Metrics metrics = simulated(text, {"pipeline.schedule=" + schedule}); most_held(metrics) <= limit)
                best = std::min(best, time(metrics));
        EXPECT_LE(time(own), best);
        shorter += time(own) < best;
    }
    EXPECT_GT(shorter, 0);
}

// Buffers of messages, which the limit of the orders leaves out, count in the memory of a device.
TEST(AutoOrders, FitWhereSchedulesFit) {
    Random random(20262);
    int shorter = 0;
    for (int round = 0; round < rounds(12); ++round) {
        const std::string text = random_config(random, pick(random, 2, 6));
        SCOPED_TRACE(text);
        std::vector<Metrics> all;
        for (const std::string schedule : kNamed)
            all.push_back(simulated(text, {"pipeline.schedule=" + schedule}));
        const Bytes memory = most_reserved(all[static_cast<std::size_t>(pick(random, 0, std::ssize(all) - 1))]);
        Ns best = std::numeric_limits<Ns>::max();
        for (const Metrics& metrics : all)
            if (most_reserved(metrics) <= memory)
                best = std::min(best, metrics.makespan);
        const Metrics own = simulated(text, {"pipeline.schedule=auto", fmt::format("cluster.memory={} B", memory)});
        EXPECT_LE(most_reserved(own), memory);
        EXPECT_LE(own.makespan, best);
        shorter += own.makespan < best;
    }
    EXPECT_GT(shorter, 0);
}

// If the best order lacks memory for buffers, one that spares as much is found: more memory costs hardly any time.
TEST(AutoOrders, UseTheMemoryThatBuffersLeave) {
    Random random(20263);
    for (int round = 0; round < std::max(1, rounds(2)); ++round) {
        const int devices = pick(random, 2, 4), stages = devices * (1 + round % 2);
        const std::string text = random_config(random, stages);
        SCOPED_TRACE(text);
        const std::string schedule = round % 2 == 0 ? "auto" : "auto-v";
        Ns best = std::numeric_limits<Ns>::max();
        for (Bytes megabytes = 20 + 6 * devices; megabytes <= 44 + 6 * devices; megabytes += 6) {
            const Metrics own =
                simulated(text, {fmt::format("cluster.devices={}", devices), "pipeline.schedule=" + schedule,
                                 fmt::format("cluster.memory={} MB", megabytes)});
            if (most_reserved(own) > megabytes * 1'000'000) {
                EXPECT_EQ(best, std::numeric_limits<Ns>::max()) << "less memory was enough";
                continue;
            }
            EXPECT_LE(0.9 * static_cast<double>(own.makespan), static_cast<double>(best)) << megabytes;
            best = std::min(best, own.makespan);
        }
        EXPECT_LT(best, std::numeric_limits<Ns>::max());
    }
}

// At the larger limit, the orders that are shortest by the costs lack memory, and a named one that is longer than
// others found fits.
TEST(AutoOrders, AreSoughtFurtherIfANamedOneFits) {
    const std::string text =
        "workload: {model: gpt3-175b, sequence_length: 2048}\n"
        "cluster: {hosts: 448, devices_per_host: 8, device: h100-sxm-80, between: {link: ndr400, adapters: 8}}\n"
        "parallel: {tensor: 4, pipeline: 8, sequence: true, zero: 1, release: nemo-2023}\n"
        "pipeline: {schedule: auto-v, stages: 16, mini_batch: 2688, micro_batch_size: 1}\n"
        "training: {precision: fp8, optimizer: adamw}\n";
    const auto step_with = [&](Bytes megabytes) {
        const Metrics own = simulated(text, {fmt::format("cluster.memory={} MB", megabytes)});
        EXPECT_LE(most_reserved(own), megabytes * 1'000'000);
        return own.makespan;
    };
    EXPECT_LE(step_with(43'446), step_with(43'000));
}

TEST(AutoOrders, KeepThePlanInUse) {
    const TemporaryFolder folder;
    const std::string text =
        "workload: {model: uniform, forward: [9 us, 5 us], backward_input: 8 us, backward_weight: 6 us}\n"
        "cluster: {devices: 2, link: {latency: 1 us}}\n"
        "pipeline: {schedule: zb-h2, micro_batches: 6}\n";
    const auto export_plan = [&](const std::string& name, const std::vector<std::string>& set) {
        Notices notices;
        const Job job = make_job(load(text, set), notices);
        return "pipeline.current_plan=" + folder.write(name, print_csv(job.plan, true));
    };
    // By their times alone, orders are found with room for one micro-batch; that of the plan in use may take more.
    const std::string plan = export_plan("plan.csv", {});
    const std::vector<std::string> found = {"pipeline.schedule=auto", "pipeline.activations=1"};
    EXPECT_EQ(simulated(text, {found[0], found[1], plan}).makespan, simulated(text, found).makespan)
        << "it has no room";
    const std::string effort = "pipeline.effort=0.001", faster = "workload.forward=[4 us, 3 us]";
    EXPECT_LE(simulated(text, {found[0], effort, faster, "pipeline.activations=3", plan}).makespan,
              simulated(text, {faster}).makespan);

    const auto refused = [&](const std::vector<std::string>& set, const std::string& part) {
        expect_says(refusal([&] { simulated(text, set); }), {part});
    };
    refused(
        {found[0], export_plan("other.csv", {"pipeline.micro_batches=4"})},
        "the plan has 2 devices, 2 stages and 4 micro-batches, this pipeline 2 devices, 2 stages and 6 micro-batches");
    const std::string v =
        export_plan("v.csv", {"pipeline.schedule=zb-v", "pipeline.stages=4", "workload.forward=9 us"});
    refused({found[0], "pipeline.stages=4", "workload.forward=9 us", v},
            "the plan runs stage 3 of micro-batch 0 on device 0, schedule auto on device 1");
    refused({found[0], export_plan("forwards.csv", {"pipeline.schedule=forward-only"})},
            "the plan has no backwards on device 0");
    refused({found[0], "pipeline.current_plan=/nowhere/plan.csv"}, "/nowhere/plan.csv");
}

}  // namespace
}  // namespace pw
