// The configs of tests/recorded/.
#pragma once

#include "schedules/orders/schedule.h"

#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace pw {

struct RecordedConfig {
    std::string file;
    std::vector<std::string> set;

    std::string name() const {
        std::string name = std::filesystem::path(file).stem().string();
        for (const std::string& word : set)
            name += " " + word;
        return name;
    }
    std::string arguments(const std::string& command) const {
        std::string line = command + " '" + file + "'";
        for (const std::string& word : set)
            line += " --set '" + word + "'";
        return line;
    }
};

inline const std::map<std::string, std::string>& recorded_files() {
    static const std::map<std::string, std::string> kFiles = {
        {"uniform.yaml", R"(
workload: {model: uniform, stages: 4, forward: 1 us, backward_input: 2 us, backward_weight: 1 us, activation: 1 MB,
           activation_until_weight: 100 kB, output: 8 kB, weights: 3 MB}
cluster: {devices: 4, link: {latency: 500 ns, bandwidth: 10 GB/s}}
pipeline: {schedule: 1f1b, micro_batches: 8}
training: {steps: 3}
)"},
        {"uneven.yaml", R"(
workload: {model: uniform, stages: 8, forward: [1 us, 3 us, 2 us, 1 us, 1 us, 4 us, 1 us, 2 us], backward_input: 2 us,
           backward_weight: [1 us, 3 us, 2 us, 1 us, 1 us, 4 us, 1 us, 2 us], activation: 1 MB, output: 8 kB}
cluster: {devices: [{speed: 2, host: a}, {host: a}, {speed: 0.5, host: b}, {host: b}], link: {latency: 5 us, bandwidth: 1 GB/s}}
pipeline: {schedule: interleaved, stages: 8, micro_batches: 8}
)"},
        {"mlp.yaml", R"(
workload: {model: mlp, image_size: 6, hidden: [24, 16, 16, 12], dropout: 0.1}
cluster: {devices: 2, link: {latency: 5 us, bandwidth: 1 GB/s}}
pipeline: {schedule: 1f1b, micro_batches: 4, micro_batch_size: 3}
training: {steps: 2, learning_rate: 0.05, seed: 3}
)"},
        {"gpt.yaml", R"(
workload: {model: gpt, vocabulary: 40, sequence_length: 8, embedding: 16, blocks: 4, heads: 2, dropout: 0.1}
cluster: {devices: 2}
pipeline: {schedule: 1f1b, micro_batches: 4, micro_batch_size: 2}
training: {steps: 2, learning_rate: 0.05, seed: 3}
)"},
        {"unet.yaml", R"(
workload: {model: unet, image_size: 16, base_channels: 8, levels: 1, classes: 3}
cluster: {devices: 2}
pipeline: {schedule: 1f1b, micro_batches: 4, micro_batch_size: 1}
training: {steps: 1, seed: 3}
)"},
        {"resnet.yaml", R"(
workload: {model: resnet50, image_size: 32, classes: 10}
cluster: {devices: 2}
pipeline: {schedule: 1f1b, micro_batches: 2, micro_batch_size: 1}
training: {steps: 1, seed: 3}
)"},
        {"file.yaml", R"(
workload: {model: layers.yaml}
cluster: {devices: 2, link: {latency: 5 us, bandwidth: 1 GB/s}}
pipeline: {schedule: 1f1b, micro_batches: 4, micro_batch_size: 2}
)"},
        {"layers.yaml", R"(
samples: 4
layers:
  - {name: a, forward: 100 us, backward: 200 us, output: 64 kB, weights: 1 MB, saved: 64 kB}
  - {name: b, forward: 70 us, backward: 120 us, output: 32 kB, weights: 2 MB, saved: 128 kB}
  - {name: c, forward: 30 us, backward: 90 us, output: 32 kB, weights: 0 B, saved: 64 kB, inputs: [a]}
  - {name: d, forward: 90 us, backward: 180 us, output: 16 kB, weights: 4 MB, saved: 96 kB, inputs: [b, c]}
  - {name: e, forward: 50 us, backward: 110 us, output: 8 kB, weights: 1 MB, saved: 32 kB}
)"},
        {"profiled.yaml", R"(
workload: {model: net.graph.txt}
cluster: {devices: 2, memory: 1 GiB, link: {latency: 5 us, bandwidth: 1 GB/s}}
pipeline: {schedule: 1f1b, micro_batches: 4, micro_batch_size: 2}
search: {profile_batch: 4}
)"},
        {"instances.yaml", "workload: {model: placed.json}\nsearch: {objective: max-load}\n"},
        {"placed.json",
         R"({"maxSizePerFPGA": 10, "maxFPGAs": 2, "maxCPUs": 1, "nodes": [
            {"id": 1, "cpuLatency": 9, "fpgaLatency": 0.5, "size": 3, "isBackwardNode": false, "supportedOnFpga": 1},
            {"id": 2, "cpuLatency": 9, "fpgaLatency": 1.5, "size": 6, "isBackwardNode": false, "supportedOnFpga": 1},
            {"id": 3, "cpuLatency": 9, "fpgaLatency": 2.5, "size": 4, "isBackwardNode": false, "supportedOnFpga": 1}],
            "edges": [{"sourceId": 1, "destId": 2, "cost": 0.25}, {"sourceId": 2, "destId": 3, "cost": 0.125}]})"},
        {"piper.json",
         R"({"maxDevices": 3, "maxMemoryPerDevice": 40, "bandwidth": 3, "mbsInBatch": 4,
            "edges": [{"sourceId": 9, "destId": 1, "communicationCost": 7}], "nodes": [
            {"id": 9, "TMPCs": {"1": [{"id": "vanilla", "timePerSample": 0.5, "parameterSize": 6, "memoryUsageA": 1,
                                       "memoryUsageB": 2, "syncTimeFw": {}, "syncTimeBw": {"1": 1}}]}},
            {"id": 1, "name": "loss", "TMPCs": {
                "1": [{"id": "vanilla", "timePerSample": 0.5, "parameterSize": 6, "memoryUsageA": 1, "memoryUsageB": 2,
                       "syncTimeFw": {"9": 1}, "syncTimeBw": {}}],
                "2": [{"id": "vanilla", "timePerSample": 0.2, "parameterSize": 3, "memoryUsageA": 1, "memoryUsageB": 2,
                       "syncTimeFw": {"9": 1}, "syncTimeBw": {}}]}}]})"},
        {"net.graph.txt",
         "node1 -- Input -- forward_compute_time=0.000, backward_compute_time=0.000, activation_size=600.0, "
         "parameter_size=0.000\n"
         "node2 -- Linear(a) -- forward_compute_time=1.500, backward_compute_time=3.000, activation_size=400.0, "
         "parameter_size=4000.0\n"
         "node3 -- ReLU -- forward_compute_time=0.250, backward_compute_time=0.500, activation_size=400.0, "
         "parameter_size=0.0\n"
         "node4 -- Linear(b) -- forward_compute_time=2.500, backward_compute_time=4.000, activation_size=200.0, "
         "parameter_size=8000.0\n"
         "node5 -- Linear(c) -- forward_compute_time=1.000, backward_compute_time=2.000, activation_size=40.0, "
         "parameter_size=400.0\n"
         "\tnode1 -- node2\n\tnode2 -- node3\n\tnode3 -- node4\n\tnode4 -- node5\n"}};
    return kFiles;
}

// Adds `file` under every schedule with each of `variants`, which are settings with spaces between them.
inline void add_recorded(std::vector<RecordedConfig>& to, const std::string& file,
                         const std::vector<std::vector<std::string>>& variants) {
    for (const Schedule& schedule : schedules())
        for (const std::vector<std::string>& variant : variants) {
            to.push_back({file, {"pipeline.schedule=" + std::string(schedule.name)}});
            to.back().set.insert(to.back().set.end(), variant.begin(), variant.end());
        }
}

// Returns the configs of small models that are executed.
inline std::vector<RecordedConfig> recorded_runs() {
    std::vector<RecordedConfig> configs;
    add_recorded(configs, "mlp.yaml",
                 {{},
                  {"pipeline.recompute=all"},
                  {"run.transport=link"},
                  {"transfer.receive=deferred"},
                  {"pipeline.mini_batch=11"},
                  {"cluster.devices=3", "pipeline.replicas=[2, 1]"},
                  {"cluster.devices=3", "pipeline.replicas=[1, 2]", "pipeline.micro_batches=6"},
                  {"training.clip_norm=0.5"},
                  {"cluster.devices=3"},
                  {"training.weight_decay=0.01", "training.momentum=0.5"}});
    add_recorded(configs, "gpt.yaml", {{}, {"training.clip_norm=0.5", "pipeline.recompute=[0]"}});
    add_recorded(configs, "unet.yaml", {{}});
    for (const char* weights : {"stash", "vertical_sync", "latest", "double_buffer", "flush"})
        for (const char* prediction : {"none", "spectrain", "pipeoptim", "pipemare"})
            configs.push_back({"mlp.yaml",
                               {"pipeline.schedule=pipedream", std::string("pipeline.weights=") + weights,
                                std::string("pipeline.prediction=") + prediction}});
    for (const char* schedule : {"zb-v", "pipedream"})
        configs.push_back({"resnet.yaml", {std::string("pipeline.schedule=") + schedule}});
    return configs;
}

inline std::vector<RecordedConfig> recorded_plans() {
    std::vector<RecordedConfig> configs = recorded_runs();
    for (const char* communicator : {"edge", "direction", "one"})
        for (const char* protocol : {"eager", "rendezvous"})
            for (const char* receive : {"early", "deferred"})
                add_recorded(
                    configs, "uniform.yaml",
                    {{std::string("transfer.communicator=") + communicator,
                      std::string("transfer.protocol=") + protocol, std::string("transfer.receive=") + receive}});
    add_recorded(configs, "uneven.yaml", {{}, {"pipeline.recompute=[1, 2]"}, {"cluster.memory=6 MB"}});
    add_recorded(configs, "uniform.yaml",
                 {{"pipeline.replicas=[2, 1, 1, 2]", "pipeline.micro_batches=12", "cluster.devices=6"},
                  {"pipeline.group=2", "workload.stages=8"},
                  {"pipeline.drain=lifo"}});
    add_recorded(configs, "file.yaml",
                 {{}, {"pipeline.split=even"}, {"cluster.devices=3", "pipeline.replicas=[1, 2]"}});
    add_recorded(configs, "profiled.yaml", {{}, {"pipeline.split=[node4]", "search.profile_batch=8"}});
    add_recorded(configs, "resnet.yaml", {{}, {"cluster.devices=4", "workload.image_size=64"}});
    return configs;
}

inline std::vector<RecordedConfig> recorded_searches() {
    std::vector<RecordedConfig> configs = {
        {"instances.yaml", {"search.objective=max-load", "workload.model=placed.json"}},
        {"instances.yaml", {"search.objective=piper", "workload.model=piper.json"}}};
    for (const char* file : {"file.yaml", "profiled.yaml", "mlp.yaml", "unet.yaml"}) {
        for (const char* objective : {"makespan", "pipedream"})
            configs.push_back({file, {std::string("search.objective=") + objective}});
        configs.push_back({file, {"search.objective=pipedream", "search.straight=true", "search.p2p=free"}});
        configs.push_back({file, {"search.schedules=all", "search.recompute=auto"}});
        configs.push_back({file,
                           {"search.schedules=[gpipe, 1f1b]", "search.replicas=true", "search.stages=[1, 2]",
                            "search.micro_batch_sizes=[1, 2]", "cluster.devices=4"}});
        configs.push_back({file, {"cluster.memory=1 MB", "search.recompute=all"}});
        configs.push_back({file, {"run.transport=link"}});
    }
    return configs;
}

}  // namespace pw
