// Every key of a config, for every kind of workload: a changed value changes the prediction, or a message names the
// key.
#include "job/config/blocks.h"
#include "job/idle_keys.h"
#include "job/load.h"
#include "report/notes.h"
#include "report/report.h"
#include "tests/support/refusal.h"
#include "tests/support/temporary_folder.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

namespace pw {
namespace {

constexpr const char* kLayers = R"(
workload: {model: mlp, image_size: 32}
cluster: {hosts: 2, devices_per_host: 2, memory: 1 GB, compute: 10 GFLOP/s, memory_bandwidth: 10 GB/s,
  inside: {bandwidth: 1 GB/s, latency: 1 us}, between: {bandwidth: 0.5 GB/s, latency: 2 us, adapters: 2}}
pipeline: {schedule: 1f1b, replicas: [2, 2], micro_batches: 8, micro_batch_size: 2}
training: {optimizer: adamw}
)";
constexpr const char* kUniformConfig = R"(
workload: {model: uniform, stages: 4, forward: 10 us, backward_input: 10 us, backward_weight: 10 us, activation: 1 MB,
  output: 10 kB, weights: 1 MB}
cluster: {hosts: 2, devices_per_host: 2, memory: 1 GB, inside: {bandwidth: 1 GB/s, latency: 1 us},
  between: {bandwidth: 0.5 GB/s, latency: 2 us}}
pipeline: {schedule: 1f1b, micro_batches: 8}
)";
constexpr const char* kFile = R"(
workload: {model: layers.yaml}
cluster: {hosts: 2, devices_per_host: 2, memory: 1 GB, inside: {bandwidth: 1 GB/s, latency: 1 us},
  between: {bandwidth: 0.5 GB/s, latency: 2 us}}
pipeline: {schedule: 1f1b, micro_batches: 8}
)";
constexpr const char* kTransformer = R"(
workload: {model: llama-3.2-1b, sequence_length: 2048}
cluster: {hosts: 2, devices_per_host: 4, device: h100-sxm-80, memory: 80 GB, inside: nvlink4, between: hdr200}
parallel: {tensor: 2, pipeline: 2, zero: 1}
pipeline: {schedule: 1f1b, mini_batch: 16, micro_batch_size: 1}
training: {precision: bf16, optimizer: adamw}
)";
constexpr const char* kLayerFile = R"(layers:
  - {name: a, forward: 10 us, backward: 20 us, weights: 1 MB, output: 10 kB}
  - {name: b, forward: 10 us, backward: 20 us, weights: 1 MB, output: 10 kB}
  - {name: c, forward: 10 us, backward: 20 us, weights: 1 MB, output: 10 kB}
  - {name: d, forward: 10 us, backward: 20 us, weights: 1 MB, output: 10 kB}
  - {name: e, forward: 10 us, backward: 20 us, weights: 1 MB, output: 10 kB}
)";

// What a loaded config predicts, or why it is refused.
struct Answer {
    std::string numbers;            // the JSON of `simulate`, without names
    std::string yaml;               // the effective config
    std::vector<std::string> said;  // errors and notes
};

Answer answer_of(const TemporaryFolder& folder, const std::vector<std::string>& set) {
    try {
        Notices notices;
        Config config = load_config((folder.path() / "cfg.yaml").string(), set);
        const Job job = make_job(std::move(config), notices);
        Json json = to_json(predicted_report(job, false), job);
        Answer answer{json.dump(), job.setup.yaml, notices};
        for (const IdleKey& key : idle_keys(job.setup, job.plan))
            answer.said.push_back(print(key));
        for (std::string& note : notes_on_costs(job))
            answer.said.push_back(std::move(note));
        return answer;
    } catch (const Error& error) {
        return {"", "", {error.what()}};
    }
}

bool names(const std::vector<std::string>& said, const std::string& key) {
    return std::ranges::any_of(said, [&](const std::string& text) { return contains(text, key); });
}

// "4 + cluster.hosts=1" is a value and other keys, which the value needs.
struct Change {
    std::string value;
    std::vector<std::string> with;
};
Change change_of(const std::string& text) {
    std::vector<std::string> parts;
    for (std::size_t from = 0; from != std::string::npos;) {
        const std::size_t plus = text.find(" + ", from);
        parts.push_back(text.substr(from, plus == std::string::npos ? plus : plus - from));
        from = plus == std::string::npos ? plus : plus + 3;
    }
    return {parts.front(), {parts.begin() + 1, parts.end()}};
}

// Values of keys that have no list of values in their row, and values that are legal next to the others.
const std::map<std::string, std::vector<std::string>>& values_by_key() {
    static const std::map<std::string, std::vector<std::string>> values = {
        {"workload.model", {"resnet50", "gpt", "llama-3.2-3b"}},
        {"workload.hidden", {"[32, 32, 32]"}},
        {"workload.image_size", {"64"}},
        {"workload.forward", {"20 us"}},
        {"workload.backward_input", {"20 us"}},
        {"workload.backward_weight", {"20 us"}},
        {"workload.overlapped_forward_backward", {"25 us"}},
        {"workload.activation", {"2 MB"}},
        {"workload.activation_until_weight", {"2 kB", "2 MB + pipeline.schedule=zb-h1"}},
        {"workload.output", {"2 MB"}},
        {"workload.weights", {"2 MB"}},
        {"workload.frozen", {"[fc1]", "[a]", "[0]", "[block.0]"}},
        {"workload.encoder", {"{tokens: 64, hidden: 256, layers: 2, heads: 16, inner: 512, inputs: 588}"}},
        {"workload.lora", {"{rank: 8}"}},
        {"cluster.devices", {"[{host: a}, {host: a}, {host: a}, {host: b}]", "4"}},
        {"cluster.hosts", {"4", "1 + cluster.devices_per_host=4"}},
        {"cluster.devices_per_host", {"8", "4 + cluster.hosts=1", "1 + cluster.hosts=4"}},
        {"cluster.link", {"{bandwidth: 1 MB/s}"}},
        {"cluster.inside", {"{bandwidth: 1 MB/s}"}},
        {"cluster.host_link", {"{bandwidth: 1 MB/s}", "{bandwidth: 1 MB/s} + pipeline.offload=all"}},
        {"cluster.between", {"{bandwidth: 1 MB/s, latency: 1 ms}"}},
        {"cluster.links", {"[{from: 0, to: 1, bandwidth: 1 MB/s}]"}},
        {"cluster.shared", {"[{devices: [0, 1], bandwidth: 1 MB/s}]"}},
        {"cluster.switches", {"[{hosts: [host 0], bandwidth: 1 MB/s}]"}},
        {"cluster.device", {"a100-sxm-40", "a100-sxm-80"}},
        {"cluster.dispatcher", {"per host", "per host + cluster.dispatch=1 ms"}},
        {"cluster.domain", {"8"}},
        {"parallel.tensor", {"2", "[2, 1]", "4"}},
        {"parallel.context", {"2", "[2, 1]", "4"}},
        {"parallel.zero", {"1", "3", "[1, 0]"}},
        {"parallel.expert_load", {"1.5", "{skew: 1}"}},
        {"parallel.recompute", {"full", "mlp"}},
        {"parallel.overlap", {"[]"}},
        {"pipeline.schedule", {"gpipe"}},
        {"pipeline.split", {"[fc2]", "[block.3]", "[b, c, d]", "even"}},
        {"pipeline.cuts", {"blocks", "blocks + workload.model=resnet50"}},
        {"pipeline.micro_batch_lengths", {"[1, 2, 1, 1, 1, 1, 1, 1]", "[2, 1, 1, 1, 1, 1, 1, 1]", "[1, 2, 1, 1]"}},
        {"pipeline.replicas", {"[3, 1]", "[1, 3]", "2"}},
        {"pipeline.micro_batches", {"3", "2 + pipeline.mini_batch="}},
        {"pipeline.rules", {"mindspore", "mindspore + pipeline.micro_batches=1"}},
        {"pipeline.recompute", {"all"}},
        {"pipeline.recompute_layers", {"[fc1]", "[a]"}},
        {"pipeline.recompute_ahead", {"1"}},
        {"pipeline.offload", {"all", "all + cluster.host_link={bandwidth: 1 MB/s}"}},
        {"pipeline.offload_states", {"all", "all + cluster.host_link={bandwidth: 1 MB/s}"}},
        {"pipeline.offload_layers", {"[fc1]", "[a]"}},
        {"pipeline.offload_share", {"0.5"}},
        {"training.betas", {"[0.8, 0.9]"}},
        {"transfer.protocol",
         {"rendezvous", "rendezvous + transfer.receive=deferred", "eager + transfer.receive=deferred"}},
    };
    return values;
}

std::vector<std::string> usual_values(const KeyDomain& domain) {
    std::vector<std::string> values;
    switch (domain.kind) {
        case KeyKind::Integer:
            for (const std::int64_t value : {1, 2, 3, 4, 8, 16, 64, 128, 1000})
                if (value >= domain.least && value <= domain.most)
                    values.push_back(std::to_string(value));
            return values;
        case KeyKind::Integers:
            return {fmt::format("[{}]", std::max<std::int64_t>(domain.least, 2))};
        case KeyKind::Number:
            for (const double value : {0.0, 0.25, 0.5, 1.0, 3.0})
                if (value >= domain.lowest && value <= domain.highest)
                    values.push_back(fmt::format("{}", value));
            return values;
        case KeyKind::Numbers:
            return {fmt::format("[{}]", domain.highest)};
        case KeyKind::Time:
            return {"30 us", "5 ms"};
        case KeyKind::Size:
            return {"1 kB", "512 MB", "64 GB"};
        case KeyKind::Bandwidth:
            return {"5 GB/s"};
        case KeyKind::Rate:
            return {"5 GFLOP/s"};
        case KeyKind::Choice:
            for (const std::string_view name : domain.names())
                values.emplace_back(name);
            return values;
        case KeyKind::Flag:
            return {"true", "false"};
        case KeyKind::Text:
        case KeyKind::Path:
            return {"nowhere"};
        case KeyKind::Special:
            return {"1"};
    }
    return values;
}

std::vector<std::string> values_of(const std::string& key, const KeyDomain& domain) {
    const auto known = values_by_key().find(key);
    return known == values_by_key().end() ? usual_values(domain) : known->second;
}

struct Workload {
    const char *name, *config;
};
void PrintTo(const Workload& workload, std::ostream* out) { *out << workload.name; }

class EveryKey : public testing::TestWithParam<Workload> {
protected:
    void SetUp() override {
        folder_.write("layers.yaml", kLayerFile);
        folder_.write("cfg.yaml", GetParam().config);
        base_ = answer_of(folder_, {});
        ASSERT_NE(base_.numbers, "") << base_.said.front();
    }

    // Returns whether a value of the key changes the prediction, or a message names the key; a value that does both
    // fails.
    bool has_effect_or_message(const std::string& key, const KeyDomain& domain) const {
        bool found = false;
        for (const std::string& text : values_of(key, domain)) {
            const Change change = change_of(text);
            const Answer before = change.with.empty() ? base_ : answer_of(folder_, change.with);
            std::vector<std::string> set = change.with;
            set.push_back(key + '=' + change.value);
            const Answer after = answer_of(folder_, set);
            const bool is_idle = names(after.said, key + " has no effect");
            const bool changes = !after.numbers.empty() && after.numbers != before.numbers;
            EXPECT_FALSE(changes && is_idle && !before.numbers.empty())
                << set.back() << ": " << fmt::format("{}", fmt::join(after.said, "\n"));
            // "model: gpt" names the key with its value
            const std::string with_value = fmt::format("{}: {}", key.substr(key.find('.') + 1), change.value);
            const bool is_refused = after.numbers.empty() && (names(after.said, key) || names(after.said, with_value) ||
                                                              names(after.said, "not to " + change.value));
            const bool is_noted = names(after.said, key) && !names(before.said, key);
            found = found || changes || is_idle || is_refused || is_noted;
        }
        return found;
    }

    TemporaryFolder folder_;
    Answer base_;
};

}  // namespace

TEST_P(EveryKey, ChangesThePredictionOrIsNamed) {
    for (const ConfigBlock& block : config_blocks())
        for (const ConfigKey& key : block.keys) {
            const std::string path = fmt::format("{}.{}", block.name, key.name);
            if (block.reader_of(key) == KeyReader::All)
                EXPECT_TRUE(has_effect_or_message(path, key.value.domain))
                    << path << " changes nothing, and nothing says so";
        }
}

TEST_P(EveryKey, OfRunsOrSearchesChangesNoPrediction) {
    for (const ConfigBlock& block : config_blocks())
        for (const ConfigKey& key : block.keys) {
            const std::string path = fmt::format("{}.{}", block.name, key.name);
            if (block.reader_of(key) == KeyReader::All)
                continue;
            for (const std::string& value : values_of(path, key.value.domain))
                if (const Answer answer = answer_of(folder_, {path + '=' + value}); !answer.numbers.empty())
                    EXPECT_TRUE(answer.numbers == base_.numbers) << path << '=' << value << " changes the prediction";
        }
}

INSTANTIATE_TEST_SUITE_P(Workloads, EveryKey,
                         testing::Values(Workload{"layers", kLayers}, Workload{"uniform", kUniformConfig},
                                         Workload{"file", kFile}, Workload{"transformer", kTransformer}),
                         [](const auto& param) { return std::string(param.param.name); });

}  // namespace pw
