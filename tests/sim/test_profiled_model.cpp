// Models from files: how they are read, planned and simulated, and which files are refused.
#include "job/build.h"
#include "job/config/config.h"
#include "job/job.h"
#include "job/load.h"
#include "schedules/orders/schedule.h"
#include "sim/simulate.h"
#include "tests/support/public_data.h"
#include "tests/support/refusal.h"
#include "tests/support/temporary_folder.h"
#include "workloads/costs/profiled_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

namespace pw {
namespace {

using Cuts = std::vector<int>;

// A diamond after a data source, with a sink that no node reads; the order of lines does not matter.
constexpr const char* kGraph =
    "node10 -- Add(1, 2) -- forward_compute_time=1.000, backward_compute_time=0.000, activation_size=100.0, "
    "parameter_size=0.000\n"
    "node1 -- Input0 -- forward_compute_time=600.5, backward_compute_time=1.0, activation_size=9.0, "
    "parameter_size=0.000\n"
    "node2 -- Linear(in=3, out=4) -- forward_compute_time=2.5, backward_compute_time=3.000001, "
    "activation_size=[64.0; 32.0], parameter_size=48.000\n"
    "node4 -- LSTM -- forward_compute_time=0.5, backward_compute_time=0.25, activation_size=10.0, "
    "parameter_size=0.000 -- stage_id=3\n"
    "node3 -- __getitem__(1) -- forward_compute_time=7.0, backward_compute_time=0.0, activation_size=64.0, "
    "parameter_size=0.000\n"
    "\tnode1 -- node2\n\tnode2 -- node10\n\tnode4 -- node10\n\tnode2 -- node4\n\tnode2 -- node3";

ProfiledModel read_text(const std::string& name, const std::string& text, int samples = 8) {
    const TemporaryFolder folder;
    return read_profiled_model(folder.write(name, text), {.samples = samples});
}

std::vector<std::string> names_of(const ProfiledModel& read) {
    std::vector<std::string> names;
    for (const LayerProfile& layer : read.profile.layers)
        names.push_back(layer.name);
    return names;
}

const LayerTimes& times_of(const ProfiledModel& read, const std::string& name, int samples = 8) {
    return read.profile.layers.at(static_cast<std::size_t>(find_layer(read.model.layers, name))).times.at(samples);
}

const LayerBytes& bytes_of(const ProfiledModel& read, const std::string& name, int samples = 8) {
    return read.profile.layers.at(static_cast<std::size_t>(find_layer(read.model.layers, name))).bytes.at(samples);
}

TEST(GraphTxt, ReadsNodesInForwardOrder) {
    const ProfiledModel read = read_text("small.graph.txt", kGraph);
    EXPECT_EQ(read.model.name, "small");
    EXPECT_EQ(names_of(read), (std::vector<std::string>{"node1", "node2", "node4", "node10"}));
    EXPECT_EQ(inputs_of_layer(read.model.layers, 3), (std::vector<int>{1, 2}));
    EXPECT_EQ(times_of(read, "node1").forward.median, 0) << "loading data is no work of a stage";
    EXPECT_EQ(bytes_of(read, "node1").output, 0);
    EXPECT_EQ(times_of(read, "node2").forward.median, 2'500'000);
    EXPECT_EQ(times_of(read, "node2").backward_input.median, 1'500'001);
    EXPECT_EQ(times_of(read, "node2").backward_weight.median, 1'500'000);
    EXPECT_EQ(times_of(read, "node4").backward_weight.median, 0) << "no weights";
    EXPECT_EQ(bytes_of(read, "node2").output, 96);
    EXPECT_EQ(bytes_of(read, "node2").weights, 48);
}

TEST(GraphTxt, TakesLinesOfWindows) {
    std::string text = kGraph;
    for (std::size_t at = 0; (at = text.find('\n', at)) != text.npos; at += 2)
        text.insert(at, "\r");
    EXPECT_EQ(read_text("a.txt", text).profile, read_text("a.txt", kGraph).profile);
}

struct PublicProfile {
    const char* name;
    int layers;  // without unread sinks
    double forward, backward, weights;
};
void PrintTo(const PublicProfile& profile, std::ostream* out) { *out << profile.name; }
class PublicProfiles : public testing::TestWithParam<PublicProfile> {};
TEST_P(PublicProfiles, AddUp) {
    PIPEWRIGHT_NEED_DATA(path, fmt::format("pipedream-profiles/{}.graph.txt", GetParam().name));
    const ProfiledModel read = read_profiled_model(path, {});
    double forward = 0, backward = 0, weights = 0;
    for (const LayerProfile& layer : read.profile.layers) {
        forward += static_cast<double>(layer.times.at(1).forward.median) / 1e6;
        backward += static_cast<double>(layer.times.at(1).backward.median) / 1e6;
        weights += static_cast<double>(layer.bytes.at(1).weights);
    }
    EXPECT_EQ(read.profile.layers.size(), static_cast<std::size_t>(GetParam().layers));
    EXPECT_NEAR(forward, GetParam().forward, 1e-9);
    EXPECT_NEAR(backward, GetParam().backward, 1e-9);
    EXPECT_NEAR(weights / GetParam().weights, 1, 1e-3);
}
INSTANTIATE_TEST_SUITE_P(Models, PublicProfiles,
                         testing::Values(PublicProfile{"alexnet", 23, 44.801, 40.520, 2.444e8},
                                         PublicProfile{"vgg16", 41, 233.902, 438.633, 5.534e8},
                                         PublicProfile{"resnet18", 71, 107.446, 152.296, 4.676e7},
                                         PublicProfile{"resnet50", 177, 182.488, 260.931, 1.022e8},
                                         PublicProfile{"resnet101", 347, 197.306, 213.786, 1.782e8},
                                         PublicProfile{"resnext50", 177, 221.803, 368.990, 1.001e8},
                                         PublicProfile{"resnext101", 347, 239.122, 318.310, 1.767e8},
                                         PublicProfile{"squeezenet1_0", 68, 113.247, 172.119, 4.994e6},
                                         PublicProfile{"densenet121", 429, 177.404, 148.751, 3.192e7},
                                         PublicProfile{"inception_v3", 326, 289.269, 399.769, 1.086e8},
                                         PublicProfile{"nasnetamobile", 921, 322.921, 261.363, 3.434e7},
                                         PublicProfile{"nasnetalarge", 1251, 409.087, 249.210, 3.690e8},
                                         PublicProfile{"gnmt", 40, 33.533, 55.883, 7.751e8},
                                         PublicProfile{"gnmt_large", 80, 182.563, 337.890, 1.111e9}));

// The exact bottlenecks of public profiles in microseconds, and other cuts that reach them.
struct Bottleneck {
    const char* name;
    int stages;
    Ns microseconds;
    Cuts others;
};
void PrintTo(const Bottleneck& bottleneck, std::ostream* out) {
    *out << fmt::format("{} in {}", bottleneck.name, bottleneck.stages);
}
class PublicBottlenecks : public testing::TestWithParam<Bottleneck> {};
TEST_P(PublicBottlenecks, AreFound) {
    PIPEWRIGHT_NEED_DATA(path, fmt::format("pipedream-profiles/{}.graph.txt", GetParam().name));
    const ProfiledModel read = read_profiled_model(path, {});
    const std::vector<Ns> time = layer_times(read.model.layers, read.profile, 1);
    const auto sum = [&](int from, int to) { return std::accumulate(time.begin() + from, time.begin() + to, Ns{0}); };
    const auto longest = [&](Cuts cuts) {
        Ns most = 0;
        cuts.push_back(static_cast<int>(time.size()));
        for (std::size_t stage = 0; stage < cuts.size(); ++stage)
            most = std::max(most, sum(stage == 0 ? 0 : cuts[stage - 1], cuts[stage]));
        return most;
    };
    const StageSplit split = split_bottleneck(read.model.layers, GetParam().stages, time);
    Cuts found;
    for (int stage = 1; stage < split.stages(); ++stage)
        found.push_back(split.layers[stage].front());
    EXPECT_EQ(longest(found), GetParam().microseconds * 1000);
    if (GetParam().others.empty())
        return;
    EXPECT_EQ(longest(GetParam().others), GetParam().microseconds * 1000);
    for (std::size_t cut = 0; cut < found.size(); ++cut)
        EXPECT_LE(found[cut], GetParam().others[cut]) << "cuts come as early as they can";
}
INSTANTIATE_TEST_SUITE_P(
    Models, PublicBottlenecks,
    testing::Values(
        Bottleneck{"vgg16", 4, 216'450, {4, 13, 25}}, Bottleneck{"vgg16", 8, 159'531, {}},
        Bottleneck{"alexnet", 4, 28'721, {2, 9, 20}}, Bottleneck{"resnet50", 4, 111'497, {30, 68, 118}},
        Bottleneck{"resnet50", 8, 58'447, {13, 30, 44, 69, 88, 124, 149}},
        Bottleneck{"resnet50", 16, 29'688, {6, 14, 23, 30, 37, 44, 55, 69, 80, 88, 106, 124, 141, 149, 163}},
        Bottleneck{"resnet101", 4, 103'941, {55, 146, 254}},
        Bottleneck{"resnet101", 8, 52'125, {26, 55, 92, 147, 201, 254, 307}},
        Bottleneck{"resnet101", 16, 26'371, {12, 26, 38, 54, 76, 92, 120, 147, 174, 201, 227, 254, 281, 307, 320}},
        Bottleneck{"densenet121", 4, 81'985, {42, 122, 258}},
        Bottleneck{"densenet121", 8, 41'615, {21, 42, 77, 121, 178, 258, 322}},
        Bottleneck{"densenet121", 16, 21'165, {10, 22, 33, 42, 50, 79, 102, 122, 140, 182, 223, 260, 295, 327, 382}},
        Bottleneck{"gnmt", 4, 25'868, {}}, Bottleneck{"gnmt", 8, 19'032, {}}, Bottleneck{"gnmt_large", 4, 137'129, {}},
        Bottleneck{"gnmt_large", 8, 82'845, {}}, Bottleneck{"gnmt_large", 16, 76'825, {}}));

constexpr const char* kLayers = R"(samples: 4
layers:
  - {name: conv, forward: 3 ms, backward: 5 ms, output: 12 MB, weights: 3 MB}
  - {name: norm, forward: {1: 1 ms, 4: 3 ms}, backward_input: {1: 1 ms, 4: 2 ms}, output: 12 MB, saved: 1 kB}
  - {name: add, inputs: [conv, norm], forward: 10 us, backward: 20 us, output: 12 MB}
  - {name: other, inputs: []}
)";

TEST(LayerYaml, ReadsEveryKey) {
    const ProfiledModel read = read_text("net.yaml", kLayers);
    EXPECT_EQ(read.model.name, "net");
    EXPECT_EQ(names_of(read), (std::vector<std::string>{"conv", "norm", "add", "other"}));
    EXPECT_EQ(inputs_of_layer(read.model.layers, 1), Cuts{0});
    EXPECT_EQ(inputs_of_layer(read.model.layers, 2), (Cuts{0, 1}));
    EXPECT_TRUE(inputs_of_layer(read.model.layers, 3).empty());
    EXPECT_EQ(times_of(read, "conv", 4).backward_weight.median, 2'500'000);
    EXPECT_EQ(times_of(read, "norm", 1).backward.median, 1'000'000);
    EXPECT_EQ(times_of(read, "norm", 4).forward.median, 3'000'000);
    EXPECT_EQ(times_of(read, "add", 4).backward_input.median, 20'000);
    EXPECT_EQ(bytes_of(read, "norm", 4).saved_until_input, 1000);
    EXPECT_EQ(layer_times(read.model.layers, read.profile, 2), (std::vector<Ns>{4'000'000, 3'000'000, 15'000, 0}));
}

// The numbers of a file that does not say it are for `search.profile_batch` samples, and PipeDream's need it.
TEST(ModelFile, ScalesToMicroBatches) {
    const TemporaryFolder folder;
    folder.write("small.graph.txt", kGraph);
    const std::string path = folder.write(
        "cfg.yaml", "{workload: {model: small.graph.txt}, pipeline: {micro_batches: 4, micro_batch_size: 2}}");
    const auto costs = [&](const std::vector<std::string>& set) {
        const Config config = load_config(path, set);
        EXPECT_EQ(config.workload.model, (folder.path() / "small.graph.txt").string());
        const Model model = build_model(config);
        const Profile profile = profile_of(config, model);
        return costs_of(model, make_split(config, model, profile), profile, config.pipeline.micro_batch_size);
    };
    expect_says(refusal([&] { costs({}); }), {"cfg.yaml:1:20", "how many samples", "search.profile_batch"});
    EXPECT_EQ(costs({"search.profile_batch=8"}).stage[0].forward, 1'000'000);
    EXPECT_EQ(costs({"search.profile_batch=2"}).stage[0].forward, 4'000'000);
    EXPECT_FALSE(costs({"search.profile_batch=2"}).interpolated);
}

// The end of a simulated run of 4 micro-batches of 2 on two devices.
Ns simulated_end(const Config& config) {
    Notices notices;
    const Job job = make_job(config, notices);
    const Trace trace = simulate(job.plan, job.costs, job.mode);
    Ns end = 0;
    for (const TraceEvent& event : trace.events)
        end = std::max(end, event.end);
    return end;
}

TEST(ModelFile, IsSimulatedWithEverySchedule) {
    const TemporaryFolder folder;
    folder.write("net.yaml", kLayers);
    folder.write("small.graph.txt", kGraph);
    for (const Schedule& schedule : schedules())
        for (const char* file : {"net.yaml", "small.graph.txt"}) {
            const std::string text = fmt::format(
                "{{workload: {{model: {}}}, cluster: {{devices: 2}}, pipeline: {{schedule: {}, micro_batches: 4, "
                "micro_batch_size: 2}}, search: {{profile_batch: 8}}}}",
                file, schedule.name);
            const Config config = load_config(folder.write("cfg.yaml", text), {});
            EXPECT_GT(simulated_end(config), 2'000'000) << text;
        }
}

TEST(ModelFile, IsRefusedWhereItCannotServe) {
    const TemporaryFolder folder;
    folder.write("small.graph.txt", kGraph);
    const auto load = [&](const std::string& text) { return load_config(folder.write("cfg.yaml", text), {}); };
    folder.write("op.json", R"({"nodes": []})");
    const Config instance = load("workload: {model: op.json}");
    EXPECT_EQ(instance.workload.model, (folder.path() / "op.json").string());
    expect_says(refusal([&] { build_model(instance); }), {"only `search` takes", "cfg.yaml:1:19", "help: "});
    expect_says(refusal([&] { build_model(load("workload: {model: no.yaml}")); }), {"no.yaml", "cfg.yaml:1:19"});
    const Config both = load("workload: {model: small.graph.txt}\ncluster: {profile: p.yaml}");
    expect_says(refusal([&] { profile_of(both, build_model(both)); }), {"has its own", "cfg.yaml:2:20"});
}

struct Malformed {
    const char *text, *place, *fact;
};
void PrintTo(const Malformed& malformed, std::ostream* out) { *out << malformed.fact; }
class MalformedGraph : public testing::TestWithParam<Malformed> {};
TEST_P(MalformedGraph, IsRefusedWithItsLine) {
    const std::string message = refusal([&] { read_text("a.graph.txt", GetParam().text); });
    expect_says(message, {std::string("a.graph.txt") + GetParam().place, GetParam().fact, "help: "});
}
#define NODE(number) \
    "node" number " -- x -- forward_compute_time=1, backward_compute_time=1, activation_size=1, parameter_size=1\n"
INSTANTIATE_TEST_SUITE_P(
    Cases, MalformedGraph,
    testing::Values(Malformed{"", ":1:1", "no nodes"}, Malformed{"\n\n", ":1:1", "no nodes"},
                    Malformed{"hello\n", ":1:1", "'node' is missing"},
                    Malformed{"nodeA -- x -- ", ":1:5", "node and a number"},
                    Malformed{"node01 -- x -- ", ":1:5", "node and a number"},
                    Malformed{"node1 -- x, 3\n", ":1:10", "forward_compute_time=' is missing"},
                    Malformed{"node1 -- x -- forward_compute_time=abc", ":1:36", "no number"},
                    Malformed{"node1 -- x -- forward_compute_time=nan", ":1:36", "no number"},
                    Malformed{"node1 -- x -- forward_compute_time=-1", ":1:36", "out of range"},
                    Malformed{"node1 -- x -- forward_compute_time=99999999999999", ":1:36", "out of range"},
                    Malformed{"node1 -- x -- forward_compute_time=1 backward", ":1:37", "backward_compute_time"},
                    Malformed{NODE("1") NODE("2") NODE("1"), ":3:1", "node1 is listed twice"},
                    Malformed{NODE("1") "\tnode1 -- node7\n", ":2:2", "no node7"},
                    Malformed{NODE("1") "\tnode1 node7\n", ":2:7", "' -- ' is missing"},
                    Malformed{NODE("1") NODE("2") "\tnode1 -- node2\n\tnode1 -- node2\n", ":4:2", "twice"},
                    Malformed{NODE("1") "\tnode1 -- node1\n", ":1:1", "cycle"},
                    Malformed{NODE("1") NODE("2") NODE("3") "\tnode2 -- node3\n\tnode3 -- node2\n", ":2:1", "cycle"},
                    Malformed{"node1 -- __getitem__(0) -- forward_compute_time=1, backward_compute_time=1, "
                              "activation_size=1, parameter_size=1",
                              ":1:1", "no layers but sinks"}));

class MalformedLayers : public testing::TestWithParam<Malformed> {};
TEST_P(MalformedLayers, IsRefusedWithItsPlace) {
    const std::string message = refusal([&] { read_text("a.yaml", GetParam().text); });
    expect_says(message, {std::string("a.yaml") + GetParam().place, GetParam().fact, "help: "});
}
INSTANTIATE_TEST_SUITE_P(
    Cases, MalformedLayers,
    testing::Values(Malformed{"", ":1:1", "lists no layers"}, Malformed{"layers: []", ":1:1", "lists no layers"},
                    Malformed{"workload: {model: mlp}", ":1:11", "this is a configuration"},
                    Malformed{"layer: []", ":1:1", "unknown key 'layer'"},
                    Malformed{"layers: [{forward: 1 ms}]", ":1:10", "has no name"},
                    Malformed{"layers: [{name: a}, {name: a}]", ":1:28", "two layers are called 'a'"},
                    Malformed{"layers: [{name: a, inputs: [b]}, {name: b}]", ":1:29", "no layer above"},
                    Malformed{"layers: [{name: a}, {name: b, inputs: [a, a]}]", ":1:43", "read twice"},
                    Malformed{"layers: [{name: a, forward: 1}]", ":1:29", "without a unit"},
                    Malformed{"layers: [{name: a, forward: {x: 1 ms}}]", ":1:33", "numbers of samples"},
                    Malformed{"layers: [{name: a, forward: {}}]", ":1:29", "is empty"},
                    Malformed{"layers: [{name: a, forward: {1: 1 ms, 2: 1 ms}, backward: {1: 1 ms}}]", ":1:59",
                              "other numbers of samples"},
                    Malformed{"layers: [{name: a, backward: 1 ms, backward_input: 1 ms}]", ":1:52", "is a part of"},
                    Malformed{"layers: [{name: a, output: inf}]", ":1:28", "'layers[0].output' is"},
                    Malformed{"layers: [{name: a, forward: 2000 s}]", ":1:29", "at most"},
                    Malformed{"samples: 0\nlayers: [{name: a}]", ":1:10", "'samples' is 0"}));

// A truncated or changed file gives an answer or a refusal with a place.
TEST(ModelFile, SurvivesDamage) {
    const TemporaryFolder folder;
    constexpr const char* kTable = "name, forward (ms), backward [us], weights\na, 3, 600, 1 MB\nb,1,,\n";
    constexpr const char* kMetis = R"({"model": {"parameters": {"parameters_per_layer_bytes": [64, 0]}},
        "execution_time": {"layer_compute_total_ms": [0.3, 29.5]}})";
    constexpr const char* kGalvatron = R"({"layertype_0_bsz1_seq64": 2.5, "layertype_other_bsz1_seq64": 1.0,
        "layertype_0": {"64": {"parameter_size": 4, "tp_activation_per_bsz_dict": {"1": 3}}},
        "other_memory_pp_on_first": {"64": {"model_states": {"1": 8}, "activation": {"1": 0.5}}},
        "other_memory_pp_on_last": {"64": {"model_states": {"1": 8}, "activation": {"1": 2}}}})";
    for (const auto& [name, whole] : {std::pair<const char*, std::string>{"a.graph.txt", kGraph},
                                      {"a.yaml", kLayers},
                                      {"a.csv", kTable},
                                      {"a_bs2.json", kMetis},
                                      {"a_bf16.json", kGalvatron}})
        for (std::size_t at = 0; at < whole.size(); at += 2)
            for (const char change : {'\0', ' ', '9', '-', '\n', ':'}) {
                std::string text = change == '\0' ? whole.substr(0, at) : whole;
                if (change != '\0')
                    text[at] = change;
                try {
                    const std::string path = folder.write(name, text);
                    const FileModelOptions options{.samples = 8, .blocks = 2, .memory_profile = path};
                    EXPECT_FALSE(read_profiled_model(path, options).profile.layers.empty());
                } catch (const Error& error) {
                    EXPECT_EQ(error.code(), ExitCode::BadInput);
                    const bool has_no_form = contains(error.what(), "none of the forms");
                    EXPECT_TRUE(has_no_form || contains(error.what(), " --> ")) << error.what();
                }
            }
}

}  // namespace
}  // namespace pw
