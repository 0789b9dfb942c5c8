// Predictions for devices of several makes: each stage takes what it takes on its own device, and 1F1B takes what a
// recurrence over those times says, which is written here and shares no code with the simulator.
#include "job/job.h"
#include "report/report.h"
#include "tests/support/config_text.h"
#include "workloads/cluster/link_yaml.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <tuple>
#include <vector>

namespace pw {
namespace {

Report report_of_text(const std::string& text, const std::vector<std::string>& set = {}) {
    Notices notices;
    return predicted_report(make_job(load(text, set), notices), false);
}

// The end of the last backward of 1F1B without messages. Times are by stage.
Ns end_of_1f1b(const std::vector<Ns>& forward, const std::vector<Ns>& backward, int batches) {
    const auto stages = static_cast<int>(forward.size());
    std::vector<std::vector<std::pair<bool, int>>> lists(forward.size());
    for (int stage = 0; stage < stages; ++stage) {
        const int ahead = std::min(stages - 1 - stage, batches);
        for (int batch = 0; batch < batches + ahead; ++batch) {
            if (batch < batches)
                lists[stage].emplace_back(true, batch);
            if (batch >= ahead)
                lists[stage].emplace_back(false, batch - ahead);
        }
    }
    std::map<std::tuple<bool, int, int>, Ns> ends;
    std::vector<Ns> free(forward.size(), 0);
    std::vector<std::size_t> at(forward.size(), 0);
    for (bool moves = true; moves;) {
        moves = false;
        for (int stage = 0; stage < stages; ++stage)
            for (; at[stage] < lists[stage].size(); ++at[stage], moves = true) {
                const auto [is_forward, batch] = lists[stage][at[stage]];
                Ns ready = 0;
                if (!is_forward || stage > 0) {
                    const std::tuple needed = is_forward           ? std::tuple(true, stage - 1, batch)
                                              : stage + 1 < stages ? std::tuple(false, stage + 1, batch)
                                                                   : std::tuple(true, stage, batch);
                    if (!ends.contains(needed))
                        break;
                    ready = ends[needed];
                }
                free[stage] = std::max(free[stage], ready) + (is_forward ? forward : backward)[stage];
                ends[{is_forward, stage, batch}] = free[stage];
            }
    }
    return *std::ranges::max_element(free);
}

constexpr const char* kModel =
    "workload: {model: llama-3.2-1b, sequence_length: 2048}\nparallel: {tensor: 2, pipeline: 4, sequence: false}\n"
    "pipeline: {mini_batch: 12}\ntraining: {precision: bf16, optimizer: adamw}\n";
constexpr const char* kRows =
    "cluster: {hosts: [{device: h100-sxm-80, count: 2, devices: 2}, {device: a100-sxm-40, count: 2, devices: 2}], "
    "between: {bandwidth: 1e9 GB/s}}\n";

std::string hosts_of(const std::string& kind) {
    return fmt::format("cluster: {{hosts: 4, devices_per_host: 2, device: {}, between: {{bandwidth: 1e9 GB/s}}}}\n",
                       kind);
}

TEST(UnlikeDevices, StagesTakeTheTimeOfTheirKind) {
    Notices notices;
    const Job mixed = make_job(load(std::string(kModel) + kRows), notices);
    const Job fast = make_job(load(kModel + hosts_of("h100-sxm-80")), notices);
    const Job slow = make_job(load(kModel + hosts_of("a100-sxm-40")), notices);
    ASSERT_EQ(mixed.costs.of_makes.size(), 2u);
    std::vector<Ns> forward, backward;
    Ns last_update = 0;
    for (int stage = 0; stage < 4; ++stage) {
        const StageCost &own = mixed.costs.times_on(stage).stage[stage],
                        &alike = (stage < 2 ? fast : slow).costs.stage[stage];
        EXPECT_EQ(own.forward, alike.forward);
        EXPECT_EQ(own.backward, alike.backward);
        EXPECT_EQ(own.update, alike.update);
        EXPECT_EQ(mixed.costs.bytes[stage].weights, fast.costs.bytes[stage].weights);
        forward.push_back(own.forward);
        backward.push_back(own.backward);
        last_update = own.update;
    }
    EXPECT_GT(forward[2], 5 * forward[1] / 4);
    const Report report = predicted_report(mixed, false);
    // The last stage is the longest: its update ends the step. Messages take some nanoseconds.
    const Ns end = end_of_1f1b(forward, backward, 12);
    EXPECT_GE(report.metrics.step_time, end);
    EXPECT_LE(report.metrics.step_time, end + last_update + 24 * 14'000);
    EXPECT_EQ(report.metrics.devices[3].busy, 12 * (forward[3] + backward[3]));
}

TEST(UnlikeDevices, RowsOfOneKindPredictWhatTheirNumberDoes) {
    const std::string row =
        "cluster: {hosts: [{device: h100-sxm-80, count: 4, devices: 2}], between: {bandwidth: 1e9 "
        "GB/s}}\n";
    const Report rows = report_of_text(kModel + row), number = report_of_text(kModel + hosts_of("h100-sxm-80"));
    EXPECT_EQ(rows.metrics.step_time, number.metrics.step_time);
    EXPECT_EQ(rows.metrics.samples_per_second, number.metrics.samples_per_second);
    EXPECT_EQ(rows.limits, number.limits);
    ASSERT_TRUE(rows.cluster && number.cluster);
    EXPECT_EQ(rows.cluster->utilisation, number.cluster->utilisation);
}

TEST(UnlikeDevices, ReplicasWaitForTheSlowestKind) {
    // Two replicas of one stage on two kinds: the step is that of the slower kind alone. A few kernels are slower on
    // the other kind, and every kernel counts on its slower kind.
    const std::string model =
        "workload: {model: llama-3.2-1b, sequence_length: 2048}\nparallel: {tensor: 2}\npipeline: {mini_batch: 8}\n"
        "training: {precision: bf16, optimizer: adamw}\n";
    const auto hosts = [](const std::string& first, const std::string& second) {
        return fmt::format(
            "cluster: {{hosts: [{{device: {}, devices: 2}}, {{device: {}, devices: 2}}], between: "
            "{{bandwidth: 100 GB/s, latency: 5 us}}}}\n",
            first, second);
    };
    const Ns mixed = report_of_text(model + hosts("h100-sxm-80", "a100-sxm-40")).metrics.step_time;
    const Ns slow = report_of_text(model + hosts("a100-sxm-40", "a100-sxm-40")).metrics.step_time;
    EXPECT_GE(mixed, slow);
    EXPECT_LE(mixed, slow + slow / 1000);
    EXPECT_EQ(mixed, report_of_text(model + hosts("a100-sxm-40", "h100-sxm-80")).metrics.step_time);
    EXPECT_GT(mixed, report_of_text(model + hosts("h100-sxm-80", "h100-sxm-80")).metrics.step_time);
}

TEST(UnlikeDevices, FilesOfLayersHaveTimesForEveryMake) {
    const TemporaryFolder folder;
    const auto layers = [](int forward, int backward) {
        std::string text = "samples: 1\nlayers:\n";
        for (const char* name : {"a", "b", "c", "d"})
            text += fmt::format("  - {{name: {}, forward: {} us, backward: {} us, output: 1 kB, weights: 1 kB}}\n",
                                name, forward, backward);
        return text;
    };
    folder.write("fast.yaml", layers(10, 20));
    folder.write("slow.yaml", layers(35, 50));
    const auto step = [&](const std::string& pipeline) {
        const std::string path = folder.write("cfg.yaml",
                                              "workload: {model: fast.yaml}\ncluster: {hosts: [{devices: 1}, {devices: "
                                              "1, profile: slow.yaml}], link: {}}\n"
                                              "pipeline: {micro_batch_size: 1, " +
                                                  pipeline + "}\n");
        Notices notices;
        return predicted_report(make_job(load_config(path, {}), notices), false).metrics;
    };
    // F of both stages takes 20 and 70, B 40 and 100.
    EXPECT_EQ(step("schedule: gpipe, stages: 2, split: [c], micro_batches: 2").step_time,
              (20 + 2 * 70 + 2 * 100 + 40) * 1000);
    EXPECT_EQ(step("schedule: 1f1b, stages: 2, split: [c], micro_batches: 4").step_time,
              end_of_1f1b({20'000, 70'000}, {40'000, 100'000}, 4));
    // A balanced split gives the fast device three layers: 90 against 85.
    EXPECT_EQ(step("schedule: 1f1b, stages: 2, split: auto, micro_batches: 4").step_time,
              end_of_1f1b({30'000, 35'000}, {60'000, 50'000}, 4));
    // In both directions every device has both stages, each at its own speed: two of four micro-batches.
    const Metrics both = step("schedule: chimera, stages: 2, split: [c], micro_batches: 4");
    EXPECT_EQ(both.devices[0].busy, 2 * 2 * (20 + 40) * 1000);
    EXPECT_EQ(both.devices[1].busy, 2 * 2 * (70 + 100) * 1000);
    // Replicas share the micro-batches; the slower one takes longest.
    EXPECT_EQ(step("schedule: gpipe, stages: 1, replicas: 2, micro_batches: 4").devices[1].busy,
              2 * (140 + 200) * 1000);
}

// A file with the costs of a transformer's layers, on devices with the links of its pipeline, gets the transformer's
// numbers, except updates and the memory of training: a transformer's replicas share both, and the file has no
// replicas. Gradients of a file are as large as its weights.
TEST(UnlikeDevices, LayersWithTheCostsOfATransformerGetItsNumbers) {
    for (const char* schedule : {"1f1b", "gpipe", "zb-h1", "chimera"}) {
        SCOPED_TRACE(schedule);
        Notices notices;
        Job transformer = make_job(load(fmt::format("{}{}", kModel, kRows),
                                        {fmt::format("pipeline.schedule={}", schedule), "training.gradient_type=bf16"}),
                                   notices);
        for (MakeCosts& costs : transformer.costs.of_makes)
            for (StageCost& stage : costs.stage)
                stage.update = 0;
        const TemporaryFolder folder;
        const auto write = [&](const char* name, const std::vector<LayerProfile>& layers) {
            std::string text = "samples: 1\nlayers:\n";
            for (const LayerProfile& layer : layers) {
                const LayerTimes& times = layer.times.at(1);
                const LayerBytes& bytes = layer.bytes.at(1);
                text += fmt::format(
                    "  - {{name: {}, forward: {} ns, backward_input: {} ns, backward_weight: {} ns, output: "
                    "{} B, weights: {} B, saved: {} B}}\n",
                    layer.name, times.forward.median, times.backward_input.median, times.backward_weight.median,
                    bytes.output, bytes.weights, bytes.saved_until_input);
            }
            folder.write(name, text);
        };
        ASSERT_EQ(transformer.profile.of_makes.size(), 2u);
        write("fast.yaml", transformer.profile.of_makes[0]);
        write("slow.yaml", transformer.profile.of_makes[1]);
        std::string links;
        for (const auto& [pair, link] : transformer.costs.cluster->own_links)
            links += fmt::format("    - {{from: {}, to: {}, {}}}\n", pair.first, pair.second, print_link(link));
        const Config config = load_config(
            folder.write(
                "cfg.yaml",
                fmt::format("workload: {{model: fast.yaml}}\ncluster:\n  hosts: [{{count: 2, devices: 1}}, {{count: "
                            "2, devices: 1, profile: slow.yaml}}]\n  links:\n{}pipeline: {{schedule: {}, stages: 4, "
                            "split: [block.4, block.8, block.12], micro_batches: 12, micro_batch_size: 1}}\n"
                            "transfer: {{receive: {}, protocol: {}, exchange: {}}}\n",
                            links, schedule, name_of(transformer.mode.receive), name_of(transformer.mode.protocol),
                            name_of(transformer.mode.exchange))),
            {});
        // Tensor ranks send parts of a tensor.
        Job layers = make_job(config, notices);
        layers.costs.edges = transformer.costs.edges;
        const Metrics expected = predicted_report(transformer, false).metrics,
                      metrics = predicted_report(layers, false).metrics;
        EXPECT_EQ(metrics.span, expected.span);
        EXPECT_EQ(metrics.step_time, expected.step_time);
        for (std::size_t device = 0; device < 4; ++device)
            EXPECT_EQ(metrics.devices[device].busy, expected.devices[device].busy);
    }
}

TEST(UnlikeDevices, StagesOfOtherDegreesTakeTheirTimes) {
    const auto job_of = [](const std::string& devices, const std::string& parallel) {
        Notices notices;
        return make_job(load(fmt::format("workload: {{model: llama-3.2-1b, sequence_length: 2048}}\n"
                                         "cluster: {{devices: {}, device: h100-sxm-80}}\nparallel: {{{}}}\n"
                                         "pipeline: {{mini_batch: 8, schedule: 1f1b}}\n"
                                         "training: {{precision: bf16, optimizer: adamw}}\n",
                                         devices, parallel)),
                        notices);
    };
    const Job unlike = job_of("12", "tensor: [4, 2], pipeline: 2, zero: [1, 0], recompute: [full, none]");
    const Job first = job_of("16", "tensor: 4, pipeline: 2, zero: 1, recompute: full"),
              second = job_of("8", "tensor: 2, pipeline: 2");
    EXPECT_EQ(unlike.setup.parallel.degrees.data, 2);
    for (const auto& [stage, alike] : {std::pair(0, &first), std::pair(1, &second)}) {
        const StageCost &own = unlike.costs.times_on(stage).stage[stage], &other = alike->costs.stage[stage];
        EXPECT_EQ(own.forward, other.forward);
        EXPECT_EQ(own.backward, other.backward);
        EXPECT_EQ(own.update, other.update);
        const StageBytes &bytes = unlike.costs.bytes[stage], &of_other = alike->costs.bytes[stage];
        EXPECT_EQ(bytes.weights, of_other.weights);
        EXPECT_EQ(bytes.until_input, of_other.until_input);
        ASSERT_TRUE(bytes.training && of_other.training);
        EXPECT_EQ(bytes.training->gradients, of_other.training->gradients);
        EXPECT_EQ(bytes.training->states, of_other.training->states);
    }
    // Two messages with the halves of 2048 x 2048 numbers of two bytes, each from two ranks to one.
    ASSERT_EQ(unlike.costs.edges.size(), 1u);
    EXPECT_EQ(unlike.costs.edges[0].forward, 2048 * 2048 * 2 / 2);
    EXPECT_EQ(unlike.costs.edges[0].backward, 2048 * 2048 * 2 / 2);
    const Report report = predicted_report(unlike, false);
    ASSERT_TRUE(report.cluster);
    EXPECT_EQ(report.cluster->devices, 12);
    EXPECT_EQ(report.cluster->degrees, "tensor 4|2, pipeline 2, data 2, ZeRO 1|0");
    // Equal degrees in a list are one degree.
    EXPECT_EQ(predicted_report(job_of("8", "tensor: [2, 2], pipeline: 2"), false).metrics.step_time,
              predicted_report(second, false).metrics.step_time);
}

// Two hosts of two devices, a stage on each; tensor ranks send halves.
TEST(UnlikeDevices, MessagesOfATransformerTakeTheLinksAndSharesOfRanks) {
    const auto cluster_with = [](const std::string& network, const std::string& parallel = "tensor: 2, pipeline: 2") {
        Notices notices;
        return make_job(
                   load(fmt::format("workload: {{model: llama-3.2-1b, sequence_length: 2048}}\n"
                                    "cluster: {{hosts: 2, devices_per_host: 2, device: h100-sxm-80, between: "
                                    "{{bandwidth: 50 GB/s, latency: 1 us}}{}}}\nparallel: {{{}}}\n"
                                    "pipeline: {{mini_batch: 4}}\ntraining: {{precision: bf16, optimizer: adamw}}\n",
                                    network, parallel)),
                   notices)
            .costs.cluster;
    };
    // Both ranks of a host leave by one adapter, of which messages reach 0.96.
    EXPECT_DOUBLE_EQ(cluster_with("")->link_of(0, 1).bandwidth, 24e9);
    // Ranks 1 and 3 are the second ones of their stages, so both stages wait for their link.
    const auto linked = cluster_with(", links: [{from: 1, to: 3, bandwidth: 5 GB/s, latency: 2 us}]");
    EXPECT_EQ(linked->link_of(0, 1), (Link{2'000, 5e9}));
    EXPECT_DOUBLE_EQ(linked->link_of(1, 0).bandwidth, 24e9) << "the other way is as before";
    // Each stage has two messages of its ranks on what they share.
    const auto shared = cluster_with(", shared: [{devices: [0, 1, 2, 3], bandwidth: 8 GB/s}]");
    EXPECT_EQ(shared->routes.capacities(), std::vector<double>{4e9});
    EXPECT_EQ(shared->routes.takes(0, 1), std::vector<int>{0});
    const auto switched = cluster_with(", switches: [{hosts: [host 0], bandwidth: 6 GB/s}]");
    EXPECT_EQ(switched->routes.capacities(), (std::vector<double>{3e9, 3e9}));
}

TEST(UnlikeDevices, CollectivesOfATransformerAreNoFasterThanTheirRanksLinks) {
    const auto forward_and_update = [](const std::string& network, const std::string& parallel) {
        Notices notices;
        const Job job = make_job(
            load(fmt::format("workload: {{model: llama-3.2-1b, sequence_length: 2048}}\n"
                             "cluster: {{hosts: 2, devices_per_host: 2, device: h100-sxm-80, between: "
                             "{{bandwidth: 50 GB/s, latency: 1 us}}{}}}\nparallel: {{{}}}\npipeline: {{mini_batch: "
                             "4}}\ntraining: {{precision: bf16, optimizer: adamw}}\n",
                             network, parallel)),
            notices);
        return std::pair(job.costs.stage[0].forward, job.costs.stage[0].update);
    };
    // Tensor ranks on a host.
    const auto [forward, update] = forward_and_update("", "tensor: 2");
    EXPECT_GT(forward_and_update(", links: [{from: 0, to: 1, bandwidth: 5 GB/s}]", "tensor: 2").first, 2 * forward);
    EXPECT_GT(forward_and_update(", shared: [{devices: [0, 1], bandwidth: 10 GB/s}]", "tensor: 2").first, 2 * forward);
    // Replicas on both sides of a switch. A ring passes it once, so it is as fast as an adapter of this bandwidth.
    const auto narrow = forward_and_update(", switches: [{hosts: [host 0], bandwidth: 5 GB/s}]", "tensor: 2");
    EXPECT_EQ(narrow.first, forward);
    EXPECT_GT(narrow.second, 3 * update);
}

}  // namespace
}  // namespace pw
