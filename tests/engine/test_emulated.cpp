// Runs of the emulated backend without a model: every plan runs in its order, in the lanes of the config, in the
// predicted memory, and has the results of its oracle.
#include "exec/execute.h"
#include "exec/oracle.h"
#include "exec/runnable.h"
#include "job/build.h"
#include "job/plan.h"
#include "schedules/orders/schedule.h"
#include "schedules/plan/plan_graph.h"
#include "tests/support/execution.h"
#include "tests/support/refusal.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/thoroughness.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

namespace pw {
namespace {

constexpr const char* kEmulated = R"(
workload: {model: uniform, forward: 200 us, backward_input: 200 us, backward_weight: 200 us,
           activation: 4 kB, activation_until_weight: 1 kB, output: 1 kB, weights: 2 kB}
cluster: {devices: 4, link: {bandwidth: 20 MB/s, latency: 20 us}}
pipeline: {schedule: 1f1b, micro_batches: 8}
training: {steps: 1, seed: 5}
run: {backend: emulated, timeout: 10 s}
)";

using Settings = std::vector<std::string>;

class Emulation : public Execution {
public:
    explicit Emulation(const Settings& set) : Execution(kEmulated, set) {}
};

Settings settings(std::string_view schedule, const Settings& more = {}) {
    Settings set{"pipeline.schedule=" + std::string(schedule)};
    set.insert(set.end(), more.begin(), more.end());
    return set;
}

void expect_equal(const RunResult& a, const RunResult& b) {
    EXPECT_EQ(a.weights_hash, b.weights_hash);
    EXPECT_EQ(a.losses, b.losses);
    EXPECT_EQ(a.gradient_norms, b.gradient_norms);
}

void expect_predicted_memory(const Job& job, const RunResult& run) {
    const bool early = job.setup.transfer.early_receive();
    const auto memory = memory_of(job.plan, buffers_of(job.plan, job.costs, job.versions, early));
    for (std::size_t device = 0; device < memory.size(); ++device)
        EXPECT_EQ(run.peak[device], peak_of(memory[device])) << "device " << device;
    EXPECT_EQ(run.arena, reserved_of(job.plan, job.costs, job.versions, job.setup.transfer));
}

// Compute tasks run one after the other as listed, and no reader runs before its RECV.
void expect_order_of_list(const Job& job, const Trace& trace) {
    const PlanGraph graph(job.plan);
    ASSERT_EQ(trace.events.size() % static_cast<std::size_t>(graph.size()), 0u);
    std::vector<std::size_t> begin{0};  // of each device's events
    for (const Tasks& order : job.plan.order)
        begin.push_back(begin.back() + order.size() * static_cast<std::size_t>(steps_of(job)));
    const auto event_of = [&](int node, int step) -> const TraceEvent& {
        const auto device = static_cast<std::size_t>(graph.device_of(node));
        return trace.events[begin[device] + static_cast<std::size_t>(step) * job.plan.order[device].size() +
                            static_cast<std::size_t>(graph.position_of(node))];
    };
    std::size_t event = 0;
    for (int device = 0; device < job.plan.shape.devices; ++device)
        for (int step = 0; step < steps_of(job); ++step) {
            Ns free = 0;
            for (std::size_t position = 0; position < job.plan.order[device].size(); ++position, ++event) {
                const TraceEvent& at = trace.events[event];
                EXPECT_EQ(at.task, job.plan.order[device][position]);
                EXPECT_LE(at.start, at.end);
                if (is_transfer(at.task.op))
                    continue;
                EXPECT_GE(at.start, free) << print(at.task);
                free = at.end;
                for (const int input : graph.inputs(graph.node(device, static_cast<int>(position)))) {
                    // S also waits for the gradients of the other holders
                    ASSERT_TRUE(graph.device_of(input) == device || at.task.op == Op::SumGradients);
                    EXPECT_LE(event_of(input, step).end, at.start) << print(at.task);
                }
            }
        }
}

struct Mode {
    const char *communicator, *receive, *exchange = "overlapped";
};

class EverySchedule : public testing::TestWithParam<std::tuple<const Schedule*, Mode, const char*>> {};

TEST_P(EverySchedule, EqualsItsOracle) {
    const auto [schedule, mode, protocol] = GetParam();
    const Emulation emulation(settings(
        schedule->name,
        {std::string("transfer.communicator=") + mode.communicator, std::string("transfer.receive=") + mode.receive,
         std::string("transfer.protocol=") + protocol, std::string("transfer.exchange=") + mode.exchange,
         schedule->asynchronous() ? "training.steps=2" : "training.steps=1"}));
    const Job job = emulation.job();
    const RunResult result = run(job, {});
    Job oracle = oracle_of(job);
    for (StageCost& cost : oracle.costs.stage)
        cost = {};  // only the results matter, not the times
    expect_equal(result, run(oracle, {}));
    expect_predicted_memory(job, result);
    expect_order_of_list(job, result.trace);
}

std::vector<EverySchedule::ParamType> some_modes() {
    OneIn some(3);
    std::vector<EverySchedule::ParamType> cases;
    for (const Schedule& schedule : schedules())
        for (const Mode mode : {Mode{"edge", "early"}, Mode{"edge", "deferred"}, Mode{"direction", "early"},
                                Mode{"one", "deferred"}, Mode{"edge", "deferred", "blocking"}})
            for (const char* protocol : {"eager", "rendezvous"})
                if (some.picks())
                    cases.emplace_back(&schedule, mode, protocol);
    return cases;
}

std::string name_of_case(const testing::TestParamInfo<EverySchedule::ParamType>& info) {
    const auto& [schedule, mode, protocol] = info.param;
    std::string name =
        fmt::format("{}_{}_{}_{}_{}", schedule->name, mode.communicator, mode.receive, mode.exchange, protocol);
    std::replace(name.begin(), name.end(), '-', '_');
    return name;
}

INSTANTIATE_TEST_SUITE_P(Modes, EverySchedule, testing::ValuesIn(some_modes()), name_of_case);

// All messages use one bus: however late the threads are, its bandwidth is never exceeded.
TEST(Emulated, MessagesShareBandwidth) {
    const Emulation emulation(
        settings("gpipe", {"cluster.devices=4", "cluster.link={bandwidth: 10 MB/s, latency: 0 us}",
                           "cluster.shared=[{devices: [0, 1, 2, 3], bandwidth: 10 MB/s}]", "workload.output=8 kB",
                           "workload.forward=100 us"}));
    const Job job = emulation.job();
    int most = 0;  // messages in transit at once: only one where a busy machine wakes the threads late
    for (int attempt = 0; attempt < 20 && most < 2; ++attempt) {
        const RunResult result = run(job, {});
        std::vector<std::pair<Ns, int>> changes;  // of the number of messages in transit
        for (const TraceEvent& event : result.trace.events)
            if (is_send(event.task.op)) {
                changes.emplace_back(event.start, 1);
                changes.emplace_back(event.end, -1);
            }
        std::sort(changes.begin(), changes.end());
        Ns under_way = 0;  // the time with at least one message in transit
        int now = 0;
        for (std::size_t k = 0; k < changes.size(); ++k) {
            under_way += now > 0 ? changes[k].first - changes[k - 1].first : 0;
            now += changes[k].second;
            most = std::max(most, now);
        }
        EXPECT_GE(under_way, std::ssize(changes) / 2 * 800'000 - 1'000);  // 8 kB at 10 MB/s
    }
    EXPECT_GT(most, 1);
}

// R reads the inputs of its F and the weights of its F.
TEST(Emulated, RecomputedStagesDoTheSame) {
    const Settings quick{"workload.forward=20 us", "workload.backward_input=20 us", "workload.backward_weight=20 us",
                         "training.steps=2", "pipeline.slices=1"};
    OneIn some(3);
    for (const Schedule& schedule : schedules())
        for (const char* receive : {"early", "deferred"}) {
            if (!some.picks())
                continue;
            Settings set = settings(schedule.name, quick);
            set.push_back(std::string("transfer.receive=") + receive);
            const RunResult kept = Emulation(set).run();
            for (const char* stages : {"all", "[0, 2]"}) {
                set.push_back(std::string("pipeline.recompute=") + stages);
                const Emulation emulation(set);
                const Job job = emulation.job();
                const RunResult result = run(job, {});
                SCOPED_TRACE(fmt::format("{} {} {}", schedule.name, receive, stages));
                expect_equal(result, kept);
                expect_predicted_memory(job, result);
                expect_order_of_list(job, result.trace);
            }
        }
}

// All these have one grouping of the sums: stages run their backwards in micro-batch order.
TEST(Emulated, OneHashForOneGrouping) {
    std::map<int, std::string> hash;  // by number of stages
    for (const char* schedule : {"naive", "gpipe", "1f1b", "eager-1f1b", "zb-h1", "zb-h2", "interleaved", "zb1p",
                                 "zb-v", "v-half", "v-min", "hanayo", "auto", "auto-v"}) {
        const RunResult result = Emulation(settings(schedule, {"training.steps=2"})).run();
        const auto [known, first] = hash.try_emplace(result.trace.stages, result.weights_hash);
        EXPECT_EQ(result.weights_hash, known->second) << schedule;
    }
    EXPECT_EQ(hash.size(), 2u);
    const Emulation lifo(settings("gpipe", {"training.steps=2", "pipeline.drain=lifo"}));
    EXPECT_NE(lifo.run().weights_hash, hash[4]);
}

// PyTorch's lowering of interleaved 1F1B: with one lane for sends and receives, the messages of a
// device complete in the order of its list, so a SEND waits for the RECV that is listed before it.
TEST(Emulated, HeadOfLineStallsHappen) {
    const Emulation emulation(
        settings("interleaved", {"cluster.devices=2", "pipeline.micro_batches=4", "transfer.communicator=one"}));
    const Trace trace = emulation.run().trace;
    int sends_after_receives = 0;
    std::map<int, Ns> lane;  // device -> the end of its last transfer
    std::map<int, bool> last_was_recv;
    for (const TraceEvent& event : trace.events) {
        if (!is_transfer(event.task.op))
            continue;
        EXPECT_GE(event.end, lane[event.device]) << print(event.task);
        if (is_send(event.task.op)) {
            EXPECT_GE(event.start, lane[event.device]) << print(event.task);
            sends_after_receives += last_was_recv[event.device];
        }
        last_was_recv[event.device] = is_recv(event.task.op);
        lane[event.device] = event.end;
    }
    EXPECT_GT(sends_after_receives, 0);
}

// A link carries one message at a time, each for bytes / bandwidth, and delivers it a latency later.
TEST(Emulated, MessagesTakeTheirTime) {
    const Trace trace = Emulation(settings("gpipe", {"cluster.devices=2", "workload.output=20 kB"})).run().trace;
    Ns free = 0;
    for (const TraceEvent& event : trace.events) {
        if (event.task.op == Op::SendForward) {
            EXPECT_GE(event.end - event.start, 1'000'000);
            EXPECT_GE(event.start, free);
            free = event.end;
        }
        if (event.task.op == Op::RecvForward) {
            EXPECT_GE(event.end - event.start, 1'020'000);
        }
    }
}

TEST(Emulated, TasksTakeAsLongAsTheirCosts) {
    const Trace trace = Emulation(settings("naive", {"cluster.devices=2", "pipeline.micro_batches=2"})).run().trace;
    for (const TraceEvent& event : trace.events)
        if (is_compute(event.task.op)) {
            EXPECT_GE(event.end - event.start, event.task.op == Op::Backward ? 400'000 : 200'000);
        }
}

TEST(Emulated, TensorsOfAnySizeArrive) {
    for (const int bytes : {1, 7, 8, 9, 63, 65, 71, 100, 127, 129}) {
        SCOPED_TRACE(bytes);
        const Emulation emulation(settings("1f1b", {fmt::format("workload.output={} B", bytes)}));
        EXPECT_NO_THROW((void)emulation.run());
    }
}

TEST(Emulated, EvaluationChangesNothing) {
    const RunResult once = Emulation(settings("forward-only")).run();
    const RunResult result = Emulation(settings("forward-only", {"training.steps=3"})).run();
    EXPECT_EQ(result.losses.size(), 3u);
    EXPECT_TRUE(result.gradient_norms.empty());
    EXPECT_EQ(result.weights_hash, once.weights_hash);
}

// The results do not depend on the lengths; only the times and the memory do.
TEST(Emulated, MicroBatchesOfUnequalLengthTakeTheirTimeAndMemory) {
    const std::vector<double> lengths = {2, 0.5, 1, 3, 0.25, 1, 1, 0.1};
    const std::string list = fmt::format("pipeline.micro_batch_lengths=[{}]", fmt::join(lengths, ", "));
    for (const char* schedule : {"gpipe", "1f1b", "zb-h1", "interleaved"})
        for (const char* receive : {"early", "deferred"}) {
            Settings set = settings(schedule, {std::string("transfer.receive=") + receive, "workload.output=1001 B"});
            const RunResult equal = Emulation(set).run();
            set.push_back(list);
            const Emulation emulation(set);
            const Job job = emulation.job();
            const RunResult result = run(job, {});
            SCOPED_TRACE(fmt::format("{} {}", schedule, receive));
            expect_equal(result, equal);
            expect_predicted_memory(job, result);
            expect_order_of_list(job, result.trace);
            for (const TraceEvent& event : result.trace.events)
                if (is_compute(event.task.op)) {
                    const double usual = event.task.op == Op::Backward ? 400'000 : 200'000;
                    EXPECT_GE(static_cast<double>(event.end - event.start),
                              usual * lengths[static_cast<std::size_t>(event.task.microbatch)])
                        << print(event.task);
                }
        }
}

// Calls of one host are issued one at a time, those of two hosts are not.
TEST(Emulated, DevicesOfAHostShareADispatcher) {
    const Emulation emulation(settings("1f1b", {"cluster.devices_per_host=2", "cluster.dispatch=300 us",
                                                "cluster.dispatcher=per host", "workload.forward=100 us"}));
    const Job job = emulation.job();
    const RunResult result = run(job, {});
    expect_equal(result, Emulation(settings("1f1b")).run());
    expect_order_of_list(job, result.trace);
    std::map<int, std::vector<Ns>> starts;  // by host
    for (const TraceEvent& event : result.trace.events)
        if (!is_transfer(event.task.op))
            starts[event.device / 2].push_back(event.start);
    ASSERT_EQ(starts.size(), 2u);
    for (auto& [host, calls] : starts) {
        EXPECT_EQ(calls.size(), 2u * (2 * 8 + 1)) << "F, B and U";
        std::sort(calls.begin(), calls.end());
        for (std::size_t k = 1; k < calls.size(); ++k)
            EXPECT_GE(calls[k] - calls[k - 1], 300'000) << "host " << host;
    }
}

TEST(Emulated, IsTheOnlyBackendWithUnequalMicroBatchesAndSharedDispatchers) {
    const std::string model = "workload: {model: mlp}\ncluster: {devices: 2}\npipeline: {micro_batches: 2}\n";
    for (const char* setting : {"pipeline.micro_batch_lengths=[1, 2]", "cluster.dispatcher=per host"})
        for (const char* backend : {"cpu", "reference", "cuda", "emulated"}) {
            const Job job = Execution(model.c_str(), {setting, std::string("run.backend=") + backend}).job();
            if (std::string(backend) == "emulated") {
                EXPECT_NO_THROW(check_runnable(job)) << setting;
                continue;
            }
            expect_says(refusal([&] { check_runnable(job); }), {backend, "set run.backend: emulated"});
        }
}

TEST(Emulated, HugeMemoryIsReservedNotTouched) {
    const Emulation emulation(settings(
        "gpipe", {"workload.activation=20 GB", "workload.activation_until_weight=1 GB", "workload.weights=100 GB"}));
    const Job job = emulation.job();
    const RunResult result = run(job, {});
    expect_predicted_memory(job, result);
    EXPECT_GT(total(result.peak[0]), Bytes{400'000'000'000});
}

}  // namespace
}  // namespace pw
