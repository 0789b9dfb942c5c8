// The file of a profile: YAML, so that people can read, compare and edit the measurements.
#include "workloads/cluster/link_yaml.h"
#include "workloads/costs/costs.h"
#include "workloads/error.h"
#include "workloads/text/files.h"
#include "workloads/text/yaml.h"

#include <algorithm>
#include <array>
#include <set>
#include <string_view>

namespace pw {

namespace {

constexpr Ns kLongest = 3'600'000'000'000;  // an hour: beyond it a file is broken, and sums could overflow
constexpr Bytes kLargestBytes = Bytes{1} << 44;
constexpr int kMostMeasuredSamples = 1 << 16;
constexpr int kMostExtent = 1 << 20;  // channels, height, width, classes, threads
constexpr int kMostPlan = 255;

Yaml required(const Yaml& map, std::string_view key) {
    Yaml value = map[key];
    if (map.is_map() && !value.present())
        map.complain(fmt::format("'{}' is missing", value.path()), "add it, or measure the profile again");
    return value;
}

int read_count(const Yaml& value, int most) { return static_cast<int>(value.integer(1, 1, most)); }

Ns read_time(const Yaml& value) {
    const Ns time = value.time(0);
    if (time > kLongest)
        value.complain(fmt::format("'{}' is longer than an hour", value.path()), "measure the profile again");
    return time;
}

Bytes read_size(const Yaml& value) {
    const Bytes size = value.bytes(0);
    if (size > kLargestBytes)
        value.complain(fmt::format("'{}' is larger than 16 TiB", value.path()), "measure the profile again");
    else if (size != aligned(size))
        value.complain(fmt::format("'{}' is {} B, which is no multiple of {}", value.path(), size, kAlignment),
                       fmt::format("write {} B", aligned(size)));
    return size;
}

Measured read_measured(const Yaml& map) {
    map.allow({"median", "spread"});
    return {read_time(required(map, "median")), read_time(map["spread"])};
}

LayerTimes read_times(const Yaml& map) {
    map.allow({"samples", "forward", "backward_input", "backward_weight", "backward", "accumulate", "recompute"});
    LayerTimes times;
    times.forward = read_measured(required(map, "forward"));
    times.backward_input = read_measured(required(map, "backward_input"));
    times.backward_weight = read_measured(required(map, "backward_weight"));
    if (map["backward"].present())
        times.backward = read_measured(map["backward"]);
    if (map["accumulate"].present())
        times.accumulate = read_measured(map["accumulate"]);
    if (map["recompute"].present())
        times.recompute = read_measured(map["recompute"]);
    return times;
}

LayerBytes read_bytes(const Yaml& map) {
    map.allow(
        {"samples", "weights", "statistics", "output", "saved_until_input", "kept_until_weight", "scratch", "joins"});
    return {.weights = read_size(required(map, "weights")),
            .statistics = read_size(required(map, "statistics")),
            .output = read_size(required(map, "output")),
            .saved_until_input = read_size(required(map, "saved_until_input")),
            .kept_until_weight = read_size(required(map, "kept_until_weight")),
            .scratch = read_size(required(map, "scratch")),
            .joins = map["joins"].boolean(false)};
}

Measured read_data_time(const Yaml& map) {
    map.allow({"samples", "median", "spread"});
    return {read_time(required(map, "median")), read_time(map["spread"])};
}

Bytes read_data_bytes(const Yaml& map) {
    map.allow({"samples", "bytes"});
    return read_size(required(map, "bytes"));
}

// Reads a list of maps, each with the key `samples`, of which every value appears once.
template <class Value>
std::map<int, Value> by_size(const Yaml& list, Value (*read)(const Yaml&)) {
    std::map<int, Value> values;
    const std::vector<Yaml> items = list.items();
    if (list.is_list() && items.empty())
        list.complain(fmt::format("'{}' is empty", list.path()), "measure at least one micro-batch size");
    for (const Yaml& item : items) {
        const Yaml samples = required(item, "samples");
        const int size = read_count(samples, kMostMeasuredSamples);
        if (!values.emplace(size, read(item)).second)
            samples.complain(fmt::format("{} samples are listed twice in '{}'", size, list.path()), "keep one of them");
    }
    return values;
}

LayerProfile read_layer(const Yaml& map) {
    map.allow({"name", "update", "times", "busy", "bytes"});
    return {.name = required(map, "name").text(),
            .times = by_size(required(map, "times"), read_times),
            .busy = map["busy"].present() ? by_size(map["busy"], read_times) : std::map<int, LayerTimes>{},
            .bytes = by_size(required(map, "bytes"), read_bytes),
            .update = read_measured(required(map, "update"))};
}

std::vector<LayerProfile> read_layers(const Yaml& list) {
    std::vector<LayerProfile> layers;
    std::set<std::string> names;
    for (const Yaml& item : list.items()) {
        layers.push_back(read_layer(item));
        if (!names.insert(layers.back().name).second)
            item["name"].complain(fmt::format("layer '{}' is listed twice", layers.back().name), "keep one of them");
    }
    if (list.is_list() && layers.empty())
        list.complain("the profile has no layers", "measure it again");
    return layers;
}

Dims read_dims(const Yaml& map) {
    map.allow({"channels", "height", "width"});
    return {read_count(required(map, "channels"), kMostExtent), read_count(required(map, "height"), kMostExtent),
            read_count(required(map, "width"), kMostExtent)};
}

Link read_measured_link(const Yaml& map) {
    map.allow({"latency", "bandwidth", "half_size", "bandwidths"});
    Link link{read_time(required(map, "latency"))};
    if (!map["bandwidths"].present())
        link.bandwidth = required(map, "bandwidth").bandwidth(1);
    read_sizes(map, link);
    return link;
}

// The layout of everything else depends on the version, so this mistake is reported alone.
void check_version(const Yaml& file) {
    if (!file.is_map())
        file.complain("this is no profile", "write one with `pipewright profile`");
    const Yaml version = required(required(file, "profile"), "version");
    if (version.present() && version.text() != fmt::to_string(Profile::kVersion))
        version.complain(fmt::format("this profile has version '{}'", version.text()),
                         fmt::format("this build reads version {}; measure the profile again", Profile::kVersion));
    file.source().throw_if_mistaken();
}

Profile read_header(const Yaml& map) {
    map.allow({"version",    "model",     "backend",     "machine",
               "date",       "input",     "classes",     "threads_per_device",
               "neighbours", "dispatch",  "precision",   "optimizer",
               "cpu_share",  "reference", "link",        "between",
               "sums",       "host_link", "sent_copies", "data",
               "data_bytes"});
    Profile profile;
    profile.model = required(map, "model").text();
    profile.backend = required(map, "backend").text();
    profile.machine = map["machine"].text();
    profile.date = map["date"].text();
    profile.input = read_dims(required(map, "input"));
    profile.classes = read_count(required(map, "classes"), kMostExtent);
    profile.threads_per_device = read_count(required(map, "threads_per_device"), kMostExtent);
    profile.neighbours = static_cast<int>(map["neighbours"].integer(0, 1, kMostExtent));
    profile.precision = map["precision"].choice<Precision>();
    profile.optimizer = map["optimizer"].choice(OptimizerKind::Sgd);
    profile.cpu_share = map["cpu_share"].number(1, 0, 1);
    if (map["reference"].present())
        profile.reference = read_measured(map["reference"]);
    profile.dispatch = read_measured(required(map, "dispatch"));
    profile.link = read_measured_link(required(map, "link"));
    if (map["between"].present())
        profile.between_hosts = read_measured_link(map["between"]);
    profile.sums = map["sums"].present() ? read_measured_link(map["sums"]) : profile.link;
    if (map["host_link"].present())
        profile.host_link = read_measured_link(map["host_link"]);
    profile.sent_copies = required(map, "sent_copies").boolean(false);
    profile.data = by_size(required(map, "data"), read_data_time);
    profile.data_bytes = by_size(required(map, "data_bytes"), read_data_bytes);
    return profile;
}

ConvolutionChoice read_convolution(const Yaml& map) {
    map.allow({"pass", "samples", "channels", "height", "width", "outputs", "kernel", "stride", "padding",
               "multiprocessors", "plan"});
    const auto extent = [&](const char* key) { return read_count(required(map, key), kMostExtent); };
    return {.shape = {.pass = required(map, "pass").choice(ConvolutionPass::Forward),
                      .samples = read_count(required(map, "samples"), kMostMeasuredSamples),
                      .channels = extent("channels"),
                      .height = extent("height"),
                      .width = extent("width"),
                      .outputs = extent("outputs"),
                      .kernel = extent("kernel"),
                      .stride = extent("stride"),
                      .padding = static_cast<int>(required(map, "padding").integer(0, 0, kMostExtent)),
                      .multiprocessors = extent("multiprocessors")},
            .plan = static_cast<int>(required(map, "plan").integer(0, 0, kMostPlan))};
}

std::vector<ConvolutionChoice> read_convolutions(const Yaml& list) {
    std::vector<ConvolutionChoice> choices;
    std::set<ConvolutionShape> shapes;
    for (const Yaml& item : list.items()) {
        choices.push_back(read_convolution(item));
        if (!shapes.insert(choices.back().shape).second)
            item["pass"].complain(fmt::format("this pass of this shape is listed twice in '{}'", list.path()),
                                  "keep one of them");
    }
    return choices;
}

std::string print(const Measured& time) {
    return fmt::format("median: {}, spread: {}", exact_time(time.median), exact_time(time.spread));
}

std::string print_header(const Profile& profile) {
    std::string text = fmt::format("profile:\n  version: {}\n", Profile::kVersion);
    text += fmt::format("  model: {}\n  backend: {}\n", yaml_text(profile.model), yaml_text(profile.backend));
    text += fmt::format("  machine: {}\n  date: {}\n", yaml_text(profile.machine), yaml_text(profile.date));
    text += fmt::format("  input: {{channels: {}, height: {}, width: {}}}\n", profile.input.channels,
                        profile.input.height, profile.input.width);
    text += fmt::format("  classes: {}\n  threads_per_device: {}\n", profile.classes, profile.threads_per_device);
    if (profile.neighbours > 0)
        text += fmt::format("  neighbours: {}\n", profile.neighbours);
    if (profile.precision)
        text += fmt::format("  precision: {}\n", name_of(*profile.precision));
    if (profile.optimizer != OptimizerKind::Sgd)
        text += fmt::format("  optimizer: {}\n", name_of(profile.optimizer));
    if (profile.cpu_share < 1)
        text += fmt::format("  cpu_share: {}\n", profile.cpu_share);
    if (profile.reference.median > 0)
        text += fmt::format("  reference: {{{}}}\n", print(profile.reference));
    text += fmt::format("  dispatch: {{{}}}\n", print(profile.dispatch));
    text += fmt::format("  link: {{{}}}\n", print_link(profile.link));
    if (profile.between_hosts)
        text += fmt::format("  between: {{{}}}\n", print_link(*profile.between_hosts));
    text += fmt::format("  sums: {{{}}}\n", print_link(profile.sums));
    if (profile.host_link != Link{})
        text += fmt::format("  host_link: {{{}}}\n", print_link(profile.host_link));
    text += fmt::format("  sent_copies: {}\n  data:\n", profile.sent_copies);
    for (const auto& [samples, time] : profile.data)
        text += fmt::format("    - {{samples: {}, {}}}\n", samples, print(time));
    text += "  data_bytes:\n";
    for (const auto& [samples, size] : profile.data_bytes)
        text += fmt::format("    - {{samples: {}, bytes: {}}}\n", samples, exact_bytes(size));
    return text;
}

std::string print_convolution(const ConvolutionChoice& choice) {
    const auto& [shape, plan] = choice;
    return fmt::format(
        "  - {{pass: {}, samples: {}, channels: {}, height: {}, width: {}, outputs: {}, kernel: {}, stride: {}, "
        "padding: {}, multiprocessors: {}, plan: {}}}\n",
        name_of(shape.pass), shape.samples, shape.channels, shape.height, shape.width, shape.outputs, shape.kernel,
        shape.stride, shape.padding, shape.multiprocessors, plan);
}

std::string print_times(std::string_view key, const std::map<int, LayerTimes>& by_size) {
    std::string text = by_size.empty() ? "" : fmt::format("    {}:\n", key);
    for (const auto& [samples, times] : by_size) {
        text += fmt::format("      - samples: {}\n", samples);
        text += fmt::format("        forward: {{{}}}\n", print(times.forward));
        text += fmt::format("        backward_input: {{{}}}\n", print(times.backward_input));
        text += fmt::format("        backward_weight: {{{}}}\n", print(times.backward_weight));
        text += fmt::format("        backward: {{{}}}\n", print(times.backward));
        text += fmt::format("        accumulate: {{{}}}\n", print(times.accumulate));
        text += fmt::format("        recompute: {{{}}}\n", print(times.recompute));
    }
    return text;
}

std::string print_layer(const LayerProfile& layer) {
    std::string text = fmt::format("  - name: {}\n    update: {{{}}}\n", yaml_text(layer.name), print(layer.update));
    text += print_times("times", layer.times) + print_times("busy", layer.busy);
    text += "    bytes:\n";
    for (const auto& [samples, bytes] : layer.bytes)
        text += fmt::format(
            "      - {{samples: {}, weights: {}, statistics: {}, output: {}, saved_until_input: {}, "
            "kept_until_weight: {}, scratch: {}{}}}\n",
            samples, exact_bytes(bytes.weights), exact_bytes(bytes.statistics), exact_bytes(bytes.output),
            exact_bytes(bytes.saved_until_input), exact_bytes(bytes.kept_until_weight), exact_bytes(bytes.scratch),
            bytes.joins ? ", joins: true" : "");
    return text;
}

Profile profile_from(const Yaml& file) {
    check_version(file);
    file.allow({"profile", "convolutions", "layers"});
    Profile profile = read_header(file["profile"]);
    if (file["convolutions"].present())
        profile.convolutions = read_convolutions(file["convolutions"]);
    profile.layers = read_layers(required(file, "layers"));
    file.source().throw_if_mistaken();
    return profile;
}

}  // namespace

Profile read_profile(const std::string& path) { return profile_from(Yaml::load(path)); }

Profile profile_in(const std::string& text) {
    return profile_from(Yaml::parse(std::make_shared<Source>("the profile", text)));
}

std::string text_of(const Profile& profile) {
    std::string text = print_header(profile);
    if (!profile.convolutions.empty())
        text += "convolutions:\n";
    for (const ConvolutionChoice& choice : profile.convolutions)
        text += print_convolution(choice);
    text += "layers:\n";
    for (const LayerProfile& layer : profile.layers)
        text += print_layer(layer);
    return text;
}

void write_profile(const Profile& profile, const std::string& path) { write_file(path, text_of(profile)); }

}  // namespace pw
