#include "workloads/models/recomputed_layers.h"

#include "workloads/error.h"

#include <algorithm>

namespace pw {

bool matches(std::string_view name, std::string_view pattern) {
    // On a mismatch the latest '*' takes one character more.
    std::size_t at = 0, of_pattern = 0, after_star = pattern.npos, taken = 0;
    while (at < name.size()) {
        if (of_pattern == pattern.size() && name[at] == '.')
            return true;
        if (of_pattern < pattern.size() && pattern[of_pattern] == '*') {
            after_star = ++of_pattern;
            taken = at;
        } else if (of_pattern < pattern.size() && pattern[of_pattern] == name[at]) {
            ++at, ++of_pattern;
        } else if (after_star != pattern.npos) {
            of_pattern = after_star;
            at = ++taken;
        } else {
            return false;
        }
    }
    return pattern.find_first_not_of('*', of_pattern) == pattern.npos;
}

namespace {

bool matches_any(std::string_view name, const std::vector<std::string>& patterns) {
    return patterns.empty() ||
           std::ranges::any_of(patterns, [&](const std::string& pattern) { return matches(name, pattern); });
}

void refuse_unknown(const LayerGraph& graph, const std::vector<std::string>& patterns) {
    const auto [first, last] = vertices(graph);
    for (const std::string& pattern : patterns)
        if (std::none_of(first, last, [&](auto layer) { return matches(graph[layer].name, pattern); }))
            fail("no layer is called '{}'", pattern);
}

}  // namespace

void set_recomputed(LayerGraph& graph, const std::vector<std::string>& patterns) {
    refuse_unknown(graph, patterns);
    for (const auto layer : boost::make_iterator_range(vertices(graph)))
        graph[layer].recomputed = matches_any(graph[layer].name, patterns);
}

void set_offloaded(LayerGraph& graph, const std::vector<int>& layers, const std::vector<std::string>& patterns) {
    refuse_unknown(graph, patterns);
    for (const int number : layers)
        if (Layer& layer = graph[static_cast<std::size_t>(number)]; matches_any(layer.name, patterns)) {
            layer.offloaded = true;
            layer.recomputed = false;
        }
}

}  // namespace pw
