// Metis's profile of a chain of layers: one file for each number of samples, which is in the file's name
// (`DeviceType.A100_tp1_bs4.json`). A layer has one time, for its forward and backward together.
#include "workloads/costs/profiled_layers.h"
#include "workloads/text/yaml.h"

#include <charconv>
#include <cmath>
#include <filesystem>
#include <optional>

namespace pw {
namespace {

constexpr int kForwardParts = 3;  // of the whole: a backward takes twice as long as its forward

// Returns the number after "_bs" in the file's name.
std::optional<int> samples_in_name(const std::string& path) {
    const std::string name = std::filesystem::path(path).stem().string();
    const std::size_t at = name.rfind("_bs");
    if (at == std::string::npos)
        return {};
    int samples = 0;
    const char* const from = name.data() + at + 3;
    const auto [end, error] = std::from_chars(from, name.data() + name.size(), samples);
    const bool whole = error == std::errc() && end == name.data() + name.size();
    return whole && samples > 0 && samples <= 1'000'000 ? std::optional(samples) : std::nullopt;
}

PassTimes times_of(const Yaml& whole, Bytes weights) {
    PassTimes times;
    const auto all = static_cast<Ns>(std::llround(whole.number(0, 0, kLongestLayer / 1e6) * 1e6));
    times.forward = std::llround(static_cast<double>(all) / kForwardParts);
    times.backward = all - times.forward;
    share_backward(times, weights);
    return times;
}

}  // namespace

ProfiledModel read_metis_json(std::shared_ptr<Source> source, int samples) {
    const Yaml root = Yaml::parse(std::move(source));
    const Yaml times = root["execution_time"]["layer_compute_total_ms"];
    const Yaml sizes = root["model"]["parameters"]["parameters_per_layer_bytes"];
    const std::vector<Yaml> time_of = times.items(), weights_of = sizes.items();
    if (root.source().clean() && (time_of.empty() || time_of.size() > kMostLayers))
        times.complain(fmt::format("the file has times of {} layers", time_of.size()),
                       fmt::format("a model has 1 to {}", kMostLayers));
    if (root.source().clean() && weights_of.size() != time_of.size())
        sizes.complain(
            fmt::format("'{}' has {} values, but there are {} layers", sizes.path(), weights_of.size(), time_of.size()),
            fmt::format("write one for each of '{}'", times.path()));
    root.source().throw_if_mistaken();
    const std::optional<int> named = samples_in_name(root.source().name());
    ProfiledModel result = empty_profiled_model(root.source().name());
    result.says_samples = named.has_value();
    for (std::size_t layer = 0; layer < time_of.size(); ++layer) {
        const auto weights = static_cast<Bytes>(weights_of[layer].integer(0, 0, kLargestLayer));
        const std::vector<int> inputs = layer == 0 ? std::vector<int>{} : std::vector{static_cast<int>(layer) - 1};
        add_profiled_layer(result, fmt::format("l{}", layer), inputs,
                           {{named.value_or(samples), times_of(time_of[layer], weights)}}, {.weights = weights},
                           named.value_or(samples));
    }
    root.source().throw_if_mistaken();
    result.profile.notes.push_back(
        fmt::format("{} has one time for each layer: a third of it is taken for the forward; the sizes of outputs and "
                    "activations are not in it: transfers and activations count 0 bytes",
                    result.model.name));
    return result;
}

}  // namespace pw
