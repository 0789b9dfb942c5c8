// Keys that have no effect in their config.
#include "job/idle_keys.h"

#include "job/job.h"
#include "job/load.h"
#include "tests/support/refusal.h"
#include "tests/support/temporary_folder.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace pw {
namespace {

constexpr const char* kMlp =
    "{workload: {model: mlp, image_size: 4, dataset: synthetic}, cluster: {devices: 2}, pipeline: {schedule: "
    "1f1b, stages: 2, micro_batches: 4}}";
constexpr const char* kAdamW =
    "{workload: {model: mlp, image_size: 4}, cluster: {devices: 2}, training: {optimizer: adamw}}";
constexpr const char* kGpt =
    "{workload: {model: gpt, embedding: 16, heads: 2}, cluster: {devices: 2}, pipeline: "
    "{micro_batches: 4}}";
constexpr const char* kCluster =
    "{workload: {model: llama-3-8b, sequence_length: 4096}, cluster: {hosts: 1, devices_per_host: 2, device: "
    "h100-sxm-80}, parallel: {pipeline: 2}, pipeline: {micro_batches: 4}, training: {precision: bf16}}";
constexpr const char* kMixtral =
    "{workload: {model: mixtral-8x7b, sequence_length: 4096}, cluster: {hosts: 1, devices_per_host: 2, device: "
    "h100-sxm-80}, parallel: {tensor: 2}, pipeline: {micro_batches: 4}, training: {precision: bf16}}";
constexpr const char* kUniform = "{workload: {model: uniform, stages: 2}, pipeline: {micro_batches: 4}}";
constexpr const char* kFile = "{workload: {model: layers.yaml}, cluster: {devices: 2}, pipeline: {micro_batches: 4}}";
constexpr const char* kLayers =
    "layers: [{name: a, forward: 1 us, backward: 2 us, weights: 1 kB}, {name: b, forward: "
    "1 us, backward: 2 us, weights: 1 kB}]";

struct Case {
    const char *config, *set, *key, *why;
};
void PrintTo(const Case& one, std::ostream* out) { *out << one.set << " in " << one.config; }

Config loaded(const TemporaryFolder& folder, const char* config, const std::vector<std::string>& set) {
    folder.write("layers.yaml", kLayers);
    return load_config(folder.write("cfg.yaml", config), set);
}

std::vector<IdleKey> idle_in_plan(const char* config, const std::vector<std::string>& set) {
    const TemporaryFolder folder;
    Notices notices;
    const Job job = make_job(loaded(folder, config, set), notices);
    return idle_keys(job.setup, job.plan);
}

void expect_only(const std::vector<IdleKey>& idle, const Case& expected) {
    ASSERT_EQ(idle.size(), 1u);
    EXPECT_EQ(idle.front().key, expected.key);
    expect_says(print(idle.front()), {fmt::format("{} has no effect: ", expected.key), expected.why});
}

class IdleInPlans : public testing::TestWithParam<Case> {};
TEST_P(IdleInPlans, IsReported) { expect_only(idle_in_plan(GetParam().config, {GetParam().set}), GetParam()); }
INSTANTIATE_TEST_SUITE_P(
    Keys, IdleInPlans,
    testing::Values(Case{kFile, "workload.image_size=7", "workload.image_size", "layers.yaml reads no images"},
                    Case{kGpt, "workload.image_size=7", "workload.image_size", "model: gpt reads no images"},
                    Case{kFile, "workload.classes=30", "workload.classes", "layers.yaml has no classes"},
                    Case{kGpt, "workload.classes=30", "workload.classes", "model: gpt has no classes"},
                    Case{kFile, "workload.dataset=cifar10", "workload.dataset", "reads no data"},
                    Case{kUniform, "workload.dataset=cifar10", "workload.dataset", "model: uniform has times"},
                    Case{kFile, "workload.path=nowhere", "workload.path", "reads no data"},
                    Case{kMlp, "workload.path=nowhere", "workload.path", "dataset: synthetic has no files"},
                    Case{kFile, "cluster.compute=1 TFLOP/s", "cluster.compute", "has its own times"},
                    Case{kUniform, "cluster.memory_bandwidth=1 TB/s", "cluster.memory_bandwidth", "its own times"},
                    Case{kMlp, "pipeline.pairs=true", "pipeline.pairs", "schedule 1f1b has no choice of pairs"},
                    Case{kMlp, "pipeline.drain=lifo", "pipeline.drain", "1f1b does not read it (gpipe and bfs do)"},
                    Case{kMlp, "pipeline.group=4", "pipeline.group", "(interleaved and zb1p do)"},
                    Case{kMlp, "pipeline.slice_lengths=time", "pipeline.slice_lengths",
                         "(seq1f1b and forward-only do)"},
                    Case{kMlp, "pipeline.slices=4", "pipeline.slices", "(seq1f1b and forward-only do)"},
                    Case{kMlp, "training.shard_optimizer=true", "training.shard_optimizer", "several devices"},
                    Case{kMlp, "training.zero=3", "training.zero", "several devices"},
                    Case{kCluster, "calibration.between=2", "calibration.between", "all devices are on one host"},
                    Case{kCluster, "parallel.expert_load=1.5", "parallel.expert_load", "has no experts"},
                    Case{kCluster, "parallel.expert_kernels=sequential", "parallel.expert_kernels", "has no experts"},
                    Case{kCluster, "parallel.expert_dispatcher=deepep", "parallel.expert_dispatcher", "has no experts"},
                    Case{kMixtral, "parallel.expert_load=1.5", "parallel.expert_load", "every device has all experts"},
                    Case{kMixtral, "parallel.expert_dispatcher=deepep", "parallel.expert_dispatcher",
                         "every device has all experts"},
                    Case{kCluster, "training.zero=2", "training.zero", "what parallel.zero says"},
                    Case{kMlp, "training.betas=[0.8, 0.9]", "training.betas", "optimizer sgd does not read it"},
                    Case{kMlp, "training.epsilon=1e-6", "training.epsilon", "optimizer sgd does not read it"},
                    Case{kAdamW, "training.momentum=0.5", "training.momentum", "optimizer adamw does not read it"},
                    Case{kMlp, "transfer.sum_bucket=1 MB", "transfer.sum_bucket", "several devices"},
                    Case{"{workload: {model: mlp}, pipeline: {schedule: zb-v, stages: 4, replicas: 2, micro_batches: "
                         "3}}",
                         "transfer.sum_bucket=1 MB", "transfer.sum_bucket", "unequally many micro-batches"},
                    Case{kMlp, "transfer.sums=tree", "transfer.sums", "several devices"},
                    Case{"{workload: {model: uniform, stages: 1}, pipeline: {replicas: [2], micro_batches: 4}}",
                         "transfer.sums=tree", "transfer.sums", "take no time with model: uniform"},
                    Case{"{workload: {model: uniform, stages: 1}, pipeline: {replicas: [2], micro_batches: 4}}",
                         "transfer.sum_bucket=1 MB", "transfer.sum_bucket", "take no time with model: uniform"}));

constexpr const char* kOneDevice = "{workload: {model: mlp, image_size: 4}, cluster: {devices: 1}, transfer: {}}";
INSTANTIATE_TEST_SUITE_P(
    Transfers, IdleInPlans,
    testing::Values(Case{kOneDevice, "transfer.communicator=one", "transfer.communicator", "no message"},
                    Case{kOneDevice, "transfer.receive=deferred", "transfer.receive", "no message"},
                    Case{kOneDevice, "transfer.protocol=rendezvous", "transfer.protocol", "no message"},
                    Case{kOneDevice, "transfer.exchange=blocking", "transfer.exchange", "no message"},
                    Case{kOneDevice, "transfer.multiprocessors=0.1", "transfer.multiprocessors", "no message"}));

class IdleInSearches : public testing::TestWithParam<Case> {};
TEST_P(IdleInSearches, IsReported) {
    const TemporaryFolder folder;
    expect_only(idle_keys_of_search(loaded(folder, GetParam().config, {GetParam().set})), GetParam());
}
constexpr const char* kPipedream = "{workload: {model: mlp}, search: {objective: pipedream}}";
constexpr const char* kMaxLoad = "{workload: {model: mlp}, search: {objective: max-load}}";
constexpr const char* kSearchedCluster =
    "{workload: {model: llama-3.2-1b}, cluster: {devices: 4, device: h100-sxm-80}, search: {mini_batch: 8}}";
INSTANTIATE_TEST_SUITE_P(
    Slices, IdleInSearches,
    testing::Values(Case{kSearchedCluster, "search.slices=[2]", "search.slices", "no schedule cuts sequences"},
                    Case{kSearchedCluster, "search.slice_lengths=[time]", "search.slice_lengths",
                         "no schedule cuts sequences"},
                    Case{kMlp, "search.slices=[2]", "search.slices", "no schedule cuts sequences"},
                    Case{"{workload: {model: mlp}, search: {schedules: all}}", "search.slice_lengths=[time]",
                         "search.slice_lengths", "whole micro-batches"},
                    Case{kPipedream, "search.slices=[2]", "search.slices", "objective pipedream"}));
INSTANTIATE_TEST_SUITE_P(
    Keys, IdleInSearches,
    testing::Values(Case{kPipedream, "search.schedules=[gpipe]", "search.schedules", "objective pipedream"},
                    Case{kPipedream, "search.micro_batch_sizes=[2]", "search.micro_batch_sizes", "pipedream"},
                    Case{kMaxLoad, "search.mini_batch=8", "search.mini_batch", "max-load"},
                    Case{kPipedream, "search.stages=[2]", "search.stages", "pipedream"},
                    Case{kPipedream, "search.replicas=true", "search.replicas", "pipedream"},
                    Case{kPipedream, "search.recompute=auto", "search.recompute", "pipedream"},
                    Case{kPipedream, "search.tensor_parallel=false", "search.tensor_parallel", "pipedream"},
                    Case{kMlp, "search.straight=true", "search.straight", "objective makespan"},
                    Case{kMlp, "search.p2p=free", "search.p2p", "makespan"},
                    Case{kMlp, "search.memory_limit=true", "search.memory_limit", "makespan"},
                    Case{kMlp, "search.levels=[{devices: 2, bandwidth: 1 GB/s}]", "search.levels", "makespan"},
                    Case{kMlp, "search.profile_batch=4", "search.profile_batch", "times of every size"}));

TEST(IdleKeys, AreNoneWhereTheyAreRead) {
    for (const auto& set : std::vector<std::vector<std::string>>{
             {"workload.classes=30", "workload.image_size=5", "cluster.compute=1 TFLOP/s"},
             {"pipeline.schedule=gpipe", "pipeline.drain=lifo"},
             {"pipeline.schedule=interleaved", "pipeline.stages=4", "pipeline.group=2"},
             {"pipeline.schedule=seq1f1b", "pipeline.slices=1"},
             {"pipeline.stages=1", "pipeline.replicas=[2]", "training.shard_optimizer=true", "transfer.sums=two_level",
              "transfer.sum_bucket=1 MB"},
             {"training.shard_optimizer=false", "transfer.sum_bucket=0 B"}})
        EXPECT_TRUE(idle_in_plan(kMlp, set).empty()) << fmt::format("{}", fmt::join(set, " "));
}

TEST(Hosts, NeedALinkBetweenThem) {
    const TemporaryFolder folder;
    const auto load = [&](const std::string& cluster) {
        return load_config(folder.write("cfg.yaml", fmt::format("workload: {{model: mlp}}\ncluster: {{{}}}", cluster)),
                           {});
    };
    expect_says(refusal([&] { load("hosts: 2, devices_per_host: 1, inside: nvlink3"); }),
                {"cfg.yaml:2:50", "but the 2 hosts have no link", "write between:"});
    expect_says(refusal([&] { load("devices: [{host: a}, {host: b}], inside: nvlink3"); }), {"the 2 hosts"});
    load("hosts: 1, devices_per_host: 2, inside: nvlink3");
    load("hosts: 2, devices_per_host: 1, link: nvlink3");
    load("hosts: 2, devices_per_host: 1, inside: nvlink3, between: hdr200");
    const std::string there = "{from: 0, to: 1, bandwidth: 1 GB/s}", back = "{from: 1, to: 0, bandwidth: 1 GB/s}";
    load(fmt::format("hosts: 2, devices_per_host: 1, inside: nvlink3, links: [{}, {}]", there, back));
    expect_says(
        refusal([&] { load(fmt::format("hosts: 2, devices_per_host: 1, inside: nvlink3, links: [{}]", there)); }),
        {"the 2 hosts"});
}

}  // namespace
}  // namespace pw
