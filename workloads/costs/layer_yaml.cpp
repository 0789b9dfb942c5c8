// A layer graph in YAML:
//
//     samples: 8
//     layers:
//       - {name: conv1, forward: 3 ms, backward: 6 ms, output: 12 MB, weights: 3 MB}
//       - {name: conv2, forward: {1: 1 ms, 8: 5 ms}, backward: {1: 2 ms, 8: 9 ms}, output: 12 MB}
//       - {name: add, inputs: [conv1, conv2], forward: 100 us, output: 12 MB}
#include "workloads/costs/profiled_layers.h"
#include "workloads/error.h"
#include "workloads/models/frozen_layers.h"
#include "workloads/text/yaml.h"

#include <algorithm>
#include <charconv>
#include <iterator>
#include <utility>

namespace pw {
namespace {

constexpr std::int64_t kMostPerMicrobatch = 1'000'000;
constexpr const char* kPasses[] = {"forward", "backward", "backward_input", "backward_weight"};
using Times = std::map<int, Ns>;  // by samples

Ns read_layer_time(const Yaml& at) {
    const Ns time = read_time(at, 0);
    if (time > kLongestLayer)
        at.complain(fmt::format("'{}' is {}", at.path(), exact_time(time)),
                    fmt::format("it must be at most {}", exact_time(kLongestLayer)));
    return time;
}

Bytes read_layer_size(const Yaml& at) {
    const Bytes size = at.bytes(0);
    if (size > kLargestLayer)
        at.complain(fmt::format("'{}' is {}", at.path(), print_bytes(size)),
                    fmt::format("it must be at most {}", exact_bytes(kLargestLayer)));
    return std::min(size, kLargestLayer);
}

Times read_times(const Yaml& at, int samples) {
    if (!at.is_map())
        return {{samples, read_layer_time(at)}};
    Times times;
    for (const auto& [key, value] : at.entries()) {
        int size = 0;
        const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), size);
        if (error != std::errc() || end != key.data() + key.size() || size < 1 || size > kMostPerMicrobatch ||
            key[0] == '0')
            value.complain(fmt::format("'{}' has times by numbers of samples, and '{}' is none", at.path(), key),
                           "write one time, or {1: 1 ms, 4: 3 ms}");
        else
            times[size] = read_layer_time(value);
    }
    if (times.empty() && at.source().clean())
        at.complain(fmt::format("'{}' is empty", at.path()), "write one time, or {1: 1 ms, 4: 3 ms}");
    return times;
}

// The passes in the layer's keys, by samples. Passes that are left out take no time.
class PassReader {
public:
    PassReader(const Yaml& layer, int samples) : layer_(layer), samples_(samples) {}

    std::map<int, PassTimes> read(Bytes weights) {
        add("forward", &PassTimes::forward);
        const bool whole = layer_["backward"].present();
        for (const char* key : {"backward_input", "backward_weight"})
            if (whole && layer_[key].present())
                layer_[key].complain(fmt::format("'{}' is a part of 'backward', which is given too", key),
                                     "give backward alone, or backward_input and backward_weight");
        if (whole) {
            add("backward", &PassTimes::backward);
        } else {
            add("backward_input", &PassTimes::backward_input);
            add("backward_weight", &PassTimes::backward_weight);
        }
        if (times_.empty())
            times_[samples_] = {};
        for (auto& [size, times] : times_)
            if (whole)
                share_backward(times, weights);
            else
                times.backward = times.backward_input + times.backward_weight;
        return times_;
    }

private:
    void add(const char* key, Ns PassTimes::*pass) {
        const Yaml at = layer_[key];
        if (!at.present())
            return;
        const Times values = read_times(at, samples_);
        for (const auto& [size, time] : values)
            times_[size].*pass = time;
        if (times_.size() != values.size() || (first_ != 0 && first_ != values.size()))
            at.complain(fmt::format("'{}' is for other numbers of samples than the passes before it", at.path()),
                        "give all passes of a layer for the same numbers of samples");
        first_ = values.size();
    }

    Yaml layer_;
    int samples_;
    std::size_t first_ = 0;  // sizes of the pass before
    std::map<int, PassTimes> times_;
};

class LayerReader {
public:
    LayerReader(const std::string& path, int samples) : result_(empty_profiled_model(path)), samples_(samples) {}

    void read(const Yaml& layer) {
        layer.allow({"name", "inputs", "forward", "backward", "backward_input", "backward_weight", "output", "weights",
                     "saved", "saved_until_weight", "gradient_until_weight", "frozen", "frozen_weights", "part",
                     "attention", "forward_spread", "backward_spread"});
        const int number = static_cast<int>(numbers_.size());
        const std::string name = read_name(layer);
        const std::vector<int> inputs = read_inputs(layer["inputs"], number);
        const bool frozen = layer["frozen"].boolean(false);
        const LayerBytes bytes{.weights = read_layer_size(layer["weights"]),
                               .frozen = read_layer_size(layer["frozen_weights"]),
                               .output = read_layer_size(layer["output"]),
                               .saved_until_input = read_layer_size(layer["saved"]),
                               .kept_until_weight = read_layer_size(layer["saved_until_weight"]),
                               .gradient_until_weight = read_layer_size(layer["gradient_until_weight"])};
        std::map<int, PassTimes> times = PassReader(layer, samples_).read(bytes.weights);
        for (auto& [size, passes] : times) {
            passes.forward_spread = read_layer_time(layer["forward_spread"]);
            passes.backward_spread = read_layer_time(layer["backward_spread"]);
        }
        needs_samples_ =
            needs_samples_ || has_plain_time(layer) ||
            bytes.output + bytes.saved_until_input + bytes.kept_until_weight + bytes.gradient_until_weight > 0;
        numbers_.emplace(name, number);
        const std::optional<LayerPart> part = layer["part"].choice<LayerPart>();
        const double attention = layer["attention"].number(0, 0, 1);
        if (!layer.source().clean())
            return;
        add_profiled_layer(result_, name, inputs, times, bytes, samples_);
        Layer& made = result_.model.layers[static_cast<std::size_t>(number)];
        made.part = part;
        made.frozen = frozen;
        made.attention = attention;
    }
    ProfiledModel take() { return std::move(result_); }
    // Whether some number is for a number of samples that is not in the layer itself.
    bool needs_samples() const { return needs_samples_; }

private:
    static bool has_plain_time(const Yaml& layer) {
        return std::any_of(std::begin(kPasses), std::end(kPasses),
                           [&](const char* pass) { return layer[pass].is_text(); });
    }

    std::string read_name(const Yaml& layer) const {
        const std::string name = layer["name"].text();
        if (name.empty())
            layer.complain(fmt::format("'{}' has no name", layer.path()), "write {name: conv1, ...}");
        else if (numbers_.contains(name))
            layer["name"].complain(fmt::format("two layers are called '{}'", name), "give each its own name");
        return name.empty() ? fmt::format("{}", numbers_.size()) : name;
    }

    std::vector<int> read_inputs(const Yaml& inputs, int number) const {
        if (!inputs.present())
            return number == 0 ? std::vector<int>{} : std::vector<int>{number - 1};
        std::vector<int> result;
        for (const Yaml& input : inputs.items()) {
            const auto found = numbers_.find(input.text());
            if (found == numbers_.end())
                input.complain(fmt::format("no layer above this one is called '{}'", input.text()),
                               "layers are in forward order: name one above");
            else if (std::find(result.begin(), result.end(), found->second) != result.end())
                input.complain(fmt::format("'{}' is read twice", found->first), "name it once");
            else
                result.push_back(found->second);
        }
        return result;
    }

    ProfiledModel result_;
    int samples_;
    bool needs_samples_ = false;
    std::map<std::string, int> numbers_;
};

}  // namespace

ProfiledModel read_layer_tree(const Yaml& root, int samples) {
    root.allow({"samples", "layers", "workload"});
    const Yaml layers = root["layers"];
    const bool says_samples = root["samples"].present();
    const int for_samples = static_cast<int>(root["samples"].integer(samples, 1, kMostPerMicrobatch));
    LayerReader reader(root.source().name(), for_samples);
    const std::vector<Yaml> items = layers.items();
    if (items.empty() && root.source().clean())
        root.complain("the file lists no layers", "write layers: [{name: conv1, forward: 3 ms, backward: 6 ms}, ...]");
    if (items.size() > kMostLayers)
        layers.complain(fmt::format("more than {} layers", kMostLayers), "join layers");
    else
        for (const Yaml& layer : items)
            reader.read(layer);
    root.source().throw_if_mistaken();
    ProfiledModel result = reader.take();
    result.says_samples = says_samples || !reader.needs_samples();
    try {
        set_frozen(result.model.layers, {});
    } catch (const Error& error) {
        layers.complain(error.fact(), "remove frozen: true from a layer with weights");
        root.source().throw_if_mistaken();
    }
    return result;
}

ProfiledModel read_layer_yaml(std::shared_ptr<Source> source, int samples) {
    const Yaml root = Yaml::parse(std::move(source));
    if (root["workload"].present())
        root["workload"].complain("this is a configuration, not a layer graph",
                                  "name a file with {samples: 8, layers: [...]}");
    return read_layer_tree(root, samples);
}

}  // namespace pw
