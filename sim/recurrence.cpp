#include "sim/recurrence.h"

#include "schedules/passes/passes.h"
#include "schedules/passes/waiting.h"
#include "workloads/interruption.h"
#include "workloads/random.h"

#include <algorithm>
#include <cassert>
#include <utility>

namespace pw {

Recurrence::Recurrence(const PlanGraph& graph, const TaskKinds& kinds, const TransferMode& mode, const Proof& proof,
                       std::vector<char> by_rendezvous)
    : graph_(graph), kinds_(kinds), order_(proof.holds_in(mode) ? proof.order : own_order_) {
    const Waiting waiting(graph, mode, std::move(by_rendezvous));
    if (!proof.holds_in(mode))
        own_order_ = waiting.order();
    if (!runs_through())
        return;
    waits_.reserve(order_.size(), 2 * order_.size());
    for (const int node : order_) {
        if (const int send = waiting.send_of(node); send >= 0)
            waits_.push(send);
        waits_.push(waiting.of(node));
        if (const int recv = waiting.awaited_by(node); recv >= 0)
            waits_.push(waiting.of(recv));
        waits_.close();
    }
}

void Recurrence::evaluate(Times times) {
    assert(runs_through());
    Interruption::point();
    times_ = std::move(times);
    end_.resize(order_.size());
    start_.resize(times_.sum_delays.empty() ? 0 : order_.size());
    for (std::size_t turn = 0; turn < order_.size(); ++turn) {
        const std::span<const int> waits = waits_[turn];
        const int node = order_[turn], kind = kinds_.of(node);
        Ns reached = kind == TaskKinds::kNone ? end_[waits.front()] + latency(waits.front()) : 0;
        for (const int other : waits)
            reached = std::max(reached, end_[other]);
        if (!start_.empty()) {
            const Op op = graph_.task(node).op;
            start_[node] = reached;
            for (const int pass : graph_.inputs(node))
                if (TaskKinds::waits_for_sum(op, graph_.task(pass).op))
                    reached = std::max(reached, end_[pass] + times_.sum_delays[kinds_.of(pass)]);
            if (op != Op::SumGradients)  // S waits within its time
                start_[node] = reached;
        }
        end_[node] = kind == TaskKinds::kNone ? reached : reached + times_.durations[kind];
    }
}

namespace {

using Draws = Recurrence::Draws;

// The inputs of a pass, and the row of a node that it fills in.
struct Pass {
    const PlanGraph& graph;
    const TaskKinds& kinds;
    const std::vector<int>& order;
    const Rows& waits;
    const Recurrence::Times& times;
    const std::vector<double>& scales;  // of deviations, by kind
    const float* deviations;
    std::uint64_t seed;
    double* end;
    double* busy;
};

[[gnu::always_inline]] inline void run(const Pass& pass) {
    constexpr std::size_t kCount = Draws::kCount;
    static_assert(kCount == 8 && Jitter::kQuantiles <= 1 << 16);  // 16 bits for each of them
    for (std::size_t turn = 0; turn < pass.order.size(); ++turn) {
        const int node = pass.order[turn], kind = pass.kinds.of(node);
        const std::span<const int> waits = pass.waits[turn];
        double reached[kCount] = {};
        if (kind == TaskKinds::kNone) {
            const int send = waits.front();
            const auto latency = static_cast<double>(pass.times.latencies[pass.kinds.of(send)]);
            for (std::size_t k = 0; k < kCount; ++k)
                reached[k] = pass.end[static_cast<std::size_t>(send) * kCount + k] + latency;
        }
        for (const int other : waits) {
            const double* end = pass.end + static_cast<std::size_t>(other) * kCount;
            for (std::size_t k = 0; k < kCount; ++k)
                reached[k] = reached[k] < end[k] ? end[k] : reached[k];
        }
        if (!pass.times.sum_delays.empty())
            for (const int input : pass.graph.inputs(node)) {
                if (!TaskKinds::waits_for_sum(pass.graph.task(node).op, pass.graph.task(input).op))
                    continue;
                const double* end = pass.end + static_cast<std::size_t>(input) * kCount;
                const auto delay = static_cast<double>(pass.times.sum_delays[pass.kinds.of(input)]);
                for (std::size_t k = 0; k < kCount; ++k)
                    reached[k] = std::max(reached[k], end[k] + delay);
            }
        double* end = pass.end + static_cast<std::size_t>(node) * kCount;
        const double duration = kind == TaskKinds::kNone ? 0 : static_cast<double>(pass.times.durations[kind]);
        if (kind == TaskKinds::kNone || !is_compute(pass.kinds.all()[kind].op)) {
            for (std::size_t k = 0; k < kCount; ++k)
                end[k] = reached[k] + duration;
            continue;
        }
        const double scaled = duration * pass.scales[kind];
        double taken[kCount];
        for (std::size_t word = 0; word < 2; ++word) {
            std::uint64_t bits = mixed(pass.seed + (2 * turn + word) * kMixedStep);
            for (std::size_t k = 4 * word; k < 4 * word + 4; ++k, bits >>= 16)
                taken[k] =
                    std::max(0.0, duration + scaled * static_cast<double>(pass.deviations[bits % Jitter::kQuantiles]));
        }
        double* busy = pass.busy + static_cast<std::size_t>(pass.graph.device_of(node)) * kCount;
        for (std::size_t k = 0; k < kCount; ++k) {
            end[k] = reached[k] + taken[k];
            busy[k] += taken[k];
        }
    }
}

void run_anywhere(const Pass& pass) { run(pass); }
#if defined(__x86_64__)
__attribute__((target("avx2"))) void run_on_avx2(const Pass& pass) { run(pass); }
#endif

}  // namespace

void Recurrence::draw(const Times& times, const Jitter& jitter, std::uint64_t seed, Draws& draws) const {
    assert(runs_through());
    draws.end.resize(order_.size() * Draws::kCount);
    draws.busy.assign(draws.busy.size(), 0);
    std::vector<double> scales;
    for (const TaskKinds::Kind& kind : kinds_.all())
        scales.push_back(jitter.scale(kind.op, kind.stage));
    const Pass pass{graph_, kinds_,           order_,           waits_, times, scales, jitter.deviations.data(),
                    seed,   draws.end.data(), draws.busy.data()};
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2"))
        return run_on_avx2(pass);
#endif
    run_anywhere(pass);
}

// A RECV starts with its SEND.
Ns Recurrence::start(int node) const {
    const int starts = kinds_.of(node) == TaskKinds::kNone ? graph_.inputs(node).front() : node;
    return start_.empty() ? end_[starts] - times_.durations[kinds_.of(starts)] : start_[starts];
}

}  // namespace pw
