#include "job/config/read.h"

#include "job/config/blocks.h"
#include "job/config/other_names.h"

#include <filesystem>
#include <map>
#include <utility>

namespace pw {
namespace {

constexpr std::string_view kSweep = "sweep";

void collect_places(const Yaml& at, std::map<std::string, Place>& places) {
    if (!at.path().empty())
        places[at.path()] = at.place();
    if (at.is_map())
        for (const auto& [key, value] : at.entries())
            collect_places(value, places);
    if (at.is_list())
        for (const Yaml& item : at.items())
            collect_places(item, places);
}

std::vector<std::string_view> names_of_blocks() {
    std::vector<std::string_view> names;
    for (const ConfigBlock& block : config_blocks())
        names.push_back(block.name);
    names.push_back(kSweep);
    return names;
}

void refuse_keys_of_gpus(const Yaml& root, const Config& config) {
    for (const ConfigBlock& block : config_blocks())
        for (const ConfigKey& key : block.keys)
            if (const Yaml at = root[block.name][key.name];
                (key.limit.is_for == kOnGpus.is_for || key.limit.is_for == kPrecisions.is_for) && !key.is_for(config) &&
                at.present())
                at.complain(fmt::format("'{}' is for run.backend {}, not {}", at.path(), key.limit.words(key.name),
                                        name_of(config.run.backend)),
                            fmt::format("remove the key, or set run.backend: {}", kOnGpus.words(key.name)));
}

void refuse_two_precisions(const Yaml& root) {
    const Yaml at = root["training"]["precision"], earlier = root["run"]["precision"];
    if (at.present() && earlier.present())
        earlier.complain(fmt::format("'{}' is the earlier name of '{}', which is set, too", earlier.path(), at.path()),
                         fmt::format("remove {}", earlier.path()));
}

}  // namespace

std::span<const ConfigBlock> config_blocks() {
    static const ConfigBlock blocks[] = {workload_block(), cluster_block(),     parallel_block(),
                                         pipeline_block(), training_block(),    run_block(),
                                         transfer_block(), calibration_block(), search_block()};
    return blocks;
}

std::string absolute_path(const std::string& folder, const std::string& path) {
    return path.empty() ? path : (std::filesystem::path(folder) / path).lexically_normal().string();
}

std::string KeyReading::path_of(const std::string& text) {
    std::string path = absolute_path(folder, text);
    if (!path.empty())
        paths.push_back(path);
    return path;
}

void not_in_this_version(const Yaml& at, const std::string& what, const std::string& help) {
    at.complain(fmt::format("{} is not in this version", what), help);
}

void read_block(const ConfigBlock& block, const Yaml& at, Config& config, KeyReading& reading) {
    read_keys(block.keys, at, config, reading, other_names());
    if (block.finish != nullptr)
        block.finish(at, config, reading);
}

WrittenConfig read_config(std::shared_ptr<Source> source, const std::string& folder,
                          const std::vector<std::string>& set) {
    WrittenConfig written{Yaml::parse(std::move(source), set), {}, {}};
    const Yaml& root = written.root;
    Config& config = written.config;
    root.allow(names_of_blocks(), other_names());
    KeyReading reading{folder, written.claims};
    for (const ConfigBlock& block : config_blocks())
        read_block(block, root[block.name], config, reading);
    config.paths = std::move(reading.paths);
    refuse_keys_of_gpus(root, config);
    refuse_two_precisions(root);
    config.sweep = read_sweep(root[kSweep]);
    if (facts_of(config.training.optimizer).other && !is_transformer(config))
        root["training"]["optimizer"].complain(
            fmt::format("{} has other states for matrices, and only transformers say which parameters are matrices",
                        name_of(config.training.optimizer)),
            "write optimizer: adamw, or name a transformer as workload.model");
    if (config.training.zero > 0 && !has_parts(config.sums))
        root["transfer"]["sums"].complain("a tree sums no parts, and replicas divide the optimizer (training.zero)",
                                          "write sums: ring or sums: two_level, or zero: 0");

    for (const ConfigBlock& block : config_blocks())
        for (const ConfigKey& key : block.keys)
            if (const Yaml at = root[block.name][key.name];
                key.value.path != nullptr && at.is_text() && std::filesystem::path(at.text()).is_absolute())
                config.absolute.insert(at.path());
    config.source = root.shared_source();
    collect_places(root, config.places);
    if (const auto earlier = config.places.find("run.precision"); earlier != config.places.end())
        config.places["training.precision"] = earlier->second;
    return written;
}

}  // namespace pw
