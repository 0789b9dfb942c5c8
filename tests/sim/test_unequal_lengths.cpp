// Micro-batches of unequal length: times, messages and memory, counted without the code that scales them.
#include "job/job.h"
#include "job/trace_config.h"
#include "schedules/memory/buffers.h"
#include "schedules/orders/schedule.h"
#include "sim/metrics.h"
#include "sim/replay.h"
#include "sim/simulate.h"
#include "tests/support/config_text.h"
#include "tests/support/public_data.h"
#include "tests/support/shapes.h"
#include "workloads/error.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

namespace pw {
namespace {

// Milliseconds of a step of 1F1B without transfers: stage s runs p - 1 - s forwards, then one forward and one backward
// in turn, and each waits for the same micro-batch on the neighbouring stage. F takes `forward` of a micro-batch, B
// twice that.
double longest_path_of_1f1b(int stages, const std::vector<double>& forward) {
    const int count = static_cast<int>(forward.size());
    const std::vector<double> never(forward.size(), -1);
    std::vector<std::vector<double>> forward_end(static_cast<std::size_t>(stages), never), backward_end = forward_end;
    std::vector<int> forwards(static_cast<std::size_t>(stages), 0), backwards = forwards;
    std::vector<double> free(static_cast<std::size_t>(stages), 0);
    for (bool moved = true; moved;) {
        moved = false;
        for (int stage = 0; stage < stages; ++stage) {
            int &next_forward = forwards[stage], &next_backward = backwards[stage];
            const bool is_forward = next_forward < count && next_forward - next_backward < stages - stage;
            const int microbatch = is_forward ? next_forward : next_backward;
            if (microbatch == count)
                continue;
            double ready = 0;
            if (is_forward && stage > 0)
                ready = forward_end[stage - 1][microbatch];
            if (!is_forward && stage + 1 < stages)
                ready = backward_end[stage + 1][microbatch];
            if (ready < 0)
                continue;
            free[stage] = std::max(free[stage], ready) + (is_forward ? 1 : 2) * forward[microbatch];
            (is_forward ? forward_end : backward_end)[stage][microbatch] = free[stage];
            ++(is_forward ? next_forward : next_backward);
            moved = true;
        }
    }
    return *std::max_element(free.begin(), free.end());
}

const std::vector<int> kTokens = {512, 8192, 4096, 1024, 6144, 2048, 7168, 3584};

std::string list_of(const std::vector<int>& tokens) {
    std::string list = "[";
    for (const int each : tokens)
        list += std::to_string(each / 4096.0) + ", ";
    return list + "]";
}

constexpr const char* kFourStages = R"(
workload: {model: uniform, stages: 4, forward: 4 ms, backward_input: 8 ms, backward_weight: 0 us}
cluster: {devices: 4}
pipeline: {schedule: 1f1b, micro_batches: 8}
)";

Ns step_time(const std::vector<std::string>& set) {
    Notices notices;
    const Job job = make_job(load(kFourStages, set), notices);
    return metrics_of(simulate(job.plan, job.costs, job.mode)).step_time;
}

TEST(UnequalLengths, TakeTheLongestPathOfTheirOrder) {
    std::vector<int> equal(8, 4096), up = kTokens, down;
    std::sort(up.begin(), up.end());
    down.assign(up.rbegin(), up.rend());
    const std::vector<std::pair<std::vector<int>, double>> orders = {
        {equal, 132.0}, {kTokens, 199.5}, {down, 151.0}, {up, 148.5}};
    for (const auto& [tokens, milliseconds] : orders) {
        std::vector<double> forward;
        for (const int each : tokens)
            forward.push_back(each / 1024.0);
        EXPECT_EQ(longest_path_of_1f1b(4, forward), milliseconds);
        EXPECT_EQ(step_time({"pipeline.micro_batch_lengths=" + list_of(tokens)}), milliseconds * 1e6);
    }
}

TEST(UnequalLengths, ComeFromAPublicFile) {
    PIPEWRIGHT_NEED_DATA(path, "field/18-unequal-micro-batches/lengths.csv");
    EXPECT_EQ(step_time({"pipeline.micro_batch_lengths=" + path}), 199'500'000);
}

// By hand: one device, three micro-batches; F 10 and R 10, I 6, W 4, B 10, and 3 more to add gradients.
TEST(UnequalLengths, ScaleEveryOperationByItsOwn) {
    Costs costs = uniform(1, 10, 6, 4);
    costs.stage[0].recompute = 10;
    costs.stage[0].accumulate = 3;
    costs.stage[0].update = 7;
    costs.dispatch = 1;
    costs.lengths = {{.forward = 2, .backward_input = 0.5, .backward_weight = 3}, {}, {.forward = 0.1}};
    PlanOptions options;
    options.recompute.stages = {0};
    const auto time_of = [&](const char* schedule, const char* task) {
        const Trace trace = simulate(plan_of(schedule, 1, 3, 1, options), costs);
        const auto found = std::ranges::find_if(
            trace.events, [&](const TraceEvent& event) { return print(event.task) == std::string(task); });
        return found == trace.events.end() ? -1 : found->end - found->start;
    };
    EXPECT_EQ(time_of("gpipe", "0F0"), 20 + 1);
    EXPECT_EQ(time_of("gpipe", "0F1"), 10 + 1);
    EXPECT_EQ(time_of("gpipe", "0F2"), 1 + 1);
    EXPECT_EQ(time_of("gpipe", "0R0"), 20 + 1);
    EXPECT_EQ(time_of("gpipe", "0B0"), 3 + 12 + 1) << "the first gradients are added to none";
    EXPECT_EQ(time_of("gpipe", "0B1"), 10 + 3 + 1);
    EXPECT_EQ(time_of("zb-h1", "0I0"), 3 + 1);
    EXPECT_EQ(time_of("zb-h1", "0W0"), 12 + 1);
    EXPECT_EQ(time_of("zb-h1", "0W1"), 4 + 3 + 1);
    EXPECT_EQ(time_of("gpipe", "0U2"), 7 + 1) << "once per mini-batch";
}

// Two stages, one lane each way at 1 byte per nanosecond: a message takes its bytes.
TEST(UnequalLengths, ScaleMessages) {
    Costs costs = uniform(2, 100, 50, 50);
    costs.edges = {{0, 1, 40, 20}};
    ClusterEdit(costs)->link = {.bandwidth = 1e9};
    costs.lengths = {{.bytes = 2}, {.bytes = 0.5}};
    const Trace trace = simulate(plan_of("gpipe", 2, 2, 1), costs);
    for (const TraceEvent& event : trace.events)
        if (is_send(event.task.op)) {
            const Bytes equal = event.task.op == Op::SendForward ? 40 : 20;
            const Bytes bytes = event.task.microbatch == 0 ? 2 * equal : equal / 2;
            EXPECT_EQ(event.bytes, bytes) << print(event.task);
            EXPECT_EQ(event.end - event.start, bytes) << print(event.task);
        }
}

// GPipe holds all micro-batches at once, and 1F1B on the first of two devices each pair of neighbours.
TEST(UnequalLengths, ScaleActivations) {
    Costs costs = uniform(2, 10, 10, 10);
    for (StageBytes& bytes : costs.bytes)
        bytes = {.until_input = 600, .until_weight = 400, .forward_workspace = 100};
    costs.lengths = {{.bytes = 0.5}, {.bytes = 2}, {.bytes = 1.5}, {.bytes = 0.25}};
    const auto activations = [&](const char* schedule) {
        return metrics_of(simulate(plan_of(schedule, 2, 4, 1), costs))
            .devices[0]
            .memory[static_cast<std::size_t>(MemoryKind::Activations)];
    };
    EXPECT_EQ(activations("gpipe"), 4250);
    EXPECT_EQ(activations("1f1b"), 3500);
    const Metrics metrics = metrics_of(simulate(plan_of("gpipe", 2, 4, 1), costs));
    EXPECT_EQ(metrics.devices[0].memory[static_cast<std::size_t>(MemoryKind::Workspace)], 200) << "of the longest";
}

TEST(UnequalLengths, RepeatInEveryStepOfAnAsynchronousPlan) {
    Notices notices;
    const Job job =
        make_job(load("workload: {model: uniform, forward: 10 us, backward_input: 20 us, "
                      "backward_weight: 0 us}\ncluster: {devices: 1}\n"
                      "pipeline: {schedule: pipedream, micro_batches: 3, micro_batch_lengths: [1, 2, 0.5]}\n"
                      "training: {steps: 4}"),
                 notices);
    for (const TraceEvent& event : simulate(job.plan, job.costs, job.mode).events)
        if (event.task.op == Op::Forward) {
            EXPECT_EQ(event.end - event.start, (std::vector<Ns>{10'000, 20'000, 5'000}[event.task.microbatch % 3]));
        }
}

// The time of each task follows from the costs alone; a trace keeps the lengths, so that its kinds follow too.
TEST(UnequalLengths, AreOfOtherKindsInAReplay) {
    Notices notices;
    const Job job = make_job(load(kFourStages, {"pipeline.micro_batch_lengths=" + list_of(kTokens)}), notices);
    Trace trace = simulate(job.plan, job.costs, job.mode);
    add_config(trace, job);
    TransferMode mode = job.mode;
    mode.sent_copies = keeps_copies(job.costs, mode.early_receive());
    EXPECT_EQ(trace_rules(trace).costs.lengths, job.costs.lengths);
    const ErrorParts parts = error_parts(job.plan, job.proof, mode, trace, nullptr, trace, trace_rules(trace).costs);
    EXPECT_EQ(parts.jitter, 0) << "tasks of one kind take equally long";
    EXPECT_EQ(parts.costs, 0);
    EXPECT_NE(error_parts(job.plan, job.proof, mode, trace, nullptr, trace).jitter, 0)
        << "without the lengths their differences are taken for chance";
}

// A single micro-batch of length 3 is one micro-batch of a workload that is three times as large.
TEST(UnequalLengths, ScaleASingleMicroBatch) {
    constexpr const char* kConfig = R"(
workload: {{model: uniform, stages: {0}, forward: {1} us, backward_input: {1} us, backward_weight: {1} us,
           activation: {1} MB, output: {1} MB}}
cluster: {{devices: 2, link: {{bandwidth: 1 GB/s}}}}
pipeline: {{schedule: {2}, micro_batches: 1{3}}}
)";
    int compared = 0;
    for (const std::string_view name : names_of_schedules()) {
        const auto traced = [&, stages = 2 * schedule_named(name).chunks](int size, const char* lengths) {
            Notices notices;
            const Job job = make_job(load(fmt::format(kConfig, stages, size, name, lengths)), notices);
            return simulate(job.plan, job.costs, job.mode);
        };
        try {
            const Trace large = traced(3, ""), longer = traced(1, ", micro_batch_lengths: [3]");
            EXPECT_EQ(longer.events, large.events) << name;
            EXPECT_EQ(longer.memory, large.memory) << name;
            ++compared;
        } catch (const Error&) {  // the schedule needs more micro-batches
        }
    }
    EXPECT_GE(compared, 12);
}

TEST(UnequalLengths, OfASingleMicroBatchTakeTheirMessagesAlong) {
    constexpr const char* kOne = R"(
workload: {model: uniform, stages: 2, forward: 1 us, backward_input: 1 us, backward_weight: 1 us, activation: 1 MB, output: 1 MB}
cluster: {devices: 2, link: {bandwidth: 1 GB/s}}
pipeline: {schedule: 1f1b, micro_batches: 1, micro_batch_lengths: [3]}
)";
    Notices notices;
    const Job job = make_job(load(kOne), notices);
    EXPECT_EQ(metrics_of(simulate(job.plan, job.costs, job.mode)).step_time, 6'018'000);
}

}  // namespace
}  // namespace pw
