#include "sim/metrics.h"

#include <gtest/gtest.h>

namespace pw {

namespace {

Trace empty_trace(int devices, int micro_batches) {
    Trace trace;
    trace.label = "predicted";
    trace.devices = trace.stages = devices;
    trace.micro_batches = micro_batches;
    for (int device = 0; device < devices; ++device)
        trace.stages_of.push_back({device});
    return trace;
}

void add(Trace& trace, int device, Task task, Ns start, Ns end, int version = 0, int step = 0) {
    trace.events.push_back({step, device, 0, task, start, end, 0, version});
}

// GPipe on two devices with two micro-batches, F = 1, B = 2, free links, from time `at`:
//   0: F0 F1 .  .  .  B0 B0 B1 B1
//   1: .  F0 F1 B0 B0 B1 B1
void add_gpipe(Trace& trace, int step, Ns at) {
    add(trace, 0, {Op::Forward, 0, 0}, at + 0, at + 1, step, step);
    add(trace, 0, {Op::Forward, 0, 1}, at + 1, at + 2, step, step);
    add(trace, 0, {Op::Backward, 0, 0}, at + 5, at + 7, step, step);
    add(trace, 0, {Op::Backward, 0, 1}, at + 7, at + 9, step, step);
    add(trace, 0, {Op::Update, 0, 1}, at + 9, at + 9, step + 1, step);
    add(trace, 1, {Op::Forward, 1, 0}, at + 1, at + 2, step, step);
    add(trace, 1, {Op::Forward, 1, 1}, at + 2, at + 3, step, step);
    add(trace, 1, {Op::Backward, 1, 0}, at + 3, at + 5, step, step);
    add(trace, 1, {Op::Backward, 1, 1}, at + 5, at + 7, step, step);
    add(trace, 1, {Op::Update, 1, 1}, at + 7, at + 7, step + 1, step);
}

Trace gpipe() {
    Trace trace = empty_trace(2, 2);
    trace.micro_batch_size = 4;
    add_gpipe(trace, 0, 0);
    return trace;
}

}  // namespace

TEST(Metrics, GpipeHasTheBubbleOfTheClosedForm) {
    const Metrics metrics = metrics_of(gpipe());
    EXPECT_EQ(metrics.makespan, 9);  // (m + p - 1)(F + B)
    EXPECT_EQ(metrics.step_time, 9);
    EXPECT_EQ(metrics.ideal, 6);
    EXPECT_EQ(metrics.span, 9);
    EXPECT_DOUBLE_EQ(metrics.bubble_rate, 1.0 / 3);  // (p - 1) / (m + p - 1)
    EXPECT_DOUBLE_EQ(metrics.bubble_ratio, 1.0 / 2);
    EXPECT_DOUBLE_EQ(metrics.span_bubble_rate, 1.0 / 3);
    EXPECT_DOUBLE_EQ(metrics.samples_per_second, 8 / 9e-9);
    EXPECT_EQ(metrics.tasks, 10);
    for (const DeviceMetrics& device : metrics.devices) {
        EXPECT_EQ(device.busy, 6);
        EXPECT_EQ(device.idle, 3);
        EXPECT_EQ(device.exposed_communication, 0);
        EXPECT_EQ(device.peak_in_flight, 2);
        EXPECT_EQ(device.weight_versions, 1);
    }
}

TEST(Metrics, UpdatesCountForTheMakespanButNotForTheSpan) {
    Trace trace = empty_trace(1, 1);
    add(trace, 0, {Op::Forward, 0, 0}, 0, 2);
    add(trace, 0, {Op::Backward, 0, 0}, 2, 6);
    add(trace, 0, {Op::Update, 0, 0}, 6, 7, 1);
    const Metrics metrics = metrics_of(trace);
    EXPECT_EQ(metrics.makespan, 7);
    EXPECT_EQ(metrics.span, 6);
    EXPECT_EQ(metrics.ideal, 6);
    EXPECT_EQ(metrics.devices[0].idle, 1);
    EXPECT_DOUBLE_EQ(metrics.span_bubble_rate, 0);
}

TEST(Metrics, StepTimeIsTheMedianWithoutTheFirstStep) {
    Trace trace = empty_trace(1, 1);
    const std::vector<Ns> lengths = {100, 7, 5, 9};
    Ns at = 0;
    for (int step = 0; step < 4; ++step) {
        add(trace, 0, {Op::Forward, 0, 0}, at, at + lengths[static_cast<std::size_t>(step)], step, step);
        at += lengths[static_cast<std::size_t>(step)] + 3;
    }
    EXPECT_EQ(step_times(trace), lengths);
    const Metrics metrics = metrics_of(trace);
    EXPECT_EQ(metrics.step_time, 7);
    EXPECT_EQ(metrics.step, 1);
    EXPECT_EQ(metrics.tasks, 1);
}

TEST(Metrics, AsynchronousStepTimeLeavesFillAndDrainOut) {
    Trace trace = empty_trace(1, 1);
    trace.asynchronous = true;
    Ns at = 0;
    for (int batch = 0; const Ns length : {50, 90, 4, 4, 6, 70}) {
        add(trace, 0, {Op::Forward, 0, batch}, at, at + 1, batch);
        add(trace, 0, {Op::Backward, 0, batch}, at + 1, at + length, batch);
        add(trace, 0, {Op::Update, 0, batch}, at + length, at + length, batch + 1);
        at += length;
        ++batch;
    }
    EXPECT_EQ(step_times(trace), (std::vector<Ns>{90, 4, 4, 6, 70}));
    const Metrics metrics = metrics_of(trace);
    EXPECT_EQ(metrics.step_time, 4);
    EXPECT_EQ(metrics.makespan, at);
    EXPECT_DOUBLE_EQ(metrics.samples_per_second, 1 / 4e-9);  // every micro-batch is a mini-batch
}

TEST(Metrics, TransfersAreExposedOnlyWhileTheirTaskWaits) {
    Trace trace = empty_trace(2, 2);
    add(trace, 0, {Op::Forward, 0, 0}, 0, 4);
    add(trace, 0, {Op::SendForward, 0, 0, 0, 1}, 4, 7);
    add(trace, 0, {Op::Forward, 0, 1}, 4, 8);
    add(trace, 1, {Op::RecvForward, 1, 0, 0, 0}, 4, 7);
    add(trace, 1, {Op::Forward, 1, 0}, 7, 11);  // waits 3 for the transfer, 4 for the task before
    add(trace, 1, {Op::RecvForward, 1, 1, 0, 0}, 8, 13);
    add(trace, 1, {Op::Forward, 1, 1}, 14, 18);  // 11..13 in flight, the last one was there already
    const Metrics metrics = metrics_of(trace);
    EXPECT_EQ(metrics.makespan, 18);
    EXPECT_EQ(metrics.devices[0].exposed_communication, 0);
    EXPECT_EQ(metrics.devices[1].exposed_communication, 3 + 2);
    EXPECT_EQ(metrics.tasks, 7);
}

TEST(Metrics, SplitBackwardFreesAtIAndAtW) {
    Trace trace = empty_trace(1, 3);
    Ns at = 0;
    for (const Task task :
         {Task{Op::Forward, 0, 0}, Task{Op::Forward, 0, 1}, Task{Op::BackwardInput, 0, 0}, Task{Op::Forward, 0, 2},
          Task{Op::BackwardInput, 0, 1}, Task{Op::BackwardInput, 0, 2}, Task{Op::BackwardWeight, 0, 0},
          Task{Op::BackwardWeight, 0, 1}, Task{Op::BackwardWeight, 0, 2}}) {
        add(trace, 0, task, at, at + 1);
        ++at;
    }
    const DeviceMetrics device = metrics_of(trace).devices[0];
    EXPECT_EQ(device.peak_in_flight, 2);
    EXPECT_EQ(device.peak_in_flight_until_weight, 3);
}

TEST(Metrics, PeakMemoryIsBrokenDownAtThePeak) {
    Trace trace = gpipe();
    MemoryUse low{}, high{}, elsewhere{};
    low[static_cast<std::size_t>(MemoryKind::Weights)] = 100;
    high[static_cast<std::size_t>(MemoryKind::Weights)] = 90;
    high[static_cast<std::size_t>(MemoryKind::Activations)] = 30;
    elsewhere[static_cast<std::size_t>(MemoryKind::Inputs)] = 7;
    trace.memory = {{0, 0, 0, low}, {0, 0, 1, high}, {0, 0, 2, low}, {0, 1, 0, elsewhere}, {1, 1, 9, high}};
    const Metrics metrics = metrics_of(trace);
    EXPECT_EQ(metrics.devices[0].peak_memory, 120);
    EXPECT_EQ(metrics.devices[0].memory, high);
    EXPECT_EQ(metrics.devices[1].peak_memory, 7);  // the other step's sample does not count
}

TEST(Metrics, StashedVersionsAreCountedWhileSomeTaskNeedsThem) {
    Trace trace = empty_trace(2, 1);
    trace.asynchronous = true;
    // PipeDream on the first of two stages: F0 F1 B0 U F2 B1 U B2 U; on the last: F B U in turn.
    auto task = [&, at = Ns{0}](int device, Op op, int microbatch, int version) mutable {
        add(trace, device, {op, device, microbatch}, at, at + 1, version);
        ++at;
    };
    task(0, Op::Forward, 0, 0);
    task(0, Op::Forward, 1, 0);
    task(0, Op::Backward, 0, 0);
    task(0, Op::Update, 0, 1);
    task(0, Op::Forward, 2, 1);
    task(0, Op::Backward, 1, 0);
    task(0, Op::Update, 1, 2);
    task(0, Op::Backward, 2, 1);
    task(0, Op::Update, 2, 3);
    for (int batch = 0; batch < 3; ++batch) {
        task(1, Op::Forward, batch, batch);
        task(1, Op::Backward, batch, batch);
        task(1, Op::Update, batch, batch + 1);
    }
    const Metrics metrics = metrics_of(trace);
    EXPECT_EQ(metrics.devices[0].weight_versions, 2);
    EXPECT_EQ(metrics.devices[1].weight_versions, 1);
}

TEST(Metrics, AnEmptyTraceHasNoTimes) {
    const Metrics metrics = metrics_of(empty_trace(2, 1));
    EXPECT_EQ(metrics.makespan, 0);
    EXPECT_EQ(metrics.bubble_rate, 0);
    EXPECT_EQ(metrics.samples_per_second, 0);
}

}  // namespace pw
