// Traces made by hand, for tests of readers of traces: 1F1B in a pipeline of equal stages.
#pragma once

#include "schedules/trace/trace.h"

#include <algorithm>
#include <map>
#include <string>
#include <tuple>
#include <vector>

namespace pw {

struct SampleTrace {
    int devices = 4;
    int microbatches = 8;
    Ns forward = 1'000'123;
    Ns backward = 2'000'045;
    Ns transfer = 150'017;
    std::string label = "predicted";
    bool asynchronous = false;  // an update after every backward, no flush
    double jitter = 0;          // relative, for a trace that looks measured
    int steps = 1;
};

inline std::vector<Task> one_f_one_b_of(const SampleTrace& of, int device) {
    const int warmup = std::min(of.devices - 1 - device, of.microbatches);
    std::vector<Task> order;
    for (int mb = 0; mb < warmup; ++mb)
        order.push_back({Op::Forward, device, mb});
    for (int mb = 0; mb < of.microbatches; ++mb) {
        if (warmup + mb < of.microbatches)
            order.push_back({Op::Forward, device, warmup + mb});
        order.push_back({Op::Backward, device, mb});
        if (of.asynchronous || mb + 1 == of.microbatches)
            order.push_back({Op::Update, device, mb});
    }
    return order;
}

// Runs the orders of all devices against each other, one step from `begin` on.
class SampleRun {
public:
    SampleRun(const SampleTrace& of, Trace& trace, int step, Ns begin)
        : of_(of), trace_(trace), step_(step), now_(of.devices, begin), next_(of.devices), versions_(of.devices) {}

    Ns run() {
        std::vector<std::vector<Task>> orders;
        for (int device = 0; device < of_.devices; ++device) {
            orders.push_back(one_f_one_b_of(of_, device));
            sample(device, now_[device], 0);
        }
        for (bool moved = true; moved;) {
            moved = false;
            for (int device = 0; device < of_.devices; ++device)
                while (next_[device] < orders[device].size() && advance(device, orders[device][next_[device]])) {
                    ++next_[device];
                    moved = true;
                }
        }
        return *std::max_element(now_.begin(), now_.end());
    }

private:
    Ns length_of(Op op) {
        const Ns base = op == Op::Forward ? of_.forward : op == Op::Backward ? of_.backward : of_.forward / 4;
        seed_ = seed_ * 1664525 + 1013904223;
        return base + static_cast<Ns>(of_.jitter * static_cast<double>(base) * (seed_ >> 8) / (1u << 24));
    }

    void sample(int device, Ns time, int change) {
        in_flight_[device] += change;
        const Bytes mib = 1 << 20;
        MemoryUse use{
            40 * mib, of_.asynchronous ? 40 * mib : 0, 40 * mib, 80 * mib, in_flight_[device] * 24 * mib, mib, 8 * mib,
            2 * mib};
        trace_.memory.push_back({step_, device, time, use});
    }

    void move(int from, int to, Op send, Op receive, int mb, Ns at) {
        const Bytes bytes = 1 << 20;
        const Ns arrived = at + of_.transfer;
        trace_.events.push_back({step_, from, from / 2, {send, from, mb, 0, to}, at, arrived, bytes, -1});
        trace_.events.push_back({step_, to, to / 2, {receive, to, mb, 0, from}, at, arrived, bytes, -1});
        arrived_[{to, receive, mb}] = arrived;
    }

    bool advance(int device, const Task& task) {
        Ns start = now_[device];
        const bool forward = task.op == Op::Forward;
        if (task.op != Op::Update && (forward ? device > 0 : device + 1 < of_.devices)) {
            const auto input = arrived_.find({device, forward ? Op::RecvForward : Op::RecvBackward, task.microbatch});
            if (input == arrived_.end())
                return false;
            start = std::max(start, input->second);
        }
        const Ns end = start + length_of(task.op);
        if (task.op == Op::Update)
            ++versions_[device];
        else if (forward)
            taken_[{device, task.microbatch}] = versions_[device];
        const int version = task.op == Op::Update ? versions_[device] : taken_.at({device, task.microbatch});
        trace_.events.push_back({step_, device, device / 2, task, start, end, 0, version});
        now_[device] = end;
        if (task.op != Op::Update)
            sample(device, forward ? start : end, forward ? 1 : -1);
        if (forward && device + 1 < of_.devices)
            move(device, device + 1, Op::SendForward, Op::RecvForward, task.microbatch, end);
        if (task.op == Op::Backward && device > 0)
            move(device, device - 1, Op::SendBackward, Op::RecvBackward, task.microbatch, end);
        return true;
    }

    const SampleTrace& of_;
    Trace& trace_;
    int step_;
    std::vector<Ns> now_;
    std::vector<std::size_t> next_;
    std::vector<int> versions_;
    std::map<int, int> in_flight_;
    std::map<std::tuple<int, Op, int>, Ns> arrived_;
    std::map<std::pair<int, int>, int> taken_;
    unsigned seed_ = 1;
};

inline Trace sample_trace(const SampleTrace& of = {}) {
    Trace trace;
    trace.label = of.label;
    trace.plan_hash = "0123456789abcdef";
    trace.schedule = of.asynchronous ? "pipedream" : "1f1b";
    trace.config = "schedule: 1f1b\nname: \"quoted\" \\ µ\n";
    trace.machine = "test";
    trace.devices = trace.stages = of.devices;
    trace.micro_batches = of.microbatches;
    trace.micro_batch_size = 4;
    trace.asynchronous = of.asynchronous;
    for (int device = 0; device < of.devices; ++device)
        trace.stages_of.push_back({device});
    Ns begin = 0;
    for (int step = 0; step < of.steps; ++step)
        begin = SampleRun(of, trace, step, begin).run();
    std::stable_sort(trace.events.begin(), trace.events.end(), [](const TraceEvent& a, const TraceEvent& b) {
        return std::tuple(a.device, a.step, a.start) < std::tuple(b.device, b.step, b.start);
    });
    std::stable_sort(trace.memory.begin(), trace.memory.end(), [](const MemorySample& a, const MemorySample& b) {
        return std::tuple(a.device, a.time) < std::tuple(b.device, b.time);
    });
    return trace;
}

}  // namespace pw
