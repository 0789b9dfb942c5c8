// Steps that others measured on a cluster of two kinds of GPUs. Nothing is fitted: layers have the times that the
// authors measured on each kind (the folder witness/mixed-amp of the public data, of AMP, NeurIPS 2022).
#include "job/job.h"
#include "job/load.h"
#include "report/report.h"
#include "tests/support/public_data.h"
#include "tests/support/temporary_folder.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

namespace pw {
namespace {

struct MeasuredPlan {
    double predicted = 0, measured = 0;  // seconds of a step
};

class AmpPlans {
public:
    explicit AmpPlans(const std::string& folder)
        : inputs_(YAML::LoadFile(folder + "/inputs.yaml")), rows_(YAML::LoadFile(folder + "/het_cluster.yaml")) {
        const YAML::Node times = inputs_["forward_seconds_per_sample_by_kind_and_tensor_degree"];
        for (const auto& kind : times)
            for (const auto& degree : kind.second)
                write_layers(kind.first.as<std::string>(), degree.first.as<int>(), degree.second);
    }

    // The plans with micro-batches of one and two samples that ran: layers were timed with one sample.
    std::vector<MeasuredPlan> all() const {
        std::vector<MeasuredPlan> plans;
        for (const YAML::Node& row : rows_["rows"])
            if (row["measured_s"].as<std::string>() != "failed" && row["micro_batch_size"].as<int>() <= 2)
                plans.push_back({step_of(row), row["measured_s"].as<double>()});
        return plans;
    }

private:
    static std::string file_of(const std::string& kind, int tensor) { return fmt::format("{}-{}.yaml", kind, tensor); }

    void write_layers(const std::string& kind, int tensor, const YAML::Node& seconds) const {
        const YAML::Node model = inputs_["model"];
        const auto hidden = model["hidden"].as<std::int64_t>(), tokens = model["sequence_length"].as<std::int64_t>();
        std::string text = "samples: 1\nlayers:\n";
        for (std::size_t layer = 0; layer < seconds.size(); ++layer) {
            const auto name = inputs_["layers"][layer].as<std::string>();
            const std::int64_t numbers = name == "transformer"       ? 12 * hidden * hidden
                                         : name.starts_with("embed") ? hidden * model["vocabulary"].as<std::int64_t>()
                                                                     : 0;
            const auto forward = std::llround(seconds[layer].as<double>() * 1e9);
            text += fmt::format("  - {{name: {}.{}, forward: {} ns, backward: {} ns, output: {} B, weights: {} B}}\n",
                                name, layer, forward, 2 * forward, 2 * tokens * hidden, 4 * numbers / tensor);
        }
        folder_.write(file_of(kind, tensor), text);
    }

    // A device of the plan is a tensor group. Replicas of a stage are neighbours.
    double step_of(const YAML::Node& row) const {
        const YAML::Node cluster = inputs_["clusters"]["het_cluster"];
        const int tensor = row["tensor"].as<int>(), batch = inputs_["global_batch"].as<int>();
        std::string hosts;
        for (std::size_t host = 0; host < cluster["nodes"].size(); ++host)
            hosts += fmt::format(
                "    - {{devices: {}, profile: {}, inside: {{bandwidth: {} Gbit/s}}, between: {{bandwidth: {} "
                "Gbit/s}}}}\n",
                cluster["gpus_per_node"].as<int>() / tensor, file_of(cluster["nodes"][host].as<std::string>(), tensor),
                cluster["intra_Gbit_s_by_node"][host].as<int>(), cluster["inter_Gbit_s_by_node"][host].as<int>());
        std::vector<std::string> cuts;
        for (std::size_t stage = 1; stage + 1 < row["partition"].size(); ++stage) {
            const int first = row["partition"][stage].as<int>();
            cuts.push_back(fmt::format("{}.{}", inputs_["layers"][first].as<std::string>(), first));
        }
        const int size = row["micro_batch_size"].as<int>();
        const std::string path = folder_.write(
            "cfg.yaml",
            fmt::format("workload: {{model: {}}}\ncluster:\n  hosts:\n{}pipeline: {{schedule: 1f1b, stages: {}, "
                        "split: [{}], replicas: {}, micro_batches: {}, micro_batch_size: {}}}\n"
                        "transfer: {{receive: deferred, protocol: rendezvous, exchange: blocking}}\n",
                        file_of(cluster["nodes"][0].as<std::string>(), tensor), hosts, row["stages"].as<int>(),
                        fmt::join(cuts, ", "), row["data"].as<int>(), batch / size, size));
        Notices notices;
        return static_cast<double>(
                   predicted_report(make_job(load_config(path, {}), notices), false).metrics.step_time) *
               1e-9;
    }

    TemporaryFolder folder_;
    YAML::Node inputs_, rows_;
};

TEST(MeasuredPlans, OnTwoKindsOfGpusAreInOrderAndNear) {
    const std::string folder = public_data("witness/mixed-amp");
    if (folder.empty())
        GTEST_SKIP() << "witness/mixed-amp is not here: set PIPEWRIGHT_DATA to the folder of the public data";
    const std::vector<MeasuredPlan> plans = AmpPlans(folder).all();
    ASSERT_EQ(plans.size(), 14u);
    double error = 0, order = 0;
    for (std::size_t a = 0; a < plans.size(); ++a) {
        error += std::abs(plans[a].predicted / plans[a].measured - 1) / static_cast<double>(plans.size());
        for (std::size_t b = 0; b < a; ++b) {
            const double agrees = (plans[a].predicted - plans[b].predicted) * (plans[a].measured - plans[b].measured);
            order += (agrees > 0) - (agrees < 0);
        }
    }
    EXPECT_LE(error, 0.08);
    EXPECT_GE(order / (14 * 13 / 2.0), 0.85);
    const auto shortest = std::ranges::min_element(plans, {}, &MeasuredPlan::predicted);
    EXPECT_EQ(shortest->measured, std::ranges::min_element(plans, {}, &MeasuredPlan::measured)->measured);
}

}  // namespace
}  // namespace pw
