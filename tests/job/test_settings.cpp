// Errors have fields: the fact, the help, and the key of the config. No code searches their text.
#include "job/build.h"
#include "job/config/config.h"
#include "job/job.h"
#include "job/load.h"
#include "job/settings.h"
#include "tests/support/refusal.h"
#include "tests/support/temporary_folder.h"
#include "workloads/error.h"

#include <gtest/gtest.h>

#include <stdexcept>

namespace pw {
namespace {

constexpr const char* kConfig =
    "workload: {model: uniform, stages: 4, forward: 1 ms, backward_input: 1 ms, backward_weight: 1 ms}\n"
    "cluster:\n"
    "  devices: [{name: a}, {name: b}, {name: c}, {name: d}]\n"
    "pipeline: {schedule: pipedream-2bw, micro_batches: 3}\n";

Error error_of(const std::vector<std::string>& set) {
    const TemporaryFolder folder;
    const std::string path = folder.write("cfg.yaml", kConfig);
    try {
        Notices notices;
        make_job(load_config(path, set), notices);
    } catch (const Error& error) {
        return error;
    }
    throw std::logic_error("the config was taken");
}

TEST(ErrorFields, AreTheFactAndTheHelpOfTheText) {
    const Error plain(ExitCode::RunFailed, "no such device");
    EXPECT_EQ(plain.fact(), "no such device");
    EXPECT_EQ(plain.help(), "");
    const Error helpful(ExitCode::BadInput, "9 stages\n  help: take 8", {Setting::Stages});
    EXPECT_EQ(helpful.fact(), "9 stages");
    EXPECT_EQ(helpful.help(), "take 8");
    EXPECT_EQ(helpful.settings(), std::vector<Setting>{Setting::Stages});
    EXPECT_EQ(help_with_keys(helpful), "take 8 (pipeline.stages)");
    EXPECT_STREQ(helpful.what(), "9 stages\n  help: take 8");
    EXPECT_STREQ(with_keys(helpful).what(), "9 stages\n  help: take 8 (pipeline.stages)");
    EXPECT_EQ(with_keys(helpful).key(), "pipeline.stages");
}

TEST(ErrorFields, HaveTheKeyOfTheSettingToChange) {
    const Error error = error_of({});
    EXPECT_EQ(error.code(), ExitCode::BadInput);
    EXPECT_EQ(error.key(), "pipeline.micro_batches");
    EXPECT_EQ(error.fact(),
              "two weight versions need at least as many micro-batches per update as devices: 3 for 4 devices");
    EXPECT_EQ(error.help(), "take 4 micro-batches or more (pipeline.micro_batches)");
    expect_says(error.what(), {"error: two weight", "cfg.yaml:4:", "  help: take 4"});
    EXPECT_TRUE(contains(error.place(), "cfg.yaml:4:")) << error.place();
    EXPECT_EQ(error_of({"pipeline.schedule=nonesuch"}).key(), "pipeline.schedule");
    EXPECT_EQ(error_of({"pipeline.schedule=nonesuch"}).place(), "pipeline.schedule");
}

TEST(ErrorFields, AreThoseOfTheFirstMistakeOfAFile) {
    const Error error = error_of({"pipeline.micro_batches=none", "cluster.memory=16 apples"});
    EXPECT_EQ(error.key(), "pipeline.micro_batches");
    EXPECT_TRUE(contains(error.fact(), "'none'")) << error.fact();
    EXPECT_FALSE(contains(error.fact(), "apples")) << error.fact();
    expect_says(error.what(), {"'none'", "apples"});
}

TEST(ErrorFields, HavePlacesInTexts) {
    const std::string text = "workload: {model: uniform, stages: 2}\npipeline: {micro_batches: none}\n";
    EXPECT_EQ(load_config("mine", text, {"pipeline.micro_batches=3"}).pipeline.micro_batches, 3);
    try {
        load_config("mine", text, {});
        FAIL();
    } catch (const Error& error) {
        EXPECT_EQ(error.place(), "mine:2:27");
    }
}

TEST(ErrorFields, PointAtThePathOfADataSet) {
    const TemporaryFolder folder;
    const std::string path =
        folder.write("cfg.yaml", "workload: {model: mlp, dataset: mnist, path: nowhere}\npipeline: {schedule: 1f1b}\n");
    const Config config = load_config(path, {});
    try {
        open_dataset(config, build_model(config));
        FAIL();
    } catch (const Error& error) {
        EXPECT_EQ(error.key(), "workload.path");
        EXPECT_TRUE(contains(error.fact(), "nowhere' is no folder")) << error.fact();
        EXPECT_EQ(error.help(), "unpack MNIST's files there, or correct the path");
        expect_says(error.what(), {"cfg.yaml:1:"});
    }
}

// Every key may be in a config.
TEST(Settings, HaveKeysOfTheConfig) {
    const TemporaryFolder folder;
    const std::string path = folder.write("cfg.yaml", kConfig);
    EXPECT_EQ(key_of({Setting::DeviceSpeed, 2}), "cluster.devices[2].speed");
    for (int name = 0; name <= static_cast<int>(Setting::Last); ++name) {
        const std::string key = key_of({static_cast<Setting::Name>(name), 0});
        const std::string message = refusal([&] { load_config(path, {key + "={no: value}"}); });
        EXPECT_FALSE(contains(message, "unknown key '" + key.substr(key.rfind('.') + 1))) << message;
    }
}

}  // namespace
}  // namespace pw
