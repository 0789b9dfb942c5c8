// Predictions of shipped configs against published measurements.
#include "job/config/config.h"
#include "job/load.h"
#include "report/predict.h"
#include "sim/metrics.h"
#include "tests/support/public_data.h"

#include <gtest/gtest.h>
#include <yaml-cpp/yaml.h>

#include <cmath>
#include <map>
#include <string>
#include <vector>

namespace pw {
namespace {

struct PublishedRow {
    std::string model;
    int micro_batches;
    std::string schedule;
    double measured, predicted;  // samples per GPU and second
    double error() const { return predicted / measured - 1; }
};

double prediction_of(const YAML::Node& model, int micro_batches, const YAML::Node& times, const std::string& schedule) {
    const int devices = model["gpus"].as<int>(), chunks = schedule == "interleaved" ? model["v"].as<int>() : 1;
    const auto time = [&](const char* key) { return fmt::format("{:.0f} ns", times[key].as<double>() / chunks * 1e6); };
    const int size = model["micro_batch_size"].as<int>();
    const Config config = load_config(
        PIPEWRIGHT_SOURCE_DIR "/workloads/configs/zero-bubble-a100.yaml",
        {fmt::format("workload.stages={}", devices * chunks), "workload.forward=" + time("F"),
         "workload.backward_input=" + time("I"), "workload.backward_weight=" + time("W"),
         fmt::format("workload.output={} B", size * model["sequence"].as<int>() * model["hidden"].as<int>() * 2),
         fmt::format("cluster.devices={}", devices), "pipeline.schedule=" + schedule,
         fmt::format("pipeline.micro_batches={}", micro_batches), fmt::format("pipeline.micro_batch_size={}", size)});
    Notices notices;
    return metrics_of(predict(make_job(config, notices))).samples_per_second / devices;
}

std::vector<PublishedRow> published_rows(const std::string& path) {
    const std::map<std::string, std::string> names{{"1f1b", "1f1b"}, {"1f1b-i", "interleaved"}, {"zb-1p", "zb-h1"}};
    std::vector<PublishedRow> rows;
    for (const YAML::Node& model : YAML::LoadFile(path)) {
        std::map<int, YAML::Node> times;
        for (const YAML::Node& row : model["rows"])
            if (row["F"])
                times[row["m"].as<int>()] = row;
        for (const YAML::Node& row : model["rows"])
            for (const auto& [name, schedule] : names)
                if (const YAML::Node measured = row["measured"][name]) {
                    const int micro_batches = row["m"].as<int>();
                    const YAML::Node& own = times.at(row["times_of"] ? row["times_of"].as<int>() : micro_batches);
                    rows.push_back({model["model"].as<std::string>(), micro_batches, schedule, measured.as<double>(),
                                    prediction_of(model, micro_batches, own, schedule)});
                }
    }
    return rows;
}

// "Zero Bubble Pipeline Parallelism" (arXiv 2401.10241v1, tables 3, 4, 9, 10 and 12): the constants of the config are
// set on the 1.5B model alone (bench/published.py).
TEST(Published, ThroughputOfA100sIsPredicted) {
    PIPEWRIGHT_NEED_DATA(path, "published/zero-bubble.yaml");
    const std::vector<PublishedRow> rows = published_rows(path);
    double sum = 0;
    int others = 0;
    std::map<std::string, std::vector<double>> errors;  // by schedule
    for (const PublishedRow& row : rows)
        if (row.model != "1.5B") {
            sum += std::abs(row.error());
            ++others;
            errors[row.schedule].push_back(row.error());
        }
    EXPECT_EQ(others, 12);
    EXPECT_LE(sum / others, 0.02);
    for (const auto& [schedule, own] : errors) {
        double bias = 0;
        for (const double error : own)
            bias += error / static_cast<double>(own.size());
        EXPECT_LE(std::abs(bias), 0.025) << schedule;
    }
    for (const PublishedRow& a : rows)
        for (const PublishedRow& b : rows)
            if (a.model == b.model && a.micro_batches == b.micro_batches && a.measured > 1.02 * b.measured) {
                EXPECT_GT(a.predicted, b.predicted) << a.model << ' ' << a.micro_batches << ' ' << a.schedule;
            }
}

}  // namespace
}  // namespace pw
