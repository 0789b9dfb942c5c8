// The rows of keys and what is made from them: the page, the schema, and reading without an environment.
#include "job/config/keys.h"

#include "job/config/read.h"
#include "job/plan.h"
#include "tests/support/config_text.h"
#include "tests/support/refusal.h"
#include "workloads/models/models.h"
#include "workloads/text/json_text.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>

namespace pw {
namespace {

constexpr const char* kPage = PIPEWRIGHT_SOURCE_DIR "/docs/config.md";

std::vector<KeyFacts> keys_of(const std::string& block) {
    std::vector<KeyFacts> keys = config_keys();
    std::erase_if(keys, [&](const KeyFacts& key) { return key.block != block; });
    return keys;
}

std::string page() {
    std::ostringstream text;
    text << std::ifstream(kPage).rdbuf();
    return text.str();
}

std::string table_of(const std::string& block) {
    std::string table = "| key | takes | default | meaning |\n|---|---|---|---|\n";
    for (const KeyFacts& key : keys_of(block))
        table += fmt::format("| `{}` | {} | {} | {} |\n", key.name, key.takes, key.fallback, key.help);
    return table;
}

// The page with the tables made from the rows, between comments that name the block.
std::string with_tables(std::string text) {
    const std::string end = "<!-- end of the keys -->";
    for (const char* block :
         {"workload", "cluster", "parallel", "pipeline", "training", "run", "transfer", "calibration", "search"}) {
        const std::string begin = fmt::format("<!-- keys of {}, made from their rows -->\n", block);
        const std::size_t from = text.find(begin);
        if (from == std::string::npos)
            return fmt::format("there is no '{}'", begin);
        const std::size_t first = from + begin.size();
        text.replace(first, text.find(end, first) - first, table_of(block));
    }
    return text;
}

TEST(Keys, HaveTheirTablesOnThePage) {
    const std::string now = page(), wanted = with_tables(now);
    if (std::getenv("PIPEWRIGHT_RECORD") != nullptr)
        std::ofstream(kPage) << wanted;
    else
        EXPECT_EQ(now, wanted) << "PIPEWRIGHT_RECORD=1 writes the tables anew";
}

TEST(Keys, NameTheConfigsThatTheyAreFor) {
    for (const KeyFacts& key : config_keys()) {
        EXPECT_FALSE(key.takes.empty()) << key.name;
        EXPECT_FALSE(key.fallback.empty()) << key.name;
        EXPECT_EQ(key.help.find('|'), std::string::npos) << key.name << ": ends a cell of the table";
    }
}

TEST(Keys, CoverAllOptionsOfModels) {
    const std::vector<KeyFacts> keys = keys_of("workload");
    for (const BuiltInModel* row : built_in_models()) {
        std::istringstream names{std::string(row->keys)};
        for (std::string name; names >> name;)
            EXPECT_EQ(std::ranges::count(keys, name, &KeyFacts::name), 1) << row->name << ": " << name;
    }
}

TEST(Schema, HasEveryKeyAndNoOther) {
    const auto schema = parse_json(config_schema(), "schema");
    const auto& blocks = schema["properties"];
    EXPECT_EQ(blocks.size(), 10u);
    std::size_t keys = 0;
    for (const auto& [name, block] : blocks.items())
        if (name != "sweep") {
            EXPECT_EQ(block["additionalProperties"], false) << name;
            keys += block["properties"].size();
        }
    EXPECT_EQ(keys, config_keys().size());
    for (const KeyFacts& key : config_keys())
        EXPECT_TRUE(blocks[key.block]["properties"].contains(key.name)) << key.block << "." << key.name;
    EXPECT_EQ(blocks["training"]["properties"]["momentum"]["maximum"], 1);
    EXPECT_EQ(blocks["run"]["properties"]["precision"]["enum"].dump(),
              R"(["fp32","tf32","bf16","fp16","fp8","mxfp8","nvfp4"])");
    EXPECT_FALSE(blocks["pipeline"]["properties"].contains("waves")) << "not in this version";
}

WrittenConfig written(const std::string& text) {
    return read_config(std::make_shared<Source>("cfg.yaml", text), "/nowhere", {});
}

TEST(Reading, OpensNoScheduleAndReadsNoEnvironment) {
    const std::string text = "{workload: {model: mlp}, pipeline: {schedule: plan.csv}}";
    EXPECT_EQ(written(text).config.pipeline.schedule, "/nowhere/plan.csv");
    EXPECT_EQ(written(text).config.run.transport, RunConfig::Transport::Auto);
    const PlanDefaults plan{1, 3, 2, 8};
    const Config config = complete(written(text), plan, 1);
    EXPECT_EQ(config.pipeline.stages, 3);
    EXPECT_EQ(config.cluster.devices.size(), 2u);
    EXPECT_EQ(config.pipeline.micro_batches, 8);
    const std::string other = "{workload: {model: mlp}, cluster: {devices: 3}, pipeline: {schedule: plan.csv}}";
    expect_says(refusal([&] { complete(written(other), plan, 1); }), {"'cluster.devices' is 3, but the plan has 2"});
}

TEST(Completing, ChoosesTheTransportByTheNumberOfRanks) {
    using Transport = RunConfig::Transport;
    const auto transport = [](const std::string& run, int ranks) {
        return complete(written("{workload: {model: mlp}, run: {" + run + "}}"), {}, ranks).run.transport;
    };
    EXPECT_EQ(transport("", 1), Transport::Threads);
    EXPECT_EQ(transport("", 2), Transport::Mpi);
    EXPECT_EQ(transport("backend: cuda", 2), Transport::Nccl);
    EXPECT_EQ(transport("transport: threads", 2), Transport::Threads);
}

TEST(Completing, ReportsMistakesOfTheTextToo) {
    expect_says(refusal([&] {
                    complete(
                        written("{workload: {model: mlp}, training: {steps: 0}, pipeline: {stages: 2, split: []}}"), {},
                        1);
                }),
                {"'training.steps' is 0", "'pipeline.split' makes 1 stage, but 'pipeline.stages' is 2"});
}

}  // namespace
}  // namespace pw
