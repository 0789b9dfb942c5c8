// Schedules that divide the embedding and the head among all devices (vocabulary parallelism): counted by hand, by the
// rate of a pipeline without idle devices, and against steps that the authors measured on 8 A100 (the folder
// witness/vocabulary of the public data, of sail-sg/VocabularyParallelism, arXiv 2411.05288). Nothing is fitted.
#include "job/job.h"
#include "job/load.h"
#include "schedules/memory/buffers.h"
#include "sim/metrics.h"
#include "sim/simulate.h"
#include "tests/support/config_text.h"
#include "tests/support/public_data.h"
#include "tests/support/refusal.h"
#include "tests/support/shapes.h"
#include "tests/support/temporary_folder.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

namespace pw {
namespace {

// Times of a part of the embedding, of the blocks of a device and of a part of the head.
struct PartTimes {
    Ns embed = 1, scatter = 2, forward = 10, backward = 20, score = 4, input = 3, weight = 3;
    Ns all() const { return embed + scatter + forward + backward + score + input + weight; }
};

Costs costs_of_parts(int devices, const PartTimes& times = {}) {
    Costs costs;
    const auto add = [&](Ns forward, Ns input, Ns weight) {
        for (int device = 0; device < devices; ++device) {
            costs.stage.push_back(
                {.forward = forward, .backward = input + weight, .backward_input = input, .backward_weight = weight});
            costs.bytes.emplace_back();
        }
    };
    add(times.embed, times.scatter, 0);
    add(times.forward, times.backward, 0);
    add(times.score, times.input, times.weight);
    return costs;
}

Plan plan_of_parts(std::string_view schedule, int devices, int microbatches) {
    return make_plan(schedule_named(schedule), shape_of(schedule_named(schedule), devices, microbatches));
}

Ns makespan_of(std::string_view schedule, int devices, int microbatches, const Costs& costs) {
    return metrics_of(simulate(plan_of_parts(schedule, devices, microbatches), costs)).makespan;
}

// Returns the computing tasks of a device: "0F0 2F0 4F0".
std::string computed_by(const Plan& plan, int device) {
    std::vector<std::string> tasks;
    for (const Task& task : plan.order[static_cast<std::size_t>(device)])
        if (is_compute(task.op))
            tasks.push_back(print(task));
    return fmt::format("{}", fmt::join(tasks, " "));
}

// Stages 0 and 1 are the parts of the embedding, 2 and 3 the blocks, 4 and 5 the parts of the head.
TEST(Vocabulary, OrdersTwoDevices) {
    const Plan twice = plan_of_parts("vocab-1", 2, 2), once = plan_of_parts("vocab-2", 2, 2);
    EXPECT_EQ(computed_by(twice, 0), "0F0 0F1 2F0 2F1 4F0 4B0 4F1 4B1 2B0 0B0 2B1 0B1");
    EXPECT_EQ(computed_by(twice, 1), "1F0 1F1 3F0 5F0 3F1 5B0 5F1 5B1 3B0 3B1 1B0 1B1");
    EXPECT_EQ(computed_by(once, 0), "0F0 0F1 2F0 2F1 4F0 4I0 4W0 4F1 4I1 2B0 4W1 0B0 2B1 0B1");
    EXPECT_EQ(computed_by(once, 1), "1F0 1F1 3F0 5F0 5I0 3F1 5W0 5F1 5I1 3B0 5W1 3B1 1B0 1B1");
}

// By hand. vocab-1: device 1 ends its forwards at 22 and 36, and S at 26 and 46. T of micro-batch 1 waits for S of both
// devices, and B for T of both: B at 72 and 92 on device 1, 92 and 114 on device 0, whose part of the embedding ends at
// 116. vocab-2: B of micro-batch 0 waits for I of both devices, 29, but device 1 is busy until 49.
TEST(Vocabulary, TakesTwoDevicesThisLong) {
    EXPECT_EQ(makespan_of("vocab-1", 2, 2, costs_of_parts(2)), 116);
    EXPECT_EQ(makespan_of("vocab-2", 2, 2, costs_of_parts(2)), 116);
}

// vocab-1: both T on device 1 wait until 5 after the last S, 36 and 51, so that everything after is 5 later. vocab-2:
// only W waits. It has the time: W of micro-batch 1 is at 69 on device 1, after S at 46.
TEST(Vocabulary, WaitsForTheSumOverAllDevices) {
    Costs costs = costs_of_parts(2);
    costs.joined_sums = {0, 0, 0, 0, 5, 5};
    EXPECT_EQ(makespan_of("vocab-1", 2, 2, costs), 121);
    EXPECT_EQ(makespan_of("vocab-2", 2, 2, costs), 116);
}

TEST(Vocabulary, IsTheSameByEvents) {
    Costs costs = costs_of_parts(4);
    costs.joined_sums.assign(12, 0);
    std::fill(costs.joined_sums.begin() + 8, costs.joined_sums.end(), 7);
    for (const Schedule& schedule : vocabulary_schedules()) {
        Simulator simulator(plan_of_parts(schedule.name, 4, 9), {});
        EXPECT_TRUE(simulator.trace(costs).events == simulator.trace_by_events(costs).events) << schedule.name;
    }
}

// Once the pipeline is full, no device waits: a micro-batch takes as long as its passes on a device.
TEST(Vocabulary, LeavesNoDeviceIdle) {
    for (const Schedule& schedule : vocabulary_schedules())
        for (const int devices : {1, 2, 3, 4, 8}) {
            const Costs costs = costs_of_parts(devices);
            EXPECT_EQ(makespan_of(schedule.name, devices, 64, costs) - makespan_of(schedule.name, devices, 32, costs),
                      32 * PartTimes{}.all())
                << schedule.name << " on " << devices;
        }
}

// Every shape has a plan that completes, whatever the lanes (make_plan proves it).
TEST(Vocabulary, CompletesInAllLanes) {
    for (const Schedule& schedule : vocabulary_schedules())
        for (const int devices : {1, 2, 3, 5, 8})
            for (const int microbatches : {1, 2, 3, 7, 20})
                for (const auto& communicator : kChoices<TransferMode::Communicator>)
                    for (const auto& receive : kChoices<TransferMode::Receive>)
                        EXPECT_NO_THROW(
                            make_plan(schedule, shape_of(schedule, devices, microbatches),
                                      {.transfers = {.communicator = communicator.value, .receive = receive.value}}))
                            << schedule.name << " on " << devices << " with " << microbatches << " in "
                            << communicator.name << ", " << receive.name;
}

// The most micro-batches whose blocks a device has run forward and not backward.
int in_flight(const Plan& plan, int device) {
    const int blocks = plan.shape.devices + device;
    int held = 0, most = 0;
    for (const Task& task : plan.order[static_cast<std::size_t>(device)])
        if (task.stage == blocks && is_compute(task.op))
            most = std::max(most, held += task.op == Op::Forward ? 1 : -1);
    return most;
}

// Section 5 of the paper: p + 2 and p + 1 micro-batches on device 0, and 3p / 2 if all devices run the head together.
TEST(Vocabulary, HoldsTheMicroBatchesOfThePaper) {
    for (const int p : {1, 2, 3, 4, 8, 16})
        for (const int m : {1, 2, 9, 40}) {
            const Plan twice = plan_of_parts("vocab-1", p, m), once = plan_of_parts("vocab-2", p, m);
            for (int device = 0; device < p; ++device) {
                EXPECT_EQ(in_flight(twice, device), std::min(m, p - device + 2)) << p << ' ' << m;
                EXPECT_EQ(in_flight(once, device), std::min(m, p - device + 1)) << p << ' ' << m;
            }
            EXPECT_EQ(in_flight(plan_of_parts("vocab-interlaced", p, m), 0), std::min(m, (3 * p + 1) / 2));
        }
}

constexpr const char* kUniform =
    "workload: {model: uniform, forward: [1 us, 1 us, 4 us, 4 us, 2 us, 2 us], output: 8 MB}\n"
    "cluster: {devices: 2, link: {bandwidth: 1 GB/s, latency: 0 us}}\n"
    "pipeline: {schedule: vocab-1, micro_batches: 4}\n";

Job job_of_text(const std::string& text, const std::vector<std::string>& set = {}) {
    Notices notices;
    return make_job(load(text, set), notices);
}

// Sums are made on the way: what arrives at the first device and at the last device is one tensor.
TEST(Vocabulary, ReceivesOneTensorOfASum) {
    const Job job = job_of_text(kUniform);
    std::map<std::pair<int, int>, EdgeBytes> edges;
    for (const EdgeBytes& edge : job.costs.edges)
        edges.insert({{edge.from, edge.to}, edge});
    ASSERT_EQ(edges.size(), 5U);
    for (const int part : {0, 1}) {
        EXPECT_EQ(edges.at({part, 2}).forward, 4'000'000) << "a part of the embedding's output";
        EXPECT_EQ(edges.at({part, 2}).backward, 8'000'000) << "its gradient goes to all parts";
        EXPECT_EQ(edges.at({3, 4 + part}).forward, 8'000'000) << "the input of the head goes to all parts";
        EXPECT_EQ(edges.at({3, 4 + part}).backward, 4'000'000) << "a part of its gradient";
    }
}

TEST(Vocabulary, RefusesWholeLayersAndOtherNumbersOfStages) {
    expect_says(refusal([] {
                    job_of_text(
                        "workload: {model: mlp}\ncluster: {devices: 2}\n"
                        "pipeline: {schedule: vocab-1, micro_batches: 4, micro_batch_size: 8}\n");
                }),
                {"cfg.yaml:3:22", "whole layers", "help: take a transformer"});
    expect_says(refusal([] {
                    job_of_text(
                        "workload: {model: uniform, stages: 4}\ncluster: {devices: 2}\npipeline: {schedule: vocab-1, "
                        "micro_batches: 4}\n");
                }),
                {"schedule vocab-1 places three stages on each device", "help:"});
}

// Steps of the authors. Their columns say which passes the devices share, not which is which: the first one grows with
// the vocabulary and is taken as S and T, the second one as F of the embedding, the third one as its B. The fourth one
// is added to S.
class MeasuredSteps {
public:
    explicit MeasuredSteps(const YAML::Node& row) : row_(row) {}

    double simulated_ms() const {
        Costs costs;
        const std::vector<double> forward = times("F_us_by_device"), backward = times("B_us_by_device");
        const std::vector<double> none(kDevices, 0);
        if (!shares()) {
            add(costs, forward, backward, none);
            return step_of(costs, "1f1b");
        }
        const YAML::Node shared = row_["shared_pass_us_by_device"];
        const auto head = shared[0].as<std::vector<double>>(), rest = shared[3].as<std::vector<double>>();
        std::vector<double> score, input, weight;
        for (std::size_t device = 0; device < kDevices; ++device) {
            score.push_back(head[device] / 3 + rest[device]);
            input.push_back(head[device] / 3);
            weight.push_back(head[device] / 3);
        }
        add(costs, shared[1].as<std::vector<double>>(), shared[2].as<std::vector<double>>(), none);
        add(costs, forward, backward, none);
        add(costs, score, input, weight);
        return step_of(costs, name() == "interlaced" ? "vocab-interlaced" : name());
    }
    bool shares() const { return row_["shared_pass_us_by_device"].IsDefined(); }
    std::string name() const { return row_["method"].as<std::string>(); }
    double measured_ms() const { return row_["measured_step_ms"].as<double>(); }
    double bound_ms() const { return row_["busiest_device_ms"].as<double>(); }

private:
    static constexpr std::size_t kDevices = 8;

    std::vector<double> times(const char* key) const { return row_[key].as<std::vector<double>>(); }

    static void add(Costs& costs, const std::vector<double>& forward, const std::vector<double>& input,
                    const std::vector<double>& weight) {
        const auto ns = [](double us) { return std::llround(us * 1e3); };
        for (std::size_t device = 0; device < kDevices; ++device) {
            costs.stage.push_back({.forward = ns(forward[device]),
                                   .backward = ns(input[device] + weight[device]),
                                   .backward_input = ns(input[device]),
                                   .backward_weight = ns(input[device] + weight[device]) - ns(input[device])});
            costs.bytes.emplace_back();
        }
    }
    static double step_of(const Costs& costs, const std::string& schedule) {
        return static_cast<double>(makespan_of(schedule, kDevices, 128, costs)) / 1e6;
    }

    YAML::Node row_;
};

TEST(MeasuredVocabulary, HasTheStepsOfItsPasses) {
    PIPEWRIGHT_NEED_DATA(path, "witness/vocabulary/device_times.yaml");
    int rows = 0;
    for (const YAML::Node& row : YAML::LoadFile(path)["rows"]) {
        const MeasuredSteps steps(row);
        const double simulated = steps.simulated_ms();
        EXPECT_NEAR(simulated / steps.measured_ms(), 1, steps.shares() ? 0.01 : 0.016) << YAML::Dump(row);
        if (steps.shares()) {
            EXPECT_GE(simulated, steps.bound_ms() * (1 - 1e-4)) << YAML::Dump(row);
            EXPECT_LE(simulated, steps.bound_ms() * 1.07) << YAML::Dump(row);
        }
        ++rows;
    }
    EXPECT_EQ(rows, 25);
}

}  // namespace
}  // namespace pw
