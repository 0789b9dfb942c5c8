// The memory that a run reserves equals the prediction, byte for byte, and limits are checked against it.
#include "exec/measuring/profile.h"
#include "exec/oracle.h"
#include "job/build.h"
#include "job/load.h"
#include "job/plan.h"
#include "schedules/memory/buffers.h"
#include "schedules/orders/schedule.h"
#include "sim/metrics.h"
#include "sim/simulate.h"
#include "tests/support/cli_rig.h"
#include "tests/support/execution.h"
#include "tests/support/refusal.h"
#include "tests/support/thoroughness.h"

#include <fmt/format.h>

#include <random>

namespace pw {
namespace {

constexpr const char* kUneven = R"(
workload: {model: uniform, forward: 0 us, backward_input: 0 us, backward_weight: 0 us}
cluster: {devices: 3}
pipeline: {micro_batches: 6}
run: {backend: emulated, timeout: 10 s}
)";

Bytes some_size(std::mt19937_64& random) { return static_cast<Bytes>(1 + random() % 40) * 64; }

// Stages of different sizes, which leave gaps between the buffers.
Costs uneven_costs(const Shape& shape, bool sent_copies, std::uint64_t seed) {
    std::mt19937_64 random(seed);
    Costs costs;
    costs.stage.resize(static_cast<std::size_t>(shape.stages));
    for (int stage = 0; stage < shape.stages; ++stage) {
        StageBytes& bytes = costs.bytes.emplace_back();
        bytes.weights = some_size(random);
        bytes.until_input = some_size(random);
        bytes.until_weight = some_size(random);
        bytes.gradient_kept = some_size(random);
        for (Bytes* pass :
             {&bytes.forward_workspace, &bytes.backward_workspace, &bytes.input_workspace, &bytes.weight_workspace})
            *pass = some_size(random);
        const Bytes output = some_size(random);
        if (stage + 1 < shape.stages)
            costs.edges.push_back({stage, stage + 1, output, output, stage % 2 == 0, true, false});
    }
    costs.sent_copies = sent_copies;
    return costs;
}

class Emulation : public Execution {
public:
    Emulation(const std::vector<std::string>& set, bool sent_copies, std::uint64_t seed)
        : Execution(kUneven, with(set, {"cluster.memory=inf"})), job_(Execution::job()) {
        job_.costs = uneven_costs(job_.plan.shape, sent_copies, seed);
    }
    const Job& job() const { return job_; }

private:
    Job job_;
};

// The simulator, reserved_of() and the run agree.
void expect_reserved(const Job& job, const Costs& costs, const std::string& what) {
    const TransferMode mode = job.setup.transfer;
    const RunResult result = run(job, {});
    const std::vector<Bytes> predicted = simulate(job.plan, costs, mode).reserved;
    EXPECT_EQ(predicted, result.arena) << what;
    EXPECT_EQ(predicted, reserved_of(job.plan, costs, job.versions, mode)) << what;
    EXPECT_EQ(result.trace.reserved, result.arena) << what;
    for (std::size_t device = 0; device < predicted.size(); ++device)
        EXPECT_GE(result.arena[device], total(result.peak[device])) << what;
}

TEST(Reserved, IsPredictedByteForByteForEverySchedule) {
    OneIn some(3);
    for (const Schedule& schedule : schedules())
        for (const char* receive : {"early", "deferred"})
            for (const bool copies : {true, false}) {
                if (!some.picks())
                    continue;
                const Emulation emulation(
                    {"pipeline.schedule=" + std::string(schedule.name), "transfer.receive=" + std::string(receive),
                     "cluster.devices=4", "pipeline.micro_batches=8",
                     schedule.asynchronous() ? "training.steps=2" : "training.steps=1"},
                    copies, 7);
                expect_reserved(emulation.job(), emulation.job().costs,
                                fmt::format("{} {} {}", schedule.name, receive, copies));
            }
}

TEST(Reserved, IsPredictedWithReplicas) {
    const Emulation emulation(
        {"cluster.devices=4", "pipeline.replicas=[1,2,1]", "workload.stages=3", "pipeline.schedule=1f1b"}, true, 3);
    expect_reserved(emulation.job(), emulation.job().costs, "replicas");
    // The oracle's single device keeps a block of gradients for each of the holders.
    const Job oracle = oracle_of(emulation.job());
    const Bytes once =
        total(peak_of(memory_of(oracle.plan, buffers_of(oracle.plan, oracle.costs, oracle.versions))[0]));
    EXPECT_EQ(total(run(oracle, {}).peak[0]), once + oracle.costs.bytes[1].weights);
}

TEST(Reserved, IsPredictedFromAProfileOfTheBackend) {
    for (const char* schedule : {"gpipe", "1f1b", "zb-h1"}) {
        const Execution execution(kMlp, {"cluster.devices=2", "pipeline.schedule=" + std::string(schedule)});
        const Job job = execution.job();
        TemporaryFolder folder;
        const Config alone = load_config(folder.write("config.yaml", kMlp), {"cluster.devices=1"});
        const Profile profile = measure_profile(alone, build_model(alone), {3}, {});
        const Costs costs = costs_of(*job.model, job.split, profile, 3);
        expect_reserved(job, costs, schedule);
    }
}

// Buffers that live at the same time share no byte and end within the arena.
void expect_apart(const std::vector<Buffer>& buffers, const Packing& packing) {
    for (std::size_t a = 0; a < buffers.size(); ++a) {
        const Buffer& x = buffers[a];
        const Bytes end = packing.offset[a] + x.bytes;
        EXPECT_LE(end, packing.arena[x.device]);
        for (std::size_t b = a + 1; b < buffers.size(); ++b) {
            const Buffer& y = buffers[b];
            if (x.device != y.device || x.last < y.first || y.last < x.first)
                continue;
            ASSERT_TRUE(end <= packing.offset[b] || packing.offset[b] + y.bytes <= packing.offset[a]) << a << ' ' << b;
        }
    }
}

// Persistent buffers and activations of all sizes: the cost of gaps beyond the peak.
TEST(Reserved, IsLittleMoreThanThePeak) {
    for (const char* name : {"1f1b", "interleaved", "zb-v", "zb-h1", "zb1p", "bfs"}) {
        std::vector<double> ratios;
        for (std::uint64_t seed = 0; seed < 20; ++seed) {
            const Schedule& schedule = schedule_named(name);
            Shape shape;
            shape.devices = 4;
            shape.stages = 4 * schedule.chunks;
            shape.microbatches = 16;
            const Plan plan = make_plan(schedule, shape);
            const std::vector<Buffer> buffers =
                buffers_of(plan, uneven_costs(plan.shape, seed % 2 == 0, seed), versions_of(plan));
            const Packing packing = pack(buffers, 4);
            expect_apart(buffers, packing);
            const std::vector<Bytes>& arena = packing.arena;
            const auto memory = memory_of(plan, buffers);
            for (std::size_t device = 0; device < 4; ++device)
                ratios.push_back(static_cast<double>(arena[device]) /
                                 static_cast<double>(total(peak_of(memory[device]))));
        }
        std::sort(ratios.begin(), ratios.end());
        EXPECT_LE(ratios[ratios.size() / 2], 1.09) << name;
        EXPECT_LE(ratios.back(), 1.3) << name;
    }
}

}  // namespace

namespace test {

namespace {

constexpr const char* kGaps = R"(
workload: {model: unet, image_size: 64, base_channels: 8}
cluster: {devices: 2}
pipeline: {schedule: zb-v, micro_batches: 8}
run: {backend: emulated}
training: {steps: 1}
)";

// Naive order on two devices, with the first gradient's receive at the very front.
constexpr const char* kEarly =
    "0RECV_B0,0F0,0SEND_F0,0B0,0F1,0SEND_F1,0RECV_B1,0B1,0F2,0SEND_F2,0RECV_B2,0B2,0F3,0SEND_F3,0RECV_B3,0B3\n"
    "1RECV_F0,1F0,1B0,1SEND_B0,1RECV_F1,1F1,1B1,1SEND_B1,1RECV_F2,1F2,1B2,1SEND_B2,1RECV_F3,1F3,1B3,1SEND_B3\n";

}  // namespace

// The arenas are in memory before the first step, and compare checks the process against them.
TEST_F(Cli, RunsReportTheGrowthOfTheProcess) {
    const Json ran = run_well("run mlp.yaml --json").json();
    std::int64_t reserved = 0;
    for (const Json& device : ran["devices"])
        reserved += device["reserved_memory_bytes"].get<std::int64_t>();
    EXPECT_GE(ran["resident_memory_bytes"], reserved);
    EXPECT_FALSE(run_well("run mlp.yaml --json --set run.backend=emulated").json().contains("resident_memory_bytes"));
    const Json compared = run_well("compare mlp.yaml --json --interleave 0").json();
    EXPECT_TRUE(compared["resident_memory_error"].is_number());
    EXPECT_TRUE(contains(run_well("compare mlp.yaml --interleave 0").out, "resident memory of the process"));
    const Json emulated = run_well("compare mlp.yaml --json --set run.backend=emulated").json();
    EXPECT_TRUE(emulated["resident_memory_error"].is_null());
    for (const Json& one : {compared, emulated}) {
        EXPECT_TRUE(one["gpu_memory_error"].is_null());
        EXPECT_FALSE(one["measured"].contains("gpus"));
    }
}

// A run cannot keep a limit that is between the peak in use and the memory reserved.
TEST_F(Cli, LimitsAreCheckedAgainstWhatIsReserved) {
    write("gaps.yaml", kGaps);
    const Json free = run_well("simulate gaps.yaml --json").json();
    std::int64_t peak = 0, reserved = 0;
    for (const Json& device : free["devices"]) {
        peak = std::max(peak, device["peak_memory_bytes"].get<std::int64_t>());
        reserved = std::max(reserved, device["reserved_memory_bytes"].get<std::int64_t>());
    }
    ASSERT_GT(reserved, peak) << "without gaps this tests nothing";
    const auto limited = [](std::int64_t bytes) { return fmt::format(" --set 'cluster.memory={} B'", bytes); };
    const std::string below = limited(reserved - 1), enough = limited(reserved);
    EXPECT_EQ(run_well("simulate gaps.yaml --json" + below).json()["fits"], false);
    EXPECT_TRUE(contains(run_well("simulate gaps.yaml" + below).out, "does not fit: device "));
    EXPECT_TRUE(contains(error_of("run gaps.yaml" + below, 3), fmt::format("({} bytes)", reserved)));
    EXPECT_EQ(run("validate gaps.yaml" + below).code, 3);
    EXPECT_EQ(run_well("simulate gaps.yaml --json" + enough).json()["fits"], true);
    EXPECT_EQ(run("validate gaps.yaml" + enough).code, 0);
    const Json ran = run_well("run gaps.yaml --json --trace run.json" + enough).json();
    EXPECT_EQ(ran["fits"], true);
    const Json kept = run_well("validate run.json --json").json();
    for (std::size_t device = 0; device < free["devices"].size(); ++device)
        for (const Json& other : {ran, kept})
            EXPECT_EQ(other["devices"][device]["reserved_memory_bytes"],
                      free["devices"][device]["reserved_memory_bytes"]);
}

// A receive that is posted before its message could arrive reserves nothing until then, wherever it is listed.
TEST_F(Cli, AReceiveListedEarlyKeepsTheLifetimes) {
    write("early.csv", kEarly);
    write("early.yaml",
          "workload: {model: uniform, output: 1 MB}\npipeline: {schedule: early.csv}\n"
          "run: {backend: emulated}\ntraining: {steps: 1}\n");
    const Json predicted = run_well("simulate early.yaml --json").json();
    EXPECT_EQ(predicted["devices"][1]["memory"]["inputs"], 1'000'000);
    const Json ran = run_well("run early.yaml --json").json();
    for (std::size_t device = 0; device < 2; ++device)
        for (const char* key : {"memory", "peak_memory_bytes", "reserved_memory_bytes"})
            EXPECT_EQ(ran["devices"][device][key], predicted["devices"][device][key]) << device << ' ' << key;
}

}  // namespace test
}  // namespace pw
