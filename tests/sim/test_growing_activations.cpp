// Activations that grow between I and W beyond the state that F saved: I keeps gradients of outputs for W.
#include "job/job.h"
#include "job/load.h"
#include "schedules/memory/buffers.h"
#include "schedules/orders/schedule.h"
#include "sim/metrics.h"
#include "sim/simulate.h"
#include "tests/support/config_text.h"
#include "tests/support/temporary_folder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

namespace pw {
namespace {

// The most of a list that holds `saved` from F to I, and from I to W `until_weight`; while I runs it holds the larger.
Bytes most_held(const std::vector<Task>& order, Bytes saved, Bytes until_weight) {
    Bytes held = 0, most = 0;
    for (const Task& task : order) {
        const Bytes grown = std::max<Bytes>(0, until_weight - saved);
        held += task.op == Op::Forward ? saved : task.op == Op::BackwardInput ? grown : 0;
        most = std::max(most, held);
        if (task.op == Op::BackwardInput)
            held -= saved + grown - until_weight;
        if (task.op == Op::BackwardWeight)
            held -= until_weight;
        if (task.op == Op::Backward)
            held -= saved;
    }
    return most;
}

Metrics metrics_with(const std::string& schedule, const std::string& sizes) {
    Notices notices;
    const Job job = make_job(load("workload: {model: uniform, stages: 4, activation: 1 GB, " + sizes + "}\n" +
                                  "cluster: {devices: 4}\npipeline: {schedule: " + schedule + ", micro_batches: 16}"),
                             notices);
    const Metrics metrics = metrics_of(simulate(job.plan, job.costs, job.mode));
    return metrics;
}

TEST(GrowingActivations, HoldMoreFromIToWThanF) {
    for (const char* schedule : {"zb-h1", "zb-h2", "1f1b", "gpipe"})
        for (const Bytes until_weight : {Bytes{0}, Bytes{600'000'000}, Bytes{1'000'000'000}, Bytes{1'700'000'000}}) {
            const std::string sizes = "activation_until_weight: " + std::to_string(until_weight) + " B";
            Notices notices;
            const Job job = make_job(
                load("workload: {model: uniform, stages: 4, activation: 1 GB, " + sizes + "}\ncluster: {devices: 4}\n" +
                     "pipeline: {schedule: " + schedule + ", micro_batches: 16}"),
                notices);
            const Metrics metrics = metrics_of(simulate(job.plan, job.costs, job.mode));
            for (std::size_t device = 0; device < 4; ++device) {
                EXPECT_EQ(metrics.devices[device].memory[static_cast<std::size_t>(MemoryKind::Activations)],
                          most_held(job.plan.order[device], 1'000'000'000, until_weight))
                    << schedule << ' ' << until_weight << " device " << device;
                EXPECT_GE(*metrics.devices[device].reserved_memory, total(metrics.devices[device].memory));
            }
        }
}

// While device d of ZB-H1 runs I, p - d - 1 micro-batches wait for theirs with 1 GB each, and that of I and d more,
// which wait for W, have 1.7 GB. With 0.6 GB until W, the one of I counts with 1 GB.
TEST(GrowingActivations, AreThoseOfZbH1ByHand) {
    const Metrics grown = metrics_with("zb-h1", "activation_until_weight: 1700 MB");
    const Metrics plain = metrics_with("zb-h1", "activation_until_weight: 600 MB");
    const Bytes by_hand[] = {4'700, 5'400, 6'100, 6'800};
    for (std::size_t device = 0; device < 4; ++device) {
        EXPECT_EQ(plain.devices[device].memory[static_cast<std::size_t>(MemoryKind::Activations)] / 1'000'000,
                  4'000 - 400 * static_cast<Bytes>(device));
        EXPECT_EQ(grown.devices[device].memory[static_cast<std::size_t>(MemoryKind::Activations)] / 1'000'000,
                  by_hand[device]);
        EXPECT_EQ(grown.devices[device].peak_in_flight, plain.devices[device].peak_in_flight);
        EXPECT_EQ(grown.devices[device].peak_in_flight_until_weight, plain.devices[device].peak_in_flight_until_weight);
    }
}

TEST(GrowingActivations, ComeFromLayerFilesToo) {
    const TemporaryFolder folder;
    folder.write("layers.yaml", R"(
samples: 1
layers:
  - {name: a, forward: 1 ms, backward_input: 1 ms, backward_weight: 1 ms, saved: 640 B, saved_until_weight: 64 B,
     gradient_until_weight: 1280 B}
  - {name: b, forward: 1 ms, backward_input: 1 ms, backward_weight: 1 ms, saved: 640 B}
)");
    const std::string path = folder.write("cfg.yaml",
                                          "workload: {model: layers.yaml}\ncluster: {devices: 2}\n"
                                          "pipeline: {schedule: zb-h1, split: [b], micro_batches: 4}");
    Notices notices;
    const Job job = make_job(load_config(path, {}), notices);
    EXPECT_EQ(job.costs.bytes[0].until_input, 640);
    EXPECT_EQ(job.costs.bytes[0].until_weight, 64);
    EXPECT_EQ(job.costs.bytes[0].gradient_kept, 1280);
    EXPECT_EQ(job.costs.bytes[1].gradient_kept, 0);
}

}  // namespace
}  // namespace pw
