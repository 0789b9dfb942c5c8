// Frozen layers: plans without the backwards that train nothing, their times and memory, counted by hand or event by
// event without the code that drops them.
#include "job/job.h"
#include "schedules/memory/buffers.h"
#include "schedules/orders/schedule.h"
#include "sim/metrics.h"
#include "sim/simulate.h"
#include "tests/support/config_text.h"
#include "tests/support/dice.h"
#include "tests/support/public_data.h"
#include "tests/support/refusal.h"
#include "tests/support/thoroughness.h"
#include "workloads/models/frozen_layers.h"
#include "workloads/models/mlp.h"
#include "workloads/text/files.h"
#include "workloads/text/yaml.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

namespace pw {
namespace {

Job job_of(const std::string& layers, const std::string& config, const std::vector<std::string>& set = {}) {
    const TemporaryFolder folder;
    folder.write("layers.yaml", layers);
    Notices notices;
    return make_job(load_config(folder.write("cfg.yaml", config), set), notices);
}

Ns step_of(const Job& job) { return metrics_of(simulate(job.plan, job.costs, job.mode)).step_time; }

std::vector<MemoryUse> peaks_of(const Job& job) {
    std::vector<MemoryUse> peaks;
    for (const auto& positions :
         memory_of(job.plan, buffers_of(job.plan, job.costs, job.versions, job.mode.early_receive())))
        peaks.push_back(peak_of(positions));
    return peaks;
}

Bytes of(const MemoryUse& use, MemoryKind kind) { return use[static_cast<int>(kind)]; }

// Returns the tasks of a device without transfers.
std::string computed(const Job& job, int device) {
    std::vector<std::string> tasks;
    for (const Task& task : job.plan.order[static_cast<std::size_t>(device)])
        if (!is_transfer(task.op))
            tasks.push_back(print(task));
    return fmt::format("{}", fmt::join(tasks, " "));
}

// A stage as a layer with times in ms.
struct StageTimes {
    int forward, input, weight;
    bool frozen = false;
};

// The model of the stages, with a layer that takes no time before stage `trained`, or without it (-1).
std::string layers_of(const std::vector<StageTimes>& stages, int trained = -1) {
    std::string text = "samples: 1\nlayers:\n";
    for (std::size_t stage = 0; stage < stages.size(); ++stage) {
        const StageTimes& times = stages[stage];
        if (static_cast<int>(stage) == trained)
            text += "  - {name: projector, weights: 1 MB, output: 1 MB}\n";
        text += fmt::format(
            "  - {{name: s{}, forward: {} ms, backward_input: {} ms, backward_weight: {} ms, output: 1 MB, weights: 1 "
            "MB{}}}\n",
            stage, times.forward, times.input, times.weight, times.frozen ? ", frozen: true" : "");
    }
    return text;
}

std::string config_of(const std::string& schedule, std::size_t stages, int micro_batches, int trained = -1) {
    std::vector<std::string> cuts;
    for (std::size_t stage = 1; stage < stages; ++stage)
        cuts.push_back(static_cast<int>(stage) == trained ? "projector" : fmt::format("s{}", stage));
    return fmt::format(
        "workload: {{model: layers.yaml}}\ncluster: {{devices: {}}}\npipeline: {{schedule: {}, micro_batches: {}, "
        "split: [{}]}}\n",
        stages, schedule, micro_batches, fmt::join(cuts, ", "));
}

std::vector<StageTimes> stages_in(const Yaml& list, bool frozen) {
    std::vector<StageTimes> stages;
    for (const Yaml& row : list.items()) {
        std::vector<int> times;
        for (const Yaml& time : row.items())
            times.push_back(static_cast<int>(time.integer(0, 0, 1000)));
        stages.push_back({times.at(0), times.at(1), times.at(2), frozen});
    }
    return stages;
}

// An event simulation of others: the first row trains everything, in the last rows the encoder is frozen and the
// projector after it is trained.
TEST(FrozenLayers, TakeTheStepsOfAnEventSimulationOfOthers) {
    PIPEWRIGHT_NEED_DATA(path, "witness/frozen/derived_1f1b.yaml");
    const Yaml root = Yaml::parse(std::make_shared<Source>(path, read_text(path, "")));
    int rows = 0;
    for (const Yaml& row : root["rows"].items()) {
        std::vector<StageTimes> stages = stages_in(row["encoder_stages"], row["encoder_frozen"].boolean(false));
        const auto first = static_cast<int>(stages.size());
        const std::vector<StageTimes> rest = stages_in(row["llm_stages"], row["llm_frozen"].boolean(false));
        stages.insert(stages.end(), rest.begin(), rest.end());
        const auto micro_batches = static_cast<int>(row["micro_batches"].integer(0, 1, 100));
        const Job job = job_of(layers_of(stages, first), config_of("1f1b", stages.size(), micro_batches, first));
        EXPECT_EQ(step_of(job), row["step_1f1b"].number(0, 0, 1000) * 1e6) << row["name"].text();
        ++rows;
    }
    EXPECT_EQ(rows, 4);
}

// Ends of the tasks of a step, list by list, until nothing moves.
class EventCount {
public:
    EventCount(const std::vector<StageTimes>& stages, int micro_batches, bool one_by_one)
        : stages_(stages), micro_batches_(micro_batches), one_by_one_(one_by_one) {
        const int count = static_cast<int>(stages.size());
        while (first_ < count && stages[static_cast<std::size_t>(first_)].frozen)
            ++first_;  // the first stage with a backward
        const std::vector<int> never(static_cast<std::size_t>(micro_batches), -1);
        forward_end_.assign(stages.size(), never);
        backward_end_ = forward_end_;
        forwards_.assign(stages.size(), 0);
        backwards_ = free_ = forwards_;
    }

    int step() {
        for (bool moved = true; moved;) {
            moved = false;
            for (int stage = 0; stage < std::ssize(stages_); ++stage)
                moved = run_next(stage) || moved;
        }
        return *std::max_element(free_.begin(), free_.end());
    }

private:
    bool run_next(int stage) {
        const auto at = static_cast<std::size_t>(stage);
        const int ahead = one_by_one_ ? static_cast<int>(stages_.size()) - stage : micro_batches_;
        const bool goes_back = stage >= first_;
        const bool is_forward =
            forwards_[at] < micro_batches_ && (!goes_back || forwards_[at] - backwards_[at] < ahead);
        int& next = is_forward ? forwards_[at] : backwards_[at];
        if (next == micro_batches_ || (!is_forward && !goes_back))
            return false;
        const auto mb = static_cast<std::size_t>(next);
        int ready = 0;
        if (is_forward && stage > 0)
            ready = forward_end_[at - 1][mb];
        if (!is_forward && at + 1 < stages_.size())
            ready = backward_end_[at + 1][mb];
        if (ready < 0)
            return false;
        const StageTimes& times = stages_[at];
        free_[at] =
            std::max(free_[at], ready) + (is_forward ? times.forward : times.input + (times.frozen ? 0 : times.weight));
        (is_forward ? forward_end_ : backward_end_)[at][mb] = free_[at];
        ++next;
        return true;
    }

    const std::vector<StageTimes>& stages_;
    int micro_batches_, first_ = 0;
    bool one_by_one_;
    std::vector<std::vector<int>> forward_end_, backward_end_;
    std::vector<int> forwards_, backwards_, free_;
};

TEST(FrozenLayers, TakeTheTimesOfAnEventCount) {
    Random random(35);
    for (int round = 0; round < rounds(100); ++round) {
        std::vector<StageTimes> stages(static_cast<std::size_t>(pick(random, 2, 6)));
        const int frozen = pick(random, 0, static_cast<int>(stages.size()) - 1);
        for (std::size_t stage = 0; stage < stages.size(); ++stage)
            stages[stage] = {
                pick(random, 1, 5), pick(random, 1, 5), pick(random, 1, 5),
                static_cast<int>(stage) < frozen || (static_cast<int>(stage) > frozen && pick(random, 0, 1) == 1)};
        const int micro_batches = pick(random, 1, 9);
        for (const bool one_by_one : {false, true}) {
            const char* schedule = one_by_one ? "1f1b" : "gpipe";
            const Job job = job_of(layers_of(stages), config_of(schedule, stages.size(), micro_batches));
            EXPECT_EQ(step_of(job), EventCount(stages, micro_batches, one_by_one).step() * 1'000'000)
                << schedule << "\n"
                << layers_of(stages) << micro_batches;
        }
    }
}

constexpr const char* kAdapters = R"(
layers:
  - {name: vit, inputs: [], forward: 10 ms, backward: 0 ms, output: 16 MB, weights: 600 MB, frozen: true}
  - {name: b0, forward: 10 ms, backward_input: 10 ms, output: 16 MB, weights: 10 MB, frozen_weights: 3990 MB}
  - {name: b1, forward: 10 ms, backward_input: 10 ms, output: 16 MB, weights: 10 MB, frozen_weights: 3990 MB}
  - {name: head, forward: 5 ms, backward_input: 10 ms, output: 1 MB, weights: 500 MB}
)";
constexpr const char* kFrozenEncoder = R"(
workload: {model: layers.yaml}
cluster: {devices: 4, memory: 8 GB}
pipeline: {schedule: 1f1b, micro_batches: 8, split: [b0, b1, head]}
training: {optimizer: adamw}
)";

// A frozen encoder and blocks with small adapters. By hand: stages 1 and 2 hold 4 GB of weights, and three times 10 MB
// for gradients and the two states. 1F1B keeps three inputs of 16 MB on stage 1 and two on stage 2.
TEST(FrozenLayers, HaveNeitherGradientsNorStates) {
    const Job job = job_of(kAdapters, kFrozenEncoder, {"transfer.receive=deferred"});
    EXPECT_EQ(computed(job, 0), "0F0 0F1 0F2 0F3 0F4 0F5 0F6 0F7");
    EXPECT_EQ(print(job.plan).find("RECV_B0<1"), std::string::npos);
    EXPECT_EQ(print(job.plan).find("SEND_B0>0"), std::string::npos);
    const std::vector<MemoryUse> peaks = peaks_of(job);
    const Bytes mb = 1'000'000;
    EXPECT_EQ(of(peaks[0], MemoryKind::Weights), 600 * mb);
    EXPECT_EQ(total(peaks[0]), 600 * mb + of(peaks[0], MemoryKind::Communication));
    for (const int stage : {1, 2}) {
        EXPECT_EQ(of(peaks[stage], MemoryKind::Weights), 4000 * mb);
        EXPECT_EQ(of(peaks[stage], MemoryKind::Gradients), 10 * mb);
        EXPECT_EQ(of(peaks[stage], MemoryKind::Optimizer), 20 * mb);
        EXPECT_EQ(of(peaks[stage], MemoryKind::Inputs), (4 - stage) * 16 * mb);
        EXPECT_LT(total(peaks[stage]), 4150 * mb);
    }
    EXPECT_EQ(of(peaks[3], MemoryKind::Optimizer), 1000 * mb);
}

// Early receives take the eight outputs of a stage that waits for nothing.
TEST(FrozenLayers, RunAheadOfTheStagesThatTrain) {
    EXPECT_EQ(of(peaks_of(job_of(kAdapters, kFrozenEncoder))[1], MemoryKind::Inputs), 8 * 16'000'000);
}

TEST(FrozenLayers, OfAFieldReportFit) {
    PIPEWRIGHT_NEED_DATA(path, "field/35-frozen-weights/layers.yaml");
    std::string layers = read_text(path, "");
    const auto replace = [&](const std::string& from, const std::string& to) {
        for (std::size_t at = 0; (at = layers.find(from, at)) != layers.npos; at += to.size())
            layers.replace(at, from.size(), to);
    };
    replace("weights: 600 MB", "weights: 600 MB, frozen: true");
    replace("weights: 4000 MB", "weights: 10 MB, frozen_weights: 3990 MB");
    const Job job = job_of(layers, kFrozenEncoder);
    const std::vector<Bytes> reserved = reserved_of(job.plan, job.costs, job.versions, job.mode);
    EXPECT_EQ(reserved[0], 600'000'000);
    for (const int stage : {1, 2}) {
        EXPECT_GE(reserved[stage], 4'000'000'000);
        EXPECT_LE(reserved[stage], 4'200'000'000);
    }
    EXPECT_EQ(job.plan.shape.forwards_only, std::vector<int>{0});
}

// Replicas: only trained weights are summed and divided; ZeRO-3 divides frozen weights, too.
TEST(FrozenLayers, AreNotSummed) {
    const std::string layers =
        "samples: 1\nlayers:\n"
        "  - {name: a, forward: 1 ms, backward: 1 ms, output: 1 MB, weights: 64 MB, frozen: true}\n"
        "  - {name: b, forward: 1 ms, backward: 2 ms, output: 1 MB, weights: 8 MB, frozen_weights: 32 MB}\n";
    const std::string config =
        "workload: {model: layers.yaml}\ncluster: {devices: 4, link: {bandwidth: 1 GB/s}}\n"
        "pipeline: {schedule: 1f1b, micro_batches: 4, split: [b], replicas: 2}\n";
    for (const int zero : {0, 1, 2, 3}) {
        const Job job = job_of(layers, config, {fmt::format("training.zero={}", zero)});
        EXPECT_EQ(computed(job, 0), "0F0 0F2") << zero;
        EXPECT_EQ(job.costs.stage_sums.at(1).bytes, 8'000'000);
        const std::vector<MemoryUse> peaks = peaks_of(job);
        EXPECT_EQ(of(peaks[0], MemoryKind::Weights), zero == 3 ? 32'000'000 : 64'000'000) << zero;
        EXPECT_EQ(of(peaks[2], MemoryKind::Weights), zero == 3 ? 20'000'000 : 40'000'000) << zero;
        if (zero == 3)  // every pass gathers all weights
            EXPECT_EQ(job.costs.exchanged.at(1).weights, 40'000'000);
        EXPECT_EQ(of(peaks[2], MemoryKind::Gradients), zero >= 2 ? 4'000'000 : 8'000'000) << zero;
        EXPECT_EQ(of(peaks[2], MemoryKind::Optimizer), zero >= 1 ? 4'000'000 : 8'000'000) << zero;
    }
}

// Stages 0 and 1 of four run forwards only; stage 3 passes gradients on.
TEST(FrozenLayers, AreStagesOfAUniformWorkload) {
    const std::string config =
        "workload: {model: uniform, stages: 4, forward: 2 ms, backward_input: 2 ms, backward_weight: 2 ms, "
        "weights: 10 MB, output: 1 MB, frozen: [0, 1, 3]}\n"
        "cluster: {devices: 4}\npipeline: {schedule: 1f1b, micro_batches: 8}\n";
    const Job job = job_of("", config);
    EXPECT_EQ(computed(job, 1), "1F0 1F1 1F2 1F3 1F4 1F5 1F6 1F7");
    EXPECT_EQ(step_of(job),
              EventCount({{2, 2, 2, true}, {2, 2, 2, true}, {2, 2, 2}, {2, 2, 2, true}}, 8, true).step() * 1'000'000);
    const std::vector<MemoryUse> peaks = peaks_of(job);
    EXPECT_EQ(total(peaks[0]), 10'000'000 + of(peaks[0], MemoryKind::Communication));
    EXPECT_EQ(of(peaks[3], MemoryKind::Gradients), 0);
    EXPECT_EQ(of(peaks[2], MemoryKind::Optimizer), 10'000'000);
}

// Every schedule drops the backwards of its first stages soundly: the check proves the plan, and the rest keeps its
// order.
TEST(FrozenLayers, AreDroppedFromEverySchedule) {
    for (const Schedule& schedule : schedules()) {
        if (!schedule.trains || schedule.asynchronous())
            continue;
        const int stages = legal_stages(schedule, {.devices = 4, .stages = 4 * schedule.chunks});
        for (int frozen = 1; frozen < stages; ++frozen) {
            std::vector<int> first(static_cast<std::size_t>(frozen));
            for (int stage = 0; stage < frozen; ++stage)
                first[static_cast<std::size_t>(stage)] = stage;
            const std::string config = fmt::format(
                "workload: {{model: uniform, stages: {}, frozen: [{}]}}\ncluster: {{devices: 4}}\n"
                "pipeline: {{schedule: {}, micro_batches: 8}}\n",
                stages, fmt::join(first, ", "), schedule.name);
            const Job job = job_of("", config), whole = job_of("", config, {"workload.frozen="});
            for (std::size_t device = 0; device < 4; ++device) {
                const auto kept = [&](std::vector<Task> order) {
                    std::erase_if(order, [&](const Task& task) {
                        return is_transfer(task.op) || (task.op != Op::Forward && task.stage < frozen);
                    });
                    return order;
                };
                if (!schedule.needs_costs)
                    EXPECT_EQ(kept(job.plan.order[device]), kept(whole.plan.order[device])) << config;
                const auto is_forward = [](const Task& task) { return task.op == Op::Forward; };
                EXPECT_EQ(std::ranges::count_if(job.plan.order[device], is_forward),
                          std::ranges::count_if(whole.plan.order[device], is_forward))
                    << config;
                for (const Task& task : job.plan.order[device])
                    EXPECT_TRUE(task.stage >= frozen || task.op == Op::Forward || !carries_gradients(task.op))
                        << config;
            }
            EXPECT_LE(step_of(job), step_of(whole)) << config;
        }
    }
}

// By hand: fc1 is frozen and reads the data, so that its ReLU has no backward either. fc2 has W alone.
TEST(FrozenLayers, LeavePassesOutAsAutogradDoes) {
    Model model = build_mlp({1, 4, 4}, 10);
    set_frozen(model.layers, {"fc1"});
    const auto passes = [&](const char* name) {
        const Layer& layer = model.layers[find_layer(model.layers, name)];
        return std::pair(layer.input_pass, layer.weight_pass);
    };
    EXPECT_EQ(passes("fc1"), std::pair(false, false));
    EXPECT_EQ(passes("relu1"), std::pair(false, false));
    EXPECT_EQ(passes("fc2"), std::pair(false, true));
    EXPECT_EQ(passes("relu2"), std::pair(true, false));
    EXPECT_EQ(passes("fc3"), std::pair(true, true));
    set_frozen(model.layers, {"fc3"});
    EXPECT_EQ(passes("fc3"), std::pair(true, false));
    expect_says(refusal([&] { set_frozen(model.layers, {"fc*"}); }), {"nothing is trained"});
    expect_says(refusal([&] { set_frozen(model.layers, {"conv"}); }), {"no layer is called 'conv'"});
}

TEST(FrozenLayers, AreRefusedWhereAPlanCannotDropThem) {
    const std::string config =
        "workload: {model: uniform, stages: 2, frozen: [0]}\ncluster: {devices: 2}\n"
        "pipeline: {schedule: 1f1b, micro_batches: 4}\n";
    expect_says(refusal([&] { job_of("", config, {"pipeline.schedule=pipedream"}); }),
                {"pipeline.schedule", "never flushes", "frozen"});
    expect_says(refusal([&] { job_of("", config, {"workload.frozen=[0, 1]"}); }),
                {"workload.frozen", "nothing is trained"});
    expect_says(refusal([&] { job_of(kAdapters, kFrozenEncoder, {"workload.frozen=[b7]"}); }),
                {"workload.frozen", "no layer is called 'b7'"});
    expect_says(refusal([&] { job_of("layers: [{name: a, weights: 1 MB, frozen: true}]", kFrozenEncoder); }),
                {"layers.yaml", "nothing is trained"});
}

}  // namespace
}  // namespace pw
