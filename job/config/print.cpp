#include "job/config/blocks.h"

#include <algorithm>
#include <cctype>
#include <cstring>
#include <filesystem>

namespace pw {

std::string quoted(const std::string& text) {
    const auto harmless = [](char c) {
        return std::isalnum(static_cast<unsigned char>(c)) || std::strchr("_./-+ ", c);
    };
    const bool plain = !text.empty() && std::isalpha(static_cast<unsigned char>(text[0])) && text.back() != ' ' &&
                       std::all_of(text.begin(), text.end(), [&](char c) { return c != '\0' && harmless(c); }) &&
                       text != "null" && text != "Null" && text != "NULL";
    if (plain || (text.size() > 1 && text[0] == '/' && text.find_first_of(" :#,[]{}\"'\\\n\r\t") == std::string::npos))
        return text;
    std::string result = "\"";
    for (const char c : text) {
        if (c == '"' || c == '\\')
            result += '\\';
        if (static_cast<unsigned char>(c) < 0x20)
            result += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
        else
            result += c;
    }
    return result + '"';
}

namespace {

std::string print_blocks(const Config& config) {
    const Config usual;
    std::string out;
    for (const ConfigBlock& block : config_blocks()) {
        if (block.shown == BlockShown::IfGiven && !config.places.contains(std::string(block.name)))
            continue;
        std::string keys;
        print_keys(block.keys, config, usual, [&](std::string_view key, const std::string& text) {
            keys += fmt::format("  {}:{}{}\n", key, text.front() == '\n' ? "" : " ", text);
        });
        if (block.shown != BlockShown::IfSet || !keys.empty())
            out += fmt::format("{}:\n{}", block.name, keys);
    }
    return out;
}

}  // namespace

std::string print_config(const Config& config) {
    if (!is_transformer(config))
        return print_blocks(config);
    Config of_ranks = config;
    of_ranks.cluster.devices = config.parallel.ranks->devices;  // as the file has them
    return print_blocks(of_ranks);
}

Config config_of(const Setup& setup) {
    Config config;
    static_cast<Setup&>(config) = setup;
    config.search.mini_batch = setup.pipeline.mini_batch;
    return config;
}

std::string print_setup(const Setup& setup) {
    Config config = config_of(setup);
    if (setup.workload.profile_batch == 0)
        config.places.erase("search");
    return print_config(config);
}

Setup with_paths_from(const Setup& setup, const std::string& folder) {
    Config config = config_of(setup);
    const auto from = std::filesystem::absolute(folder).lexically_normal();
    for (const ConfigBlock& block : config_blocks())
        for (const ConfigKey& key : block.keys) {
            if (key.value.path == nullptr || config.absolute.contains(fmt::format("{}.{}", block.name, key.name)))
                continue;
            std::string& text = *key.value.path(config);  // the name of a model or a schedule is not a path
            if (std::filesystem::path(text).is_absolute())
                text = std::filesystem::path(text).lexically_proximate(from).string();
        }
    return config;
}

}  // namespace pw
