// Predicted costs of a tensor that several layers of later stages read, by stage and by layer.
#include "job/load.h"
#include "report/predict.h"
#include "search/plans/makespan.h"
#include "sim/metrics.h"
#include "tests/support/temporary_folder.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace pw {
namespace {

// A model in a file and a config in the same folder.
class OfFile {
public:
    OfFile(const std::string& model, const std::string& config) : config_(folder_.write("config.yaml", config)) {
        folder_.write("model.yaml", model);
    }
    Config config(const std::vector<std::string>& set) const { return load_config(config_, set); }
    Job job(const std::vector<std::string>& set) const {
        Notices notices;
        return make_job(config(set), notices);
    }
    Ns step(const std::vector<std::string>& set) const { return metrics_of(predict(job(set))).step_time; }

private:
    TemporaryFolder folder_;
    std::string config_;
};

const std::vector<std::string> kByStage{}, kByLayer{"run.fan_out_gradients=layer"};

std::vector<std::string> joined(std::vector<std::string> set, const std::vector<std::string>& more) {
    set.insert(set.end(), more.begin(), more.end());
    return set;
}

// Eight layers in a chain all read the mask, two in each of four stages. With `relayed`, a layer of no time in each
// stage reads it for them and passes it on.
std::string masked_chain(bool relayed) {
    std::string text =
        "samples: 1\nlayers:\n  - {name: mask, inputs: [], forward: 0 ms, backward: 0 ms, output: 10 MB}\n";
    std::string mask = "mask";
    for (int layer = 0; layer < 8; ++layer) {
        if (relayed && layer % 2 == 0 && layer > 0) {
            text += fmt::format("  - {{name: relay{}, inputs: [mask], forward: 0 ms, backward: 0 ms, output: 10 MB}}\n",
                                layer);
            mask = fmt::format("relay{}", layer);
        }
        text += fmt::format(
            "  - {{name: l{}, inputs: [{}{}], forward: 1 ms, backward: 2 ms, output: 1 MB, weights: 1 MB}}\n", layer,
            layer > 0 ? fmt::format("l{}, ", layer - 1) : "", mask);
    }
    return text;
}

constexpr const char* kFan = R"(
workload: {model: model.yaml}
cluster: {devices: 4, link: {bandwidth: 10 GB/s}}
pipeline: {schedule: gpipe, split: [l2, l4, l6], micro_batches: 1}
)";
constexpr const char* kRelayed = R"(
workload: {model: model.yaml}
cluster: {devices: 4, link: {bandwidth: 10 GB/s}}
pipeline: {schedule: gpipe, split: [relay2, relay4, relay6], micro_batches: 1}
)";
const std::vector<std::string> kEight{"pipeline.schedule=1f1b", "pipeline.micro_batches=8",
                                      "cluster.link.bandwidth=1 GB/s"};

TEST(FanOutPredictions, OneGradientPerReadingStage) {
    const OfFile fan(masked_chain(false), kFan);
    // Forward: 2 ms on each device; 11 MB to the second stage, 1 MB between the others. Backward: 4 ms each, 1 MB, 1 MB
    // and 11 MB.
    const Ns forward = 2'000'000 + 1'100'000 + 2'000'000 + 100'000 + 2'000'000 + 100'000 + 2'000'000;
    const Ns backward = 4'000'000 + 100'000 + 4'000'000 + 100'000 + 4'000'000 + 1'100'000 + 4'000'000;
    EXPECT_EQ(forward + backward, 26'600'000);
    EXPECT_EQ(fan.step(kByStage), forward + backward);
    EXPECT_EQ(fan.step(kByLayer), forward + backward + 1'000'000);  // 10 MB more from the second stage
    const auto bytes = [&](const std::vector<std::string>& rule) {
        std::vector<Bytes> sent;
        for (const EdgeBytes& edge : fan.job(rule).costs.edges)
            sent.push_back(edge.backward);
        return sent;
    };
    const Bytes mega = 1'000'000;  // edges: 0-1, 0-2, 0-3, 1-2, 2-3
    EXPECT_EQ(bytes(kByStage), (std::vector<Bytes>{11 * mega, 10 * mega, 10 * mega, mega, mega}));
    EXPECT_EQ(bytes(kByLayer), (std::vector<Bytes>{21 * mega, 20 * mega, 10 * mega, mega, mega}));
    EXPECT_EQ(fan.step(joined(kByLayer, kEight)), 217'000'000);
}

// The same sums, made by layers: nothing is left to group.
TEST(FanOutPredictions, AStageTakesAsLongAsOneThatRelaysTheTensor) {
    const OfFile fan(masked_chain(false), kFan), relayed(masked_chain(true), kRelayed);
    EXPECT_EQ(fan.step(kEight), 157'000'000);
    for (const std::vector<std::string>& rule : {kByStage, kByLayer}) {
        EXPECT_EQ(relayed.step(rule), fan.step(kByStage));
        EXPECT_EQ(relayed.step(joined(rule, kEight)), fan.step(kEight));
    }
}

// The layers of HPGO's profile of BERT (github.com/LER0ever/HPGO, profiles/bert_48), whose mask all of them read: 12 in
// each stage. The steps are those of a program of its own.
TEST(FanOutPredictions, OfBertsMask) {
    std::string text = R"(samples: 1
layers:
  - {name: ids, inputs: [], forward: 10 us, output: 9216 B}
  - {name: mask, inputs: [ids], forward: 11 us, output: 3538944 B}
  - {name: embeddings, inputs: [ids], forward: 56 us, output: 9437184 B, weights: 127131648 B}
  - {name: reshape, inputs: [embeddings], output: 9437184 B}
)";
    for (int layer = 0; layer < 48; ++layer)
        text += fmt::format(
            "  - {{name: layer_{}, inputs: [{}, mask], forward: 8.07 ms, backward: 13.4 ms, output: 9437184 B, "
            "weights: 50384896 B}}\n",
            layer, layer > 0 ? fmt::format("layer_{}", layer - 1) : "reshape");
    text += "  - {name: pooler, inputs: [layer_47], weights: 4198400 B}\n";
    const OfFile bert(text, R"(
workload: {model: model.yaml}
cluster: {devices: 4, link: {bandwidth: 10 Gbit/s}}
pipeline: {schedule: 1f1b, split: [layer_12, layer_24, layer_36], micro_batches: 8}
)");
    EXPECT_NEAR(static_cast<double>(bert.step(kByStage)), 2972.1e6, 0.05e6);
    EXPECT_NEAR(static_cast<double>(bert.step(kByLayer)), 3065.5e6, 0.05e6);
}

// The result of a search is the prediction of its config, by either rule.
TEST(FanOutPredictions, AreTheSearchs) {
    const OfFile fan(masked_chain(false), kFan);
    for (const std::vector<std::string>& rule : {kByStage, kByLayer}) {
        const std::vector<std::string> set =
            joined(joined(rule, kEight), {"search={schedules: [1f1b, gpipe], stages: [3, 4]}"});
        const Job job = fan.job(set);
        const SearchProblem problem = problem_of(fan.config(set), *job.model);
        const SearchResult result = search_plans(problem);
        ASSERT_NE(result.best(), nullptr);
        Notices notices;
        const Job found = make_job(setup_of(problem, *result.best()), notices);
        const Metrics predicted = metrics_of(predict(found));
        EXPECT_EQ(result.best()->step_time, predicted.step_time);
        EXPECT_EQ(found.setup.run.fan_out_gradients, job.setup.run.fan_out_gradients);
        EXPECT_LE(predicted.step_time, metrics_of(predict(job)).step_time);
        for (std::size_t device = 0; device < predicted.devices.size(); ++device)
            EXPECT_EQ(result.best()->reserved[device], *predicted.devices[device].reserved_memory);
    }
}

}  // namespace
}  // namespace pw
