// The parts of a device that computes, each alone, with values computed by hand.
#include "exec/ranks/local_ranks.h"
#include "exec/training/batch_data.h"
#include "exec/training/gradient_sum.h"
#include "exec/training/kept_state.h"
#include "exec/training/optimizer.h"
#include "exec/training/statistics_gather.h"
#include "tests/support/execution.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace pw {
namespace {

std::span<float> floats(std::byte* block, Bytes bytes) {
    return {reinterpret_cast<float*>(block), static_cast<std::size_t>(bytes) / sizeof(float)};
}

// The devices of a plan with one stage, which all of them hold, without threads: a test does the work of each
// device in turn. `apart`: no device can read the memory of another.
class Holders {
public:
    explicit Holders(const char* yaml, const std::vector<std::string>& set, bool apart = false)
        : execution_(yaml, set), plan(execution_.job(), nullptr, ranks_), apart_(apart) {
        const Job& job = plan.job;
        for (int device = 0; device < job.plan.shape.devices; ++device) {
            devices.push_back(std::make_unique<Device>(*this, device));
            HeldStage& held =
                devices.back()->stages.try_emplace(0, HeldStage{StageMemory(job, device, 0, 1)}).first->second;
            held.program = std::make_unique<StageProgram>(*job.model, job.split, 0, kernels, plan.sizes.full);
        }
        const StageProgram& program = *devices[0]->stages.at(0).program;
        layouts.bytes.resize(job.split.stage_of.size());
        for (const int layer : program.layers())
            layouts.bytes[static_cast<std::size_t>(layer)] = program.bytes_of(layer);
        layouts.full = {layout_stage(job.model->layers, job.split, 0, layouts.bytes,
                                     kernels.data_bytes(job.model->input, plan.sizes.full))};
        layouts.measurers = measurers_of(job, layouts.full);
        squares_.resize(record.squares());
        record.set_squares_memory(squares_.data());
        for (const auto& device : devices) {
            HeldStage& held = device->stages.at(0);
            held.program->set_layout(layouts.full[0]);
            held.share = share_of_stage(plan, layouts, device->number, 0, false);
            for (std::byte*& slot : held.memory.slots)
                slot = block(layouts.full[0].weights, 0);
            const int states = facts_of(job.setup.training.optimizer).states;
            for (std::byte*& optimizer : held.memory.optimizers)
                optimizer = block(states * layouts.full[0].weights, 0);
            held.memory.parts[0].block = block(layouts.full[0].weights, 0);
        }
    }

    // Memory whose floats all have the same value.
    std::byte* block(Bytes bytes, float value) {
        blocks_.push_back(kernels.reserve(std::max<Bytes>(bytes, 64), "a test"));
        std::ranges::fill(floats(blocks_.back()->data(), bytes), value);
        return blocks_.back()->data();
    }
    std::span<float> weights(std::byte* of) const { return floats(of, layouts.full[0].weights); }

    struct Device : Peers {
        Device(Holders& the_all, int the_number) : all(the_all), number(the_number) {}
        const StageMemory& memory_of(int device, int stage) const override {
            return all.devices[static_cast<std::size_t>(device)]->stages.at(stage).memory;
        }
        void arrive(int, int) override {}
        bool reads(int device) const override { return device == number || !all.apart_; }
        void copy(int device, const std::byte* from, std::byte* to, Bytes bytes) override {
            if (reads(device))
                all.kernels.copy(from, to, bytes);
            else
                asked.push_back({from, to, bytes});
        }
        void fetch(int) override {
            for (const auto& [from, to, bytes] : asked)
                all.kernels.copy(from, to, bytes);
            asked.clear();
        }
        DeviceScope scope() { return {all.plan, all.layouts, all.kernels, number, stages, *this}; }
        StageMemory& memory() { return stages.at(0).memory; }

        struct Asked {
            const std::byte* from;
            std::byte* to;
            Bytes bytes;
        };
        Holders& all;
        const int number;
        HeldStages stages;
        std::vector<Asked> asked;
    };

private:
    Execution execution_;
    LocalRanks ranks_;
    std::vector<double> squares_;
    std::vector<std::unique_ptr<Memory>> blocks_;

public:
    RunPlan plan;
    const HostKernels& kernels = reference_kernels();
    Layouts layouts;
    Record record{plan.job, false};
    std::vector<std::unique_ptr<Device>> devices;

private:
    const bool apart_;
};

const std::vector<std::string> kTwoReplicas = {"cluster.devices=2", "pipeline.schedule=gpipe", "pipeline.replicas=[2]"};
const std::vector<std::string> kOneDevice = {"cluster.devices=1"};

// Gradients of 1 and 2: each device adds half of the bytes and copies the other half, so that both have 3 everywhere.
void expect_sums(bool apart) {
    Holders holders(kMlp, kTwoReplicas, apart);
    std::vector<std::unique_ptr<GradientSum>> sums;
    for (const auto& device : holders.devices) {
        StageMemory& memory = device->memory();
        std::ranges::fill(holders.weights(memory.gradients()), static_cast<float>(device->number + 1));
        memory.parts[0].begun.weight = true;
        sums.push_back(std::make_unique<GradientSum>(device->scope()));
        sums.back()->reserve();
        EXPECT_EQ(sums.back()->reserved() > 0, apart);
    }
    for (const auto& device : holders.devices)
        sums[static_cast<std::size_t>(device->number)]->list(0, device->stages.at(0).share.all);
    for (const auto& device : holders.devices) {
        device->fetch(0);
        sums[static_cast<std::size_t>(device->number)]->add();
    }
    for (const auto& device : holders.devices) {
        sums[static_cast<std::size_t>(device->number)]->copy(0, device->stages.at(0).share.all);
        device->fetch(0);
    }
    for (const auto& device : holders.devices)
        for (const float value : holders.weights(device->memory().gradients()))
            ASSERT_EQ(value, 3);
}

TEST(GradientSum, GivesEveryHolderTheSumOfAll) { expect_sums(false); }
TEST(GradientSum, FetchesWhatKernelsCannotRead) { expect_sums(true); }

TEST(GradientSum, TakesOnlyGradientsThatHaveBegun) {
    Holders holders(kMlp, kTwoReplicas);
    for (const auto& device : holders.devices)
        std::ranges::fill(holders.weights(device->memory().gradients()), 5.0f);
    holders.devices[1]->memory().parts[0].begun.weight = true;
    GradientSum sum(holders.devices[1]->scope());
    sum.list(0, holders.devices[1]->stages.at(0).share.all);
    sum.add();
    for (const float value : holders.weights(holders.devices[1]->memory().gradients()))
        ASSERT_EQ(value, 5);
}

// Momentum v = 0.9 v + g and w = w - 0.1 v (Sutskever et al., as PyTorch writes it), from w = 1 and v = 0 with g = 0.5:
// v = 0.5, w = 0.95; v = 0.95, w = 0.855.
TEST(Optimizer, StepsBySgdWithMomentum) {
    Holders holders(
        kMlp, with(kOneDevice, {"training.learning_rate=0.1", "training.momentum=0.9", "training.weight_decay=0"}));
    Holders::Device& device = *holders.devices[0];
    StageMemory& memory = device.memory();
    GradientSum sums(device.scope());
    StatisticsGather statistics(device.scope());
    Optimizer optimizer(device.scope(), sums, statistics, holders.record);
    const int mb = holders.plan.job.plan.shape.microbatches - 1;
    const Task update{Op::Update, 0, mb};
    std::ranges::fill(holders.weights(memory.weights(0)), 1.0f);
    for (const float expected : {0.95f, 0.855f}) {
        memory.newest = 0;  // every step has the versions 0 and 1
        memory.parts[0].begun.weight = true;
        std::ranges::fill(holders.weights(memory.gradients()), 0.5f);
        optimizer.update(update, holders.plan.graph.find(update), 0);
        EXPECT_EQ(memory.newest, 1);
        EXPECT_FALSE(memory.parts[0].begun.weight);
        for (const NamedTensor& tensor : device.stages.at(0).program->named(memory.weights(1), nullptr, true))
            for (const float value : tensor.values)
                ASSERT_NEAR(value, expected, 1e-6) << tensor.name;
    }
}

// Running mean r = 0.9 r + 0.1 m, from 0 with micro-batches of mean 1 and 2: 0.1, then 0.29.
TEST(StatisticsGather, TakesMicroBatchesInTheirOrder) {
    Holders holders(kResNet, with(kOneDevice, {"pipeline.micro_batches=2", "run.backend=reference"}));
    Holders::Device& device = *holders.devices[0];
    StageMemory& memory = device.memory();
    const Bytes bytes = holders.layouts.full[0].statistics;
    memory.statistics = holders.block(bytes, 0);
    for (const int mb : {0, 1})
        memory.left_statistics[static_cast<std::size_t>(mb)] = holders.block(bytes, static_cast<float>(mb + 1));
    StatisticsGather gather(device.scope());
    gather.list();
    const Task update{Op::Update, 0, 1};
    gather.copy(update);
    gather.gather(update);
    int means = 0;
    for (const NamedTensor& tensor : device.stages.at(0).program->named(memory.weights(0), memory.statistics, false))
        if (tensor.name.ends_with("running_mean"))
            for (const float value : tensor.values) {
                ++means;
                ASSERT_NEAR(value, 0.29, 1e-6) << tensor.name;
            }
    EXPECT_GT(means, 0);
}

TEST(KeptState, IsTheStateAtTheTimeOfKeeping) {
    for (const bool copies : {true, false}) {
        Holders holders(kMlp, kOneDevice);
        Holders::Device& device = *holders.devices[0];
        StageMemory& memory = device.memory();
        KeptState kept(holders.kernels, 0, device.stages, holders.plan.job);
        std::ranges::fill(holders.weights(memory.weights(0)), 4.0f);
        std::ranges::fill(holders.weights(memory.states(0)), 7.0f);
        kept.keep(copies);
        EXPECT_TRUE(kept.is_kept());
        std::ranges::fill(holders.weights(memory.weights(0)), 0.0f);
        std::ranges::fill(holders.weights(memory.states(0)), 0.0f);
        const DeviceState state = kept.take();
        EXPECT_FALSE(kept.is_kept());
        ASSERT_EQ(state.parameters.size(), state.states.size());
        for (std::size_t k = 0; k < state.parameters.size(); ++k) {
            EXPECT_EQ(state.parameters[k].name, state.states[k].name);
            EXPECT_TRUE(std::ranges::all_of(state.parameters[k].values, [](float value) { return value == 4; }));
            EXPECT_TRUE(std::ranges::all_of(state.states[k].values, [](float value) { return value == 7; }));
        }
    }
}

// One block after the other: all means come first.
TEST(KeptState, NamesTheStatesOfAnOptimizer) {
    Holders holders(kMlp, with(kOneDevice, {"training.optimizer=adamw"}));
    Holders::Device& device = *holders.devices[0];
    const OptimizerStates states = device.stages.at(0).states(0);
    std::ranges::fill(holders.weights(states.block(0)), 5.0f);
    std::ranges::fill(holders.weights(states.block(1)), 6.0f);
    KeptState kept(holders.kernels, 0, device.stages, holders.plan.job);
    kept.keep(true);
    const DeviceState state = kept.take();
    ASSERT_EQ(state.states.size(), 2 * state.parameters.size());
    for (std::size_t k = 0; k < state.states.size(); ++k) {
        const bool first = k < state.parameters.size();
        const NamedTensor& parameter = state.parameters[k % state.parameters.size()];
        EXPECT_EQ(state.states[k].name, parameter.name + (first ? ".exp_avg" : ".exp_avg_sq"));
        EXPECT_TRUE(std::ranges::all_of(state.states[k].values, [&](float value) { return value == (first ? 5 : 6); }));
    }
}

TEST(KeptState, OfAShardedOptimizerIsZeroInThePartsOfOthers) {
    Holders holders(kMlp, with(kTwoReplicas, {"training.shard_optimizer=true"}));
    double all = 0, elements = 0;
    for (const auto& device : holders.devices) {
        std::ranges::fill(holders.weights(device->memory().states(0)), 1.0f);
        KeptState kept(holders.kernels, device->number, device->stages, holders.plan.job);
        kept.keep(true);
        const DeviceState state = kept.take();
        elements = 0;
        for (const NamedTensor& tensor : state.states)
            for (const float value : tensor.values) {
                all += value;
                ++elements;
            }
        EXPECT_LT(all, 2 * elements);
    }
    EXPECT_EQ(all, elements);  // each element is in one part
}

TEST(StageMemory, OfAnotherRankHasItsAddresses) {
    Holders holders(kMlp, kTwoReplicas);
    StageMemory& here = holders.devices[0]->memory();
    here.parts[0].begun.weight = true;
    Message message;
    here.write_addresses(message);
    here.write_begun(message);
    StageMemory there(holders.plan.job, 0, 0, 1);
    MessageReader reader(message);
    there.read_addresses(reader);
    there.read_begun(reader);
    EXPECT_TRUE(reader.at_end());
    EXPECT_EQ(there.gradients(), here.gradients());
    EXPECT_EQ(there.weights(0), here.weights(0));
    EXPECT_TRUE(there.parts[0].begun.weight);
}

// In every bucket the holders' shares are consecutive and fill it.
TEST(StageShare, OfAllHoldersFillEveryBucket) {
    for (const bool is_sharded : {false, true}) {
        StageShare share;
        share.holders = {0, 1, 2};
        share.all = {0, 64 * 100 + 12};
        share.is_sharded = is_sharded;
        share.buckets = 4;
        Bytes covered = 0;
        for (int number = share.buckets - 1; number >= 0; --number) {
            const Extent bucket = share.bucket(number);
            EXPECT_EQ(bucket.first, covered);
            Bytes in_bucket = 0;
            for (std::size_t holder = 0; holder < 3; ++holder)
                in_bucket += share.share_in(bucket, holder).bytes;
            EXPECT_EQ(in_bucket, bucket.bytes) << number;
            covered = bucket.end();
        }
        EXPECT_EQ(covered, share.all.bytes / 64 * 64);
    }
}

TEST(BatchData, HasTheSamplesAndLabelsOfEveryMicroBatch) {
    Holders holders(kMlp, with(kOneDevice, {"pipeline.mini_batch=11"}));
    const Dataset data = open_dataset(holders.plan.job.setup, *holders.plan.job.model);
    BatchData batch(data, holders.plan.sizes, holders.plan.job.plan.shape);  // micro-batches of 3, 3, 3 and 2
    EXPECT_TRUE(batch.samples(0).empty());
    EXPECT_EQ(batch.loss(0), nullptr);
    batch.add_samples(holders.kernels);
    batch.add_labels(holders.kernels);
    batch.set([&](int mb, int number) { return data.sample(3 * mb + number); });
    std::int64_t index = 0;
    for (const int mb : {0, 1, 2, 3}) {
        ASSERT_EQ(batch.samples(mb).size(), mb < 3 ? 3u : 2u);
        ASSERT_EQ(batch.labels(mb).size(), batch.samples(mb).size());
        for (std::size_t k = 0; k < batch.samples(mb).size(); ++k, ++index) {
            EXPECT_EQ(batch.samples(mb)[k].place, data.place(index));
            int label = 0;
            data.labels_at(data.sample(index), {&label, 1});
            EXPECT_EQ(batch.labels(mb)[k], label);
        }
    }
    EXPECT_EQ(batch.loss(2), batch.loss(0) + 2);
}

}  // namespace
}  // namespace pw
