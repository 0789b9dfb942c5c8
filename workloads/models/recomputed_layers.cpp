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

void set_recomputed(LayerGraph& graph, const std::vector<std::string>& patterns) {
    const auto [first, last] = vertices(graph);
    for (const std::string& pattern : patterns)
        if (std::none_of(first, last, [&](auto layer) { return matches(graph[layer].name, pattern); }))
            fail("no layer is called '{}'", pattern);
    for (auto layer = first; layer != last; ++layer)
        graph[*layer].recomputed = patterns.empty() || std::ranges::any_of(patterns, [&](const std::string& pattern) {
                                       return matches(graph[*layer].name, pattern);
                                   });
}

}  // namespace pw
