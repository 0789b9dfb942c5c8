// Throughput and memory of Seq1F1B on A100 that its authors measured (the folder witness/slices of the public data,
// of thunlp/Seq1F1B, arXiv 2406.03488). Nothing is fitted. The authors do not print the degrees of 7 billion
// parameters: with tensor 8 and pipeline 4 the throughput of 1F1B is the measured throughput within 2 %.
#include "job/job.h"
#include "job/load.h"
#include "report/report.h"
#include "tests/support/public_data.h"
#include "tests/support/temporary_folder.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <yaml-cpp/yaml.h>

#include <array>
#include <string>
#include <utility>

namespace pw {
namespace {

// A model of the authors: rotary positions, two tables, no dropout (run.sh of the repository).
struct Measured {
    const char* model;
    int blocks, hidden, heads, hosts, tensor, pipeline;
};
constexpr Measured kSmallest{"2.7B", 32, 2560, 32, 1, 1, 8}, kSeven{"7B", 32, 4096, 32, 4, 8, 4},
    kSevenLonger{"7B", 32, 4096, 32, 4, 4, 8}, kLargest{"30B", 64, 6144, 64, 8, 8, 8};

std::string shape_of(const Measured& of, int tokens) {
    return fmt::format(R"({{"model_type": "gpt_neox", "num_hidden_layers": {}, "hidden_size": {},
"num_attention_heads": {}, "intermediate_size": {}, "max_position_embeddings": {}, "vocab_size": 50304, "rotary_pct": 1.0,
"use_parallel_residual": false, "tie_word_embeddings": false, "attention_bias": true, "hidden_act": "gelu"}})",
                       of.blocks, of.hidden, of.heads, 4 * of.hidden, tokens);
}

double predicted(int tokens, int micro_batches, bool sliced) {
    const TemporaryFolder folder;
    folder.write("seven.json", shape_of(kSeven, tokens));
    const std::string path = folder.write(
        "plan.yaml",
        fmt::format("workload: {{model: seven.json, sequence_length: {}}}\n"
                    "cluster: {{hosts: 4, devices_per_host: 8, device: a100-sxm-80, between: {{link: hdr200, "
                    "adapters: 4}}}}\n"
                    "training: {{precision: bf16, optimizer: adamw}}\n"
                    "parallel: {{tensor: 8, pipeline: 4, sequence: true, zero: 1}}\n"
                    "pipeline: {{schedule: {}, micro_batches: {}, micro_batch_size: 1}}\n",
                    tokens, sliced ? "seq1f1b, slices: 4, slice_lengths: time" : "1f1b", micro_batches));
    Notices notices;
    const Report report = predicted_report(make_job(load_config(path, {}), notices), false);
    return 1.0 * tokens * micro_batches / (static_cast<double>(report.metrics.step_time) * 1e-9);
}

double measured(const YAML::Node& rows, int tokens, int micro_batches, const std::string& method) {
    for (const YAML::Node& row : rows)
        if (row["sequence_length"].as<int>() == tokens && row["micro_batches"].as<int>() == micro_batches &&
            row["method"].as<std::string>() == method)
            return row["tokens_per_s"].as<double>();
    return 0;
}

TEST(MeasuredSlices, HaveTheirThroughput) {
    const std::string folder = public_data("witness/slices");
    if (folder.empty())
        GTEST_SKIP() << "witness/slices is not here: set PIPEWRIGHT_DATA to the folder of the public data";
    const YAML::Node rows = YAML::LoadFile(folder + "/seq1f1b_7b_throughput.yaml")["rows"];
    for (const int micro_batches : {8, 16}) {
        const double whole = predicted(32'768, micro_batches, false), sliced = predicted(32'768, micro_batches, true),
                     measured_whole = measured(rows, 32'768, micro_batches, "1F1B"),
                     measured_sliced = measured(rows, 32'768, micro_batches, "Seq1F1B");
        EXPECT_NEAR(whole / measured_whole, 1, 0.02) << micro_batches;
        EXPECT_NEAR(sliced / measured_sliced, 1, 0.08) << micro_batches;
        EXPECT_NEAR(sliced / whole / (measured_sliced / measured_whole), 1, 0.06) << micro_batches;
    }
}

Report predicted_memory(const Measured& of, int tokens, bool sliced) {
    const TemporaryFolder folder;
    folder.write("model.json", shape_of(of, tokens));
    const std::string path = folder.write(
        "plan.yaml",
        fmt::format("workload: {{model: model.json, sequence_length: {}}}\n"
                    "cluster: {{hosts: {}, devices_per_host: 8, device: a100-sxm-80{}}}\n"
                    "training: {{precision: bf16, optimizer: adamw}}\n"
                    "parallel: {{tensor: {}, pipeline: {}, sequence: {}, zero: 1}}\n"
                    "pipeline: {{schedule: {}, micro_batches: 8, micro_batch_size: 1}}\n",
                    tokens, of.hosts, of.hosts > 1 ? ", between: {link: hdr200, adapters: 4}" : "", of.tensor,
                    of.pipeline, of.tensor > 1, sliced ? "seq1f1b, slices: 4, slice_lengths: time" : "1f1b"));
    Notices notices;
    return predicted_report(make_job(load_config(path, {}), notices), false);
}

// The authors' program prints what PyTorch reserves on a device of every stage, cut to four characters
// (megatron/training.py). Their bars have more digits than any of these numbers: they are means over the stages.
double mean_over_stages(const Report& report) {
    double sum = 0;
    for (const DeviceMetrics& device : report.metrics.devices)
        sum += static_cast<double>(device.needed_memory());
    return sum / static_cast<double>(report.metrics.devices.size());
}

std::string measured_memory(const YAML::Node& rows, const char* model, int tokens, bool sliced) {
    for (const YAML::Node& row : rows)
        if (row["model"].as<std::string>() == model && row["sequence_length"].as<int>() == tokens &&
            row["method"].as<std::string>() == (sliced ? "Seq1F1B" : "1F1B"))
            return row["memory_gb"].as<std::string>();
    return "";
}

YAML::Node memory_rows() {
    const std::string folder = public_data("witness/slices");
    return folder.empty() ? YAML::Node() : YAML::LoadFile(folder + "/seq1f1b_memory.yaml")["rows"];
}

constexpr const char* kNoRows = "witness/slices is not here: set PIPEWRIGHT_DATA to the folder of the public data";

// PyTorch reserves more than tensors need, for whole sequences and for slices.
TEST(MeasuredSlices, HaveTheirPartOfTheMemory) {
    const YAML::Node rows = memory_rows();
    if (!rows.IsSequence())
        GTEST_SKIP() << kNoRows;
    struct Pair {
        Measured of;
        int tokens;
        double within;
    };
    for (const Pair& pair : {Pair{kSeven, 32'768, 0.03}, Pair{kSeven, 65'536, 0.03}, Pair{kLargest, 32'768, 0.03},
                             Pair{kSmallest, 16'384, 0.12}, Pair{kSmallest, 24'576, 0.12}}) {
        double predicted[2], measured[2];
        for (const bool sliced : {false, true}) {
            predicted[sliced] = mean_over_stages(predicted_memory(pair.of, pair.tokens, sliced));
            measured[sliced] =
                std::stod(measured_memory(rows, pair.of.model, pair.tokens, sliced)) * 1024 * 1024 * 1024;
            EXPECT_LT(predicted[sliced], measured[sliced]) << pair.of.model << ' ' << pair.tokens;
            EXPECT_GT(predicted[sliced], 0.64 * measured[sliced]) << pair.of.model << ' ' << pair.tokens;
        }
        EXPECT_NEAR(predicted[1] / predicted[0] / (measured[1] / measured[0]), 1, pair.within)
            << pair.of.model << ' ' << pair.tokens;
    }
}

// The weights are the intercept and the activations the slope.
TEST(MeasuredSlices, HaveMemoryOnALine) {
    const YAML::Node rows = memory_rows();
    if (!rows.IsSequence())
        GTEST_SKIP() << kNoRows;
    for (const auto& [of, lengths] : {std::pair{kSmallest, std::array{16'384, 24'576, 32'768}},
                                      std::pair{kSeven, std::array{32'768, 65'536, 131'072}},
                                      std::pair{kSevenLonger, std::array{32'768, 65'536, 131'072}}}) {
        double predicted[3], measured[3];
        for (std::size_t k = 0; k < 3; ++k) {
            predicted[k] = mean_over_stages(predicted_memory(of, lengths[k], true));
            measured[k] = std::stod(measured_memory(rows, of.model, lengths[k], true));
        }
        const double steps = 1.0 * (lengths[2] - lengths[1]) / (lengths[1] - lengths[0]);
        for (const double* memory : {predicted, measured})
            EXPECT_NEAR(memory[1] + steps * (memory[1] - memory[0]), memory[2], 0.01 * memory[2]) << of.model;
    }
}

// With tensor 8 and pipeline 4, the tensors of 7 billion parameters at 131072 tokens need 74 GB: what PyTorch reserves
// in addition is not predicted.
TEST(MeasuredSlices, FitWhereTheyWereRun) {
    const YAML::Node rows = memory_rows();
    if (!rows.IsSequence())
        GTEST_SKIP() << kNoRows;
    int without_memory = 0;
    for (const Measured& of : {kSmallest, kSevenLonger, kLargest})
        for (const YAML::Node& row : rows) {
            const std::string method = row["method"].as<std::string>();
            if (row["model"].as<std::string>() != of.model || (method != "1F1B" && method != "Seq1F1B"))
                continue;
            const bool ran = row["memory_gb"].as<std::string>() != "OOM";
            without_memory += ran ? 0 : 1;
            EXPECT_EQ(fits(predicted_memory(of, row["sequence_length"].as<int>(), method == "Seq1F1B")), ran)
                << of.model << ' ' << row["sequence_length"] << ' ' << method;
        }
    EXPECT_EQ(without_memory, 4);
}

// Slices of a stage cost what they cost in a plan whose stages all have its degrees.
TEST(MeasuredSlices, FollowTheDegreesOfTheirStage) {
    const TemporaryFolder folder;
    const auto job_with = [&](int devices, const char* tensor) {
        const std::string path =
            folder.write("plan.yaml", fmt::format("workload: {{model: llama-3-8b, sequence_length: 16384}}\n"
                                                  "cluster: {{devices: {}, device: h100-sxm-80}}\n"
                                                  "training: {{precision: bf16, optimizer: adamw}}\n"
                                                  "parallel: {{tensor: {}, pipeline: 2}}\n"
                                                  "pipeline: {{schedule: seq1f1b, slices: 4, micro_batches: 4}}\n",
                                                  devices, tensor));
        Notices notices;
        return make_job(load_config(path, {}), notices);
    };
    const Job mixed = job_with(6, "[4, 2]"), four = job_with(8, "4"), two = job_with(4, "2");
    for (int slice = 0; slice < 4; ++slice) {
        EXPECT_EQ(mixed.costs.slices[slice][0], four.costs.slices[slice][0]);
        EXPECT_EQ(mixed.costs.slices[slice][1], two.costs.slices[slice][1]);
        EXPECT_NE(four.costs.slices[slice][0], two.costs.slices[slice][0]);
    }
    for (const auto& [stage, alike] : {std::pair{0, &four}, std::pair{1, &two}})
        EXPECT_EQ(mixed.costs.bytes[stage].keys_and_values, alike->costs.bytes[stage].keys_and_values);
}

}  // namespace
}  // namespace pw
