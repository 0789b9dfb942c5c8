// Malformed input of every kind is refused with exit code 2, its place and a way out.
#include "tests/cifar_files.h"
#include "tests/refusal.h"
#include "tests/temporary_folder.h"
#include "workloads/config.h"
#include "workloads/dataset.h"

#include <gtest/gtest.h>

namespace pw {
namespace {

struct Malformed {
    const char* name;
    std::string text;
    const char *place, *fact, *way_out;
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
TEST_P(MalformedConfig, IsRefusedWithPlaceAndWayOut) {
    const TemporaryFolder folder;
    const std::string path = folder.write("cfg.yaml", GetParam().text);
    const std::string message = refusal([&] { load_config(path, {}); });
    EXPECT_TRUE(message.starts_with("error: ")) << message;
    EXPECT_TRUE(contains(message, " --> " + path + GetParam().place)) << message;
    EXPECT_TRUE(contains(message, GetParam().fact)) << message;
    EXPECT_TRUE(contains(message, GetParam().way_out)) << message;
}

INSTANTIATE_TEST_SUITE_P(
    Grid, MalformedConfig,
    testing::Values(
        Malformed{"repeated key", "workload: {model: mlp}\nrun: {}\nrun: {}\n", ":3:1", "'run' stands twice",
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
        EXPECT_TRUE(contains(message, "--set")) << message;
        EXPECT_TRUE(contains(message, set)) << message;
        EXPECT_TRUE(contains(message, "help: ")) << message;
    }
}

TEST(MalformedCifar, MissingFolder) {
    for (const std::string folder : {"", "/nowhere/at/all"}) {
        const std::string message = refusal([&] { Dataset::cifar10(folder, 32, 1); });
        EXPECT_TRUE(contains(message, folder)) << message;
        EXPECT_TRUE(contains(message, "workload.path")) << message;
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

}  // namespace
}  // namespace pw
