// Training on Ascend 910 that its vendor measured (the folder witness/ascend of the public data, of
// Ascend/MindSpeed-LLM 1.0.RC1). Nothing is fitted: the kind of card, 910B, and 200 Gbit/s per card between hosts are
// assumed, and products take the rates of figures that the vendor prints.
#include "job/job.h"
#include "job/load.h"
#include "report/report.h"
#include "tests/support/public_data.h"
#include "tests/support/temporary_folder.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <yaml-cpp/yaml.h>

#include <cmath>
#include <map>
#include <string>

namespace pw {
namespace {

int number_of(const YAML::Node& row, const char* key) { return row[key].as<int>(); }

bool has_experts(const YAML::Node& row) { return row["model"].as<std::string>() == "mixtral-8x7b"; }

// Megatron-LM of that time (SwitchMLP at bcce6f, which the vendor's page names) divides each expert among the tensor
// ranks, which gather their tokens before the experts.
std::string division_of_experts(const YAML::Node& row) {
    return has_experts(row) ? fmt::format("expert_tensor: {}, expert_dispatcher: gathered, ", number_of(row, "tensor"))
                            : "";
}

// The rows print no vocabularies: these are of the models' own config.json.
std::string model_of(const YAML::Node& row) {
    static const std::map<std::string, int> vocabularies{
        {"aquila-7b", 100008},  {"baichuan-13b", 64000}, {"baichuan2-7b", 125696}, {"bloom-7b", 250880},
        {"bloom-176b", 250880}, {"qwen-7b", 151936},     {"qwen-72b", 152064},     {"internlm-65b", 103168}};
    const auto found = vocabularies.find(row["model"].as<std::string>());
    const int hidden = number_of(row, "hidden"), heads = number_of(row, "heads");
    const int words = found == vocabularies.end() ? 32000 : found->second;
    if (number_of(row, "inner") == 4 * hidden)
        return fmt::format(R"({{"model_type": "gpt2", "n_embd": {}, "n_layer": {}, "n_head": {}, "n_positions": 8192,
"vocab_size": {}}})",
                           hidden, number_of(row, "blocks"), heads, words);
    return fmt::format(
        R"({{"model_type": {}, "hidden_size": {}, "num_hidden_layers": {}, "num_attention_heads": {},
"num_key_value_heads": {}, "intermediate_size": {}, "vocab_size": {}, "max_position_embeddings": 8192}})",
        has_experts(row) ? R"("mixtral", "num_local_experts": 8, "num_experts_per_tok": 2)" : R"("llama")", hidden,
        number_of(row, "blocks"), heads, row["key_value_heads"] ? number_of(row, "key_value_heads") : heads,
        number_of(row, "inner"), words);
}

double predicted_rate(const YAML::Node& row) {
    const TemporaryFolder folder;
    folder.write("model.json", model_of(row));
    const int cards = number_of(row, "cards"), batch = number_of(row, "global_batch");
    const bool full = row["recompute"].as<std::string>().starts_with("full");
    const std::string path = folder.write(
        "plan.yaml",
        fmt::format("workload: {{model: model.json, sequence_length: {}}}\n"
                    "cluster: {{hosts: {}, devices_per_host: 8, device: ascend-910b, between: {{bandwidth: "
                    "200 Gbit/s, latency: 14 us, adapters: 8}}}}\n"
                    "training: {{precision: {}, optimizer: adamw}}\n"
                    "parallel: {{{}tensor: {}, pipeline: {}, zero: 0, recompute: {}, attention: {}, release: "
                    "nemo-2024, overlap: []}}\n"
                    "pipeline: {{schedule: 1f1b, mini_batch: {}, micro_batch_size: {}}}\n",
                    number_of(row, "sequence_length"), cards / 8, row["precision"].as<std::string>(),
                    division_of_experts(row), number_of(row, "tensor"), number_of(row, "pipeline"),
                    full ? "full" : "none", row["flash_attention"].as<bool>() ? "flash" : "unfused", batch,
                    number_of(row, "micro_batch_size")));
    Notices notices;
    const Report report = predicted_report(make_job(load_config(path, {}), notices), false);
    return 1e9 * batch * number_of(row, "sequence_length") / static_cast<double>(report.metrics.step_time) / cards;
}

TEST(MeasuredAscend, HasTheThroughputOfItsVendor) {
    const std::string folder = public_data("witness/ascend");
    if (folder.empty())
        GTEST_SKIP() << "witness/ascend is not here: set PIPEWRIGHT_DATA to the folder of the public data";
    double errors = 0;
    int rows = 0;
    for (const YAML::Node& row : YAML::LoadFile(folder + "/modellink_910.yaml")["rows"]) {
        const double error = row["tokens_per_s_card"].as<double>() / predicted_rate(row) - 1;
        EXPECT_LT(std::abs(error), 0.25) << row["model"].as<std::string>() << " on " << number_of(row, "cards");
        errors += std::abs(error);
        ++rows;
    }
    ASSERT_EQ(rows, 14);
    EXPECT_LT(errors / rows, 0.11);
}

}  // namespace
}  // namespace pw
