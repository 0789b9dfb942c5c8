// What F saves leaves the device and comes back, and so do optimizer states: times and bytes of plans with copies,
// counted by hand and by a separate count of events.
#include "job/job.h"
#include "job/load.h"
#include "schedules/csv/csv.h"
#include "schedules/memory/buffers.h"
#include "schedules/passes/passes.h"
#include "sim/metrics.h"
#include "sim/simulate.h"
#include "tests/support/dice.h"
#include "tests/support/refusal.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/thoroughness.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace pw {
namespace {

Job offloading_job(const std::string& text, const std::vector<std::string>& set = {}) {
    const TemporaryFolder folder;
    Notices notices;
    return make_job(load_config(folder.write("config.yaml", text), set), notices);
}

Trace trace_of_offload(const Job& job) { return simulate(job.plan, job.costs, job.mode); }

// The example of four threads about activations in the memory of the host: 4 GB for each of 16 micro-batches.
constexpr const char* kSixteenOffloaded = R"(
workload: {model: uniform, stages: 4, forward: 100 ms, backward_input: 200 ms, backward_weight: 0 us, activation: 4 GB}
cluster: {devices: 4, memory: 12 GB, host_link: {bandwidth: 50 GB/s}}
pipeline: {schedule: 1f1b, micro_batches: 16, offload: all}
)";

constexpr Bytes kOffloadedGB = 1'000'000'000;

// A copy takes 80 ms, less than F and B. Device 0 has the micro-batch that runs, one that leaves and one that comes.
TEST(Offload, IsFreeWhereCopiesAreShorterThanTasks) {
    const Trace trace = trace_of_offload(offloading_job(kSixteenOffloaded));
    const Metrics metrics = metrics_of(trace);
    EXPECT_EQ(metrics.step_time, Ns{5'700'000'000});  // (16 + 3) 300 ms
    EXPECT_EQ(metrics.devices[0].peak_memory, 12 * kOffloadedGB);
    EXPECT_EQ(metrics_of(trace_of_offload(offloading_job(kSixteenOffloaded, {"pipeline.offload=none"})))
                  .devices[0]
                  .peak_memory,
              16 * kOffloadedGB);
}

// A copy takes 400 ms. One at a time, 16 micro-batches take 16 x 800 ms at least, with 300 ms of F and B at the ends.
TEST(Offload, TakesTheTimeOfItsCopiesWhereTheyAreLonger) {
    const Job job = offloading_job(kSixteenOffloaded, {"cluster.host_link.bandwidth=10 GB/s"});
    EXPECT_EQ(metrics_of(trace_of_offload(job)).step_time, Ns{13'100'000'000});
    // both ways, a pair of F and B takes a reload and an offload
    const Job both =
        offloading_job(kSixteenOffloaded, {"cluster.host_link.bandwidth=10 GB/s", "transfer.copies=both ways"});
    EXPECT_LT(metrics_of(trace_of_offload(both)).step_time, Ns{13'100'000'000});
    EXPECT_GE(metrics_of(trace_of_offload(both)).step_time, Ns{12 * 800'000'000LL});
}

TEST(Offload, OfAShareLeavesTheRest) {
    // half of the two micro-batches that are away
    EXPECT_EQ(metrics_of(trace_of_offload(offloading_job(kSixteenOffloaded, {"pipeline.offload_share=0.5"})))
                  .devices[0]
                  .peak_memory,
              14 * kOffloadedGB);
}

// A stage with 1 GB of weights and of gradients, and 2 GB of states of AdamW.
constexpr const char* kOffloadedStates = R"(
workload:
  {model: uniform, stages: 4, forward: 100 ms, backward_input: 200 ms, backward_weight: 0 us, activation: 1 GB, weights: 1 GB}
cluster: {devices: 4, memory: 8 GB, host_link: {bandwidth: 20 GB/s}}
training: {optimizer: adamw}
pipeline: {schedule: 1f1b, micro_batches: 8, offload_states: all}
)";

// A copy takes 100 ms, as the first F. The last B takes 200 ms. Four micro-batches are there without states, one with.
TEST(OffloadedStates, AreFreeWhereCopiesAreShorterThanTasks) {
    const Metrics metrics = metrics_of(trace_of_offload(offloading_job(kOffloadedStates)));
    EXPECT_EQ(metrics.step_time, Ns{3'300'000'000});  // (8 + 3) 300 ms
    EXPECT_EQ(metrics.devices[0].peak_memory, 6 * kOffloadedGB);
    EXPECT_EQ(metrics.devices[3].peak_memory, 5 * kOffloadedGB);
    const Metrics kept =
        metrics_of(trace_of_offload(offloading_job(kOffloadedStates, {"pipeline.offload_states=none"})));
    EXPECT_EQ(kept.step_time, metrics.step_time);
    EXPECT_EQ(kept.devices[0].peak_memory, 8 * kOffloadedGB);
    EXPECT_EQ(kept.devices[3].peak_memory, 5 * kOffloadedGB);
}

// One device: a copy takes 500 ms. The first B waits 400 ms for the states to leave, and U 300 ms for their return.
TEST(OffloadedStates, TakeTheTimeOfTheirCopiesWhereTheyAreLonger) {
    const std::vector<std::string> alone{"workload.stages=1", "cluster.devices=1", "pipeline.micro_batches=4",
                                         "cluster.host_link.bandwidth=4 GB/s"};
    EXPECT_EQ(metrics_of(trace_of_offload(offloading_job(kOffloadedStates, alone))).step_time, Ns{1'900'000'000});
    // Both copies have two tasks: F and B while they leave, F and B while they return.
    std::vector<std::string> longer = alone;
    longer.emplace_back("pipeline.offload_states_ahead=2");
    EXPECT_EQ(metrics_of(trace_of_offload(offloading_job(kOffloadedStates, longer))).step_time, Ns{1'600'000'000});
}

// With ZeRO-1 a holder keeps and copies its half: 50 ms, and 1 GB less than whole states before and after the copies.
TEST(OffloadedStates, OfHoldersAreTheirParts) {
    const Job job = offloading_job(kOffloadedStates, {"workload.stages=2", "pipeline.replicas=2", "training.zero=1",
                                                      "pipeline.stages=2", "cluster.link.bandwidth=100 GB/s"});
    int copies = 0;
    for (const TraceEvent& event : trace_of_offload(job).events)
        if (is_copy(event.task.op)) {
            EXPECT_EQ(event.end - event.start, Ns{50'000'000}) << print(event.task);
            EXPECT_EQ(event.bytes, kOffloadedGB);
            ++copies;
        }
    EXPECT_EQ(copies, 8);  // a STORE and a LOAD on each of the four devices
}

// llama 3 8B has 8,030,261,248 parameters (its model card). Mixed precision keeps 12 bytes of each: the weights in fp32
// and two averages. Two replicas divide them with ZeRO-1, and four stages copy them out and back.
TEST(OffloadedStates, OfATransformerAreTwelveBytesPerParameter) {
    const Job job = offloading_job(
        "workload: {model: llama-3-8b, sequence_length: 4096}\n"
        "cluster: {hosts: 1, devices_per_host: 8, device: h100-sxm-80, host_link: {bandwidth: 50 GB/s}}\n"
        "parallel: {pipeline: 4, zero: 1}\n"
        "pipeline: {schedule: 1f1b, micro_batches: 8, micro_batch_size: 1, offload_states: all}\n"
        "training: {precision: bf16, optimizer: adamw}\n");
    double out = 0, back = 0, longest = 0;
    for (const TraceEvent& event : trace_of_offload(job).events)
        if (is_copy(event.task.op)) {
            (event.task.op == Op::Store ? out : back) += static_cast<double>(event.bytes);
            longest = std::max(longest, static_cast<double>(event.bytes));
            EXPECT_NEAR(static_cast<double>(event.end - event.start), static_cast<double>(event.bytes) / 50, 1);
        }
    const double all = 12 * 8'030'261'248.0 / 2;
    EXPECT_NEAR(out, all, 1e-4 * all);  // parts are whole bytes of each parameter
    EXPECT_EQ(back, out);
    const auto optimizer = static_cast<std::size_t>(MemoryKind::Optimizer);
    const std::vector<MemoryUse> memory = memory_of(job.plan, buffers_of(job.plan, job.costs, job.versions))[0];
    Bytes least = memory[0][optimizer];
    for (const MemoryUse& use : memory)
        least = std::min(least, use[optimizer]);
    EXPECT_EQ(least, 0);
    EXPECT_GT(longest, 0);
}

// F and B are all tasks before U, and during neither would the states be away.
TEST(OffloadedStates, StayWhereTheyWouldBeAwayDuringNoTask) {
    const Job job =
        offloading_job(kOffloadedStates, {"workload.stages=1", "cluster.devices=1", "pipeline.micro_batches=1"});
    EXPECT_FALSE(has_copies(job.plan.order[0]));
    EXPECT_EQ(metrics_of(trace_of_offload(job)).devices[0].peak_memory, 5 * kOffloadedGB);
}

TEST(OffloadedStates, NeedALinkAndAFlush) {
    expect_says(refusal([] {
                    (void)offloading_job(
                        "workload: {model: uniform, stages: 2, forward: 1 ms, backward_input: 1 ms, backward_weight: "
                        "1 ms}\npipeline: {schedule: gpipe, micro_batches: 4, offload_states: all}\n");
                }),
                {"copies to the memory of its host is not known", "write cluster.host_link", "offload_states"});
    expect_says(refusal([] { (void)offloading_job(kOffloadedStates, {"pipeline.schedule=pipedream"}); }),
                {"schedule pipedream never flushes", "such as 1f1b"});
}

// A plan whose states leave and do not return is refused, and one whose states return without having left.
TEST(OffloadedStates, LeaveAndReturn) {
    const Job job = offloading_job(kOffloadedStates);
    for (const auto& [gone, fact] :
         {std::pair(Op::Load, "0STORE7 has no 0LOAD7"), {Op::Store, "0LOAD7 has no 0STORE7"}}) {
        Plan plan = job.plan;
        std::erase_if(plan.order[0], [&, gone = gone](const Task& task) { return task.op == gone; });
        expect_says(refusal([&] { (void)check(plan); }), {fact, "add it before the update, or remove both"});
    }
}

TEST(Offload, NeedsALinkToTheHost) {
    expect_says(refusal([] {
                    (void)offloading_job(
                        "workload: {model: uniform, stages: 2, forward: 1 ms, backward_input: 1 ms, backward_weight: "
                        "1 ms}\npipeline: {schedule: gpipe, micro_batches: 4, offload: all}\n");
                }),
                {"copies to the memory of its host is not known", "write cluster.host_link"});
    expect_says(refusal([] { (void)offloading_job(kSixteenOffloaded, {"pipeline.recompute=[1]"}); }),
                {"stage 1 is recomputed"});
    expect_says(refusal([] { (void)offloading_job(kSixteenOffloaded, {"pipeline.schedule=seq1f1b"}); }),
                {"later slices", "slices: 1"});
}

// The cells of a file have no copies: the config adds them.
TEST(Offload, IsAddedToPlansFromFiles) {
    const TemporaryFolder folder;
    const Job job = offloading_job(kSixteenOffloaded);
    Plan plain = job.plan;
    for (std::vector<Task>& order : plain.order)
        std::erase_if(order, [](const Task& task) { return is_copy(task.op); });
    const std::string path = folder.write("plan.csv", print_csv(plain, false));
    const Job from_file = offloading_job(kSixteenOffloaded, {"pipeline.schedule=" + path});
    EXPECT_EQ(metrics_of(trace_of_offload(from_file)).step_time, Ns{5'700'000'000});
    EXPECT_EQ(metrics_of(trace_of_offload(from_file)).devices[0].peak_memory, 12 * kOffloadedGB);
}

// Counts the events of a plan: each device goes through its list, and its copies run in lanes of their own.
class CopyCount {
public:
    struct Times {
        Ns forward, input, weight, copy, states;
    };
    CopyCount(const Plan& plan, std::vector<Times> times, bool both_ways)
        : plan_(plan), times_(std::move(times)), both_ways_(both_ways) {
        std::vector<std::size_t> next(plan.order.size(), 0);
        for (bool moved = true; moved;) {
            moved = false;
            for (std::size_t device = 0; device < plan.order.size(); ++device)
                while (next[device] < plan.order[device].size() && pass(device, plan.order[device][next[device]])) {
                    ++next[device];
                    moved = true;
                }
        }
        for (std::size_t device = 0; device < plan.order.size(); ++device)
            EXPECT_EQ(next[device], plan.order[device].size()) << "device " << device;
    }

    Ns makespan() const {
        Ns last = 0;
        for (const auto& [task, end] : end_)
            if (!std::set{Op::Reload, Op::Offload, Op::Store, Op::Load}.contains(task.op))
                last = std::max(last, end);
        return last;
    }
    Ns end(const Task& task) const { return end_.at(task); }

private:
    std::optional<Ns> ended(Op op, int stage, int mb) const {
        const auto found = end_.find(Task{op, stage, mb});
        return found == end_.end() ? std::nullopt : std::optional(found->second);
    }
    // The end of B, or of the half of it that makes gradients of inputs.
    std::optional<Ns> gradient(int stage, int mb) const {
        const std::optional<Ns> whole = ended(Op::Backward, stage, mb);
        return whole ? whole : ended(Op::BackwardInput, stage, mb);
    }

    bool pass(std::size_t device, const Task& task) {
        Ns& list = list_[device];
        const int stage = task.stage, mb = task.microbatch;
        const Times& times = times_[static_cast<std::size_t>(stage)];
        std::vector<std::optional<Ns>> needs;
        switch (task.op) {
            case Op::Forward:
                if (stage > 0)
                    needs.push_back(ended(Op::Forward, stage - 1, mb));
                return run(device, task, needs, times.forward);
            case Op::Backward:
            case Op::BackwardInput:
                needs.push_back(ended(Op::Forward, stage, mb));
                if (stage + 1 < plan_.shape.stages)
                    needs.push_back(gradient(stage + 1, mb));
                if (away_.contains({stage, mb}))
                    needs.push_back(ended(Op::Reload, stage, mb));
                return run(device, task, needs, times.input + (task.op == Op::Backward ? times.weight : 0));
            case Op::BackwardWeight:
                return run(device, task, {gradient(stage, mb)}, times.weight);
            case Op::Offload: {
                away_.insert({stage, mb});
                Ns& lane = lanes_[{device, 0}];
                end_[task] = lane = std::max(lane, *ended(Op::Forward, stage, mb)) + times.copy;
                list = std::max(list, lane);
                return true;
            }
            case Op::Reload: {
                Ns& lane = lanes_[{device, both_ways_ ? 1 : 0}];
                end_[task] = lane = std::max(lane, list) + times.copy;
                return true;
            }
            case Op::Store: {
                away_.insert({stage, kStates});
                Ns& lane = lanes_[{device, 0}];
                end_[task] = lane = lane + times.states;
                list = std::max(list, lane);
                return true;
            }
            case Op::Load: {
                Ns& lane = lanes_[{device, both_ways_ ? 1 : 0}];
                end_[task] = lane = std::max({lane, list, *ended(Op::Store, stage, mb)}) + times.states;
                return true;
            }
            case Op::Update:
                if (away_.contains({stage, kStates}))
                    needs.push_back(ended(Op::Load, stage, mb));
                return run(device, task, needs, 0);
            case Op::Recompute:
            case Op::SumGradients:
            case Op::SendForward:
            case Op::RecvForward:
            case Op::SendBackward:
            case Op::RecvBackward:
                break;  // they take no time
        }
        return true;
    }

    bool run(std::size_t device, const Task& task, const std::vector<std::optional<Ns>>& needs, Ns time) {
        Ns start = list_[device];
        for (const std::optional<Ns>& need : needs) {
            if (!need)
                return false;
            start = std::max(start, *need);
        }
        end_[task] = list_[device] = start + time;
        return true;
    }

    const Plan& plan_;
    const std::vector<Times> times_;
    const bool both_ways_;
    std::map<std::size_t, Ns> list_;                   // by device: what its list has reached
    std::map<std::pair<std::size_t, int>, Ns> lanes_;  // by device and lane: the end of the last copy
    static constexpr int kStates = -1;
    std::set<std::pair<int, int>> away_;  // stage and micro-batch, or kStates
    std::map<Task, Ns> end_;
};

// The most bytes that a device holds while a task runs, with these sizes for each micro-batch of a stage: until the
// gradients of inputs, and until these of weights. `weights` are by stage, with as large gradients, and states of twice
// the size.
Bytes peak_of_list(const std::vector<Task>& order, const std::vector<std::pair<Bytes, Bytes>>& sizes,
                   const std::vector<Bytes>& weights) {
    std::map<std::pair<int, int>, std::pair<Bytes, Bytes>> held;
    Bytes most = 0;
    for (const Task& task : order)
        if (task.op == Op::Update)
            held[{task.stage, -1}] = {2 * weights[static_cast<std::size_t>(task.stage)],
                                      2 * weights[static_cast<std::size_t>(task.stage)]};
    const auto sum = [&] {
        Bytes all = 0;
        for (const auto& [key, bytes] : held)
            all += bytes.first + bytes.second;
        return all;
    };
    for (const Task& task : order) {
        const std::pair key{task.stage, task.microbatch};
        if (task.op == Op::Forward || task.op == Op::Reload)
            held[key] = sizes[static_cast<std::size_t>(task.stage)];
        if (task.op == Op::Load)
            held[{task.stage, -1}].second = 2 * weights[static_cast<std::size_t>(task.stage)];
        most = std::max(most, sum());
        if (task.op == Op::Offload || task.op == Op::Backward || task.op == Op::BackwardWeight)
            held.erase(key);
        if (task.op == Op::Store)
            held[{task.stage, -1}].second = 0;
        if (task.op == Op::BackwardInput)
            held[key].first = 0;
    }
    return most;
}

TEST(Offload, OfRandomPipelinesEqualsACountOfEvents) {
    Random random(11);
    int copies = 0, stores = 0;
    for (int round = 0; round < rounds(200); ++round) {
        const char* const kSchedules[] = {"gpipe", "1f1b", "zb-h1", "interleaved", "zb-v"};
        const std::string schedule = kSchedules[pick(random, 0, 4)];
        const int devices = pick(random, 1, 4), chunks = schedule == "interleaved" || schedule == "zb-v" ? 2 : 1;
        const int stages = devices * chunks;
        std::vector<CopyCount::Times> times;
        std::vector<std::pair<Bytes, Bytes>> sizes;
        std::vector<Bytes> weights;
        std::vector<std::string> weight_texts, forward, input, weight, activation, until_weight;
        const int rate = 1 << pick(random, 0, 4);  // bytes per nanosecond: times are whole
        for (int stage = 0; stage < stages; ++stage) {
            times.push_back({pick(random, 1, 50), pick(random, 1, 50), pick(random, 1, 50), 0, 0});
            weights.push_back(64 * pick(random, 0, 5));
            weight_texts.push_back(fmt::format("{} B", weights.back()));
            sizes.emplace_back(64 * pick(random, 0, 5), 64 * pick(random, 0, 5));
            forward.push_back(fmt::format("{} ns", times.back().forward));
            input.push_back(fmt::format("{} ns", times.back().input));
            weight.push_back(fmt::format("{} ns", times.back().weight));
            activation.push_back(fmt::format("{} B", sizes.back().first + sizes.back().second));
            until_weight.push_back(fmt::format("{} B", sizes.back().second));
        }
        std::set<int> offloaded, stored;
        for (int stage = 0; stage < stages; ++stage)
            if (pick(random, 0, 2) > 0)
                offloaded.insert(stage);
        for (int stage = 0; stage < stages; ++stage)
            if (pick(random, 0, 2) > 0)
                stored.insert(stage);
        const int latency = pick(random, 0, 9);
        for (const int stage : offloaded) {
            const auto& [until_input, later] = sizes[static_cast<std::size_t>(stage)];
            times[static_cast<std::size_t>(stage)].copy = latency + (until_input + later) / rate;
        }
        for (const int stage : stored)
            times[static_cast<std::size_t>(stage)].states =
                latency + 2 * weights[static_cast<std::size_t>(stage)] / rate;
        const bool both_ways = pick(random, 0, 1) == 1;
        const std::string text = fmt::format(
            "workload: {{model: uniform, stages: {}, forward: [{}], backward_input: [{}], backward_weight: [{}], "
            "activation: [{}], activation_until_weight: [{}], weights: [{}]}}\n"
            "cluster: {{devices: {}, host_link: {{bandwidth: {} GB/s, latency: {} ns}}{}}}\n"
            "pipeline: {{schedule: {}, micro_batches: {}, offload: [{}], offload_ahead: {}, offload_states: [{}], "
            "offload_states_ahead: {}}}\n"
            "training: {{optimizer: adamw}}\n"
            "transfer: {{copies: {}}}\n",
            stages, fmt::join(forward, ", "), fmt::join(input, ", "), fmt::join(weight, ", "),
            fmt::join(activation, ", "), fmt::join(until_weight, ", "), fmt::join(weight_texts, ", "), devices, rate,
            latency, pick(random, 0, 3) == 0 ? ", dispatch: 0 ns" : "", schedule, devices * pick(random, 1, 4),
            fmt::join(offloaded, ", "), pick(random, 1, 3), fmt::join(stored, ", "), pick(random, 1, 3),
            both_ways ? "both ways" : "in turn");
        SCOPED_TRACE(text);
        const Job job = offloading_job(text);
        const Trace trace = trace_of_offload(job);
        const CopyCount count(job.plan, times, both_ways);
        EXPECT_EQ(metrics_of(trace).makespan, count.makespan());
        for (const TraceEvent& event : trace.events)
            if (is_compute(event.task.op) || is_copy(event.task.op)) {
                EXPECT_EQ(event.end, count.end(event.task)) << print(event.task);
                copies += event.task.op == Op::Offload ? 1 : 0;
                stores += event.task.op == Op::Store ? 1 : 0;
            }
        const Trace by_events = Simulator(job.plan, job.mode).trace_by_events(job.costs);
        EXPECT_EQ(by_events.events, trace.events);
        const auto memory = memory_of(job.plan, buffers_of(job.plan, job.costs, job.versions));
        for (std::size_t device = 0; device < memory.size(); ++device)
            EXPECT_EQ(total(peak_of(memory[device])), peak_of_list(job.plan.order[device], sizes, weights))
                << "device " << device;
        if (HasFailure())
            return;
    }
    EXPECT_GT(copies, rounds(200));
    EXPECT_GT(stores, rounds(200));
}

}  // namespace
}  // namespace pw
