// Predictions of plans of slices (arXiv 2406.03488): times, activations in flight, and memory.
#include "job/job.h"
#include "job/load.h"
#include "job/trace_config.h"
#include "schedules/memory/buffers.h"
#include "schedules/trace/trace_json.h"
#include "sim/metrics.h"
#include "sim/simulate.h"
#include "tests/support/refusal.h"
#include "tests/support/shapes.h"
#include "tests/support/temporary_folder.h"
#include "workloads/costs/slices.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

namespace pw {
namespace {

Plan seq_plan(int p, int m, int k) {
    Shape shape = shape_of(schedule_named("seq1f1b"), p, m * k);
    shape.slices = k;
    return make_plan(schedule_named("seq1f1b"), shape);
}

// `f`, `i` and `w` are those of a slice.
Metrics simulated(int p, int m, int k, Ns f, Ns i, Ns w) {
    Costs costs = uniform(p, k * f, k * i, k * w);
    cut_in_slices(costs, slice_ends(k, 0));
    return metrics_of(simulate(seq_plan(p, m, k), costs));
}

// Independently simulated from the rules of sail-sg/zero-bubble-pipeline-parallelism 39f2c186.
TEST(Slices, HaveTheGoldenTimesAndPeaks) {
    const std::map<int, std::vector<int>> peaks{{2, {5, 4, 3, 2}}, {4, {7, 6, 5, 4}}};
    for (const auto& [k, expected] : peaks) {
        const Metrics metrics = simulated(4, 8, k, 1, 1, 1);
        EXPECT_EQ(metrics.span, 3 * (8 * k + 3)) << k;  // 57 with two slices
        EXPECT_EQ(metrics.span - metrics.ideal, 9) << k;
        std::vector<int> found;
        for (const DeviceMetrics& device : metrics.devices)
            found.push_back(device.peak_in_flight);
        EXPECT_EQ(found, expected) << k;
    }
}

TEST(Slices, DivideTheBubbleOf1F1B) {
    for (const int p : {1, 2, 3, 8})
        for (const int m : {1, 4, 11})
            for (const int k : {1, 2, 3, 6}) {
                const Metrics metrics = simulated(p, m, k, 10, 13, 7);
                const Ns whole = k * (10 + 13 + 7);  // F + B of a micro-batch
                EXPECT_EQ(metrics.makespan, m * whole + (p - 1) * whole / k) << p << ' ' << m << ' ' << k;
            }
}

// Of every micro-batch, slice q of k attends to (2q + 1) / k^2 of all pairs of rows; other layers do equal work.
TEST(Slices, TakeLongerIfTheyAttendToMoreRows) {
    Costs costs = uniform(1, 1600, 3200, 160);
    costs.attention = {{.forward = 1600, .backward_input = 1600}};
    cut_in_slices(costs, slice_ends(4, 0));
    std::map<std::pair<Op, int>, Ns> times;
    for (const TraceEvent& event : simulate(seq_plan(1, 1, 4), costs).events)
        times[{event.task.op, event.task.slice()}] = event.end - event.start;
    for (int slice = 0; slice < 4; ++slice) {
        EXPECT_EQ((times[{Op::Forward, slice}]), 100 * (2 * slice + 1));
        EXPECT_EQ((times[{Op::Backward, slice}]), 400 + 100 * (2 * slice + 1) + 40);
    }
}

std::vector<long> tokens_of(const SliceEnds& ends, int tokens) {
    std::vector<long> all;
    for (const double end : ends)
        all.push_back(std::lround(end * tokens));
    return all;
}

// If all time is attention, the first x of a sequence takes x^2 of it: slices of equal time end at sqrt(q / k).
TEST(Slices, EndWhereTheirTimesAreEqual) {
    const SliceEnds squares = slice_ends(4, 1), even = slice_ends(4, 0), rounded = slice_ends(4, 1, 1000, 50);
    for (int slice = 1; slice <= 4; ++slice) {
        EXPECT_NEAR(squares[slice - 1], std::sqrt(slice / 4.0), 1e-12);
        EXPECT_NEAR(even[slice - 1], slice / 4.0, 1e-12);
    }
    EXPECT_EQ(tokens_of(rounded, 1000), (std::vector<long>{500, 700, 850, 1000}));
    EXPECT_EQ(tokens_of(slice_ends(3, 1, 3, 1), 3), (std::vector<long>{1, 2, 3}));
    Costs costs = uniform(1, 1'000'000, 1'000'000, 1'000'000);
    costs.attention = {{.forward = 600'000, .backward_input = 500'000, .backward_weight = 400'000}};
    EXPECT_NEAR(attention_part(costs), 0.5, 1e-12);
    cut_in_slices(costs, slice_ends(5, attention_part(costs)));
    for (const std::vector<MicroBatchLength>& slice : costs.slices)
        EXPECT_NEAR(slice[0].forward + slice[0].backward_input + slice[0].backward_weight, 3.0 / 5, 1e-9);
}

// A prefill: chunk q of a prompt passes stage s after chunk q - 1, and after stage s - 1. With times 1, 3, 5 and 7 of
// the chunks on each of two stages, the first token comes after 1 + 3 + 5 + 7 + 7.
TEST(Slices, OfForwardsAloneAreAPrefill) {
    Costs costs = uniform(2, 16, 0, 0);
    costs.attention.assign(2, {.forward = 16});
    costs.bytes.assign(2, {.keys_and_values = 400});
    cut_in_slices(costs, slice_ends(4, 0));
    Shape shape = shape_of(schedule_named("forward-only"), 2, 4);
    shape.slices = 4;
    const Plan plan = make_plan(schedule_named("forward-only"), shape);
    const Trace trace = simulate(plan, costs);
    EXPECT_EQ(metrics_of(trace).makespan, 1 + 3 + 5 + 7 + 7);
    int held = 0;  // keys and values of each chunk until the last has read them
    for (const Buffer& buffer : buffers_of(plan, costs, versions_of(plan)))
        if (buffer.use == BufferUse::KeysAndValues) {
            EXPECT_EQ(buffer.bytes, 100);
            const std::vector<Task>& order = plan.order[static_cast<std::size_t>(buffer.device)];
            EXPECT_EQ(order[static_cast<std::size_t>(buffer.first)],
                      shape.task(Op::Forward, buffer.stage, buffer.microbatch));
            EXPECT_EQ(order[static_cast<std::size_t>(buffer.last)], shape.task(Op::Forward, buffer.stage, 3));
            ++held;
        }
    EXPECT_EQ(held, 8);
}

TEST(Slices, TakeTheWholeTimeTogether) {
    Costs costs = uniform(2, 1'000'003, 2'000'003, 999'999);
    costs.attention.assign(2, {.forward = 123'457, .backward_input = 333'333});
    const Ns whole = metrics_of(simulate(plan_of("1f1b", 2, 3), costs)).ideal;
    for (const int k : {2, 3, 7}) {
        cut_in_slices(costs, slice_ends(k, 0));
        EXPECT_NEAR(metrics_of(simulate(seq_plan(2, 3, k), costs)).ideal, whole, 3 * 2 * k) << k;
    }
}

// What a slice saves stays until its own backward, its gradients of keys and values from that of the last slice on.
TEST(Slices, HoldTheirBuffersUntilTheirBackwards) {
    const int k = 3;
    const Plan plan = seq_plan(3, 4, k);
    Costs costs = uniform(3, 3, 3, 3);
    for (StageBytes& bytes : costs.bytes) {
        bytes.until_input = 3 * 640;
        bytes.keys_and_values = 3 * 128;
    }
    cut_in_slices(costs, slice_ends(k, 0));
    const auto position_of = [&](int device, Op op, int number) {
        const std::vector<Task>& order = plan.order[static_cast<std::size_t>(device)];
        return static_cast<int>(std::find(order.begin(), order.end(), Task{op, device, number}) - order.begin());
    };
    int gradients = 0;
    for (const Buffer& buffer : buffers_of(plan, costs, versions_of(plan))) {
        if (buffer.use != BufferUse::UntilInput && buffer.use != BufferUse::SliceGradients)
            continue;
        const bool saved = buffer.use == BufferUse::UntilInput;
        const int last = buffer.microbatch / k * k + k - 1;
        EXPECT_EQ(buffer.bytes, saved ? 640 : 128);
        EXPECT_EQ(buffer.first, saved ? position_of(buffer.device, Op::Forward, buffer.microbatch)
                                      : position_of(buffer.device, Op::Backward, last));
        EXPECT_EQ(buffer.last, position_of(buffer.device, Op::Backward, buffer.microbatch));
        gradients += saved ? 0 : 1;
        EXPECT_FALSE(!saved && buffer.microbatch == last);
    }
    EXPECT_EQ(gradients, 3 * 4 * (k - 1));
}

constexpr const char* kSmall = R"(
workload: {model: gpt, sequence_length: 16, vocabulary: 11, embedding: 8, blocks: 4, heads: 2}
cluster: {devices: 2}
pipeline: {schedule: seq1f1b, slices: 4, micro_batches: 4, micro_batch_size: 2}
training: {steps: 2}
)";

Job job_of(const char* yaml, const std::vector<std::string>& set = {}) {
    const TemporaryFolder folder;
    Notices notices;
    return make_job(load_config(folder.write("config.yaml", yaml), set), notices);
}

TEST(Slices, KeepTheSamplesPerStep) {
    const Job job = job_of(kSmall, {"cluster.devices=1", "pipeline.split=even"});
    Trace trace = simulate(job.plan, job.costs);
    add_config(trace, job);
    const Metrics metrics = metrics_of(trace);
    EXPECT_NEAR(metrics.samples_per_second * static_cast<double>(metrics.step_time) / 1e9, 8, 1e-9);
}

TEST(Slices, SurviveATraceFile) {
    const TemporaryFolder folder;
    const Job job = job_of(kSmall);
    Trace trace = simulate(job.plan, job.costs);
    add_config(trace, job);
    const std::string path = folder.write("trace.json", "");
    write_trace(trace, path);
    EXPECT_TRUE(read_trace(path) == trace);
}

TEST(Slices, AreRefusedWhereTheyCannotBeCut) {
    const auto refused = [](const char* yaml, const std::vector<std::string>& set) {
        return refusal([&] { job_of(yaml, set); });
    };
    expect_says(refused(kSmall, {"pipeline.slices=3"}), {"16 tokens are not 3 equal slices", "slices: 4"});
    expect_says(refused(kSmall, {"pipeline.slices=[10, 5]"}), {"the slices have 15 tokens, a sequence has 16"});
    expect_says(refused(kSmall, {"pipeline.slices=[]"}), {"'pipeline.slices' is empty"});
    expect_says(refused(kSmall, {"pipeline.slices=17", "pipeline.slice_lengths=time"}),
                {"16 tokens are not 17 slices"});
    expect_says(refused(kSmall, {"pipeline.schedule=forward-only", "pipeline.replicas=2"}), {"pipeline.replicas"});
    expect_says(refused(kSmall, {"pipeline.recompute=all"}), {"keys and values", "slices: 1"});
    expect_says(
        refused("{workload: {model: mlp}, cluster: {devices: 2}, pipeline: {schedule: seq1f1b, micro_batches: 4}}", {}),
        {"mlp has layers that mix their rows", "1f1b"});
    EXPECT_NO_THROW(job_of(
        "{workload: {model: mlp}, cluster: {devices: 2}, pipeline: {schedule: seq1f1b, slices: 1, micro_batches: 4}}"));
}

}  // namespace
}  // namespace pw
