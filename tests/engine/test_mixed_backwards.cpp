// Lists that have B of some micro-batches and I and W of others: the memory is that of the passes that a device
// runs, and the numbers are the oracle's.
#include "exec/oracle.h"
#include "schedules/csv/csv.h"
#include "tests/support/execution.h"
#include "tests/support/thoroughness.h"

#include <gtest/gtest.h>

#include <optional>
#include <random>

namespace pw {
namespace {

// Replaces some B by I in the same position and W later, before the update that needs it.
std::vector<Task> mixed(const std::vector<Task>& list, std::mt19937& random) {
    std::vector<Task> order, waiting;
    const auto run_one = [&](std::size_t which) {
        order.push_back(waiting[which]);
        waiting.erase(waiting.begin() + static_cast<std::ptrdiff_t>(which));
    };
    for (const Task& task : list) {
        while (!waiting.empty() && (random() % 3 == 0 || task.op == Op::Update || task.op == Op::SumGradients))
            run_one(random() % waiting.size());
        if (task.op != Op::Backward || random() % 2 == 0) {
            order.push_back(task);
        } else {
            order.push_back({Op::BackwardInput, task.stage, task.microbatch});
            waiting.push_back({Op::BackwardWeight, task.stage, task.microbatch});
        }
    }
    return order;
}

Job mixed(Job job, std::mt19937& random) {
    for (std::vector<Task>& order : job.plan.order)
        order = mixed(order, random);
    job.versions = versions_of(job.plan);
    return job;
}

void expect_oracle(const char* yaml, const std::vector<std::string>& set, int mixes,
                   const std::vector<const char*>& backends = {"reference", "cpu"},
                   const std::optional<Model>& model = {}) {
    std::mt19937 random(static_cast<unsigned>(mixes));
    for (int mix = 0; mix < mixes; ++mix)
        for (const char* schedule : {"gpipe", "1f1b"})
            for (const char* backend : backends) {
                const auto own =
                    with(set, {std::string("pipeline.schedule=") + schedule, std::string("run.backend=") + backend});
                const Execution execution = model ? Execution(yaml, own, *model) : Execution(yaml, own);
                const Job job = mixed(execution.job(), random);
                SCOPED_TRACE(std::string(backend) + "\n" + print(job.plan));
                const RunResult result = run(job, guarded());
                expect_equal(result, run(oracle_of(job), guarded()), "guarded");
                expect_equal(result, run(job, {}), "not guarded");
            }
}

TEST(MixedBackwards, OfAnMlpEqualTheOracle) {
    expect_oracle(kMlp, {"cluster.devices=2", "pipeline.split=[fc2]"}, 3);
    expect_oracle(kMlp, {"cluster.devices=3"}, 3);
}

TEST(MixedBackwards, OfAGptEqualTheOracle) { expect_oracle(kSmallGpt, {"cluster.devices=2"}, 4); }

TEST(MixedBackwards, OfAUNetEqualTheOracle) {
    expect_oracle(kSmallUNet, {"cluster.devices=3", "pipeline.split=[down1.pool, bottom.bn1]"}, soaks() ? 2 : 1);
}

// Batch norm computes its weight gradients in I, convolutions in W.
TEST(MixedBackwards, OfAResNetEqualTheOracle) {
    expect_oracle(kResNet,
                  {"cluster.devices=2", "pipeline.split=[layer2.1.conv2]", "pipeline.micro_batches=3",
                   "pipeline.micro_batch_size=1", "training.steps=1"},
                  1, {"cpu"}, small_resnet());
}

// W of an earlier I follows a B: the B is the first task that writes weight gradients, but not the first that
// writes those of I.
TEST(MixedBackwards, TheFirstWeightGradientOverwrites) {
    TemporaryFolder folder;
    const std::string file = folder.write("plan.csv", "0F0,0F1,0I0,0B1,0W0\n");
    for (const char* backend : {"reference", "cpu"}) {
        const auto gradient = [&](int steps) {
            return Execution(kSmallUNet, {"cluster.devices=1", "pipeline.schedule=" + file, "training.learning_rate=0",
                                          fmt::format("training.steps={}", steps),
                                          std::string("run.backend=") + backend, "pipeline.micro_batches=2"})
                .run(guarded());
        };
        const RunResult run = gradient(2),
                        whole =
                            Execution(kSmallUNet, {"cluster.devices=1", "training.learning_rate=0",
                                                   std::string("run.backend=") + backend, "pipeline.micro_batches=2"})
                                .run();
        EXPECT_EQ(run.losses, whole.losses);
        for (std::size_t update = 0; update < run.gradient_norms.size(); ++update)
            EXPECT_NEAR(run.gradient_norms[update], whole.gradient_norms[update], 1e-6 * whole.gradient_norms[update])
                << backend;
    }
}

Bytes bytes_of(const std::vector<Buffer>& buffers, BufferUse use) {
    Bytes sum = 0;
    for (const Buffer& buffer : buffers)
        sum += buffer.use == use ? buffer.bytes : 0;
    return sum;
}

TEST(Buffers, AreThoseOfThePassesInTheLists) {
    Costs costs;
    costs.stage.resize(1);
    costs.bytes = {{.gradient_kept = 1,
                    .forward_workspace = 10,
                    .backward_workspace = 40,
                    .input_workspace = 30,
                    .weight_workspace = 20}};
    const auto check = [&](const char* csv, Bytes workspace, Bytes kept) {
        const Plan plan = parse_csv(csv, "plan.csv").plan;
        const std::vector<Buffer> buffers = buffers_of(plan, costs, versions_of(plan));
        EXPECT_EQ(bytes_of(buffers, BufferUse::Workspace), workspace) << csv;
        EXPECT_EQ(bytes_of(buffers, BufferUse::GradientKept), kept) << csv;
    };
    check("0F0,0F1", 10, 0);
    check("0F0,0F1,0B0,0B1", 40, 0);
    check("0F0,0F1,0I0,0W0,0I1,0W1", 30, 2);
    check("0F0,0F1,0I0,0B1,0W0", 40, 1);
}

}  // namespace
}  // namespace pw
