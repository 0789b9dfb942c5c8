// Reports of predictions, and what is noted of jobs.
#include "report/notes.h"
#include "report/report.h"
#include "schedules/memory/buffers.h"
#include "tests/support/config_text.h"
#include "tests/support/public_data.h"
#include "tests/support/refusal.h"
#include "tests/support/temporary_folder.h"

#include <gtest/gtest.h>
#include <yaml-cpp/yaml.h>
#include <nlohmann/json.hpp>

#include <cmath>
#include <string>
#include <utility>
#include <vector>

namespace pw {

namespace {

// Every stage computes for 3 us a micro-batch; a device keeps 1 MB of each.
constexpr const char* kUniform = R"(
workload: {model: uniform, stages: 2, forward: 1 us, backward_input: 1 us, backward_weight: 1 us, activation: 1 MB}
cluster: {devices: [{name: left, memory: 3 MB}, {memory: 9 MB}]}
pipeline: {schedule: gpipe, micro_batches: 4}
)";

Job job_of_text(const std::string& text, const std::vector<std::string>& set = {}) {
    Notices notices;
    return make_job(load(text, set), notices);
}

}  // namespace

// m + p - 1 slots of F and of B
TEST(Reports, SizesOfAColumnHaveOneUnit) {
    const std::vector<std::string> set = {"cluster.devices=[{memory: 30 MB}, {memory: 90 MiB}]"};
    const std::string text = to_text(predicted_report(job_of_text(kUniform, set)));
    EXPECT_TRUE(contains(text, " MB"));
    EXPECT_FALSE(contains(text, " MiB")) << text;
}

// A training program for transformers has no arena with gaps.
TEST(Reports, TransformersNeedTheirPeak) {
    const Job job = job_of_text(
        "{workload: {model: llama-3-70b, sequence_length: 8192}, cluster: {hosts: 8, devices_per_host: 8, device: "
        "h100-sxm-80, between: ndr400}, training: {precision: bf16, optimizer: adamw}, parallel: {tensor: 4, pipeline: "
        "4, zero: 1}, pipeline: {schedule: zb-v, stages: 8, micro_batches: 16}}");
    const std::vector<Bytes> arena =
        pack(buffers_of(job.plan, job.costs, job.versions, job.mode.early_receive()), job.plan.shape.devices).arena;
    const Report report = predicted_report(job, false);
    for (const DeviceMetrics& device : report.metrics.devices)
        EXPECT_EQ(device.reserved_memory, device.peak_memory);
    EXPECT_LT(report.metrics.devices[0].peak_memory, arena[0]);
    EXPECT_EQ(reserved_of(job.plan, job.costs, job.versions, job.mode)[0], report.metrics.devices[0].peak_memory);
}

TEST(Report, IsThePredictionOfAJob) {
    const Report report = predicted_report(job_of_text(kUniform));
    EXPECT_EQ(report.metrics.step_time, (4 + 1) * (1'000 + 2'000));
    EXPECT_EQ(report.names, (std::vector<std::string>{"left", "1"}));
    EXPECT_EQ(report.limits, (std::vector<Bytes>{3'000'000, 9'000'000}));
    EXPECT_FALSE(report.trace.events.empty());
}

TEST(Report, WithoutEventsHasTheSameNumbers) {
    const Job job = job_of_text(kUniform);
    const Report whole = predicted_report(job), numbers = predicted_report(job, false);
    EXPECT_TRUE(numbers.trace.events.empty());
    EXPECT_EQ(to_json(numbers), to_json(whole));
    EXPECT_EQ(to_text(numbers), to_text(whole));
}

TEST(Report, SaysWhatDoesNotFit) {
    const Report report = predicted_report(job_of_text(kUniform));
    EXPECT_EQ(largest_peak(report), 4'000'000);
    EXPECT_FALSE(fits(report));
    EXPECT_EQ(misfits_of(report), "does not fit: device left needs 4 MB and has 3 MB: 1 MB over\n");
    EXPECT_TRUE(contains(to_text(report), misfits_of(report)));
    EXPECT_TRUE(fits(report_of(report.trace))) << "a trace alone has no limits";
}

TEST(Report, HasTheKeysOfTheContract) {
    const Json json = to_json(predicted_report(job_of_text(kUniform)));
    for (const char* key : {"schema_version", "makespan_ns", "span_ns", "step_time_ns", "ideal_ns", "bubble_rate",
                            "bubble_ratio", "span_bubble_rate", "samples_per_second", "tasks", "plan_hash", "fits",
                            "schedule", "stages", "micro_batches", "devices"})
        EXPECT_TRUE(json.contains(key)) << key;
    ASSERT_EQ(json["devices"].size(), 2u);
    for (const char* key :
         {"busy_ns", "idle_ns", "exposed_communication_ns", "peak_memory_bytes", "reserved_memory_bytes", "memory",
          "peak_in_flight", "peak_in_flight_until_weight", "weight_versions"})
        EXPECT_TRUE(json["devices"][0].contains(key)) << key;
    EXPECT_EQ(json["fits"], false);
    EXPECT_EQ(json["devices"][0]["memory_limit_bytes"], 3'000'000);
}

TEST(Notes, AreOneForEachThing) {
    EXPECT_EQ(notes_on_costs(job_of_text(kUniform)), Notices{});
    EXPECT_EQ(notes_on_costs(job_of_text(kUniform, {"pipeline.micro_batch_size=2"})).size(), 1u);
    const Job job = job_of_text(kUniform, {"pipeline.group=2"});
    ASSERT_EQ(notes_on_idle_keys(job).size(), 1u);
    EXPECT_TRUE(contains(notes_on_idle_keys(job).front(), "pipeline.group has no effect"));
}

TEST(Notes, SayWhatOfAConfigIsNotCounted) {
    const TemporaryFolder folder;
    const std::string path = folder.write("seer.json", R"({"model_type": "llama", "hidden_size": 64,
 "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 100, "intermediate_size": 128,
 "vision_config": {"hidden_size": 8}})");
    const Notices notes = notes_on_costs(job_of_text(
        "{workload: {model: '" + path + "'}, cluster: {hosts: 1, devices_per_host: 8, device: h100-sxm-80}, " +
        "pipeline: {mini_batch: 8}}"));
    ASSERT_EQ(notes.size(), 2u);
    EXPECT_EQ(notes.back(), "not counted of seer: the part for images (vision_config)");
}

TEST(Notes, SayWhatAJobIs) {
    EXPECT_EQ(summary_of(job_of_text(kUniform)), "uniform, 2 stages, gpipe, 4 micro-batches of 1");
    EXPECT_TRUE(contains(refusal([] { require_layers(job_of_text(kUniform).setup, "run"); }), "has no layers to run"));
}

TEST(Notes, TakeTheFactOfAnError) {
    EXPECT_EQ(first_line(Error(ExitCode::BadInput, "stage 2 gets no layer\n --> cfg.yaml:14:13")),
              "stage 2 gets no layer");
}

// Two replicas of 64 sequences of 8192 tokens in a step, 448.8 GFLOP per token (NVIDIA's count for Llama 3 70B with
// half of the scores), and 989 TFLOP/s of an H100.
TEST(Report, SaysWhatAClusterDoes) {
    const Report report = predicted_report(
        job_of_text("{workload: {model: llama-3-70b, sequence_length: 8192}, cluster: {hosts: 8, devices_per_host: 8, "
                    "device: h100-sxm-80, between: {link: ndr400, adapters: 8}}, parallel: {tensor: 4, pipeline: 4, "
                    "context: 2, zero: 1}, pipeline: {schedule: interleaved, stages: 20, mini_batch: 128, "
                    "micro_batch_size: 1}, training: {precision: bf16, optimizer: adamw}}"),
        false);
    ASSERT_TRUE(report.cluster);
    const double seconds = static_cast<double>(report.metrics.step_time) * 1e-9, tokens = 128 * 8192;
    EXPECT_EQ(report.cluster->devices, 64);
    EXPECT_EQ(report.cluster->replicas, 2);
    EXPECT_NEAR(report.cluster->tokens_per_second, tokens / seconds, 1);
    EXPECT_NEAR(report.cluster->utilisation, tokens * 448.8e9 / seconds / 64 / 989e12, 0.01);
    ASSERT_TRUE(report.cluster->parts);
    const PassParts& own = *report.cluster->parts;
    double parts = 0;
    for (const auto& [name, part] : kPassParts)
        parts += own.*part;
    EXPECT_GT(parts, 0.8 * seconds);
    EXPECT_LT(parts, seconds);
    const Json json = to_json(report)["cluster"];
    EXPECT_EQ(json["devices"], 64);
    EXPECT_EQ(json["seconds"].size(), 7);
    EXPECT_NEAR(json["seconds"]["messages"].get<double>(), own.tensor + own.context + own.experts + own.weights, 1e-12);
    EXPECT_GT(own.context, 0);
    EXPECT_NE(to_text(report).find("tokens/s on 64 devices"), std::string::npos);
}

TEST(Report, HasNoClusterForOtherPlans) {
    EXPECT_FALSE(to_json(predicted_report(job_of_text(kUniform), false)).contains("cluster"));
}

// Measured on A100s under Megatron-LM, with separate kernels of attention: "Zero Bubble Pipeline Parallelism", arXiv
// 2401.10241v1, for 1f1b, interleaved 1f1b and zb-1p, whose order is that of zb-h1. Nothing is fitted to it.
TEST(Report, HasTheMemoryOfPublishedPipelines) {
    PIPEWRIGHT_NEED_DATA(path, "published/zero-bubble.yaml");
    double errors = 0;
    int compared = 0;
    for (const YAML::Node& model : YAML::LoadFile(path)) {
        const auto number = [&](const char* key) { return model[key].as<int>(); };
        const TemporaryFolder folder;
        const std::string file = folder.write(
            "config.json", fmt::format(R"({{"model_type": "gpt2", "n_embd": {}, "n_layer": {}, "n_head": {},
            "n_positions": 1024, "vocab_size": 50257}})",
                                       number("hidden"), number("layers"), number("heads")));
        for (const auto& [schedule, name] :
             {std::pair("1f1b", "1f1b"), std::pair("1f1b-i", "interleaved"), std::pair("zb-1p", "zb-h1")}) {
            const int gpus = number("gpus"), size = number("micro_batch_size");
            const int stages = gpus * (schedule == std::string("1f1b-i") ? number("v") : 1);
            const Report report = predicted_report(
                job_of_text(fmt::format(
                    "{{workload: {{model: {}, sequence_length: 1024}}, cluster: {{hosts: {}, devices_per_host: 8, "
                    "device: a100-sxm-80, between: hdr200}}, parallel: {{pipeline: {}, release: megatron-2022}}, "
                    "pipeline: {{schedule: {}, stages: {}, mini_batch: {}, micro_batch_size: {}}}, training: "
                    "{{precision: fp16, optimizer: adamw}}}}",
                    file, gpus / 8, gpus, name, stages, model["rows"][0]["m"].as<int>() * size, size)),
                false);
            const double measured = model["memory_gb"][schedule].as<double>() * 1e9;
            errors += std::abs(static_cast<double>(largest_peak(report)) / measured - 1);
            ++compared;
        }
    }
    EXPECT_EQ(compared, 9);
    EXPECT_LT(errors / compared, 0.05);
}

}  // namespace pw
