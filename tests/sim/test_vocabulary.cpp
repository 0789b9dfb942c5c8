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

TEST(Vocabulary, IsTheSameByEventsAndInDraws) {
    Costs costs = costs_of_parts(4);
    costs.joined_sums.assign(12, 0);
    std::fill(costs.joined_sums.begin() + 8, costs.joined_sums.end(), 7);
    for (const Schedule& schedule : vocabulary_schedules()) {
        Simulator simulator(plan_of_parts(schedule.name, 4, 9), {});
        const Trace once = simulator.trace(costs), by_events = simulator.trace_by_events(costs);
        ASSERT_EQ(once.events.size(), by_events.events.size());
        for (std::size_t k = 0; k < once.events.size(); ++k)
            ASSERT_TRUE(once.events[k] == by_events.events[k])
                << schedule.name << ": " << print(once.events[k].task) << " from " << once.events[k].start << " to "
                << once.events[k].end << ", by events from " << by_events.events[k].start << " to "
                << by_events.events[k].end;
        for (const Ns drawn : simulator.sample(costs, lognormal_jitter(0), 8, 1, 1).step_times)
            EXPECT_EQ(drawn, simulator.step_time(costs)) << schedule.name;
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

// The bubble of 1F1B. vocab-1 and vocab-2 have up to F + B and F more where parts of the head are short.
TEST(Vocabulary, HasTheBubbleOfOneFOneB) {
    for (const PartTimes& times : {PartTimes{0, 0, 10, 20, 4, 4, 4}, PartTimes{0, 0, 10, 20, 1, 1, 1},
                                   PartTimes{0, 0, 10, 20, 10, 10, 10}, PartTimes{0, 0, 10, 20, 0, 0, 0}})
        for (const int p : {1, 2, 3, 4, 7, 8}) {
            const auto bubble = [&](const char* schedule) {
                return makespan_of(schedule, p, 40, costs_of_parts(p, times)) - 40 * times.all();
            };
            const Ns least = (p - 1) * (times.forward + times.backward);
            EXPECT_EQ(bubble("vocab-interlaced"), least) << p << ' ' << times.score;
            EXPECT_GE(bubble("vocab-2"), least) << p << ' ' << times.score;
            EXPECT_LE(bubble("vocab-2"), least + times.forward) << p << ' ' << times.score;
            EXPECT_GE(bubble("vocab-1"), least) << p << ' ' << times.score;
            EXPECT_LE(bubble("vocab-1"), least + times.forward + times.backward) << p << ' ' << times.score;
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
                {"cfg.yaml:3:22", "whole layers", "help: take a transformer on a cluster"});
    expect_says(refusal([] {
                    job_of_text(
                        "workload: {model: uniform, stages: 4}\ncluster: {devices: 2}\npipeline: {schedule: vocab-1, "
                        "micro_batches: 4}\n");
                }),
                {"schedule vocab-1 places three stages on each device", "help:"});
}

// Steps that the authors measured. Columns have the passes that devices share, without names. The first column grows
// with the vocabulary and is taken as S and T, the second column as F of the embedding, the third column as B of the
// embedding. The fourth column is added to S.
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

// The throughput that the division gains over a plan with a whole head, of equal blocks and of blocks by time: 7 to
// 102 %, in points.
TEST(MeasuredVocabulary, HasTheGainOfItsPasses) {
    PIPEWRIGHT_NEED_DATA(path, "witness/vocabulary/device_times.yaml");
    std::map<std::pair<int, int>, std::vector<MeasuredSteps>> whole;  // by sequence length and vocabulary
    int gains = 0;
    for (const YAML::Node& row : YAML::LoadFile(path)["rows"]) {
        std::vector<MeasuredSteps>& undivided = whole[{row["sequence_length"].as<int>(), row["vocabulary"].as<int>()}];
        const MeasuredSteps steps(row);
        if (!steps.shares()) {
            undivided.push_back(steps);
            continue;
        }
        for (const MeasuredSteps& base : undivided) {
            const double simulated = 100 * (base.simulated_ms() / steps.simulated_ms() - 1),
                         measured = 100 * (base.measured_ms() / steps.measured_ms() - 1);
            EXPECT_NEAR(simulated, measured, 2) << base.name() << " and\n" << YAML::Dump(row);
            ++gains;
        }
    }
    EXPECT_EQ(gains, 30);
}

// The model of the authors' runs on one host (witness/vocabulary/one_host.yaml): 32 blocks on 8 A100.
std::string predicted_plan(const std::string& schedule, int tokens, const std::string& more = "") {
    return fmt::format(
        "workload: {{model: gpt.json, sequence_length: {}}}\n"
        "cluster: {{hosts: 1, devices_per_host: 8, device: a100-sxm-80}}\n"
        "training: {{precision: bf16, optimizer: adamw}}\n"
        "parallel: {{pipeline: 8, release: nemo-2024, attention: flash}}\n"
        "pipeline: {{schedule: {}, micro_batches: 128, micro_batch_size: 1{}}}\n",
        tokens, schedule, more);
}

Job transformer_job(const std::string& plan, int tokens, int vocabulary, bool tied = false) {
    const TemporaryFolder folder;
    folder.write("gpt.json", fmt::format(R"({{"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_layer": 32,
"n_embd": 3072, "n_head": 24, "n_inner": 12288, "n_positions": {}, "vocab_size": {}, "tie_word_embeddings": {}}})",
                                         tokens, vocabulary, tied));
    Notices notices;
    return make_job(load_config(folder.write("plan.yaml", plan), {}), notices);
}

Bytes weights_of(const Job& job) {
    Bytes sum = 0;
    for (const StageBytes& bytes : job.costs.bytes)
        sum += bytes.weights;
    return sum;
}

// The parts of both tables, the blocks and the final norm are the parameters of the undivided model.
TEST(Vocabulary, DividesTheParametersOfATransformer) {
    const Job whole = transformer_job(predicted_plan("1f1b", 2048), 2048, 65536),
              parts = transformer_job(predicted_plan("vocab-1", 2048), 2048, 65536),
              tied = transformer_job(predicted_plan("vocab-1", 2048), 2048, 65536, true);
    const Bytes table = Bytes{65536} * 3072 * 2;
    EXPECT_EQ(weights_of(parts), weights_of(whole));
    EXPECT_EQ(weights_of(tied), weights_of(whole) - table) << "both parts of a device are one table";
    EXPECT_EQ(parts.plan.shape.stages, 24);
    for (const int stage : {16, 23})
        EXPECT_EQ(parts.costs.bytes[stage].weights, table / 8);
}

// By the shapes: logits of 8192 columns and 2048 rows are kept in bf16 and fp32 until T, each in one of 8 devices.
TEST(Vocabulary, KeepsItsPartOfTheLogits) {
    const Job job = transformer_job(predicted_plan("vocab-2", 2048), 2048, 65536);
    EXPECT_EQ(job.costs.bytes[20].until_weight, Bytes{8192} * 2048 * 6);
    EXPECT_EQ(job.costs.bytes[20].until_input, 0);
    for (const EdgeBytes& edge : job.costs.edges)
        if (edge.to >= 16) {
            EXPECT_EQ(edge.forward, Bytes{2048} * 3072 * 2);
            EXPECT_TRUE(edge.forward_until_weight);
        }
}

// Only the parts of the head wait for the sum of maxima and sums.
TEST(Vocabulary, SumsMaximaWhileDevicesCompute) {
    const Job job = transformer_job(predicted_plan("vocab-1", 2048), 2048, 65536);
    ASSERT_EQ(job.costs.joined_sums.size(), 24U);
    for (std::size_t stage = 0; stage < 24; ++stage)
        EXPECT_EQ(job.costs.joined_sums[stage] > 0, stage >= 16) << stage;
    EXPECT_LT(job.costs.joined_sums[16], 100'000) << "16 KiB among eight devices of a host";
}

struct PredictedStep {
    double seconds = 0, gigabytes = 0;
};

PredictedStep predicted(const YAML::Node& row) {
    const auto method = row["method"].as<std::string>();
    const int tokens = row["sequence_length"].as<int>(), vocabulary = row["vocabulary"].as<int>();
    // redis: the blocks of the last stage are said in device_times.yaml, the rest fills the stages before it
    const std::map<std::pair<int, int>, std::string> redis = {{{2048, 32768}, "[4, 4, 4, 4, 4, 4, 4, 4]"},
                                                              {{2048, 65536}, "[4, 4, 4, 4, 4, 4, 5, 3]"},
                                                              {{2048, 262144}, "[4, 4, 4, 5, 5, 5, 5, 0]"},
                                                              {{4096, 131072}, "[4, 4, 4, 4, 4, 5, 5, 2]"},
                                                              {{4096, 262144}, "[4, 4, 4, 5, 5, 5, 5, 0]"}};
    const std::string schedule = method == "baseline" || method == "redis" ? "1f1b"
                                 : method == "interlaced"                  ? "vocab-interlaced"
                                                                           : method;
    const Job job = transformer_job(
        predicted_plan(schedule, tokens, method == "redis" ? ", split: " + redis.at({tokens, vocabulary}) : ""), tokens,
        vocabulary);
    const Metrics metrics = metrics_of(simulate(job.plan, job.costs, job.mode));
    PredictedStep step{static_cast<double>(metrics.step_time) * 1e-9, 0};
    for (const DeviceMetrics& device : metrics.devices)
        step.gigabytes = std::max(step.gigabytes, static_cast<double>(device.needed_memory()) * 1e-9);
    return step;
}

// MFU relative to the baseline, for each length and vocabulary. The baseline with 256k words at 2048 tokens is left
// out: its MFU of 17.3 % is a third below what the authors' step in device_times.yaml gives, and its memory 8 GB above
// redis. There the rest is relative to redis. Blocks are predicted too fast here, and whole heads too slow, which adds
// up where the head weighs most.
TEST(MeasuredVocabulary, HasTheThroughputOfItsShapes) {
    PIPEWRIGHT_NEED_DATA(path, "witness/vocabulary/one_host.yaml");
    std::map<std::pair<int, int>, std::pair<PredictedStep, double>> first;
    std::map<std::pair<int, int>, std::vector<double>> steps;
    for (const YAML::Node& row : YAML::LoadFile(path)["rows"]) {
        const std::pair of{row["sequence_length"].as<int>(), row["vocabulary"].as<int>()};
        const double mfu = row["mfu_percent"].as<double>(), memory = row["peak_memory_gb"].as<double>();
        const PredictedStep step = predicted(row);
        steps[of].push_back(step.seconds);
        if (memory > 35)
            continue;
        EXPECT_NEAR(step.gigabytes / memory, 1, 0.07) << YAML::Dump(row);
        const auto& [base, base_mfu] = first.try_emplace(of, step, mfu).first->second;
        const double gain = base.seconds / step.seconds, measured = mfu / base_mfu;
        EXPECT_NEAR(gain / measured, 1, of == std::pair(2048, 262144) ? 0.21 : 0.12) << YAML::Dump(row);
        if (const std::size_t method = steps[of].size(); method > 2) {  // in points of the gain
            EXPECT_GT(gain - measured, 0.055) << YAML::Dump(row);
            EXPECT_LT(gain - measured, 0.28) << YAML::Dump(row);
        }
    }
    ASSERT_EQ(steps.size(), 5U);
    for (const auto& [of, all] : steps)  // baseline, redis, vocab-2, vocab-1, interlaced
        for (std::size_t method = 2; method < all.size() && of.second >= 65536; ++method) {
            EXPECT_LT(all[1], all[0]);
            EXPECT_LT(all[method], all[1]);
        }
}

}  // namespace
}  // namespace pw
