// Offload against figures of others (the folder witness/offload of the public data). Nothing is fitted.
#include "job/job.h"
#include "job/load.h"
#include "report/predict.h"
#include "report/report.h"
#include "sim/metrics.h"
#include "tests/support/public_data.h"
#include "tests/support/temporary_folder.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <yaml-cpp/yaml.h>

#include <map>
#include <string>
#include <vector>

namespace pw {
namespace {

Job offloading_job(const std::string& model, const std::string& text, const std::vector<std::string>& set) {
    const TemporaryFolder folder;
    folder.write("model.json", model);
    Notices notices;
    return make_job(load_config(folder.write("plan.yaml", text), set), notices);
}

struct PublishedModel {
    int blocks, hidden, heads, devices;
};

// The time in which what a block saves goes out and comes back, as a multiple of the time of its F and B.
double share_of_copies(const PublishedModel& model, int tokens) {
    const std::string json = fmt::format(
        R"({{"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_layer": {}, "n_embd": {}, "n_head": {},
"n_inner": {}, "n_positions": 65536, "vocab_size": 50304}})",
        model.blocks, model.hidden, model.heads, 4 * model.hidden);
    const std::string text = fmt::format(
        "workload: {{model: model.json, sequence_length: {}}}\n"
        "cluster: {{hosts: {}, devices_per_host: 8, device: a100-sxm-80, between: hdr200, "
        "host_link: {{bandwidth: 15 GB/s}}}}\n"
        "training: {{precision: bf16}}\n"
        "parallel: {{pipeline: {}, recompute: norms}}\n"
        "pipeline: {{schedule: interleaved, stages: {}, micro_batches: {}, micro_batch_size: 1, offload: all, "
        "offload_ahead: 2}}\n",
        tokens, model.devices / 8, model.devices, model.blocks + 2, 4 * model.devices);
    const Trace trace = predict(offloading_job(json, text, {}));
    std::map<Op, double> times;
    for (const TraceEvent& event : trace.events)
        if (event.task.stage == model.devices + 1 && event.task.microbatch == 2 * model.devices)
            times[event.task.op] = static_cast<double>(event.end - event.start);
    return (times[Op::Offload] + times[Op::Reload]) / (times[Op::Forward] + times[Op::Backward]);
}

// PipeOffload (Wan et al., ICML 2025, arXiv 2503.01328), figure 15. The authors print one digit, of the formula
// 10 / (3 (6 h + s)) rate / link with 220 TFLOP/s and 15 GB/s. Here times and bytes follow from the shapes.
TEST(MeasuredOffload, TakesThePublishedPartOfComputing) {
    const std::string folder = public_data("witness/offload");
    if (folder.empty())
        GTEST_SKIP() << "witness/offload is not here: set PIPEWRIGHT_DATA to the folder of the public data";
    const std::map<std::string, PublishedModel> models = {{"10.5B", {38, 5120, 40, 8}}, {"42.9B", {62, 8192, 64, 32}}};
    int rows = 0;
    for (const YAML::Node& row : YAML::LoadFile(folder + "/pipeoffload.yaml")["rows"]) {
        const auto model = models.find(row["model"].as<std::string>());
        if (row["schedule"].as<std::string>() != "PO-H" || model == models.end())
            continue;
        const int tokens = row["sequence_length"].as<int>();
        EXPECT_NEAR(share_of_copies(model->second, tokens), row["k"].as<double>(), 0.12)
            << model->first << " " << tokens;
        ++rows;
    }
    EXPECT_EQ(rows, 8);
}

// Megatron-Kwai (Yuan et al., USENIX ATC 2024): a tenth of the activations leaves, and what is cheap to compute again
// is recomputed, against full recomputation. Without recomputation the authors had not enough memory.
TEST(MeasuredOffload, SavesThePublishedTime) {
    const std::string folder = public_data("witness/offload");
    if (folder.empty())
        GTEST_SKIP() << "witness/offload is not here: set PIPEWRIGHT_DATA to the folder of the public data";
    const YAML::Node rows = YAML::LoadFile(folder + "/kwai_atc24.yaml")["rows"];
    const auto measured = [&](const std::string& kind, const std::string& run) {
        for (const YAML::Node& row : rows)
            if (row["model"].as<std::string>() == "llama-7b" && row["kind"].as<std::string>() == kind &&
                row["run"].as<std::string>() == run)
                return row["tokens_per_s_gpu"].as<double>();
        return 0.0;
    };
    const std::string text =
        "workload: {model: llama-2-7b, sequence_length: 12288}\n"
        "cluster: {hosts: 1, devices_per_host: 4, device: a800-sxm-80, host_link: {bandwidth: 25 GB/s}}\n"
        "training: {precision: bf16}\n"
        "parallel: {pipeline: 4}\n"
        "pipeline: {schedule: 1f1b, micro_batches: 16, micro_batch_size: 1}\n";
    for (const auto& [kind, device] : {std::pair("A800", "a800-sxm-80"), std::pair("H800", "h100-sxm-80")}) {
        const auto report_of = [&, device = device](const std::vector<std::string>& set) {
            std::vector<std::string> all{std::string("cluster.device=") + device};
            all.insert(all.end(), set.begin(), set.end());
            return predicted_report(offloading_job("{}", text, all), false);
        };
        const auto step = [](const Report& report) { return static_cast<double>(report.metrics.step_time); };
        const Report kept = report_of({"parallel.recompute=none"}), full = report_of({"parallel.recompute=full"}),
                     offloaded = report_of({"parallel.recompute=norms", "pipeline.offload=all",
                                            "pipeline.offload_share=0.1", "transfer.copies=both ways"});
        if (kind == std::string("A800"))  // an H800 has 2 GB more than this plan needs
            EXPECT_FALSE(fits(kept));
        EXPECT_TRUE(fits(offloaded)) << kind;
        EXPECT_NEAR(step(full) / step(offloaded) /
                        (measured(kind, "offload and balanced checkpoints") / measured(kind, "baseline")),
                    1, 0.05)
            << kind;
    }
}

}  // namespace
}  // namespace pw
