// Keys as other tools name them.
#include "job/config/other_names.h"

#include "job/config/config.h"
#include "job/load.h"
#include "tests/support/refusal.h"
#include "tests/support/temporary_folder.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <set>

namespace pw {
namespace {

std::string message_of(const std::vector<std::string>& set) {
    const TemporaryFolder folder;
    const std::string path = folder.write("cfg.yaml", "workload: {model: gpt}");
    try {
        load_config(path, set);
    } catch (const Error& error) {
        return error.what();
    }
    return {};
}

TEST(OtherNames, BelongToExistingKeys) {
    std::set<std::string_view> names;
    for (const auto& [name, key, follows] : other_names()) {
        if (!follows.empty()) {  // the same name may have a key in other blocks
            expect_says(message_of({fmt::format("{}.{}=1", key, name)}),
                        {fmt::format("unknown key '{}' in '{}'", name, key), fmt::format("help: {}", follows)});
            continue;
        }
        EXPECT_TRUE(names.insert(name).second) << name;
        EXPECT_FALSE(contains(message_of({fmt::format("{}=1", key)}), "unknown key")) << key;
        expect_says(message_of({fmt::format("{}=1", name)}),
                    {fmt::format("unknown key '{}'", name), fmt::format("help: here it is '{}'", key)});
    }
}

TEST(OtherNames, AreShortInTheirOwnBlock) {
    expect_says(message_of({"workload.hidden_size=8"}),
                {"'hidden_size' in 'workload'", "help: here it is 'embedding'"});
    expect_says(message_of({"pipeline.lr=8"}), {"'lr' in 'pipeline'", "help: here it is 'training.learning_rate'"});
    expect_says(message_of({"workload.sequence=8"}), {"did you mean 'sequence_length'?"});
    expect_says(message_of({"pipeline.shedule=gpipe"}), {"did you mean 'schedule'?"});
    expect_says(message_of({"pipeline.wave=1"}), {"did you mean 'waves'?"});
}

TEST(Overrides, RemoveAKeyWithoutAValue) {
    const TemporaryFolder folder;
    const std::string path = folder.write(
        "cfg.yaml", "{workload: {model: mlp}, cluster: {devices: 4}, pipeline: {micro_batches: 8, split: [fc2, fc3]}}");
    const auto load = [&](const std::vector<std::string>& set) { return load_config(path, set); };
    EXPECT_EQ(load({"cluster.devices="}).cluster.devices.size(), 3u) << "one for each stage of the split";
    EXPECT_EQ(load({"pipeline.micro_batches="}).pipeline.micro_batches, 1);
    EXPECT_EQ(load({"pipeline.split="}).pipeline.stages, 4);
    EXPECT_EQ(load({"pipeline="}).pipeline.stages, 4);
    EXPECT_EQ(load({"training.steps=", "search.stages=", "a.b.c="}).training.steps, 20);
    EXPECT_EQ(load({"pipeline.micro_batches=", "pipeline.micro_batches=2"}).pipeline.micro_batches, 2);
    expect_says(refusal([&] { load({"workload.model="}); }), {"'workload.model' is missing"});
}

TEST(Values, ReportWhatIsMissing) {
    expect_says(message_of({"pipeline.replicas=two"}), {"no whole number"});
    expect_says(message_of({"cluster.compute=989e12"}), {"a number without a unit", "TFLOP/s"});
}

}  // namespace
}  // namespace pw
