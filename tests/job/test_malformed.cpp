// Malformed input of every kind is refused with exit code 2, its place and a way out.
#include "job/config/config.h"
#include "job/load.h"
#include "tests/support/cifar_files.h"
#include "tests/support/refusal.h"
#include "tests/support/temporary_folder.h"
#include "workloads/data/dataset.h"

#include <gtest/gtest.h>

namespace pw {
namespace {

struct Malformed {
    const char* name;
    std::string text;
    const char *place, *fact, *help;
};
void PrintTo(const Malformed& malformed, std::ostream* out) { *out << malformed.name; }

std::string laughs() {
    std::string text = "a: &a [x, x, x, x, x, x, x, x, x, x]\n";
    for (char name = 'b'; name < 'j'; ++name) {
        text += fmt::format("{0}: &{0} [*{1}", name, static_cast<char>(name - 1));
        for (int i = 1; i < 10; ++i)
            text += fmt::format(", *{}", static_cast<char>(name - 1));
        text += "]\n";
    }
    return text;
}

class MalformedConfig : public testing::TestWithParam<Malformed> {};
TEST_P(MalformedConfig, IsRefusedWithPlaceAndHelp) {
    const TemporaryFolder folder;
    const std::string path = folder.write("cfg.yaml", GetParam().text);
    const std::string message = refusal([&] { load_config(path, {}); });
    EXPECT_TRUE(message.starts_with("error: ")) << message;
    EXPECT_TRUE(contains(message, " --> " + path + GetParam().place)) << message;
    EXPECT_TRUE(contains(message, GetParam().fact)) << message;
    EXPECT_TRUE(contains(message, GetParam().help)) << message;
}

INSTANTIATE_TEST_SUITE_P(
    Grid, MalformedConfig,
    testing::Values(
        Malformed{"repeated key", "workload: {model: mlp}\nrun: {}\nrun: {}\n", ":3:1", "'run' is listed twice",
                  "keep one"},
        Malformed{"unknown key", "workload: {model: mlp}\npipeline: {micro_batch: 4}\n", ":2:12",
                  "unknown key 'micro_batch'", "did you mean 'micro_batches'?"},
        Malformed{"no unit", "workload: {model: mlp}\ncluster: {memory: 16}\n", ":2:19", "a number without a unit",
                  "16 GiB"},
        Malformed{"wrong unit", "workload: {model: mlp}\ncluster: {memory: 16 Gb}\n", ":2:19", "'16 Gb'", "GiB"},
        Malformed{"octal", "workload: {model: mlp}\npipeline: {micro_batches: 010}\n", ":2:27", "is 010", "write 10"},
        Malformed{"second document", "workload: {model: mlp}\n---\nrun: {}\n", ":2:1", "second document",
                  "one document"},
        Malformed{"cycle", "workload: &w {model: *w}\n", ":1:22", "inside the value", "contain itself"},
        Malformed{"laughs", laughs(), ":5:36", "aliases expand", "write the values out"},
        Malformed{"no alias", "workload: *w\n", ":1:11", "not YAML", "check"},
        Malformed{"open bracket", "workload: {model: mlp\n", ":2:1", "not YAML", "check indentation"},
        Malformed{"open quote", "workload: {model: mlp}\nrun: \"x\n", ":2:6", "", "quote"},
        Malformed{"tab", "workload:\n\tmodel: mlp\n", ":2:7", "not YAML", "indent with spaces"},
        Malformed{"NUL", std::string("workload: {model: m\0p}\n", 23), ":1:20", "byte 0x00", "UTF-8"},
        Malformed{"binary", "\x89PNG\r\n\x1a\n", ":1:1", "byte 0x89", "is this a YAML file"},
        Malformed{"deep", "workload: " + std::string(100'000, '['), ":1:43", "nest more than 64", "check the brackets"},
        Malformed{"tag", "workload: !!python/object {model: mlp}\n", ":1:11", "the tag", "remove it"},
        Malformed{"wrong type", "workload: {model: mlp}\npipeline: [1]\n", ":2:11", "'pipeline' must be a map",
                  "{key: value}"},
        Malformed{"list of keys", "- workload\n- pipeline\n", ":1:1", "the file must hold keys", "{key: value}"},
        Malformed{"empty", "", ":1:1", "'workload.model' is missing", "workload: {model: resnet50}"},
        Malformed{"only a comment", "# nothing\n", ":1:1", "'workload.model' is missing",
                  "workload: {model: resnet50}"},
        Malformed{"length", "workload: {model: uniform, stages: 3}\npipeline: {stages: 2}\n", ":1:36",
                  "'workload.stages' is 3, but 'pipeline.stages' is 2", "make both the same"},
        Malformed{"JSON", "{\"workload\": {\"model\": \"mlp\",}, \"run\": {\"backend\": 3}}",
                  ":1:", "'run.backend' is '3'", "cpu, reference"}),
    [](const auto& test) { return fmt::format("Nr{}", test.index); });

TEST(MalformedSet, NamesTheOverride) {
    const TemporaryFolder folder;
    const std::string path = folder.write("cfg.yaml", "workload: {model: mlp}\n");
    for (const std::string set : {"pipeline.stages", "pipeline.stages=[", "pipeline.stages=two", "pipeline.stage=2"}) {
        const std::string message = refusal([&] { load_config(path, {set}); });
        EXPECT_TRUE(contains(message, " --> " + set.substr(0, set.find('=')) + "\n")) << message;
        EXPECT_TRUE(contains(message, set)) << message;
        EXPECT_TRUE(contains(message, "help: ")) << message;
    }
}

TEST(MalformedCifar, MissingFolder) {
    for (const std::string folder : {"", "/nowhere/at/all"}) {
        const std::string message = refusal([&] { Dataset::cifar10(folder, 32, 1); });
        EXPECT_TRUE(contains(message, folder)) << message;
        EXPECT_TRUE(contains(message, folder.empty() ? "name the folder" : "correct the path")) << message;
    }
}

TEST(MalformedCifar, MissingFile) {
    const TemporaryFolder folder;
    write_cifar_files(folder.path(), 4);
    const std::string message = refusal([&] { Dataset::cifar10(folder.path().string(), 32, 1); });
    EXPECT_TRUE(contains(message, cifar_file(folder.path(), 5).string())) << message;
    EXPECT_TRUE(contains(message, "help: the data set has 5 files")) << message;
}

TEST(MalformedCifar, WrongSizes) {
    const TemporaryFolder folder;
    write_cifar_files(folder.path());
    std::filesystem::resize_file(cifar_file(folder.path(), 2), kCifarFileBytes - 1);
    std::filesystem::resize_file(cifar_file(folder.path(), 4), kCifarFileBytes + 3073);
    const std::string message = refusal([&] { Dataset::cifar10(folder.path().string(), 32, 1); });
    EXPECT_TRUE(contains(message, cifar_file(folder.path(), 2).string() + "' has 30729999 bytes instead of 30730000"))
        << message;
    EXPECT_TRUE(contains(message, cifar_file(folder.path(), 4).string() + "' has 30733073 bytes instead of 30730000"))
        << message;
    EXPECT_TRUE(contains(message, "help: ")) << message;
}

TEST(MalformedCifar, LabelOutOfRange) {
    const TemporaryFolder folder;
    write_cifar_files(folder.path());
    write_record(cifar_file(folder.path(), 3), 9999, 0, "\x0a");
    const std::string message = refusal([&] { Dataset::cifar10(folder.path().string(), 32, 1); });
    EXPECT_TRUE(contains(message, "record 9999 of '" + cifar_file(folder.path(), 3).string() + "' has label 10"))
        << message;
    EXPECT_TRUE(contains(message, "help: ")) << message;
}

// Well-formed YAML that is not a config.
struct Rejection {
    const char *text, *fact;
};
void PrintTo(const Rejection& rejection, std::ostream* out) { *out << rejection.text; }
class Rejected : public testing::TestWithParam<Rejection> {};
TEST_P(Rejected, WithPlaceAndHelp) {
    const TemporaryFolder folder;
    const std::string file = folder.write("cfg.yaml", GetParam().text);
    expect_says(refusal([&] { load_config(file, {}); }), {GetParam().fact, " --> ", "  help: "});
}

constexpr const char* kNotHere = "is not in this version";
INSTANTIATE_TEST_SUITE_P(NotInThisVersion, Rejected,
                         testing::Values(Rejection{"{workload: {model: mlp}, pipeline: {waves: 2}}", kNotHere},
                                         Rejection{"{workload: {model: mlp}, run: {gradient_order: micro_batch}}",
                                                   kNotHere}));

INSTANTIATE_TEST_SUITE_P(
    Wrong, Rejected,
    testing::Values(
        Rejection{"[1, 2]", "the file must hold keys"}, Rejection{"workload: resnet50", "'workload' must be a map"},
        Rejection{"workload: {model: zzz}", "unknown model 'zzz'"},
        Rejection{"{workload: {model: mlp}, pipeline: {stages: 3, split: [a]}}",
                  "'pipeline.split' makes 2 stages, but 'pipeline.stages' is 3"},
        Rejection{"{workload: {model: mlp}, pipeline: {stages: 3, replicas: [1, 2]}}",
                  "'pipeline.replicas' has 2 entries, but 'pipeline.stages' is 3"},
        Rejection{"{workload: {model: mlp}, cluster: {devices: 2}, pipeline: {replicas: [1, 2]}}",
                  "'pipeline.replicas' makes 3 devices, but 'cluster.devices' is 2"},
        Rejection{"{workload: {model: mlp}, pipeline: {replicas: [1, 0]}}", "'pipeline.replicas[1]' is 0"},
        Rejection{"{workload: {model: uniform, stages: 4}, pipeline: {stages: 2}}",
                  "'workload.stages' is 4, but 'pipeline.stages' is 2"},
        Rejection{"workload: {model: uniform, stages: 2, forward: [1 us, 2 us, 3 us]}",
                  "'workload.forward' has 3 values, but 'workload.stages' is 2"},
        Rejection{"workload: {model: uniform, forward: []}", "'workload.forward' is empty"},
        Rejection{"workload: {model: uniform, forward: 1}", "a number without a unit"},
        Rejection{"workload: {model: uniform, forward: 1e400 s}", "is '1e400 s', which is too large"},
        Rejection{"workload: {model: uniform, forward: 1e30 s}", "is '1e30 s', which is too large"},
        Rejection{"cluster: {memory: 1e20 GiB}", "is '1e20 GiB', which is too large"},
        Rejection{"cluster: {link: {bandwidth: 1e-400 GB/s}}", "is '1e-400 GB/s', which is too small"},
        Rejection{"workload: {model: uniform, forward: [1 us, x]}", "'workload.forward[1]' is 'x'"},
        Rejection{"workload: {model: uniform, forward: 100000 s, backward_input: 10000000 s}",
                  "'workload.backward_input' is"},
        Rejection{"workload: {model: uniform, activation: inf}", "'workload.activation' is inf"},
        Rejection{"{workload: {model: uniform}, pipeline: {split: [a]}}", "no layers to split"},
        Rejection{"workload: {model: mlp, forward: 1 us}", "belongs to model: uniform"},
        Rejection{"workload: {model: mlp, dataset: cifar10, classes: 3}", "cifar10 has 10 classes"},
        Rejection{"{workload: {model: mlp}, pipeline: {split: {stages: []}}}", "lists no stages"},
        Rejection{"{workload: {model: mlp}, pipeline: {split: [[a]]}}", "'pipeline.split[0]' is a list"},
        Rejection{"{workload: {model: mlp}, pipeline: {stages: 2, recompute: [0, 2]}}", "'pipeline.recompute[1]' is 2"},
        Rejection{"{workload: {model: mlp}, pipeline: {recompute: some}}", "'pipeline.recompute' is 'some'"},
        Rejection{"{workload: {model: mlp}, pipeline: {micro_batches: 0}}", "'pipeline.micro_batches' is 0"},
        Rejection{"{workload: {model: mlp}, pipeline: {micro_batches:}}", "'pipeline.micro_batches' has no value"},
        Rejection{"{workload: {model: mlp}, cluster: {devices: []}}", "'cluster.devices' is empty"},
        Rejection{"{workload: {model: mlp}, cluster: {devices: 0}}", "'cluster.devices' is 0"},
        Rejection{"{workload: {model: mlp}, cluster: {devices: 1000000000}}", "at most"},
        Rejection{"{workload: {model: mlp}, cluster: {devices: [{name: a}, {name: a}]}}", "two devices are called 'a'"},
        Rejection{"{workload: {model: mlp}, cluster: {link: {bandwith: 1 GB/s}}}", "unknown key 'bandwith'"},
        Rejection{"{workload: {model: mlp}, cluster: {link: 10 GB/s}}",
                  "'cluster.link' is '10 GB/s', which is not a link"},
        Rejection{"{workload: {model: mlp}, run: {timeout: 0 s}}", "'run.timeout' is 0 ns"},
        Rejection{"{workload: {model: mlp}, training: {precision: bf16}}",
                  "'training.precision' is for run.backend cuda"},
        Rejection{"{workload: {model: mlp}, run: {precision: bf16}}", "'run.precision' is for run.backend cuda"},
        Rejection{"{workload: {model: mlp}, run: {backend: cuda, precision: int4}}", "'run.precision' is 'int4'"},
        Rejection{"{workload: {model: mlp}, training: {precision: bf16}, run: {backend: cuda, precision: bf16}}",
                  "'run.precision' is the earlier name of 'training.precision'"},
        Rejection{"{workload: {model: mlp}, run: {backend: cuda, sms: [4]}}", "'run.sms[0]' is 4"},
        Rejection{"{workload: {model: mlp}, run: {backend: cuda, gpus: [0, -1]}}", "'run.gpus[1]' is -1"},
        Rejection{"{workload: {model: mlp}, run: {backend: cuda, gpus: 2}}", "'run.gpus' must be a list"},
        Rejection{"{workload: {model: mlp}, run: {gpus: [0]}}", "'run.gpus' is for run.backend cuda"},
        Rejection{"{workload: {model: mlp}, run: {graph: step}}", "'run.graph' is for run.backend cuda"},
        Rejection{"{workload: {model: mlp}, run: {transport: nccl}}", "transport nccl is for run.backend cuda"},
        Rejection{"{workload: {model: mlp}, run: {backend: emulated, transport: link}}",
                  "transport link is for run.backend cpu or reference, not emulated"},
        Rejection{"{workload: {model: mlp}, run: {transport: link}}", "no cluster.link to emulate"},
        Rejection{"{workload: {model: mlp}, training: {optimizer: none}}", "'training.optimizer' is 'none'"},
        Rejection{"{workload: {model: mlp}, training: {momentum: 2}}", "'training.momentum' is 2"},
        Rejection{"{workload: {model: mlp}, training: {betas: [0.9]}}", "'training.betas' has 1 values"},
        Rejection{"{workload: {model: mlp}, training: {betas: [0.9, 1]}}", "'training.betas[1]' is 1"},
        Rejection{"{workload: {model: mlp}, training: {epsilon: 0}}", "'training.epsilon' is 0"},
        Rejection{"{workload: {model: mlp}, search: 3}", "'search' must be a map"},
        Rejection{"{workload: {model: mlp}, search: {objective: speed}}", "'search.objective' is 'speed'"},
        Rejection{"{workload: {model: mlp}, search: {schedule: [gpipe]}}", "unknown key 'schedule'"},
        Rejection{"{workload: {model: mlp}, search: {schedules: []}}", "'search.schedules' is empty"},
        Rejection{"{workload: {model: mlp}, search: {schedules: gpipe}}", "'search.schedules' is 'gpipe'"},
        Rejection{"{workload: {model: mlp}, search: {schedules: [gpipe, gpipe]}}", "'gpipe' is listed twice"},
        Rejection{"{workload: {model: mlp}, search: {stages: []}}", "'search.stages' is empty"},
        Rejection{"{workload: {model: mlp}, search: {micro_batch_sizes: [0]}}", "'search.micro_batch_sizes[0]' is 0"},
        Rejection{"{workload: {model: mlp}, search: {mini_batch: 0}}", "'search.mini_batch' is 0"},
        Rejection{"{workload: {model: mlp}, search: {levels: [{devices: 4}]}}", "'search.levels[0].bandwidth'"},
        Rejection{"{workload: {model: mlp}, search: {levels: []}}", "'search.levels' is empty"},
        Rejection{"{workload: {model: mlp}, sweep: [8]}", "'sweep' must be a map"},
        Rejection{"{workload: {model: mlp}, sweep: {run.timeout: 8 s}}", "'sweep.run.timeout' must be a list"},
        Rejection{"{workload: {model: mlp}, sweep: {run.timeout: }}", "'sweep.run.timeout' must be a list"},
        Rejection{"{workload: {model: mlp}, sweep: {run.timeout: []}}", "'sweep.run.timeout' has no values"},
        Rejection{"{workload: {model: mlp}, sweep: {a=b: [8]}}", "'a=b' in 'sweep' is not the path of a key"},
        Rejection{"{workload: {model: mlp}, transfer: {protocol: lazy}}", "'transfer.protocol' is 'lazy'"},
        Rejection{"{workload: {model: mlp}, transfer: {multiprocessors: 0.6}}", "multiprocessors"},
        Rejection{"{workload: {model: mlp}, transfer: {eager_limit: 64 KiB}}", "every message leaves at once"},
        Rejection{"{workload: {model: mlp}, transfer: {protocol: rendezvous, eager_limit: -1 B}}", "eager_limit"}));

}  // namespace
}  // namespace pw
