#include "job/config/given.h"

#include "job/config/blocks.h"

#include <algorithm>
#include <cctype>
#include <cstring>
#include <filesystem>
#include <functional>
#include <vector>

namespace pw {
namespace {

// Text such as "8", "0.5" or "10 GB/s", which every YAML reader takes as one scalar.
bool is_quantity(const std::string& text) {
    const auto harmless = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) || std::strchr("./-+ ", c); };
    return !text.empty() && std::isdigit(static_cast<unsigned char>(text[0])) && text.back() != ' ' &&
           std::all_of(text.begin(), text.end(), [&](char c) { return c != '\0' && harmless(c); });
}

std::string on_one_line(const Yaml& value, const std::function<std::string(const std::string&)>& changed) {
    std::vector<std::string> parts;
    if (value.is_list()) {
        for (const Yaml& item : value.items())
            parts.push_back(on_one_line(item, changed));
        return fmt::format("[{}]", fmt::join(parts, ", "));
    }
    if (value.is_map()) {
        for (const auto& [key, item] : value.entries())
            parts.push_back(fmt::format("{}: {}", quoted(key), on_one_line(item, changed)));
        return fmt::format("{{{}}}", fmt::join(parts, ", "));
    }
    if (!value.present())
        return "null";
    const std::string text = changed(value.text());
    return is_quantity(text) ? text : quoted(text);
}

}  // namespace

std::string flow_text(const Yaml& value) {
    return on_one_line(value, [](const std::string& text) { return text; });
}

std::string print_given(const Yaml& root, const Config& config, const std::string& from, const std::string& to) {
    const auto moved = [&](const std::string& text) {
        const std::string path = absolute_path(from, text);
        const bool is_path = std::ranges::find(config.paths, path) != config.paths.end();
        return is_path && std::filesystem::path(text).is_relative()
                   ? std::filesystem::path(path).lexically_proximate(std::filesystem::absolute(to)).string()
                   : text;
    };
    std::string printed;
    for (const auto& [block, keys] : root.entries()) {
        if (!keys.is_map()) {
            printed += fmt::format("{}: {}\n", quoted(block), on_one_line(keys, moved));
            continue;
        }
        printed += fmt::format("{}:\n", quoted(block));
        for (const auto& [key, value] : keys.entries())
            printed += fmt::format("  {}: {}\n", quoted(key), on_one_line(value, moved));
    }
    return printed;
}

}  // namespace pw
